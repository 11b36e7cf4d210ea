//! The thread that looks after one end of a session.
//!
//! It is there for what no thread of the user's may be waiting for: the peer's death, which must set streams free while
//! the program waits for those very streams; frames about buffers that nobody holds any more; and the end, when the page
//! must stay until the last stream has passed.
//!
//! While hand-overs go on it looks around now and then, and costs them nothing. When nothing happens it sleeps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::core::{Core, Side, State};
use super::ended::{Ended, Why};
use super::signals::usable;
use super::socket;
use super::wire::WireError;
use crate::stream::RelaxedCapture;
use crate::{teardown, ErrorKind, Event};

/// How often it looks around while something goes on.
const TICK: Duration = Duration::from_millis(100);
/// How often it looks at what only the host can see.
const QUICK_TICK: Duration = Duration::from_millis(1);
/// How long after the loss of the connection streams are held, for the peer's own work to come to its end.
const GRACE: Duration = Duration::from_millis(500);

pub(super) fn start<S: Side>(core: Arc<Core<S>>) -> io::Result<JoinHandle<()>> {
    teardown::watch_exit();
    std::thread::Builder::new().name("cuda-mempool-ipc".into()).spawn(move || {
        block_signals();
        let mut keeper = Keeper { core, seen: Seen::default(), closing: None };
        while let Some(sleep) = teardown::in_background(|| keeper.look_around()) {
            keeper.sleep(&sleep);
        }
        // The last to let go of the session lets go of its page.
        teardown::in_background(move || drop(keeper));
    })
}

/// Signals are for the program's own threads.
fn block_signals() {
    // SAFETY: the set is filled before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

struct Keeper<S: Side> {
    core: Arc<Core<S>>,
    seen: Seen,
    closing: Option<Closing>,
}

/// What gets the keeper out of its sleep, beside a call of its name.
struct Sleep {
    /// What to look for at the socket; `None` when it is closed.
    socket: Option<libc::c_short>,
    /// The sign of the peer's life, where its end matters.
    life: Option<RawFd>,
    deadline: Option<Instant>,
}

impl<S: Side> Keeper<S> {
    /// Does what is due. Nothing is left to be done, for ever, when it gives nothing to sleep for.
    fn look_around(&mut self) -> Option<Sleep> {
        let (core, seen) = (&*self.core, &mut self.seen);
        // Another thread's capture must not be invalidated by what is done and asked here.
        let _relaxed = RelaxedCapture::enter();
        let mut state = core.lock();
        let heard_before = state.traffic;
        look_at_socket(core, &mut state, seen);
        end_if_stalled(core, &mut state);
        let by_hand = S::tick(core, &mut state);
        let grace = look_after_end(core, &mut state, seen.death);
        if state.closing && self.closing.is_none() {
            // What cannot be said is not missed: the session is over then.
            let _ = S::close(core, &mut state);
            self.closing = Some(Closing::default());
        }
        let mut tick = by_hand.then_some(QUICK_TICK);
        if let Some(closing) = &mut self.closing {
            let settled = match &state.ended {
                Some(ended) => ended.rescued && state.side.is_done(),
                None => state.side.is_done() && !state.wire.has_unsent(),
            };
            if settled {
                if closing.streams_have_passed(&state) {
                    state.settled = true;
                    core.tell_waiting(&state);
                    return None;
                }
                tick = Some(QUICK_TICK);
            }
        }

        let left_alone = seen.input && state.traffic == heard_before;
        if left_alone || state.traffic != seen.traffic || has_pending(core, &state) {
            tick = tick.or(Some(TICK));
        }
        seen.traffic = state.traffic;
        let mut events = 0;
        if state.wire.has_unsent() {
            events |= libc::POLLOUT;
        }
        if !state.deaf {
            events |= libc::POLLRDHUP;
            if tick.is_none() {
                events |= libc::POLLIN;
            }
        }
        let waits_for_death = |ended: &Ended| !ended.rescued || !ended.buried && !state.side.is_done();
        let watches_life = state.ended.as_ref().map_or(true, waits_for_death) && !seen.death;
        let deadline = [tick.map(|tick| Instant::now() + tick), grace].into_iter().flatten().min();
        core.waker.set_asleep(deadline.is_none());
        Some(Sleep {
            socket: state.ended.is_none().then_some(events),
            life: state.life.as_ref().filter(|_| watches_life).map(AsRawFd::as_raw_fd),
            deadline,
        })
    }

    fn sleep(&mut self, sleep: &Sleep) {
        let (core, seen) = (&*self.core, &mut self.seen);
        // Descriptors below 0 are passed over.
        let socket = sleep.socket.map_or((-1, 0), |events| (core.socket.as_raw_fd(), events));
        let life = (sleep.life.unwrap_or(-1), libc::POLLIN);
        let polled = socket::wait([(core.waker.fd(), libc::POLLIN), socket, life], sleep.deadline);
        let Ok([wake, on_socket, on_life]) = polled else {
            // Nothing can be watched any more: the peer counts as gone.
            teardown::in_background(|| core.end(&mut core.lock(), Why::Gone));
            seen.death = true;
            return;
        };
        if wake != 0 {
            core.waker.clear();
        }
        seen.input = on_socket & libc::POLLIN != 0;
        seen.hang_up |= on_socket & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR | libc::POLLNVAL) != 0;
        seen.death |= on_life != 0;
    }
}

