//! The end that buffers are handed to.

use std::fmt;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytemuck::Pod;

use super::borrower::{Borrowed, ImporterSide, Mapped};
use super::core::{deadline_in, in_time, Answer, Core, State};
use super::ended::Why;
use super::exporter::Greeting;
use super::frame::{Farewell, Lend};
use super::handle::Handle;
use super::signals::{reachable, usable};
use super::{Options, Violation};
use crate::current::CurrentDevice;
use crate::ipc::registry::Mapping;
use crate::ipc::{Error, ImportedBuffer, PointerBlob, Result};
use crate::{Device, Stream};

/// The importer's end of a session: gets buffers of another process.
///
/// See [the module](crate::ipc) for the whole picture. Buffers that it gave keep the session open until they are given
/// back.
///
/// As [`AsFd`] it gives the socket, to be polled for reading before [`try_recv`](Self::try_recv). It does not tell that
/// an exporter will send nothing more but keeps its end open, as long as it has buffers of the session: ask now and
/// then.
pub struct Importer {
    handle: Arc<Handle<ImporterSide>>,
    stream: Stream,
}

/// What to do about memory that is still to be unmapped from when it was another buffer's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnUnmapping {
    /// It cannot be received yet.
    IsPending,
    /// It can: to import it waits.
    Waits,
}

impl Importer {
    /// Starts a session on a connected socket. What it receives will belong to `stream`. Does not wait for the exporter.
    ///
    /// # Errors
    /// [`Error::Cuda`] for a per-thread stream, [`Error::Io`] when the system refuses.
    pub fn new(socket: UnixStream, stream: &Stream) -> Result<Self> {
        Self::with_options(socket, stream, &Options::default())
    }

    /// As [`new`](Self::new), with choices.
    ///
    /// # Errors
    /// As there.
    pub fn with_options(socket: UnixStream, stream: &Stream, options: &Options) -> Result<Self> {
        usable(stream)?;
        let side = ImporterSide::new(stream.device());
        let handle = Core::start(socket, options, None, side, Vec::new())?;
        Ok(Self { handle, stream: stream.clone() })
    }

    /// Waits for the next buffer. `None` when the exporter has said that nothing more will come.
    ///
    /// The GPU's work in front of it is not waited for: the buffer's stream does that. (But memory that this process is
    /// still to unmap, when it is freed by the exporter and handed over as another buffer's, is waited for.)
    ///
    /// # Errors
    /// [`Error::PeerGone`] or [`Error::PeerLeft`] when the exporter has ended without a word; [`Error::Violation`],
    /// [`Error::UnknownDevice`]; [`Error::OtherElements`], after which the buffer is on its way back; or [`Error::Cuda`],
    /// when the memory cannot be mapped (after which it is on its way back, too), or while the stream is being captured
    /// (after which it can still be received).
    pub fn recv<T: Pod>(&self) -> Result<Option<ImportedBuffer<T>>> {
        in_time(self.recv_until(None, OnUnmapping::IsPending)?)
    }

    /// As [`recv`](Self::recv), but not for ever.
    ///
    /// # Errors
    /// As there, and [`Error::TimedOut`].
    pub fn recv_timeout<T: Pod>(&self, timeout: Duration) -> Result<Option<ImportedBuffer<T>>> {
        in_time(self.recv_until(deadline_in(timeout), OnUnmapping::IsPending)?)
    }

    /// As [`recv`](Self::recv), but does not wait.
    ///
    /// On a machine without stream memory operations, a buffer whose data is not there yet is pending, and the socket
    /// does not tell when that changes: try again after a while. Memory that this process is still to unmap is waited
    /// for here as well, as the socket would not tell of that either.
    ///
    /// # Errors
    /// As there.
    pub fn try_recv<T: Pod>(&self) -> Result<Poll<Option<ImportedBuffer<T>>>> {
        self.recv_until(Some(Instant::now()), OnUnmapping::Waits)
    }

    /// Ends the session as dropping does, and waits until all that it took is given back. A process that ends without
    /// having waited takes along what its streams have not got to: to the exporter that is [`Error::Abandoned`].
    ///
    /// While a stream that the session has used is being captured, not all is given back: a thread that captures must
    /// end that first.
    ///
    /// # Errors
    /// [`Error::InUse`] when buffers of the session are still there: it ends with the last of them.
    pub fn close(self) -> Result<()> {
        let handle = Arc::clone(&self.handle);
        drop(self);
        handle.close()
    }

    /// Ends the session at once, as if the exporter had gone.
    pub fn abort(&self) {
        self.handle.abort();
    }

