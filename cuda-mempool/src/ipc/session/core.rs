//! What both ends of a session have in common.
//!
//! One lock guards the state of a session. Frames are read under it by whoever has use for them: a thread that waits
//! for one, or else the session's [keeper](super::keeper). No user's code runs under the lock.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::ended::{Ended, Why};
use super::frame::{Body, Farewell, Turn};
use super::handle::{Guard, Handle};
use super::keeper;
use super::nonce::Nonce;
use super::page::{Page, Word};
use super::signals::{reachable, Signals};
use super::socket;
use super::waker::Waker;
use super::wire::{Heard, Wire, WireError};
use super::Options;
use crate::ipc::{Error, Result};
use crate::{teardown, Device, Stream};

/// How long a thread that waits for a frame or a word looks for it before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How often the host looks at a word, where it has to wait for one.
const LOOK: Duration = Duration::from_micros(50);

/// What is special to an end of a session.
pub(super) trait Side: Sized + Send + 'static {
    /// The word that this end waits for.
    const AWAITED: Word;

    /// Takes a frame.
    fn hear(core: &Core<Self>, state: &mut State<Self>, body: Body, fd: Option<OwnedFd>) -> Result<()>;

    /// Whether nobody else may be waiting for this frame.
    fn is_for_keeper(&self, body: &Body) -> bool;

    /// Whether a thread that waits has use for another frame. What it has none for stays in the socket, which is
    /// polled.
    fn wants_more(state: &State<Self>) -> bool;

    /// Looks after what only time brings. Says whether there is such.
    fn tick(core: &Core<Self>, state: &mut State<Self>) -> bool;

    /// Lets go of what waits for the peer, when the session has ended and no stream waits any more.
    fn let_go(core: &Core<Self>, state: &mut State<Self>);

    /// Lets go of what the peer was using, when its work is known to have ended.
    fn bury(core: &Core<Self>, state: &mut State<Self>);

    /// Nobody uses this end any more: says what has to be said.
    fn close(core: &Core<Self>, state: &mut State<Self>) -> Result<()>;

    /// Since when an answer of the peer is due.
    fn asked_since(&self) -> Option<Instant>;

    /// Whether nothing is left that the peer has, or had when the session ended.
    fn is_done(&self) -> bool;
}

/// One end of a session.
pub(super) struct Core<S: Side> {
    pub socket: UnixStream,
    pub waker: Waker,
    pub options: Options,
    /// The importer has none until the exporter has greeted it.
    signals: OnceLock<Signals>,
    pub(super) state: Mutex<State<S>>,
    pub(super) changed: Condvar,
}

/// What changes.
pub(super) struct State<S: Side> {
    pub side: S,
    pub wire: Wire,
    /// Why the session is over.
    pub ended: Option<Ended>,
    /// The descriptor that tells of the peer's life, if it has sent one.
    pub(super) life: Option<OwnedFd>,
    /// Waits that were enqueued, by slot.
    pub waits: Vec<Option<Wait>>,
    /// Slots whose data is not what it was to become.
    abandoned: Vec<u32>,
    /// The streams that were given the page.
    pub streams: Vec<Stream>,
    /// What is to be dropped, and told of, outside the lock.
    pub after: Vec<After>,
    /// Frames heard so far.
    pub traffic: u64,
    /// A thread waits for the socket, and reads when there is something.
    pub reading: bool,
    /// Threads that wait for what the reading one reads.
    pub(super) waiting: usize,
    /// Nobody uses this end any more.
    pub closing: bool,
    /// Nothing is left to be done but to let go of the page and the socket.
    pub settled: bool,
    /// What the peer gave as its reason for leaving.
    pub farewell: Option<Farewell>,
    /// The peer can say nothing more, and that does not mean that it has gone.
    pub deaf: bool,
}

/// A wait that a stream was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub value: u32,
    pub since: Instant,
}

/// What to do when the lock is not held.
pub(super) enum After {
    Drop(Box<dyn Send>),
    Report(crate::Error),
}

