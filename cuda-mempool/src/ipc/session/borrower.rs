//! What an importer knows of the exporter's buffers, and does with them.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use super::book::{unmapped, ExporterSaid, ImporterBook};
use super::core::{Core, Side, State};
use super::ended::Why;
use super::frame::{Body, Lend, Place, Turn};
use super::handle::Handle;
use super::nonce::Nonce;
use super::origin;
use super::page::{Page, Word, SLOTS};
use super::signals::{usable, Signals};
use crate::ipc::registry::Mapping;
use crate::ipc::{Error, ImportedPool, PointerBlob, Result};
use crate::{Access, Device, ErrorKind, Stream};

/// A hand-over that is going on, for the buffer that it brought.
pub(crate) struct Borrowed {
    pub(super) session: Arc<Handle<ImporterSide>>,
    pub(super) turn: Turn,
    pub(super) tag: u64,
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
    pub(super) place: Option<(Place, Option<Device>)>,
    pub(super) pool: Option<SourcePool>,
    pub(super) offers: VecDeque<Lend>,
    /// By slot.
    mapped: Vec<Option<Mapped>>,
    /// By slot, the last word that was left to a stream to write: it may still be on its way.
    left: HashMap<u32, LeftWord>,
    /// Nobody will receive anything any more.
    pub(super) refusing: bool,
}

/// The exporter's pool.
pub(super) struct SourcePool {
    pub(super) pool: ImportedPool,
    /// For handing it on.
    pub(super) fd: OwnedFd,
    pub(super) origin: Nonce,
    pub(super) number: u64,
}

/// What a stream writes when it gets there.
struct LeftWord {
    stream: Stream,
    value: u32,
}

/// Memory of a slot, mapped.
pub(super) struct Mapped {
    pub(super) mapping: Mapping,
    pub(super) blob: PointerBlob,
    /// Where it was used last.
    pub(super) stream: Stream,
    /// To be unmapped when it is given back.
    pub(super) passing: bool,
}

impl ImporterSide {
    /// Everything will be received on streams of this device.
    pub(super) fn new(device: Device) -> Self {
        Self {
            book: ImporterBook::new(SLOTS),
            device,
            place: None,
            pool: None,
            offers: VecDeque::new(),
            mapped: Vec::new(),
            left: HashMap::new(),
            refusing: false,
        }
    }

    pub(super) fn mapped(&self, slot: u32) -> Option<&Mapped> {
        self.mapped.get(slot as usize)?.as_ref()
    }

    pub(super) fn keep(&mut self, slot: u32, mapped: Mapped) {
        let index = slot as usize;
        if self.mapped.len() <= index {
            self.mapped.resize_with(index + 1, || None);
        }
        self.mapped[index] = Some(mapped);
    }

    fn note_left(&mut self, slot: u32, stream: &Stream, value: u32) {
        match self.left.get_mut(&slot) {
            Some(left) if left.stream == *stream => left.value = value,
            _ => drop(self.left.insert(slot, LeftWord { stream: stream.clone(), value })),
        }
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
                core.set_signals(Signals::new(page));
                core.let_streams_use(fd.as_fd(), state.side.device);
                // That the exporter has gone meanwhile is found when something is asked of it.
                let _ = core.say(state, Body::Welcome, None);
            }
            (ExporterSaid::Pool { origin, number }, Some(fd)) => {
                let pool = origin::imported(origin, number, || ImportedPool::import_fd(fd.as_fd()))?;
                // Also to a pool that another session has imported: that may be on another device.
                state.side.grant(&pool)?;
                state.side.pool = Some(SourcePool { pool, fd, origin, number });
            }
            (ExporterSaid::Life, fd) => state.watch(fd),
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
        self.finish(state, turn, stream)?;
        state.side.book.give_back(turn, !passing);
        // That the exporter has gone is no failure of giving back.
        let _ = self.say(state, Body::Return { turn, mapped: !passing }, None);
        Ok(())
    }

    /// Says that a turn is over when the stream has done what was enqueued so far.
    fn finish(&self, state: &mut State<ImporterSide>, turn: Turn, stream: &Stream) -> crate::Result<()> {
        let written = usable(stream).and_then(|()| self.write_done(state, stream, turn.slot, turn.generation));
        written.or_else(|error| self.finish_by_host(state, turn, stream, error))
    }

    fn write_done(&self, state: &mut State<ImporterSide>, stream: &Stream, slot: u32, value: u32) -> crate::Result<()> {
        if self.enqueue_write(state, stream, slot, value)? {
            state.side.note_left(slot, stream, value);
        }
        Ok(())
    }

    /// The stream that is still to write the last word of this slot.
    fn still_writing(&self, state: &State<ImporterSide>, slot: u32) -> Option<Stream> {
        let left = state.side.left.get(&slot)?;
        let written = self.signals().map_or(true, |signals| signals.has(Word::Done, slot, left.value));
        (!written).then(|| left.stream.clone())
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

    /// Gives back a buffer that no stream has used in this turn. The work of the turn before may still be going on: it must
    /// not be said to be over by what is said of this one.
    pub(super) fn give_back_unused(&self, state: &mut State<ImporterSide>, turn: Turn, mapped: bool) {
        if state.ended.is_some() {
            return;
        }
        let passing = state.side.mapped(turn.slot).is_some_and(|mapped| mapped.passing);
        let mut behind = self.still_writing(state, turn.slot);
        if passing {
            if let Some(Mapped { mapping, stream, .. }) = state.side.take(turn.slot) {
                let stream = behind.get_or_insert(stream);
                state.report(mapping.release(stream));
            }
        }
        match (behind, self.signals()) {
            (Some(stream), _) => {
                let finished = self.finish(state, turn, &stream);
                state.report(finished);
            }
            (None, Some(signals)) => signals.set(Word::Done, turn.slot, turn.generation),
            (None, None) => {}
        }
        if state.ended.is_some() {
            return;
        }
        let mapped = mapped && !passing;
        state.side.book.give_back(turn, mapped);
        let _ = self.say(state, Body::Return { turn, mapped }, None);
    }

    /// Unmaps the memory of a slot behind its last use, and tells the exporter.
    fn unmap(&self, state: &mut State<ImporterSide>, turn: Turn) {
        let Some(Mapped { mapping, stream, .. }) = state.side.take(turn.slot) else { return };
        let outcome =
            mapping.release(&stream).and_then(|()| self.write_done(state, &stream, turn.slot, unmapped(turn)));
        match outcome {
            Ok(()) => drop(self.say(state, Body::Retired(turn), None)),
            Err(error) => {
                self.end(state, Why::Cuda(error.raw(), error.function()));
                state.report(Err(error));
            }
        }
    }
}
