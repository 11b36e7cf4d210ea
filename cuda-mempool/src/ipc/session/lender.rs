//! What an exporter knows of its buffers, and does with them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use super::book::{unmapped, ExporterBook, ImporterSaid};
use super::core::{After, Core, Side, State};
use super::frame::{Body, Fresh, Lend, Turn};
use super::lease::sealed::{Loan, SessionId};
use super::origin::PoolNumber;
use super::page::{Word, SLOTS};
use super::signals::{usable, Signals};
use crate::ipc::{Error, Result};
use crate::stream::order;
use crate::{Device, ErrorKind, Stream};

/// Which part of the memory is handed over, and as what.
pub(super) struct Extent {
    pub offset: usize,
    pub bytes: usize,
    pub element: usize,
    pub tag: u64,
}

/// A buffer that nobody here holds any more.
struct Parked {
    loan: Box<dyn Loan>,
    /// When the importer was asked to unmap it. That it has it on loan may take as long as it likes.
    asked: Option<Instant>,
}

/// The state of an exporter.
pub(super) struct ExporterSide {
    pub book: ExporterBook,
    /// Buffers whose owner has dropped them, by slot: they wait for what the importer has to say.
    parked: HashMap<u32, Parked>,
    /// Those that it has said it of, where the host has to look when it comes true.
    due: Vec<(Turn, Box<dyn Loan>)>,
    /// What `Done` comes to when memory is unmapped that the importer has unmapped unasked.
    unmapped: HashMap<u32, u32>,
    /// Streams that are still to write the word of a buffer that its slot is rid of.
    unwritten: HashMap<u32, Stream>,
    /// Buffers that the importer was using when the session ended.
    graves: Vec<Box<dyn Loan>>,
    /// Those whose stream is being captured: they must not be freed into a graph.
    captured: Vec<Box<dyn Loan>>,
    /// Until the importer has mapped it: the page, and the device whose streams will use it.
    page: Option<(OwnedFd, Device)>,
    _number: Option<PoolNumber>,
}

impl ExporterSide {
    /// `number` is kept as long as the session, for a pool of this process. `page` is that of the session.
    pub(super) fn new(number: Option<PoolNumber>, page: OwnedFd, device: Device) -> Self {
        Self {
            book: ExporterBook::new(SLOTS),
            parked: HashMap::new(),
            due: Vec::new(),
            unmapped: HashMap::new(),
            unwritten: HashMap::new(),
            graves: Vec::new(),
            captured: Vec::new(),
            page: Some((page, device)),
            _number: number,
        }
    }
}

impl Side for ExporterSide {
    const AWAITED: Word = Word::Done;

    fn hear(core: &Core<Self>, state: &mut State<Self>, body: Body, fd: Option<OwnedFd>) -> Result<()> {
        match state.side.book.accept(&body)? {
            ImporterSaid::Welcome => {
                if let Some((page, device)) = state.side.page.take() {
                    core.let_streams_use(page.as_fd(), device);
                }
            }
            ImporterSaid::Life => state.watch(fd),
            ImporterSaid::Returned(turn) => {
                if let Some(Parked { loan, .. }) = state.side.parked.remove(&turn.slot) {
                    core.let_go_in_order(state, turn, loan);
                }
                core.give_time_to_answer(state);
            }
            ImporterSaid::Unmapped { turn, asked } => {
                let value = unmapped(turn);
                match state.side.parked.remove(&turn.slot) {
                    Some(Parked { loan, .. }) if asked => {
                        core.let_go_in_order(state, Turn { generation: value, ..turn }, loan)
                    }
                    _ => drop(state.side.unmapped.insert(turn.slot, value)),
                }
            }
            ImporterSaid::Bye(farewell) => state.farewell = Some(farewell),
        }
        Ok(())
    }

    fn is_for_keeper(&self, body: &Body) -> bool {
        match body {
            Body::Return { turn, .. } => self.parked.contains_key(&turn.slot),
            _ => true,
        }
    }

    fn wants_more(_state: &State<Self>) -> bool {
        true
    }