    fn recv_until<T: Pod>(
        &self,
        deadline: Option<Instant>,
        on_unmapping: OnUnmapping,
    ) -> Result<Poll<Option<ImportedBuffer<T>>>> {
        let core = &*self.handle;
        let started = Instant::now();
        let waits_for_unmapping = || on_unmapping == OnUnmapping::IsPending && started.elapsed() < Mapping::PATIENCE;
        let offered = core.wait_for(deadline, |state| {
            if state.farewell == Some(Farewell::Done) && state.side.offers.is_empty() {
                return Ok(Answer::Ready(None));
            }
            core.alive(state)?;
            let Some(offer) = state.side.offers.front() else { return Ok(Answer::OnFrame) };
            // While it cannot be received, it stays for another try.
            usable(&self.stream)?;
            let turn = offer.turn;
            if !core.may_go_on(turn) {
                core.note_wait(state, turn);
                Ok(Answer::OnWord)
            } else if waits_for_unmapping() && ImporterSide::is_unmapping(offer) {
                Ok(Answer::OnWord)
            } else {
                Ok(Answer::Ready(state.side.offers.pop_front()))
            }
        })?;
        Ok(match offered {
            Poll::Ready(Some(offer)) => Poll::Ready(Some(self.accept(offer)?)),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    }

    fn accept<T: Pod>(&self, offer: Lend) -> Result<ImportedBuffer<T>> {
        let core = &*self.handle;
        if let Some(fresh) = &offer.fresh {
            let mapped = self.map(&fresh.blob);
            let mut state = core.lock();
            let mapping = match mapped {
                Ok(mapping) => mapping,
                Err(error) => {
                    core.give_back_unused(&mut state, offer.turn, false);
                    return Err(error);
                }
            };
            let fits = mapping.size() as u64 == fresh.range;
            let mapped = Mapped { mapping, blob: fresh.blob, stream: self.stream.clone(), passing: fresh.passing };
            state.side.keep(offer.turn.slot, mapped);
            if !fits {
                core.end(&mut state, Why::Violation(Violation::Extent));
            }
            if let Err(error) = core.alive(&state) {
                core.give_back_unused(&mut state, offer.turn, true);
                return Err(error);
            }
        }
        let mut state = core.lock();
        let (pointer, length) = match self.enqueue(&mut state, &offer) {
            Ok(elements) => elements,
            Err(error) => {
                core.give_back_unused(&mut state, offer.turn, true);
                return Err(error);
            }
        };
        let borrowed = Borrowed { session: Arc::clone(&self.handle), turn: offer.turn, tag: offer.tag };
        Ok(ImportedBuffer::of_session(pointer, length, self.stream.clone(), borrowed))
    }

    /// Finds the elements of a buffer whose memory is mapped, and has the stream wait for them.
    fn enqueue<T: Pod>(&self, state: &mut State<ImporterSide>, offer: &Lend) -> Result<(NonNull<T>, usize)> {
        let core = &*self.handle;
        core.alive(state)?;
        let mapped = state.side.mapped(offer.turn.slot).ok_or(Violation::OutOfTurn("memory that is not mapped"))?;
        let extent = (usize::try_from(offer.offset), usize::try_from(offer.bytes));
        let (Ok(offset), Ok(bytes)) = extent else { return Err(Violation::Extent.into()) };
        if offset.checked_add(bytes).map_or(true, |end| end > mapped.mapping.size()) {
            core.end(state, Why::Violation(Violation::Extent));
            return Err(Violation::Extent.into());
        }
        let elements = mapped.mapping.elements(offset, bytes).filter(|_| offer.element as usize == size_of::<T>());
        let elements = elements.ok_or(Error::OtherElements { theirs: offer.element as usize, ours: size_of::<T>() })?;
        core.enqueue_wait(state, &self.stream, offer.turn.slot, offer.turn.generation)?;
        Ok(elements)
    }

    fn map(&self, blob: &PointerBlob) -> Result<Mapping> {
        let (pool, place) = {
            let state = self.handle.lock();
            let pool = state.side.pool.as_ref().map(|source| source.pool.clone());
            (pool.ok_or(Violation::OutOfTurn("memory of a pool that was not sent"))?, state.side.place)
        };
        let device = place.and_then(|(_, device)| device).unwrap_or(self.stream.device());
        let _current = CurrentDevice::set(device)?;
        Ok(Mapping::import(&pool, blob, &self.stream)?)
    }

    /// What a session that hands on starts with.
    pub(super) fn greeting(&self) -> Result<(Greeting, Device)> {
        reachable()?;
        let state = self.handle.lock();
        self.handle.alive(&state)?;
        let (Some((place, _)), Some(source)) = (state.side.place, &state.side.pool) else {
            return Err(Error::ForeignMemory);
        };
        let fd = source.fd.try_clone()?;
        let greeting = Greeting { place, fd, origin: source.origin, number: source.number };
        Ok((greeting, self.stream.device()))
    }
}

impl AsFd for Importer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.socket.as_fd()
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        if crate::teardown::forked() {
            return;
        }
        let mut state = self.handle.lock();
        state.side.refusing = true;
        while let Some(offer) = state.side.offers.pop_front() {
            self.handle.give_back_unused(&mut state, offer.turn, offer.fresh.is_none());
        }
        drop(state);
        self.handle.leave();
    }
}

impl fmt::Debug for Importer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Importer").field("stream", &self.stream).finish_non_exhaustive()
    }
}
