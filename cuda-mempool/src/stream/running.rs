//! The host functions of a scope, none of which runs when the scope is over.
//!
//! When the device's context is broken, waiting for the stream answers at once, whatever a thread of the driver is doing.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(super) struct Running {
    state: Mutex<State>,
    fewer: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    over: bool,
}

impl Running {
    /// Runs `function`. After the end it is leaked instead: what it borrows may be gone.
    pub(super) fn run(&self, function: impl FnOnce()) {
        struct Done<'a>(&'a Running);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.state().running -= 1;
                self.0.fewer.notify_all();
            }
        }
        {
            let mut state = self.state();
            if state.over {
                std::mem::forget(function);
                return;
            }
            state.running += 1;
        }
        let _done = Done(self);
        function();
    }

    /// Waits for those that run, and has no other begin.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.over = true;
        while state.running > 0 {
            state = self.fewer.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_waits_for_what_runs_and_stops_the_rest() {
        let running = Running::default();
        thread::scope(|threads| {
            let (begun, has_begun) = channel();
            let (ended, has_ended) = channel();
            let running = &running;
            threads.spawn(move || {
                running.run(|| {
                    begun.send(()).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    ended.send(()).unwrap();
                });
            });
            has_begun.recv().unwrap();
            running.end();
            assert_eq!(has_ended.try_recv(), Ok(()));
        });
        running.run(|| panic!("it is over"));
    }

    #[test]
    fn one_that_panics_has_run() {
        let running = Running::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.run(|| panic!("inside"))));
        assert!(panicked.is_err());
        running.end();
    }
}
