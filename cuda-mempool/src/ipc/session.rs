//! Handing buffers from process to process over a socket, in the order of streams.

#[doc(hidden)]
pub mod book;
mod borrower;
mod core;
mod ended;
mod exporter;
#[doc(hidden)]
pub mod frame;
mod handle;
mod importer;
mod keeper;
mod lease;
mod lender;
#[doc(hidden)]
pub mod nonce;
mod origin;
mod page;
mod passages;
mod shared;
mod signals;
mod socket;
mod violation;
mod waker;
mod wire;

use std::time::Duration;

pub(super) use self::borrower::Borrowed;
pub use self::exporter::{Exporter, Forwarder};
pub use self::frame::Farewell;
pub use self::importer::Importer;
pub use self::lease::{Lease, Loan};
pub(super) use self::passages::Passages;
pub use self::shared::SharedBuffer;
pub use self::violation::Violation;

/// Choices for a session.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    stall_timeout: Option<Duration>,
    host_ordering: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { stall_timeout: Some(Duration::from_secs(60)), host_ordering: false }
    }
}

impl Options {
    /// How long a stream of this process may wait for the peer's stream, after the peer has said that its part is
    /// enqueued; and how long the peer may take to unmap memory that it is asked to, while it has no buffer of the
    /// session. When the time is up, the session ends as if the peer had gone. `None`: as long as the peer lives.
    ///
    /// By default a minute: more than that should be given to peers whose kernels run longer. It is looked at every
    /// tenth of a second.
    pub fn stall_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Leaves the stream memory operations unused: the host waits for the peer's work, in
    /// [`Importer::recv`] and [`Lease::wait`]. So it is in any case on machines that have no such operations.
    pub fn host_ordering(mut self, on: bool) -> Self {
        self.host_ordering = on;
        self
    }
}
