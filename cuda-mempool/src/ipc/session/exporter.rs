//! The end that hands buffers over.

use std::fmt;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytemuck::Pod;

use super::core::Core;
use super::frame::{Body, Fresh, Hello, Place, Turn};
use super::handle::Handle;
use super::lease::Lease;
use super::lender::{ExporterSide, Extent};
use super::nonce::Nonce;
use super::origin::PoolNumber;
use super::page::{Page, SLOTS};
use super::shared::SharedBuffer;
use super::signals::{reachable, Signals};
use super::Options;
use crate::ipc::{Error, ImportedBuffer, Importer, Result};
use crate::{Device, Location, MemPool};

/// The exporter's end of a session: hands buffers of one pool to another process, and gets them back.
///
/// See [the module](crate::ipc) for the whole picture. Dropping it tells the importer that nothing more will come;
/// buffers that are lent keep the session open until they are back, and those that are back until they are dropped, or
/// handed over in another session after this one has ended.
///
/// As [`AsFd`] it gives the socket, to be polled for reading. When it is readable, or has hung up, ask every
/// [`Lease`] whether it [is returned](Lease::is_returned) before polling again.
pub struct Exporter {
    handle: Arc<Handle<ExporterSide>>,
    pool: MemPool,
}

impl Exporter {
    /// Starts a session on a connected socket, for sharing buffers of `pool`, which must have been made with
    /// [`HandleTypes::POSIX_FD`](crate::HandleTypes::POSIX_FD). Does not wait for the importer.
    ///
    /// # Errors
    /// [`Error::Cuda`] when the pool cannot be exported or the driver lacks what a session needs, [`Error::Io`] when the
    /// system refuses.
    pub fn new(socket: UnixStream, pool: &MemPool) -> Result<Self> {
        Self::with_options(socket, pool, &Options::default())
    }

    /// As [`new`](Self::new), with choices.
    ///
    /// # Errors
    /// As there.
    pub fn with_options(socket: UnixStream, pool: &MemPool, options: &Options) -> Result<Self> {
        reachable()?;
        let (place, device) = match pool.location() {
            Location::Device(device) => (Place::Device(device.uuid()?), device),
            Location::HostNuma(node) => (Place::HostNuma(node), Device::current()?),
            other => return Err(cannot_share(other).into()),
        };
        let fd = pool.export_fd()?;
        let number = PoolNumber::of(pool);
        let greeting = Greeting { place, fd, origin: Nonce::of_this_process()?, number: number.get() };
        let handle = open(socket, options, device, greeting, Some(number))?;
        Ok(Self { handle, pool: pool.clone() })
    }

    /// Hands a buffer over: the importer's stream will wait for what is enqueued on the buffer's stream so far. Does not
    /// wait for anything.
    ///
    /// The first hand-over of a buffer has the importer map its memory. It stays mapped until the buffer is dropped, so
    /// handing it over again is cheap.
    ///
    /// # Errors
    /// Gives the buffer back. [`Error::PeerGone`] or [`Error::PeerLeft`] when nobody is there to take it,
    /// [`Error::ForeignMemory`] when it is not of the session's pool, [`Error::Full`] when 4096 buffers are shared,
    /// [`Error::Empty`]; [`Error::Cuda`] with [`ErrorKind::Capture`](crate::ErrorKind::Capture) on a stream that is
    /// being captured or [`ErrorKind::WrongThread`](crate::ErrorKind::WrongThread) on a per-thread stream.
    pub fn send<T: Pod + Send>(
        &self,
        buffer: impl Into<SharedBuffer<T>>,
    ) -> Result<Lease<SharedBuffer<T>>, (SharedBuffer<T>, Error)> {
        self.send_tagged(buffer, 0)
    }

    /// As [`send`](Self::send), with a number that the importer gets with the buffer.
    ///
    /// # Errors
    /// As there.
    pub fn send_tagged<T: Pod + Send>(
        &self,
        buffer: impl Into<SharedBuffer<T>>,
        tag: u64,
    ) -> Result<Lease<SharedBuffer<T>>, (SharedBuffer<T>, Error)> {
        let mut buffer = buffer.into();
        match buffer.lend(&self.handle, &self.pool, tag) {
            Ok(turn) => Ok(Lease::new(buffer, Arc::clone(&self.handle), turn)),
            Err(error) => Err((buffer, error)),
        }
    }

