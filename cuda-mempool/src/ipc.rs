//! Memory shared between processes.
//!
//! # Sessions
//!
//! An [`Exporter`] in one process and an [`Importer`] in another sit on the two ends of a Unix socket that the program
//! has made, by [`UnixStream::pair`](std::os::unix::net::UnixStream::pair) or at a path. The exporter lends
//! [`DeviceBuffer`](crate::DeviceBuffer)s of one pool; the importer gets them and gives them back:
//!
//! ```no_run
//! # pub fn exporter(socket: std::os::unix::net::UnixStream, device: cuda_mempool::Device)
//! #     -> cuda_mempool::ipc::Result<()> {
//! use cuda_mempool::{ipc::Exporter, HandleTypes, MemPool, Stream};
//!
//! let stream = Stream::new(device)?;
//! let pool = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).build()?;
//! let exporter = Exporter::new(socket, &pool)?;
//! let buffer = pool.from_slice(&stream, &[1_u32, 2, 3])?;
//! let lease = exporter.send(buffer).map_err(|(_buffer, error)| error)?;
//! let mut buffer = lease.wait()?; // ours again, behind what the importer does with it
//! buffer.as_slice_mut().zero()?;
//! let lease = exporter.send(buffer).map_err(|(_buffer, error)| error)?; // maps nothing anew
//! # drop(lease);
//! # Ok(()) }
//! ```
//!
//! ```no_run
//! # pub fn importer(socket: std::os::unix::net::UnixStream, device: cuda_mempool::Device)
//! #     -> cuda_mempool::ipc::Result<()> {
//! use cuda_mempool::{ipc::Importer, Stream};
//!
//! let stream = Stream::new(device)?;
//! let importer = Importer::new(socket, &stream)?;
//! while let Some(buffer) = importer.recv::<u32>()? {
//!     println!("{:?}", buffer.to_vec()?);
//! } // dropped: on its way back
//! # Ok(()) }
//! ```
//!
//! A session goes one way. For both ways, open two, on two sockets. A pool can be shared in any number of sessions, and
//! a [`Forwarder`] hands on to a third process.
//!
//! **Order.** Nothing waits for the GPU. The importer's stream waits for the exporter's work on the buffer, and the
//! exporter's stream, once the buffer is back, for the importer's: by words in shared memory that the streams themselves
//! write and wait for. Where the driver has no such operations, the host waits, in `recv` and `wait`.
//!
//! **Deaths.** When a peer ends, however it ends, streams that wait for it go on within a second, leases end with an
//! error, and the memory is given back when the peer's process is known to have ended. Data whose making was cut short
//! is marked: [`ImportedBuffer::confirm`] and [`SharedBuffer::confirm`] tell. A peer that lives but never does its part
//! is given up after [`Options::stall_timeout`]; for one that just keeps a buffer there is [`Lease::wait_timeout`], and
//! [`Exporter::abort`].
//!
//! **Trust.** All that a peer sends is checked before it is used, and a peer that breaks the protocol gets no second
//! frame in. But shared memory is shared: a peer can change the data of a buffer that it has mapped at any time, and
//! keep it mapped in secret, also when the pool has given the memory out again. And whose pool it is that a peer sends
//! is what it says: one that has a session with another process can pass its own off as that one's, to a third.
//!
//! What a session takes: both processes see the same device (by its UUID, whatever its ordinal), a driver and bindings of
//! CUDA 12.5 or newer, and sockets that carry descriptors. It makes one thread per end, and works across process
//! namespaces and after `fork` with `exec`. A process cannot have a session with itself. In a container, under a server of
//! the host that shares the GPU (MPS), CUDA itself was reported to crash in its first call without `--ipc=host`.
//!
//! # Parts
//!
//! With a transport of one's own, and an order of one's own:
//! [`MemPool::export_fd`](crate::MemPool::export_fd) and [`export_fabric`](crate::MemPool::export_fabric),
//! [`ImportedPool`], [`DeviceBuffer::export_pointer`](crate::DeviceBuffer::export_pointer) and
//! [`ImportedPool::import`], [`Event::ipc_handle`](crate::Event::ipc_handle) and [`Event::open_ipc`](crate::Event::open_ipc),
//! [`Device::uuid`](crate::Device::uuid). For memory of `cudaMalloc` there are [`LegacyBuffer`] and [`LegacyImport`].

mod buffer;
mod driver;
mod error;
mod event;
mod handles;
mod legacy;
mod pool;
mod registry;
mod session;

pub use self::buffer::ImportedBuffer;
pub use self::error::{Error, Result};
pub use self::handles::{EventHandle, FabricHandle, MemHandle, PointerBlob};
pub use self::legacy::{LegacyBuffer, LegacyHandle, LegacyImport};
pub use self::pool::{ImportedPool, PointerExport};
pub use self::session::{Exporter, Farewell, Forwarder, Importer, Lease, Loan, Options, SharedBuffer, Violation};

/// The protocol, for tests and fuzzers. Not for use, and not stable.
#[doc(hidden)]
pub mod protocol {
    pub use super::session::{book, frame, nonce};
}