    fn tick(core: &Core<Self>, state: &mut State<Self>) -> bool {
        for loan in std::mem::take(&mut state.side.captured) {
            core.free(state, loan);
        }
        let mut index = 0;
        while let Some((turn, _)) = state.side.due.get(index) {
            if core.signals().is_some_and(|signals| signals.has(Word::Done, turn.slot, turn.generation)) {
                let (_, loan) = state.side.due.swap_remove(index);
                core.free(state, loan);
            } else {
                index += 1;
            }
        }
        !state.side.due.is_empty() || !state.side.captured.is_empty()
    }

    fn let_go(_core: &Core<Self>, _state: &mut State<Self>) {}

    fn bury(core: &Core<Self>, state: &mut State<Self>) {
        let side = &mut state.side;
        let parked = side.parked.drain().map(|(_, parked)| parked.loan);
        let due = side.due.drain(..).map(|(_, loan)| loan);
        for loan in parked.chain(due).chain(side.graves.drain(..)).collect::<Vec<_>>() {
            core.free(state, loan);
        }
    }

    fn close(_core: &Core<Self>, _state: &mut State<Self>) -> Result<()> {
        Ok(())
    }

    /// Never, while something is lent: what was asked may stand behind a buffer that the importer has not received yet,
    /// or the answer behind one that nobody here has waited for yet.
    fn asked_since(&self) -> Option<Instant> {
        let asked = self.parked.values().filter_map(|parked| parked.asked).min();
        asked.filter(|_| !self.book.has_lent())
    }

    fn is_done(&self) -> bool {
        self.parked.is_empty() && self.due.is_empty() && self.graves.is_empty() && self.captured.is_empty()
    }
}

impl Core<ExporterSide> {
    pub(super) fn id(&self) -> SessionId {
        SessionId(std::ptr::from_ref(self) as usize)
    }

    /// Hands over the buffer of a slot. `fresh` tells how to map it, if that is needed.
    pub(super) fn lend(
        &self,
        state: &mut State<ExporterSide>,
        stream: &Stream,
        slot: u32,
        extent: &Extent,
        fresh: impl FnOnce() -> Fresh,
    ) -> Result<Turn> {
        self.alive(state)?;
        if let Some(farewell) = state.farewell {
            return Err(Error::PeerLeft(farewell));
        }
        usable(stream)?;
        let turn = state.side.book.next_turn(slot);
        self.keep_turns_in_order(state, stream, slot)?;
        let fresh = state.side.book.is_fresh(slot).then(fresh);
        self.enqueue_write(state, stream, slot, turn.generation)?;
        let lend = Lend {
            turn,
            element: u32::try_from(extent.element).unwrap_or(u32::MAX),
            offset: extent.offset as u64,
            bytes: extent.bytes as u64,
            tag: extent.tag,
            fresh,
        };
        if let Err(error) = self.say(state, Body::Lend(lend), None) {
            // The importer may have said why it listens no more. It may still have to say what it gives back.
            self.pump(state, |_| true);
            self.alive(state)?;
            return Err(state.farewell.map_or(error, Error::PeerLeft));
        }
        state.side.book.lend(turn);
        Ok(turn)
    }

    /// The stream of the slot's last buffer must not write its word after the one of the next.
    fn keep_turns_in_order(&self, state: &mut State<ExporterSide>, stream: &Stream, slot: u32) -> Result<()> {
        let Some(before) = state.side.unwritten.get(&slot) else { return Ok(()) };
        if before != stream && !self.is_ready(state, slot) {
            usable(before)?;
            order(before, stream)?;
        }
        state.side.unwritten.remove(&slot);
        Ok(())
    }

    /// Whether the last hand-over of this slot has come to its place in the stream.
    fn is_ready(&self, state: &State<ExporterSide>, slot: u32) -> bool {
        let generation = state.side.book.last_generation(slot);
        self.signals().is_some_and(|signals| signals.has(Word::Ready, slot, generation))
    }

