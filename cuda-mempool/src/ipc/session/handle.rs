//! The lock on a session's state, and what keeps an end of a session open.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::core::{After, Core, Side, State};
use super::signals::reachable;
use crate::ipc::{Error, Result};
use crate::teardown;

/// The lock on a session's state.
pub(super) struct Guard<'a, S: Side> {
    core: &'a Core<S>,
    /// `None` only while nothing is locked.
    state: Option<MutexGuard<'a, State<S>>>,
}

impl<'a, S: Side> Guard<'a, S> {
    pub(super) fn new(core: &'a Core<S>) -> Self {
        Self { core, state: Some(core.state.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    /// Does what was left for when the lock is not held, then `work`, and locks again.
    pub(super) fn unlocked<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.release();
        let result = work();
        self.state = Some(self.core.state.lock().unwrap_or_else(PoisonError::into_inner));
        result
    }

    fn release(&mut self) {
        if let Some(mut state) = self.state.take() {
            let after = std::mem::take(&mut state.after);
            drop(state);
            for item in after {
                match item {
                    After::Drop(item) => drop(item),
                    After::Report(error) => teardown::report(&error),
                }
            }
        }
    }

    /// Waits until the thread that reads has read something, or stops reading.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) {
        let Some(mut state) = self.state.take() else { return };
        state.waiting += 1;
        let mut state = match timeout {
            Some(timeout) => {
                let woken = self.core.changed.wait_timeout(state, timeout);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.core.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.waiting -= 1;
        self.state = Some(state);
    }
}

impl<S: Side> std::ops::Deref for Guard<'_, S> {
    type Target = State<S>;

    fn deref(&self) -> &State<S> {
        self.state.as_ref().expect("locked")
    }
}

impl<S: Side> std::ops::DerefMut for Guard<'_, S> {
    fn deref_mut(&mut self) -> &mut State<S> {
        self.state.as_mut().expect("locked")
    }
}

impl<S: Side> Drop for Guard<'_, S> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Keeps an end of a session open. It is closed when the last is dropped.
pub(super) struct Handle<S: Side> {
    pub(super) core: Arc<Core<S>>,
    keeper: Option<JoinHandle<()>>,
}

impl<S: Side> Handle<S> {
    pub(super) fn new(core: Arc<Core<S>>, keeper: JoinHandle<()>) -> Self {
        Self { core, keeper: Some(keeper) }
    }

    /// Closes this end, if this is all that keeps it open, and waits for that.
    pub(super) fn close(self: Arc<Self>) -> Result<()> {
        reachable()?;
        let mut handle = Arc::into_inner(self).ok_or(Error::InUse)?;
        let (core, keeper) = (Arc::clone(&handle.core), handle.keeper.take());
        drop(handle);
        let mut state = core.lock();
        // In the middle of the process's exit nobody settles anything any more, and nothing has to be settled.
        while !state.settled && !teardown::exiting() {
            if let Some(ended) = state.ended.as_ref().filter(|ended| ended.rescued && !state.side.is_done()) {
                return Err(ended.why.to_error());
            }
            state.wait(None);
        }
        drop(state);
        drop(core);
        if let Some(keeper) = keeper.filter(|_| !teardown::exiting()) {
            // One that has panicked has nothing more to say.
            let _ = keeper.join();
        }
        Ok(())
    }
}

impl<S: Side> std::ops::Deref for Handle<S> {
    type Target = Core<S>;

    fn deref(&self) -> &Core<S> {
        &self.core
    }
}

impl<S: Side> Drop for Handle<S> {
    fn drop(&mut self) {
        if teardown::forked() {
            // A forked child has the descriptors of its parent's keeper, and no keeper.
            std::mem::forget(self.keeper.take());
        } else {
            self.core.lock().closing = true;
            self.core.waker.wake();
        }
    }
}
