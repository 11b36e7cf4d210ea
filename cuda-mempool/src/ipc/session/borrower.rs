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
        match self.session.is_abandoned(self.turn.slot) {
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

    /// Gives the buffer back behind what was enqueued on `stream`. If that fails, nothing has changed.
    pub(crate) fn give_back(self, stream: &Stream) -> Result<(), (Self, crate::Error)> {
        let given_back = self.session.give_back(&mut self.session.lock(), self.turn, stream);
        given_back.map_err(|error| (self, error))
    }

    /// Gives the buffer back as soon as that can be done: not while the stream is being captured, nor in a host
    /// function.
    pub(crate) fn give_back_later(self, stream: &Stream) {
        self.session.postpone(&mut self.session.lock(), Late::Return(self.turn, stream.clone()));
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
    /// What could not be done when it was due.
    late: Vec<Late>,
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

/// What has to wait for the end of a capture.
enum Late {
    /// Giving a buffer back behind what was enqueued on a stream.
    Return(Turn, Stream),
    /// Giving a buffer back that no stream has used, and whether it is mapped.
    Refusal(Turn, bool),
    /// Unmapping the memory of a slot.
    Unmapping(Turn),
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
            late: Vec::new(),
            refusing: false,
        }
    }

    pub(super) fn mapped(&self, slot: u32) -> Option<&Mapped> {
        self.mapped.get(slot as usize)?.as_ref()
    }

    /// Whether the memory of an offer is still to be unmapped from when it was another buffer's.
    pub(super) fn is_unmapping(offer: &Lend) -> bool {
        offer.fresh.as_ref().is_some_and(|fresh| Mapping::is_unmapping(&fresh.blob))
    }

    pub(super) fn keep(&mut self, slot: u32, mapped: Mapped) {
        let index = slot as usize;
        if self.mapped.len() <= index {
            self.mapped.resize_with(index + 1, || None);
        }
        self.mapped[index] = Some(mapped);
    }

    /// Unmaps the memory of a slot, if it is mapped, behind what was enqueued on a stream. If that fails, it stays.
    fn release(&mut self, slot: u32, stream: &Stream) -> crate::Result<()> {
        let Some(place) = self.mapped.get_mut(slot as usize) else { return Ok(()) };
        let Some(mapped) = place.take() else { return Ok(()) };
        mapped.mapping.release(stream).map_err(|(mapping, error)| {
            *place = Some(Mapped { mapping, ..mapped });
            error
        })
    }

    /// Leaves the memory of a slot mapped, for whoever imports it again.
    fn keep_mapped(&mut self, slot: u32, stream: &Stream) {
        if let Some(mapped) = self.mapped.get_mut(slot as usize).and_then(Option::take) {
            mapped.mapping.keep_mapped(stream);
        }
    }

    fn note_left(&mut self, slot: u32, stream: &Stream, value: u32) {
        match self.left.get_mut(&slot) {
            Some(left) if left.stream == *stream => left.value = value,
            _ => drop(self.left.insert(slot, LeftWord { stream: stream.clone(), value })),
        }
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

    fn wants_more(state: &State<Self>) -> bool {
        state.side.offers.is_empty()
    }

    fn tick(core: &Core<Self>, state: &mut State<Self>) -> bool {
        for late in std::mem::take(&mut state.side.late) {
            match late {
                Late::Return(turn, stream) => core.give_back_in_the_end(state, turn, stream),
                Late::Refusal(turn, mapped) => core.give_back_unused(state, turn, mapped),
                Late::Unmapping(turn) => core.unmap(state, turn),
            }
        }
        !state.side.late.is_empty()
    }

    fn let_go(core: &Core<Self>, state: &mut State<Self>) {
        let idle = state.side.book.unmap_idle();
        // They stay offers, so that who asks hears of the end, but nobody will receive them.
        let offered = state.side.offers.iter().map(|offer| offer.turn);
        for turn in idle.into_iter().chain(offered).collect::<Vec<_>>() {
            core.unmap(state, turn);
        }
    }

    fn bury(_core: &Core<Self>, _state: &mut State<Self>) {}

    fn close(core: &Core<Self>, state: &mut State<Self>) -> Result<()> {
        if state.ended.is_none() {
            // What the exporter hands over at this moment must not be lost on the way.
            core.stop_listening(state);
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
        self.late.is_empty()
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
    /// Gives a buffer back behind what was enqueued on a stream. If that fails, nothing has changed.
    fn give_back(&self, state: &mut State<ImporterSide>, turn: Turn, stream: &Stream) -> crate::Result<()> {
        usable(stream)?;
        let passing = state.side.mapped(turn.slot).is_some_and(|mapped| mapped.passing);
        if state.ended.is_some() || passing {
            state.side.release(turn.slot, stream)?;
        }
        if state.ended.is_some() {
            return Ok(());
        }
        match self.write_done(state, stream, turn.slot, turn.generation) {
            Err(error) if passing => {
                self.fail(state, error);
                return Ok(());
            }
            written => written?,
        }
        if let Some(Some(mapped)) = state.side.mapped.get_mut(turn.slot as usize) {
            if mapped.stream != *stream {
                mapped.stream = stream.clone();
            }
        }
        self.say_returned(state, turn, !passing);
        Ok(())
    }

    /// Gives a buffer back that nobody holds any more.
    fn give_back_in_the_end(&self, state: &mut State<ImporterSide>, turn: Turn, stream: Stream) {
        match self.give_back(state, turn, &stream) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Capture => self.postpone(state, Late::Return(turn, stream)),
            Err(error) => {
                self.fail(state, error);
                state.side.keep_mapped(turn.slot, &stream);
            }
        }
    }

    /// Gives back a buffer that no stream has used in this turn. The work of the turn before may still be going on: it
    /// must not be said to be over by what is said of this one.
    pub(super) fn give_back_unused(&self, state: &mut State<ImporterSide>, turn: Turn, mapped: bool) {
        if state.ended.is_some() {
            return self.unmap(state, turn);
        }
        let passing = state.side.mapped(turn.slot).is_some_and(|mapped| mapped.passing);
        let still_writing = self.still_writing(state, turn.slot);
        let last_use = || state.side.mapped(turn.slot).filter(|_| passing).map(|mapped| mapped.stream.clone());
        let finished = match still_writing.or_else(last_use) {
            Some(stream) => self.finish_unused(state, turn, passing, &stream),
            None => {
                if let Some(signals) = self.signals() {
                    signals.set(Word::Done, turn.slot, turn.generation);
                }
                Ok(())
            }
        };
        match finished {
            Ok(()) => self.say_returned(state, turn, mapped && !passing),
            Err(error) if error.kind() == ErrorKind::Capture => self.postpone(state, Late::Refusal(turn, mapped)),
            Err(error) => self.fail(state, error),
        }
    }

    fn finish_unused(
        &self,
        state: &mut State<ImporterSide>,
        turn: Turn,
        passing: bool,
        stream: &Stream,
    ) -> crate::Result<()> {
        usable(stream)?;
        if passing {
            state.side.release(turn.slot, stream)?;
        }
        self.write_done(state, stream, turn.slot, turn.generation)
    }

    fn say_returned(&self, state: &mut State<ImporterSide>, turn: Turn, mapped: bool) {
        state.side.book.give_back(turn, mapped);
        // That the exporter has gone is no failure of giving back.
        let _ = self.say(state, Body::Return { turn, mapped }, None);
    }

    /// Says that a turn is over when the stream has done what was enqueued so far.
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

    /// Unmaps the memory of a slot behind its last use, and tells the exporter, if it is there.
    fn unmap(&self, state: &mut State<ImporterSide>, turn: Turn) {
        let Some(stream) = state.side.mapped(turn.slot).map(|mapped| mapped.stream.clone()) else { return };
        let ended = state.ended.is_some();
        let unmapped = usable(&stream).and_then(|()| {
            state.side.release(turn.slot, &stream)?;
            if ended {
                return Ok(());
            }
            self.write_done(state, &stream, turn.slot, unmapped(turn))
        });
        match unmapped {
            Ok(()) if ended => {}
            Ok(()) => drop(self.say(state, Body::Retired(turn), None)),
            Err(error) if error.kind() == ErrorKind::Capture => self.postpone(state, Late::Unmapping(turn)),
            Err(error) => {
                self.fail(state, error);
                state.side.keep_mapped(turn.slot, &stream);
            }
        }
    }

    fn postpone(&self, state: &mut State<ImporterSide>, late: Late) {
        state.side.late.push(late);
        // Not to sleep before it has looked at this, where it is the keeper that postpones.
        self.waker.wake();
    }

    /// Ends the session because of what the exporter will wait for in vain.
    fn fail(&self, state: &mut State<ImporterSide>, error: crate::Error) {
        self.end(state, Why::Cuda(error.raw(), error.function()));
        state.report(Err(error));
    }
}