#[derive(Default)]
struct Seen {
    /// The peer's end of the socket is closed.
    hang_up: bool,
    /// The peer's process has ended.
    death: bool,
    /// There was something to read.
    input: bool,
    /// Frames at the last look.
    traffic: u64,
}

/// Reads what is nobody else's to read. After the peer has hung up or died, everything.
fn look_at_socket<S: Side>(core: &Core<S>, state: &mut State<S>, seen: &Seen) {
    if state.ended.is_some() {
        return;
    }
    let flushed = state.wire.flush(core.socket.as_fd());
    if seen.hang_up || seen.death || matches!(flushed, Err(WireError::Closed)) {
        core.pump(state, |_| true);
        // Children that it has forked may keep its socket open. Where nothing can be heard, a hang-up is all.
        let gone = seen.death || seen.hang_up && state.deaf;
        if gone && state.ended.is_none() {
            core.end(state, Why::Gone);
        }
    } else if let Err(error) = flushed {
        core.end(state, Why::from_error(&error.into()));
    } else if !state.reading {
        core.pump(state, |state| match state.wire.peek(core.socket.as_fd()) {
            Some(Ok(body)) => state.side.is_for_keeper(&body),
            // For the check that is made when it is read.
            Some(Err(_)) => true,
            None => false,
        });
    }
}

fn pending<'a, S: Side>(core: &'a Core<S>, state: &'a State<S>) -> impl Iterator<Item = (u32, super::core::Wait)> + 'a {
    let waits = (0_u32..).zip(&state.waits).filter_map(|(slot, wait)| Some((slot, (*wait)?)));
    waits.filter(|&(slot, wait)| core.signals().is_some_and(|signals| !signals.has(S::AWAITED, slot, wait.value)))
}

fn has_pending<S: Side>(core: &Core<S>, state: &State<S>) -> bool {
    let waits = || state.side.asked_since().is_some() || pending(core, state).next().is_some();
    core.options.stall_timeout.is_some() && waits()
}

fn end_if_stalled<S: Side>(core: &Core<S>, state: &mut State<S>) {
    let Some(timeout) = core.options.stall_timeout else { return };
    let since = pending(core, state).map(|(_, wait)| wait.since).chain(state.side.asked_since()).min();
    if state.ended.is_none() && since.is_some_and(|since| since.elapsed() > timeout) {
        core.end(state, Why::Stalled);
    }
}

/// Sets streams free that wait for a peer that has gone, and gives up what it was using. Says when to look again.
fn look_after_end<S: Side>(core: &Core<S>, state: &mut State<S>, death: bool) -> Option<Instant> {
    let (at, rescued, buried) = match &state.ended {
        Some(Ended { at, rescued, buried, .. }) => (*at, *rescued, *buried),
        None => return None,
    };
    // Without a sign of its life, the connection is what there is.
    let dead = death || state.life.is_none();
    if !rescued {
        let waiting: Vec<_> = pending(core, state).collect();
        let until = at + GRACE;
        if !waiting.is_empty() && !dead && Instant::now() < until {
            return Some(until);
        }
        for (slot, wait) in waiting {
            state.abandon(slot);
            if let Some(signals) = core.signals() {
                signals.set(S::AWAITED, slot, wait.value);
            }
        }
        S::let_go(core, state);
    }
    if dead && !buried {
        S::bury(core, state);
    }
    if let Some(ended) = &mut state.ended {
        ended.rescued = true;
        ended.buried |= dead;
    }
    core.tell_waiting(state);
    None
}

/// The last stage: the page stays until every stream that was given it has passed what it was given it for.
#[derive(Default)]
struct Closing {
    marks: Option<Vec<Event>>,
}

impl Closing {
    fn streams_have_passed<S: Side>(&mut self, state: &State<S>) -> bool {
        match self.look(state) {
            Ok(passed) => passed,
            Err(error) if is_over(error.kind()) => true,
            // A capture is going on: it ends some time.
            Err(_) => {
                self.marks = None;
                false
            }
        }
    }

    fn look<S: Side>(&mut self, state: &State<S>) -> crate::Result<bool> {
        let marks = match &mut self.marks {
            Some(marks) => marks,
            None => {
                let marks = state.streams.iter().map(|stream| {
                    usable(stream)?;
                    let event = Event::new(stream.device())?;
                    event.record(stream)?;
                    Ok(event)
                });
                self.marks.insert(marks.collect::<crate::Result<_>>()?)
            }
        };
        for mark in marks {
            if !mark.query()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether nothing runs on the device any more.
fn is_over(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DeviceFault | ErrorKind::Unloading)
}
