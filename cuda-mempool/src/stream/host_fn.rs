//! Host functions: closures that a stream runs in its order.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::call;
use crate::{teardown, Result, Stream};

type Function<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Those that wait for their turn, by number, and the last number. The driver gets a number and no pointer: should it come
/// with one twice, as a graph does that other code began to capture at that very moment, or with one whose launch failed,
/// there is nothing to run.
struct Waiting {
    last: usize,
    functions: BTreeMap<usize, Function<'static>>,
}

impl Waiting {
    fn list() -> MutexGuard<'static, Self> {
        static LIST: Mutex<Waiting> = Mutex::new(Waiting { last: 0, functions: BTreeMap::new() });
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(function: Function<'static>) -> usize {
        let mut list = Self::list();
        list.last += 1;
        let number = list.last;
        list.functions.insert(number, function);
        number
    }

    fn take(number: usize) -> Option<Function<'static>> {
        Self::list().functions.remove(&number)
    }
}

extern "C" fn run(number: *mut c_void) {
    if let Some(function) = Waiting::take(number as usize) {
        teardown::in_host_fn(function);
    }
}

impl Stream {
    /// Enqueues `function`, to be run on a thread of the driver when all that was enqueued before is done. What is
    /// enqueued after waits for it.
    ///
    /// It must not call CUDA, nor wait for anything that does: the driver may deadlock. Handles and buffers of this
    /// crate that it drops are leaked (but blocks of a [`BlockCache`](crate::BlockCache) go back to it), and the hook of
    /// [`on_drop_error`](crate::on_drop_error) is told. Its panics are caught and logged. If the device's context breaks
    /// before its turn, it never runs, and what it holds is leaked.
    ///
    /// To borrow from the caller, use [`Scope::launch_host_fn`](crate::Scope::launch_host_fn).
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::Stream;
    /// let stream = Stream::new(device)?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// stream.launch_host_fn(move || sender.send("here").unwrap())?;
    /// stream.synchronize()?;
    /// assert_eq!(receiver.try_recv(), Ok("here"));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// What `cudaLaunchHostFunc` answers, [`ErrorKind::Capture`](crate::ErrorKind::Capture) when the stream is being
    /// captured (a graph would run it more than once), or [`ErrorKind::WrongThread`](crate::ErrorKind::WrongThread).
    #[doc(alias = "cudaLaunchHostFunc")]
    pub fn launch_host_fn<F: FnOnce() + Send + 'static>(&self, function: F) -> Result<()> {
        // SAFETY: a 'static closure may run, or be leaked, at any time.
        unsafe { self.launch_host_fn_unchecked(function) }
    }

    /// # Safety
    /// What `function` borrows must live until the stream has been settled. If it has not been run then, running it must do
    /// nothing.
    pub(super) unsafe fn launch_host_fn_unchecked<F: FnOnce() + Send>(&self, function: F) -> Result<()> {
        let _current = self.enter("cudaLaunchHostFunc")?;
        self.refuse_capture("cudaLaunchHostFunc", "a closure that runs once cannot be captured into a graph")?;
        // SAFETY: once what it borrows may be gone, it is neither run nor dropped: that is the caller's promise.
        let function = unsafe { std::mem::transmute::<Function<'_>, Function<'static>>(Box::new(function)) };
        let number = Waiting::add(function);
        // SAFETY: the stream is alive. The function looks up what it is given.
        let answer = unsafe { call!(cudaLaunchHostFunc(self.raw(), Some(run), number as *mut c_void)) };
        if answer.is_err() {
            drop(Waiting::take(number));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_comes_twice_runs_once() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let number = Waiting::add(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let other = Waiting::add(Box::new(|| panic!("not this one")));
        run(number as *mut c_void);
        run(number as *mut c_void);
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        assert!(Waiting::take(other).is_some());
    }
}
