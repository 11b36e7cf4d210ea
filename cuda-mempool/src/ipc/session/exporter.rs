//! The end that hands buffers over.

use std::collections::HashMap;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use bytemuck::Pod;

use super::book::{unmapped, ExporterBook, ImporterSaid};
use super::core::{After, Core, Handle, Side, State, Why};
use super::frame::{Body, Farewell, Fresh, Hello, Lend, Place, Turn};
use super::lease::sealed::{Loan, SessionId};
use super::lease::Lease;
use super::nonce::Nonce;
use super::origin::PoolNumber;
use super::page::{Page, Word, SLOTS};
use super::shared::SharedBuffer;
use super::signals::{usable, Signals};
use super::Options;
use crate::ipc::{Error, ImportedBuffer, Importer, Result};
use crate::{Device, Location, MemPool, Stream};

/// The exporter's end of a session: hands buffers of one pool to another process, and gets them back.
///
/// See [the module](crate::ipc) for the whole picture. Dropping it tells the importer that nothing more will come;
/// buffers that are lent keep the session open until they are back.
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

    /// Ends the session as dropping does, and waits until all that it took is given back.
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
        self.handle.end(&mut self.handle.lock(), Why::Aborted);
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
        buffer: ImportedBuffer<T>,
    ) -> Result<Lease<ImportedBuffer<T>>, (ImportedBuffer<T>, Error)> {
        match self.lend(&buffer) {
            Ok(turn) => Ok(Lease::passing(buffer, Arc::clone(&self.handle), turn)),
            Err(error) => Err((buffer, error)),
        }
    }

    fn lend<T: Pod + Send>(&self, buffer: &ImportedBuffer<T>) -> Result<Turn> {
        let source = buffer.session().ok_or(Error::ForeignMemory)?.source().ok_or(Error::ForeignMemory)?;
        let extent = Extent {
            offset: buffer.as_ptr() as usize - source.start.as_ptr() as usize,
            bytes: buffer.size_in_bytes(),
            element: size_of::<T>(),
            tag: buffer.tag(),
        };
        let mut state = self.handle.lock();
        let slot = state.side.book.enter().ok_or(Error::Full)?;
        let fresh = || Fresh { passing: true, range: source.range, blob: source.blob };
        let lent = self.handle.lend(&mut state, buffer.stream(), slot, &extent, fresh);
        if lent.is_err() && state.ended.is_none() {
            state.side.book.retire(slot);
        }
        lent
    }

    /// Ends the session as dropping does, and waits until all that it took is given back.
    ///
    /// # Errors
    /// As [`Exporter::close`].
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

fn open(
    socket: UnixStream,
    options: &Options,
    device: Device,
    greeting: Greeting,
    number: Option<PoolNumber>,
) -> Result<Arc<Handle<ExporterSide>>> {
    let (page, page_fd) = Page::create()?;
    let signals = Signals::new(page, device, options.host_ordering);
    let side = ExporterSide {
        book: ExporterBook::new(SLOTS),
        parked: HashMap::new(),
        due: Vec::new(),
        unmapped: HashMap::new(),
        graves: Vec::new(),
        _number: number,
    };
    let Greeting { place, fd, origin, number } = greeting;
    let hello = Body::Hello(Hello { slots: SLOTS, place });
    let greeting = vec![(hello, Some(page_fd)), (Body::Pool { origin, number }, Some(fd))];
    Core::start(socket, options, Some(signals), side, greeting)
}

fn cannot_share(location: Location) -> crate::Error {
    let what = format!("memory at {location} cannot be shared; that of a device or of a NUMA node of the host can");
    crate::Error::unsupported("cudaMemPoolExportToShareableHandle", what)
}

impl<S: Side> Core<S> {
    /// The user's handle is gone: nothing more will come from here.
    pub(super) fn leave(&self) {
        if crate::teardown::forked() {
            return;
        }
        let mut state = self.lock();
        if state.ended.is_none() {
            let _ = self.say(&mut state, Body::Bye(Farewell::Done), None);
        }
    }
}

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
    /// Buffers that the importer was using when the session ended.
    graves: Vec<Box<dyn Loan>>,
    _number: Option<PoolNumber>,
}

impl Side for ExporterSide {
    const AWAITED: Word = Word::Done;

    fn hear(core: &Core<Self>, state: &mut State<Self>, body: Body, fd: Option<OwnedFd>) -> Result<()> {
        match state.side.book.accept(&body)? {
            ImporterSaid::Welcome => {}
            ImporterSaid::Life => state.life = fd,
            ImporterSaid::Returned(turn) => {
                if let Some(Parked { loan, .. }) = state.side.parked.remove(&turn.slot) {
                    core.let_go_in_order(state, turn, loan);
                }
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

    fn tick(core: &Core<Self>, state: &mut State<Self>) -> bool {
        let mut index = 0;
        while let Some((turn, _)) = state.side.due.get(index) {
            if core.signals().is_some_and(|signals| signals.has(Word::Done, turn.slot, turn.generation)) {
                let (_, loan) = state.side.due.swap_remove(index);
                state.after.push(After::Drop(Box::new(loan)));
            } else {
                index += 1;
            }
        }
        !state.side.due.is_empty()
    }

    fn let_go(_state: &mut State<Self>) {}

    fn bury(state: &mut State<Self>) {
        let side = &mut state.side;
        let parked = side.parked.drain().map(|(_, parked)| parked.loan);
        let due = side.due.drain(..).map(|(_, loan)| loan);
        for loan in parked.chain(due).chain(side.graves.drain(..)) {
            state.after.push(After::Drop(Box::new(loan)));
        }
    }

    fn close(_core: &Core<Self>, _state: &mut State<Self>) -> Result<()> {
        Ok(())
    }

    fn asked_since(&self) -> Option<Instant> {
        self.parked.values().filter_map(|parked| parked.asked).min()
    }

    fn is_done(&self) -> bool {
        self.parked.is_empty() && self.due.is_empty() && self.graves.is_empty()
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
        let fresh = state.side.book.is_fresh(slot).then(fresh);
        self.enqueue_write(state, stream, slot, turn.generation)?;
        state.side.book.lend(turn);
        let lend = Lend {
            turn,
            element: u32::try_from(extent.element).unwrap_or(u32::MAX),
            offset: extent.offset as u64,
            bytes: extent.bytes as u64,
            tag: extent.tag,
            fresh,
        };
        if let Err(error) = self.say(state, Body::Lend(lend), None) {
            // So that it is over for the book as well.
            self.pump(state, |_| true);
            self.end(state, Why::Gone);
            return Err(error);
        }
        Ok(turn)
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
        let turn = if state.ended.is_none() { state.side.book.retire(slot) } else { None };
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

/// When a lease was asked for, for its timeout.
pub(super) fn deadline_in(timeout: std::time::Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
