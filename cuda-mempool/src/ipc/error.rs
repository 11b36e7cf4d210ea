//! What can go wrong between two processes.

use std::fmt;
use std::io;

use super::session::{Farewell, Violation};

/// The result of the functions of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure while sharing memory with another process.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// CUDA refused.
    Cuda(crate::Error),
    /// The system refused.
    Io(io::Error),
    /// The peer did something that it must not. The session has ended.
    Violation(Violation),
    /// The peer has ended, or has closed the session.
    PeerGone,
    /// The peer ended the session, and said why.
    PeerLeft(Farewell),
    /// The time was up.
    TimedOut,
    /// The peer ended or gave no sign before its work on the data was done: the data is not what it was to become.
    Abandoned,
    /// No device of this process has this UUID. `CUDA_VISIBLE_DEVICES` may hide it.
    UnknownDevice([u8; 16]),
    /// The memory is not of the pool that the session shares.
    ForeignMemory,
    /// The buffer has elements of another size, or its first is not aligned.
    OtherElements {
        /// The size of the elements that were sent, in bytes.
        theirs: usize,
        /// The size of the elements that were asked for, in bytes.
        ours: usize,
    },
    /// Buffers of the session are still in use.
    InUse,
    /// The session shares as many buffers as it can.
    Full,
    /// An empty buffer has no memory to share.
    Empty,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Violation(violation) => write!(f, "the peer cannot be trusted: {violation}"),
            Self::PeerGone => f.write_str("the peer has ended or closed the session"),
            Self::PeerLeft(farewell) => write!(f, "the peer has ended the session: {farewell}"),
            Self::TimedOut => f.write_str("the peer did not answer in time"),
            Self::Abandoned => f.write_str("the peer ended before its work on the data was done"),
            Self::UnknownDevice(uuid) => {
                f.write_str("this process cannot see the device ")?;
                uuid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Self::ForeignMemory => f.write_str("the memory is not of the pool that this session shares"),
            Self::OtherElements { theirs, ours } => {
                write!(f, "elements of {theirs} bytes were sent, and elements of {ours} bytes were asked for")
            }
            Self::InUse => f.write_str("buffers of the session are still in use"),
            Self::Full => f.write_str("the session shares as many buffers as it can"),
            Self::Empty => f.write_str("an empty buffer has no memory to share"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Cuda(error) => Some(error),
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        Self::Cuda(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Cuda(error) => return error.into(),
            Error::Io(error) => return error,
            Error::TimedOut => io::ErrorKind::TimedOut,
            Error::PeerGone | Error::PeerLeft(_) => io::ErrorKind::ConnectionAborted,
            Error::Violation(_) | Error::Abandoned => io::ErrorKind::InvalidData,
            Error::UnknownDevice(_) => io::ErrorKind::NotFound,
            Error::ForeignMemory | Error::OtherElements { .. } | Error::Empty => io::ErrorKind::InvalidInput,
            Error::InUse | Error::Full => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}
