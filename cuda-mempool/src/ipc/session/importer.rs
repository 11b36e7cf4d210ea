//! The end that buffers are handed to.

use std::collections::VecDeque;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytemuck::Pod;

use super::book::{unmapped, ExporterSaid, ImporterBook};
use super::core::{Answer, Core, Handle, Side, State, Why};
use super::exporter::{deadline_in, Greeting};
use super::frame::{Body, Farewell, Lend, Place, Turn};
use super::nonce::Nonce;
use super::origin;
use super::page::{Page, Word, SLOTS};
use super::signals::{usable, Signals};
use super::{Options, Violation};
use crate::current::CurrentDevice;
use crate::ipc::registry::Mapping;
use crate::ipc::{Error, ImportedBuffer, ImportedPool, PointerBlob, Result};
use crate::{Access, Device, ErrorKind, Stream};

/// The importer's end of a session: gets buffers of another process.
///
/// See [the module](crate::ipc) for the whole picture. Buffers that it gave keep the session open until they are given
/// back.
///
/// As [`AsFd`] it gives the socket, to be polled for reading before [`try_recv`](Self::try_recv).
pub struct Importer {
    handle: Arc<Handle<ImporterSide>>,
    stream: Stream,
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
        let side = ImporterSide {
            book: ImporterBook::new(SLOTS),
            device: stream.device(),
            place: None,
            pool: None,
            offers: VecDeque::new(),
            mapped: Vec::new(),
            refusing: false,
        };
        let handle = Core::start(socket, options, None, side, vec![(Body::Welcome, None)])?;
        Ok(Self { handle, stream: stream.clone() })
    }

    /// Waits for the next buffer. `None` when the exporter has said that nothing more will come.
    ///
    /// The GPU's work in front of it is not waited for: the buffer's stream does that.
    ///
    /// # Errors
    /// [`Error::PeerGone`] or [`Error::PeerLeft`] when the exporter has ended without a word; [`Error::Violation`],
    /// [`Error::UnknownDevice`]; [`Error::OtherElements`], after which the buffer is on its way back; or [`Error::Cuda`],
    /// when the memory cannot be mapped.
    pub fn recv<T: Pod>(&self) -> Result<Option<ImportedBuffer<T>>> {
        self.recv_until(None)
    }

    /// As [`recv`](Self::recv), but not for ever.
    ///
    /// # Errors
    /// As there, and [`Error::TimedOut`].
    pub fn recv_timeout<T: Pod>(&self, timeout: Duration) -> Result<Option<ImportedBuffer<T>>> {
        self.recv_until(deadline_in(timeout))
    }

    /// As [`recv`](Self::recv), but does not wait.
    ///
    /// On a machine without stream memory operations, a buffer whose data is not there yet is pending, and the socket
    /// does not tell when that changes: try again after a while.
    ///
    /// # Errors
    /// As there.
    pub fn try_recv<T: Pod>(&self) -> Result<Poll<Option<ImportedBuffer<T>>>> {
        match self.recv_until(Some(Instant::now())) {
            Ok(received) => Ok(Poll::Ready(received)),
            Err(Error::TimedOut) if self.handle.lock().ended.is_none() => Ok(Poll::Pending),
            Err(error) => Err(error),
        }
    }

    /// Ends the session as dropping does, and waits until all that it took is given back.
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
        self.handle.end(&mut self.handle.lock(), Why::Aborted);
    }

    fn recv_until<T: Pod>(&self, deadline: Option<Instant>) -> Result<Option<ImportedBuffer<T>>> {
        let core = &*self.handle;
        let offer = core.wait_for(deadline, |state| {
            if state.farewell == Some(Farewell::Done) && state.side.offers.is_empty() {
                return Ok(Answer::Ready(None));
            }
            core.alive(state)?;
            let Some(turn) = state.side.offers.front().map(|offer| offer.turn) else { return Ok(Answer::OnFrame) };
            if core.may_go_on(turn) {
                Ok(Answer::Ready(state.side.offers.pop_front()))
            } else {
                core.note_wait(state, turn);
                Ok(Answer::OnWord)
            }
        })?;
        offer.map(|offer| self.accept(offer)).transpose()
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
            if let Err(error) = core.alive(&state) {
                state.report(mapped.mapping.release(&self.stream));
                return Err(error);
            }
            state.side.keep(offer.turn.slot, mapped);
            if !fits {
                core.end(&mut state, Why::Violation(Violation::Extent));
                return Err(Violation::Extent.into());
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
        usable(&self.stream)?;
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

/// A hand-over that is going on, for the buffer that it brought.
pub(crate) struct Borrowed {
    session: Arc<Handle<ImporterSide>>,
    turn: Turn,
    tag: u64,
}

impl Borrowed {
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    /// Refuses streams that the buffer cannot be moved to.
    pub(crate) fn may_use(&self, stream: &Stream) -> Result<()> {
        Ok(usable(stream)?)
    }

    /// An error when the exporter was gone before the data was there.
    pub(crate) fn confirm(&self) -> Result<()> {
        match self.session.lock().is_abandoned(self.turn.slot) {
            true => Err(Error::Abandoned),
            false => Ok(()),
        }
    }

    /// The memory, for a third process.
    pub(crate) fn source(&self) -> Option<Source> {
        let state = self.session.lock();
        let mapped = state.side.mapped(self.turn.slot)?;
        Some(Source { start: mapped.mapping.start(), range: mapped.mapping.size() as u64, blob: mapped.blob })
    }

    /// Gives the buffer back behind what was enqueued on `stream`.
    pub(crate) fn give_back(self, stream: &Stream) -> crate::Result<()> {
        self.session.give_back(&mut self.session.lock(), self.turn, stream)
    }
}

/// Memory of another process.
pub(crate) struct Source {
    pub start: NonNull<u8>,
    pub range: u64,
    pub blob: PointerBlob,
}

/// The state of an importer.
pub(super) struct ImporterSide {
    book: ImporterBook,
    /// That of the stream that everything is received on.
    device: Device,
    /// Where the memory lies, and which device of this process that is.
    place: Option<(Place, Option<Device>)>,
    pool: Option<SourcePool>,
    offers: VecDeque<Lend>,
    /// By slot.
    mapped: Vec<Option<Mapped>>,
    /// Nobody will receive anything any more.
    refusing: bool,
}

/// The exporter's pool.
struct SourcePool {
    pool: ImportedPool,
    /// For handing it on.
    fd: OwnedFd,
    origin: Nonce,
    number: u64,
}

/// Memory of a slot, mapped.
struct Mapped {
    mapping: Mapping,
    blob: PointerBlob,
    /// Where it was used last.
    stream: Stream,
    /// To be unmapped when it is given back.
    passing: bool,
}

impl ImporterSide {
    fn mapped(&self, slot: u32) -> Option<&Mapped> {
        self.mapped.get(slot as usize)?.as_ref()
    }

    fn keep(&mut self, slot: u32, mapped: Mapped) {
        let index = slot as usize;
        if self.mapped.len() <= index {
            self.mapped.resize_with(index + 1, || None);
        }
        self.mapped[index] = Some(mapped);
    }

    fn take(&mut self, slot: u32) -> Option<Mapped> {
        self.mapped.get_mut(slot as usize)?.take()
    }
}

impl Side for ImporterSide {
    const AWAITED: Word = Word::Ready;

    fn hear(core: &Core<Self>, state: &mut State<Self>, body: Body, fd: Option<OwnedFd>) -> Result<()> {
        match (state.side.book.accept(&body)?, fd) {
            (ExporterSaid::Hello(hello), Some(fd)) => {
                let page = Page::open(fd.as_fd())?;
                let device = match hello.place {
                    Place::Device(uuid) => Some(Device::by_uuid(&uuid)?.ok_or(Error::UnknownDevice(uuid))?),
                    Place::HostNuma(_) => None,
                };
                state.side.place = Some((hello.place, device));
                core.set_signals(Signals::new(page, state.side.device, core.options.host_ordering));
            }
            (ExporterSaid::Pool { origin, number }, Some(fd)) => {
                let pool = origin::imported(origin, number, || {
                    let pool = ImportedPool::import_fd(fd.as_fd())?;
                    state.side.grant(&pool)?;
                    Ok::<_, Error>(pool)
                })?;
                state.side.pool = Some(SourcePool { pool, fd, origin, number });
            }
            (ExporterSaid::Life, fd) => state.life = fd,
            (ExporterSaid::Offered(offer), _) if state.side.refusing => {
                core.give_back_unused(state, offer.turn, offer.fresh.is_none());
            }
            (ExporterSaid::Offered(offer), _) => state.side.offers.push_back(offer),
            (ExporterSaid::Retire(turn), _) => core.unmap(state, turn),
            (ExporterSaid::Bye(farewell), _) => state.farewell = Some(farewell),
            (ExporterSaid::Nothing | ExporterSaid::Hello(_) | ExporterSaid::Pool { .. }, _) => {}
        }
        Ok(())
    }

    fn is_for_keeper(&self, body: &Body) -> bool {
        self.refusing || !matches!(body, Body::Lend(_))
    }

    fn tick(_core: &Core<Self>, _state: &mut State<Self>) -> bool {
        false
    }

    fn let_go(state: &mut State<Self>) {
        for turn in state.side.book.unmap_idle() {
            if let Some(Mapped { mapping, stream, .. }) = state.side.take(turn.slot) {
                state.report(mapping.release(&stream));
            }
        }
    }

    fn bury(_state: &mut State<Self>) {}

    fn close(core: &Core<Self>, state: &mut State<Self>) -> Result<()> {
        if state.ended.is_none() {
            for turn in state.side.book.unmap_idle() {
                core.unmap(state, turn);
            }
        }
        Ok(())
    }

    fn asked_since(&self) -> Option<Instant> {
        None
    }

    fn is_done(&self) -> bool {
        true
    }
}

impl ImporterSide {
    /// Lets the device of our stream reach the pool's memory, if it does not by itself.
    fn grant(&self, pool: &ImportedPool) -> Result<()> {
        match self.place {
            Some((_, Some(owner))) if owner == self.device => return Ok(()),
            Some((_, Some(owner))) if !self.device.can_access(owner)? => {
                return Err(crate::Error::no_peer_access("cudaMemPoolSetAccess", self.device, owner).into());
            }
            _ => {}
        }
        Ok(pool.set_access(self.device, Access::ReadWrite)?)
    }
}

impl Core<ImporterSide> {
    fn give_back(&self, state: &mut State<ImporterSide>, turn: Turn, stream: &Stream) -> crate::Result<()> {
        if state.ended.is_some() {
            return match state.side.take(turn.slot) {
                Some(Mapped { mapping, .. }) => mapping.release(stream),
                None => Ok(()),
            };
        }
        let passing = state.side.mapped(turn.slot).is_some_and(|mapped| mapped.passing);
        if passing {
            if let Some(Mapped { mapping, .. }) = state.side.take(turn.slot) {
                mapping
                    .release(stream)
                    .inspect_err(|error| self.end(state, Why::Cuda(error.raw(), error.function())))?;
            }
        } else if let Some(Some(mapped)) = state.side.mapped.get_mut(turn.slot as usize) {
            if mapped.stream != *stream {
                mapped.stream = stream.clone();
            }
        }
        let written = usable(stream).and_then(|()| self.enqueue_write(state, stream, turn.slot, turn.generation));
        if let Err(error) = written {
            self.finish_by_host(state, turn, stream, error)?;
        }
        state.side.book.give_back(turn, !passing);
        // That the exporter has gone is no failure of giving back.
        let _ = self.say(state, Body::Return { turn, mapped: !passing }, None);
        Ok(())
    }

    /// The stream cannot write the word: waits for it, and writes the word from here.
    #[cold]
    fn finish_by_host(
        &self,
        state: &mut State<ImporterSide>,
        turn: Turn,
        stream: &Stream,
        error: crate::Error,
    ) -> crate::Result<()> {
        match stream.synchronize() {
            Err(still) if still.kind() != ErrorKind::DeviceFault => {
                self.end(state, Why::Cuda(error.raw(), error.function()));
                Err(error)
            }
            _ => {
                if let Some(signals) = self.signals() {
                    signals.set(Word::Done, turn.slot, turn.generation);
                }
                Ok(())
            }
        }
    }

    /// Gives back a buffer that no stream has used.
    fn give_back_unused(&self, state: &mut State<ImporterSide>, turn: Turn, mapped: bool) {
        if state.ended.is_some() {
            return;
        }
        if let Some(signals) = self.signals() {
            signals.set(Word::Done, turn.slot, turn.generation);
        }
        let passing = state.side.mapped(turn.slot).is_some_and(|mapped| mapped.passing);
        if passing {
            if let Some(Mapped { mapping, stream, .. }) = state.side.take(turn.slot) {
                state.report(mapping.release(&stream));
            }
        }
        let mapped = mapped && !passing;
        state.side.book.give_back(turn, mapped);
        let _ = self.say(state, Body::Return { turn, mapped }, None);
    }

    /// Unmaps the memory of a slot behind its last use, and tells the exporter.
    fn unmap(&self, state: &mut State<ImporterSide>, turn: Turn) {
        let Some(Mapped { mapping, stream, .. }) = state.side.take(turn.slot) else { return };
        let outcome =
            mapping.release(&stream).and_then(|()| self.enqueue_write(state, &stream, turn.slot, unmapped(turn)));
        match outcome {
            Ok(()) => drop(self.say(state, Body::Retired(turn), None)),
            Err(error) => {
                self.end(state, Why::Cuda(error.raw(), error.function()));
                state.report(Err(error));
            }
        }
    }
}