    /// The importer has given something back: from now on it may be able to answer.
    fn give_time_to_answer(&self, state: &mut State<ExporterSide>) {
        let mut waits = false;
        for asked in state.side.parked.values_mut().filter_map(|parked| parked.asked.as_mut()) {
            *asked = Instant::now();
            waits = true;
        }
        if waits {
            self.waker.wake_if_asleep();
        }
    }

    /// Rids the slot of its buffer, which belongs to `stream`: what to say, if the importer has it mapped.
    pub(super) fn vacate(&self, state: &mut State<ExporterSide>, slot: u32, stream: &Stream) -> Option<Turn> {
        // An importer that had no use for it has not waited.
        if !self.is_ready(state, slot) {
            state.side.unwritten.insert(slot, stream.clone());
        }
        state.side.book.retire(slot)
    }

    /// Takes a buffer back in the order of its stream, if the importer has returned it and the host may go on.
    pub(super) fn take_back(&self, state: &mut State<ExporterSide>, stream: &Stream, turn: Turn) -> Result<()> {
        if state.is_abandoned(turn.slot) {
            return Err(Error::Abandoned);
        }
        let reached = self.signals().is_some_and(|signals| signals.has(Word::Done, turn.slot, turn.generation));
        if reached {
            return Ok(());
        }
        if state.ended.is_some() {
            // What the importer was doing will never be done.
            return Err(Error::Abandoned);
        }
        usable(stream)?;
        Ok(self.enqueue_wait(state, stream, turn.slot, turn.generation)?)
    }

    /// The owner of a lent buffer has dropped it: it waits for the importer to return it.
    pub(super) fn park(&self, state: &mut State<ExporterSide>, slot: u32, loan: Box<dyn Loan>) {
        state.side.parked.insert(slot, Parked { loan, asked: None });
    }

    /// A buffer that the importer was using when the session ended: it is dropped when that cannot be going on.
    pub(super) fn entomb(&self, state: &mut State<ExporterSide>, loan: Box<dyn Loan>) {
        if state.ended.as_ref().is_some_and(|ended| ended.buried) {
            state.after.push(After::Drop(Box::new(loan)));
        } else {
            state.side.graves.push(loan);
            self.waker.wake_if_asleep();
        }
    }

    /// The buffer of a slot that is at home is about to be freed. Gives it back if that can be done now.
    pub(super) fn retire(&self, state: &mut State<ExporterSide>, slot: u32, loan: Box<dyn Loan>) {
        let turn = if state.ended.is_none() { self.vacate(state, slot, loan.stream()) } else { None };
        match turn {
            Some(turn) => {
                state.side.parked.insert(slot, Parked { loan, asked: Some(Instant::now()) });
                self.waker.wake_if_asleep();
                let _ = self.say(state, Body::Retire(turn), None);
            }
            None => match state.side.unmapped.remove(&slot) {
                Some(generation) if state.ended.is_none() => {
                    self.let_go_in_order(state, Turn { slot, generation }, loan);
                }
                _ => state.after.push(After::Drop(Box::new(loan))),
            },
        }
    }

    /// Drops a buffer that nobody here holds, as soon as its stream is not being captured.
    fn free(&self, state: &mut State<ExporterSide>, loan: Box<dyn Loan>) {
        if usable(loan.stream()).is_err_and(|error| error.kind() == ErrorKind::Capture) {
            state.side.captured.push(loan);
            // Not to sleep before it has looked at this, where it is the keeper that frees.
            self.waker.wake();
        } else {
            state.after.push(After::Drop(Box::new(loan)));
        }
    }

    /// Drops a buffer behind what the importer is still doing with it.
    pub(super) fn let_go_in_order(&self, state: &mut State<ExporterSide>, turn: Turn, loan: Box<dyn Loan>) {
        let by_stream = self.signals().is_some_and(Signals::on_stream) && usable(loan.stream()).is_ok();
        if by_stream && self.enqueue_wait(state, loan.stream(), turn.slot, turn.generation).is_ok() {
            state.after.push(After::Drop(Box::new(loan)));
        } else {
            state.side.due.push((turn, loan));
            self.note_wait(state, turn);
            self.waker.wake_if_asleep();
        }
    }
}
