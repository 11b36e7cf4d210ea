//! Why and how far a session is over.

use std::io;
use std::time::Instant;

use super::frame::Farewell;
use super::wire::WireError;
use super::Violation;
use crate::ipc::Error;

/// The end of a session.
#[derive(Debug)]
pub(super) struct Ended {
    pub why: Why,
    pub at: Instant,
    /// Streams that waited for the peer go on.
    pub rescued: bool,
    /// What the peer was using is given up.
    pub buried: bool,
}

/// Why a session ended, for everybody who asks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Why {
    Gone,
    Left(Farewell),
    Violation(Violation),
    /// The peer's work did not come to its end in time.
    Stalled,
    UnknownDevice([u8; 16]),
    Cuda(cuda_mempool_sys::cudaError_t, &'static str),
    Io(Option<i32>),
    /// This end has ended it.
    Aborted,
}

impl Why {
    pub(super) fn to_error(self) -> Error {
        match self {
            Self::Gone | Self::Aborted => Error::PeerGone,
            Self::Left(farewell) => Error::PeerLeft(farewell),
            Self::Violation(violation) => Error::Violation(violation),
            Self::Stalled => Error::TimedOut,
            Self::UnknownDevice(uuid) => Error::UnknownDevice(uuid),
            Self::Cuda(code, function) => Error::Cuda(crate::Error::failed(code, function)),
            Self::Io(code) => Error::Io(code.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error)),
        }
    }

    pub(super) fn from_error(error: &Error) -> Self {
        match error {
            Error::Violation(violation) => Self::Violation(*violation),
            Error::UnknownDevice(uuid) => Self::UnknownDevice(*uuid),
            Error::Cuda(error) => Self::Cuda(error.raw(), error.function()),
            Error::Io(error) => Self::Io(error.raw_os_error()),
            _ => Self::Gone,
        }
    }

    /// What to tell the peer.
    pub(super) fn farewell(self) -> Farewell {
        match self {
            Self::Violation(Violation::OwnProcess) => Farewell::OwnProcess,
            Self::Violation(_) => Farewell::Violation,
            Self::UnknownDevice(_) => Farewell::UnknownDevice,
            _ => Farewell::Failed,
        }
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Closed => Self::PeerGone,
            WireError::Io(error) => Self::Io(error),
            WireError::Violation(violation) => Self::Violation(violation),
        }
    }
}
