//! Memory shared between processes.
mod buffer;
mod driver;
mod error;
mod event;
mod handles;
mod pool;
mod registry;
mod session;

pub use self::buffer::ImportedBuffer;
pub use self::error::{Error, Result};
pub use self::handles::{EventHandle, FabricHandle, MemHandle, PointerBlob};
pub use self::pool::{ImportedPool, PointerExport};
pub use self::session::{Exporter, Farewell, Forwarder, Importer, Lease, Loan, Options, SharedBuffer, Violation};

/// The protocol, for tests and fuzzers. Not for use, and not stable.
#[doc(hidden)]
pub mod protocol {
    pub use super::session::{book, frame, nonce};
}
