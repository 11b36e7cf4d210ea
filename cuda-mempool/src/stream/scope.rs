//! Asynchronous work with borrowed host memory.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;

use super::running::Running;
use super::settle;
use crate::{teardown, DeviceSlice, DeviceSliceMut, Result, Stream};

/// Where host memory can be lent to asynchronous work: made by [`Stream::scope`].
pub struct Scope<'scope, 'env: 'scope> {
    stream: &'env Stream,
    /// Whether something may have been enqueued that uses what was lent, and was not waited for.
    lent: AtomicBool,
    /// Its host functions, if it has any.
    host_fns: OnceLock<Arc<Running>>,
    /// Invariant in `'scope`: it must be neither grown nor shrunk.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Stream {
    /// Runs `work`, in which host memory can be lent to copies and host functions on this stream, and waits for the
    /// stream before it returns, also on panic. As with [`std::thread::scope`], all that is lent must outlive the scope.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::{MemPool, Stream};
    /// let stream = Stream::new(device)?;
    /// let pool = MemPool::default_for(device)?;
    /// let input = vec![1_u32, 2, 3];
    /// let mut output = vec![0; 3];
    /// let mut buffer = pool.alloc::<u32>(&stream, 3)?;
    /// stream.scope(|s| {
    ///     s.copy_from_host(&mut buffer, &input)?;
    ///     s.copy_to_host(&buffer, &mut output)
    /// })?;
    /// assert_eq!(output, input);
    /// # Ok(()) });
    /// ```
    ///
    /// What dies in the scope cannot be lent:
    ///
    /// ```compile_fail,E0597
    /// # fn f(stream: &cuda_mempool::Stream, buffer: &cuda_mempool::DeviceBuffer<u32>) {
    /// stream.scope(|s| {
    ///     let mut output = vec![0_u32; 3];
    ///     s.copy_to_host(buffer, &mut output)
    /// });
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Capture`](crate::ErrorKind::Capture) on a stream that is being captured and
    /// [`ErrorKind::WrongThread`](crate::ErrorKind::WrongThread), both before `work` is run. The error of `work`, else
    /// what the wait answers: then nothing of the scope runs any more. In a child forked by `work`,
    /// [`ErrorKind::NotPermitted`](crate::ErrorKind::NotPermitted).
    ///
    /// # Aborts
    /// The process, when the runtime refuses to wait by any means although the device's context is intact: the memory
    /// would be free while the device writes to it.
    #[doc(alias = "cudaStreamSynchronize")]
    pub fn scope<'env, R, F>(&'env self, work: F) -> Result<R>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    {
        struct EndOnPanic<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);
        impl Drop for EndOnPanic<'_, '_, '_> {
            fn drop(&mut self) {
                if let Err(error) = self.0.end() {
                    teardown::report(&error);
                }
            }
        }

        {
            let _current = self.enter("cudaStreamSynchronize")?;
            self.refuse_capture("cudaStreamSynchronize", "a stream that is being captured cannot be waited for")?;
        }
        let scope = Scope {
            stream: self,
            lent: AtomicBool::new(false),
            host_fns: OnceLock::new(),
            scope: PhantomData,
            env: PhantomData,
        };
        let on_panic = EndOnPanic(&scope);
        let result = work(&scope);
        std::mem::forget(on_panic);
        // What a forked child has of the scope was enqueued in its parent, and is done there.
        let ended = scope.end().and_then(|()| teardown::reachable("cudaStreamSynchronize"));
        let result = result?;
        ended?;
        Ok(result)
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// The stream of the scope.
    #[must_use]
    pub fn stream(&self) -> &'env Stream {
        self.stream
    }

    /// Enqueues a copy from `source` on the host. If the buffer belongs to another stream, that is ordered before and
    /// after the copy.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`](crate::ErrorKind::LengthMismatch),
    /// [`ErrorKind::Capture`](crate::ErrorKind::Capture), or what the runtime answers.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_from_host<'a, T: Pod>(
        &'scope self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: &'scope [T],
    ) -> Result<()> {
        // SAFETY: the source is lent for 'scope, and the scope settles this stream before that ends.
        self.lend(unsafe { target.into().copy_from_host_on(self.stream, source) })
    }

    /// Enqueues a copy to `target` on the host, which can be read when the scope is over. If the buffer belongs to
    /// another stream, that is ordered before and after the copy.
    ///
    /// # Errors
    /// As [`Scope::copy_from_host`].
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_to_host<'a, T: Pod>(
        &'scope self,
        source: impl Into<DeviceSlice<'a, T>>,
        target: &'scope mut [T],
    ) -> Result<()> {
        // SAFETY: the target is lent for 'scope, and the scope settles this stream before that ends.
        self.lend(unsafe { source.into().copy_to_host_on(self.stream, target) })
    }

    /// Enqueues a host function, as [`Stream::launch_host_fn`], that may borrow what outlives the scope.
    ///
    /// # Errors
    /// As [`Stream::launch_host_fn`].
    #[doc(alias = "cudaLaunchHostFunc")]
    pub fn launch_host_fn<F: FnOnce() + Send + 'scope>(&'scope self, function: F) -> Result<()> {
        let host_fns = Arc::clone(self.host_fns.get_or_init(Arc::default));
        // SAFETY: what it borrows lives for 'scope, and it neither runs nor begins to when the scope is over.
        self.lend(unsafe { self.stream.launch_host_fn_unchecked(move || host_fns.run(function)) })
    }

    /// Notes what an attempt to enqueue came to.
    fn lend(&self, answer: Result<()>) -> Result<()> {
        if !matches!(&answer, Err(error) if error.did_nothing()) {
            self.lent.store(true, Ordering::Relaxed);
        }
        answer
    }

    fn end(&self) -> Result<()> {
        if teardown::forked() {
            return Ok(());
        }
        if !self.lent.load(Ordering::Relaxed) {
            return self.stream.synchronize();
        }
        let mut settled = Ok(());
        // A host function can take the scope to another thread, which lends while that function is being waited for.
        while self.lent.swap(false, Ordering::Relaxed) {
            settled = settled.and(settle(self.stream));
        }
        if let Some(host_fns) = self.host_fns.get() {
            host_fns.end();
        }
        settled
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stream", self.stream).finish_non_exhaustive()
    }
}
