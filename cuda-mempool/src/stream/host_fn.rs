//! Host functions: closures that a stream runs in its order.

use std::ffi::c_void;

use crate::error::call;
use crate::{teardown, Result, Stream};

impl Stream {
    /// Enqueues `function`, to be run on a thread of the driver when all that was enqueued before is done. What is
    /// enqueued after waits for it.
    ///
    /// It must not call CUDA, nor wait for anything that does: the driver may deadlock. Handles and buffers of this
    /// crate that it drops are leaked, and the hook of [`on_drop_error`](crate::on_drop_error) is told. Its panics are
    /// caught and logged. If the device's context breaks before its turn, it never runs, and what it holds is leaked.
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
    /// What `function` borrows must live until the stream has been settled.
    pub(super) unsafe fn launch_host_fn_unchecked<F: FnOnce() + Send>(&self, function: F) -> Result<()> {
        unsafe extern "C" fn run<F: FnOnce()>(data: *mut c_void) {
            // SAFETY: `data` is the box made below, and a stream that is not captured runs it at most once.
            let function = unsafe { Box::from_raw(data.cast::<F>()) };
            teardown::in_host_fn(function);
        }
        let _current = self.enter("cudaLaunchHostFunc")?;
        self.refuse_capture("cudaLaunchHostFunc", "a closure that runs once cannot be captured into a graph")?;
        let data = Box::into_raw(Box::new(function));
        // SAFETY: the stream is alive. The function gets the data it is made for, which it frees.
        let answer = unsafe { call!(cudaLaunchHostFunc(self.raw(), Some(run::<F>), data.cast())) };
        if answer.is_err() {
            // SAFETY: a launch that failed runs nothing, so the box is still ours.
            drop(unsafe { Box::from_raw(data) });
        }
        answer
    }
}