impl<S: Side> Core<S> {
    /// Starts a session's end with these frames, and its keeper.
    pub(super) fn start(
        socket: UnixStream,
        options: &Options,
        signals: Option<Signals>,
        side: S,
        greeting: Vec<(Body, Option<OwnedFd>)>,
    ) -> Result<Arc<Handle<S>>> {
        teardown::watch_forks();
        let state = State {
            side,
            wire: Wire::new(Nonce::of_this_process()?),
            ended: None,
            life: None,
            waits: Vec::new(),
            abandoned: Vec::new(),
            streams: Vec::new(),
            after: Vec::new(),
            traffic: 0,
            reading: false,
            waiting: 0,
            closing: false,
            settled: false,
            farewell: None,
            deaf: false,
        };
        let core = Arc::new(Self {
            socket,
            waker: Waker::new()?,
            options: options.clone(),
            signals: signals.map_or_else(OnceLock::new, OnceLock::from),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mut state = core.lock();
        let life = own_life().map(|fd| (Body::Life, Some(fd)));
        for (body, fd) in greeting.into_iter().chain(life) {
            // That the peer has gone already is found when something is asked of it.
            let _ = core.say(&mut state, body, fd);
        }
        drop(state);
        let keeper = keeper::start(Arc::clone(&core))?;
        Ok(Arc::new(Handle::new(core, keeper)))
    }

    /// The user's handle is gone: nothing more will come from here.
    pub(super) fn leave(&self) {
        if teardown::forked() {
            return;
        }
        let mut state = self.lock();
        if state.ended.is_none() {
            let _ = self.say(&mut state, Body::Bye(Farewell::Done), None);
        }
    }

    /// Ends the session at once.
    pub(super) fn abort(&self) {
        if !teardown::forked() {
            self.end(&mut self.lock(), Why::Aborted);
        }
    }

    /// The state. What it leaves to be done is done when the guard is dropped.
    pub(super) fn lock(&self) -> Guard<'_, S> {
        Guard::new(self)
    }

    pub(super) fn signals(&self) -> Option<&Signals> {
        self.signals.get()
    }

    pub(super) fn set_signals(&self, signals: Signals) {
        let _ = self.signals.set(signals);
    }

    /// Lets streams of this process use the page, now that both ends have mapped it.
    pub(super) fn let_streams_use(&self, page: BorrowedFd<'_>, device: Device) {
        let Some(signals) = self.signals().filter(|_| !self.options.host_ordering) else { return };
        if Page::close_to_others(page) {
            signals.register(device);
        } else {
            log::warn!("the hosts keep the order of a session: the system or the peer does not let its page be sealed");
        }
    }

    /// Sends a frame. If that cannot be, the session is over, but for what the peer has said before it left.
    pub(super) fn say(&self, state: &mut State<S>, body: Body, fd: Option<OwnedFd>) -> Result<()> {
        match state.wire.say(self.socket.as_fd(), body, fd) {
            Ok(()) => {
                if state.wire.has_unsent() {
                    self.waker.wake_if_asleep();
                }
                Ok(())
            }
            Err(WireError::Closed) => Err(Error::PeerGone),
            Err(error) => {
                let error = error.into();
                self.end(state, Why::from_error(&error));
                Err(error)
            }
        }
    }

    /// Ends the session, once. What waits for the peer is set free by the keeper.
    pub(super) fn end(&self, state: &mut State<S>, why: Why) {
        if state.ended.is_some() {
            return;
        }
        if !matches!(why, Why::Gone | Why::Left(_)) {
            let _ = state.wire.say(self.socket.as_fd(), Body::Bye(why.farewell()), None);
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        state.ended = Some(Ended { why, at: Instant::now(), rescued: false, buried: false });
        self.waker.wake();
        self.changed.notify_all();
    }

    /// An error if the session is over.
    pub(super) fn alive(&self, state: &State<S>) -> Result<()> {
        match &state.ended {
            Some(ended) => Err(ended.why.to_error()),
            None => Ok(()),
        }
    }

    /// Whether the session has ended, and nothing of it waits any more.
    pub(super) fn is_over(&self) -> bool {
        self.lock().ended.as_ref().is_some_and(|ended| ended.rescued)
    }

    /// Whether the data of a slot is not what it was to become.
    pub(super) fn is_abandoned(&self, slot: u32) -> bool {
        self.lock().is_abandoned(slot)
    }

    /// Has those look again who wait for a change.
    pub(super) fn tell_waiting(&self, state: &State<S>) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Takes the frames that are there, as long as `wanted` says so.
    pub(super) fn pump(&self, state: &mut State<S>, wanted: impl Fn(&State<S>) -> bool) {
        let before = state.traffic;
        while state.ended.is_none() && wanted(state) {
            match state.wire.hear(self.socket.as_fd()) {
                Ok(Heard::Nothing) => break,
                Ok(Heard::Closed) if state.deaf => break,
                Ok(Heard::Closed) => {
                    let why = match state.farewell {
                        Some(farewell) if farewell != Farewell::Done => Why::Left(farewell),
                        _ => Why::Gone,
                    };
                    self.end(state, why);
                }
                Ok(Heard::Body(body, fd)) => {
                    state.traffic += 1;
                    if let Err(error) = S::hear(self, state, body, fd) {
                        self.end(state, Why::from_error(&error));
                    }
                }
                Err(error) => self.end(state, Why::from_error(&error.into())),
            }
        }
        if state.traffic != before {
            self.tell_waiting(state);
        }
    }

    /// Lets nothing more in, and takes what is in already: so the peer knows of each frame whether it was heard.
    pub(super) fn stop_listening(&self, state: &mut State<S>) {
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
        state.deaf = true;
        self.pump(state, |_| true);
    }

    /// Reads frames until `ask` has an answer. Pending when the time is up.
    pub(super) fn wait_for<T>(
        &self,
        deadline: Option<Instant>,
        mut ask: impl FnMut(&mut State<S>) -> Result<Answer<T>>,
    ) -> Result<Poll<T>> {
        reachable()?;
        let started = Instant::now();
        let mut guard = self.lock();
        loop {
            if !guard.reading {
                self.pump(&mut guard, S::wants_more);
            }
            let now = Instant::now();
            match ask(&mut guard)? {
                Answer::Ready(answer) => return Ok(Poll::Ready(answer)),
                _ if deadline.is_some_and(|deadline| deadline <= now) => return Ok(Poll::Pending),
                Answer::OnWord if now - started < SPIN => {
                    guard.unlocked(|| spin(now - started));
                    continue;
                }
                Answer::OnWord => {
                    guard.unlocked(|| std::thread::sleep(LOOK));
                    continue;
                }
                Answer::OnFrame => {}
            }
            if guard.reading {
                guard.wait(deadline.map(|deadline| deadline - now));
            } else if now - started < SPIN {
                guard.unlocked(|| spin(now - started));
            } else {
                guard.reading = true;
                let events = libc::POLLIN | libc::POLLRDHUP;
                let polled = guard.unlocked(|| socket::wait([(self.socket.as_raw_fd(), events)], deadline));
                guard.reading = false;
                self.tell_waiting(&guard);
                polled?;
            }
        }
    }

    /// Has the stream wait for the peer, and remembers that it does.
    pub(super) fn enqueue_wait(
        &self,
        state: &mut State<S>,
        stream: &Stream,
        slot: u32,
        value: u32,
    ) -> crate::Result<()> {
        let Some(signals) = self.signals() else { return Ok(()) };
        if signals.wait(stream, S::AWAITED, slot, value)? {
            state.remember(stream);
            self.note_wait(state, Turn { slot, generation: value });
        }
        Ok(())
    }

    /// Remembers that something waits for the word of a slot, since now or since it was noted first.
    pub(super) fn note_wait(&self, state: &mut State<S>, turn: Turn) {
        let index = turn.slot as usize;
        if state.waits.len() <= index {
            state.waits.resize(index + 1, None);
        }
        if state.waits[index].map_or(true, |wait| wait.value != turn.generation) {
            state.waits[index] = Some(Wait { value: turn.generation, since: Instant::now() });
            self.waker.wake_if_asleep();
        }
    }

    /// Has the stream write the word of this end. Says whether that was left to the stream: it is done at once if it can be.
    pub(super) fn enqueue_write(
        &self,
        state: &mut State<S>,
        stream: &Stream,
        slot: u32,
        value: u32,
    ) -> crate::Result<bool> {
        let Some(signals) = self.signals() else { return Ok(false) };
        let word = match S::AWAITED {
            Word::Ready => Word::Done,
            Word::Done => Word::Ready,
        };
        let left = signals.write(stream, word, slot, value)?;
        if left {
            state.remember(stream);
        }
        Ok(left)
    }

    /// Whether the host may go on: always, where the stream waits instead.
    pub(super) fn may_go_on(&self, turn: Turn) -> bool {
        self.signals().is_some_and(|signals| signals.on_stream() || signals.has(S::AWAITED, turn.slot, turn.generation))
    }
}

/// Lets a moment pass. After some of them, for whoever waits for this processor: that may be the peer.
fn spin(so_far: Duration) {
    const ALONE: Duration = Duration::from_micros(5);
    if so_far < ALONE {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// A sign of this process's life for the peer, where the system has one.
fn own_life() -> Option<OwnedFd> {
    // SAFETY: makes a descriptor of this process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    // SAFETY: it was just made for us.
    i32::try_from(fd).ok().filter(|&fd| fd >= 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a waiting thread found.
pub(super) enum Answer<T> {
    Ready(T),
    /// A frame is missing.
    OnFrame,
    /// A word is missing, and no stream can wait for it.
    OnWord,
}

impl<S: Side> State<S> {
    fn remember(&mut self, stream: &Stream) {
        /// From here on it is worth looking for streams that are done.
        const MANY: usize = 16;
        if self.streams.contains(stream) {
            return;
        }
        if self.streams.len() >= MANY {
            self.streams.retain(|stream| !stream.query().unwrap_or(false));
        }
        self.streams.push(stream.clone());
    }

    /// Keeps the first sign of the peer's life: the keeper may be looking at it.
    pub(super) fn watch(&mut self, life: Option<OwnedFd>) {
        self.life = self.life.take().or(life);
    }

    /// Notes that the slot's data cannot be relied on.
    pub(super) fn abandon(&mut self, slot: u32) {
        if !self.abandoned.contains(&slot) {
            self.abandoned.push(slot);
        }
    }

    pub(super) fn is_abandoned(&self, slot: u32) -> bool {
        self.abandoned.contains(&slot)
    }

    /// Tells of a failure that nobody can be given.
    pub(super) fn report(&mut self, outcome: crate::Result<()>) {
        if let Err(error) = outcome {
            self.after.push(After::Report(error));
        }
    }
}

/// What has come before the time was up.
pub(super) fn in_time<T>(answer: Poll<T>) -> Result<T> {
    match answer {
        Poll::Ready(answer) => Ok(answer),
        Poll::Pending => Err(Error::TimedOut),
    }
}

/// When a lease was asked for, for its timeout.
pub(super) fn deadline_in(timeout: std::time::Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
