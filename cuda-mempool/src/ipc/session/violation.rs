//! How a peer can break the protocol.

use std::fmt;

/// What a peer did wrong. The session with it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// What it sent is no frame of this protocol.
    NotAFrame,
    /// It speaks another version.
    Version {
        /// Its version.
        theirs: u16,
    },
    /// A frame of an unknown kind.
    Kind(u16),
    /// This field has a value that cannot be.
    Field(&'static str),
    /// A frame was sent twice, left out, or comes from another session.
    Sequence {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// The peer is this very process: CUDA does not share memory with itself.
    OwnProcess,
    /// A frame of another process than the one that the session began with.
    Sender,
    /// A frame that makes no sense at this point.
    OutOfTurn(&'static str),
    /// A slot that does not exist.
    Slot(u32),
    /// A hand-over that is not the one going on.
    Generation {
        /// The slot.
        slot: u32,
        /// The generation that was due.
        expected: u32,
        /// The generation that came.
        found: u32,
    },
    /// Another number of file descriptors than belongs to the frame.
    Descriptors {
        /// How many belong to it.
        expected: usize,
        /// How many came, as far as they were counted.
        found: usize,
    },
    /// A file descriptor that is not what it should be.
    Descriptor(&'static str),
    /// The sizes do not fit the memory that the driver knows.
    Extent,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFrame => f.write_str("it sent something that is no frame of this protocol"),
            Self::Version { theirs } => {
                write!(f, "it speaks version {theirs} of the protocol, not {}", super::frame::VERSION)
            }
            Self::Kind(kind) => write!(f, "it sent a frame of the unknown kind {kind}"),
            Self::Field(field) => write!(f, "in a frame, {field} cannot be"),
            Self::Sequence { expected, found } => write!(f, "frame {expected} was due and {found} came"),
            Self::OwnProcess => f.write_str("it is this very process, and CUDA does not share memory with itself"),
            Self::Sender => f.write_str("a frame came from another process than the first"),
            Self::OutOfTurn(what) => write!(f, "out of turn: {what}"),
            Self::Slot(slot) => write!(f, "there is no slot {slot}"),
            Self::Generation { slot, expected, found } => {
                write!(f, "slot {slot} is at {expected} and a frame says {found}")
            }
            Self::Descriptors { expected, found } => {
                write!(f, "{found} file descriptors came with a frame that has {expected}")
            }
            Self::Descriptor(what) => write!(f, "a file descriptor is not {what}"),
            Self::Extent => f.write_str("a buffer is not within the memory that it names"),
        }
    }
}