    /// Ends the session as dropping does, and waits until all that it took is given back. While a stream that it has
    /// used is being captured, that is not: a thread that captures must end that first.
    ///
    /// # Errors
    /// [`Error::InUse`] when leases or buffers of the session are still there: it ends with the last of them. The reason
    /// for which the session has ended before, if the importer has not given everything back.
    pub fn close(self) -> Result<()> {
        let handle = Arc::clone(&self.handle);
        drop(self);
        handle.close()
    }

    /// Ends the session at once, as if the importer had gone: leases end with errors, streams that wait for it go on.
    pub fn abort(&self) {
        self.handle.abort();
    }
}

impl AsFd for Exporter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.socket.as_fd()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.handle.leave();
    }
}

/// Hands on to a third process what an [`Importer`] got from another.
///
/// The third process maps the memory itself, and unmaps it when it gives it back: the buffer's owner is the first
/// process. If this one ends while the third uses a buffer, the first takes it back under the third.
pub struct Forwarder {
    handle: Arc<Handle<ExporterSide>>,
}

impl Forwarder {
    /// Starts a session on a connected socket, for buffers that come from `source`, which must have received one.
    ///
    /// # Errors
    /// [`Error::ForeignMemory`] when `source` has received nothing yet, or as [`Exporter::new`].
    pub fn new(socket: UnixStream, source: &Importer) -> Result<Self> {
        Self::with_options(socket, source, &Options::default())
    }

    /// As [`new`](Self::new), with choices.
    ///
    /// # Errors
    /// As there.
    pub fn with_options(socket: UnixStream, source: &Importer, options: &Options) -> Result<Self> {
        let (greeting, device) = source.greeting()?;
        Ok(Self { handle: open(socket, options, device, greeting, None)? })
    }

    /// Hands a buffer on, as [`Exporter::send`].
    ///
    /// # Errors
    /// Gives the buffer back, for the reasons given there.
    pub fn send<T: Pod + Send>(
        &self,
        mut buffer: ImportedBuffer<T>,
    ) -> Result<Lease<ImportedBuffer<T>>, (ImportedBuffer<T>, Error)> {
        match self.lend(&mut buffer) {
            Ok(turn) => Ok(Lease::new(buffer, Arc::clone(&self.handle), turn)),
            Err(error) => Err((buffer, error)),
        }
    }

    fn lend<T: Pod + Send>(&self, buffer: &mut ImportedBuffer<T>) -> Result<Turn> {
        reachable()?;
        let source = buffer.session().ok_or(Error::ForeignMemory)?.source().ok_or(Error::ForeignMemory)?;
        let extent = Extent {
            offset: buffer.as_ptr() as usize - source.start.as_ptr() as usize,
            bytes: buffer.size_in_bytes(),
            element: size_of::<T>(),
            tag: buffer.tag(),
        };
        let fresh = || Fresh { passing: true, range: source.range, blob: source.blob };
        buffer.passages().forget_what_is_over();
        let mut state = self.handle.lock();
        let slot = match buffer.passages().slot_in(&self.handle.core) {
            Some(slot) => slot,
            None => {
                self.handle.alive(&state)?;
                let slot = state.side.book.enter().ok_or(Error::Full)?;
                buffer.passages().add(Arc::clone(&self.handle.core), slot);
                slot
            }
        };
        self.handle.lend(&mut state, buffer.stream(), slot, &extent, fresh)
    }

    /// Ends the session as dropping does, and waits, as [`Exporter::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<()> {
        let handle = Arc::clone(&self.handle);
        drop(self);
        handle.close()
    }
}

impl AsFd for Forwarder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.socket.as_fd()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.handle.leave();
    }
}

/// What a session starts with.
pub(super) struct Greeting {
    pub place: Place,
    /// The pool.
    pub fd: OwnedFd,
    pub origin: Nonce,
    pub number: u64,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").finish_non_exhaustive()
    }
}

fn open(
    socket: UnixStream,
    options: &Options,
    device: Device,
    greeting: Greeting,
    shared: Option<PoolNumber>,
) -> Result<Arc<Handle<ExporterSide>>> {
    let (page, page_fd) = Page::create()?;
    let side = ExporterSide::new(shared, page_fd.try_clone()?, device);
    let Greeting { place, fd, origin, number } = greeting;
    let hello = Body::Hello(Hello { slots: SLOTS, place });
    let greeting = vec![(hello, Some(page_fd)), (Body::Pool { origin, number }, Some(fd))];
    Core::start(socket, options, Some(Signals::new(page)), side, greeting)
}

fn cannot_share(location: Location) -> crate::Error {
    let what = format!("memory at {location} cannot be shared; that of a device or of a NUMA node of the host can");
    crate::Error::unsupported("cudaMemPoolExportToShareableHandle", what)
}
