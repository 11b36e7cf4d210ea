//! Ends the process when one step of it takes too long, so that a stuck stream leaves no stuck process.

use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// While it lives the process must not take longer than was allowed.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub fn new(what: &str, allowed: Duration) -> Self {
        let (alive, ended) = channel::<()>();
        let what = what.to_owned();
        thread::spawn(move || {
            if ended.recv_timeout(allowed) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: still not done after {} s, the process is ended", allowed.as_secs());
                leave(TOO_LATE);
            }
        });
        Self { _alive: alive }
    }
}

/// The exit code of a process that was ended by its watchdog.
pub const TOO_LATE: i32 = 86;

/// Ends the process without exit handlers: those of a runtime with a stuck stream may wait for ever.
pub fn leave(code: i32) -> ! {
    // SAFETY: ending the process has no requirement.
    unsafe { libc::_exit(code) }
}
