//! Copies, fills, and the use of a buffer on another stream.

use std::mem::{size_of, size_of_val};

use bytemuck::Pod;
use cuda_mempool_sys as sys;
use sys::cudaMemcpyKind;

use crate::error::call;
use crate::stream::{order, settle};
use crate::{teardown, DeviceBuffer, DeviceSlice, DeviceSliceMut, Error, ErrorKind, Result, Stream};

impl<T: Pod> DeviceSlice<'_, T> {
    /// Copies to `target` on the host, and waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`], [`ErrorKind::Capture`] on a stream that is being captured, or what the runtime
    /// answers.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_to_host(&self, target: &mut [T]) -> Result<()> {
        // SAFETY: the stream is settled before the target's borrow ends.
        let enqueued = unsafe { self.copy_to_host_on(self.stream, target) };
        wait_for(self.stream, size_of_val(target), enqueued)
    }

    /// Copies to a new vector, and waits for it.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_to_host`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.length];
        self.copy_to_host(&mut elements)?;
        Ok(elements)
    }

    /// Enqueues a copy to `target` on the host, and returns at once. For borrows that the compiler can check, see
    /// [`Stream::scope`].
    ///
    /// # Safety
    /// Until the stream has done the copy (it was synchronised, or an event after it was), `target` must stay valid and
    /// not be read or written. Its borrow ends before that.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_to_host`].
    #[doc(alias = "cudaMemcpyAsync")]
    pub unsafe fn copy_to_host_async(&self, target: &mut [T]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_to_host_on(self.stream, target) }
    }

    /// Enqueues a copy to the host on `worker`, between two waits if that is not the buffer's stream.
    ///
    /// # Safety
    /// `target` must stay valid and unused until `worker` has done the copy, also if an error is returned.
    pub(crate) unsafe fn copy_to_host_on(&self, worker: &Stream, target: &mut [T]) -> Result<()> {
        same_length(target.len(), self.length)?;
        bracket(self.stream, worker, || {
            // SAFETY: the view has as many elements as the target, which the caller keeps.
            unsafe { enqueue_copy(target.as_mut_ptr(), self.pointer.as_ptr(), self.length, worker, Host::Involved) }
        })
    }

    /// Runs `work` for reading the elements on another stream: what it enqueues on `other` comes after all that was
    /// enqueued on the buffer's stream, and before all that will be.
    ///
    /// `work` gets the device pointer. If it panics, the order is kept.
    ///
    /// # Errors
    /// What recording and waiting answer. When the way back fails, `other` is waited for instead.
    pub fn read_with_stream<R>(&self, other: &Stream, work: impl FnOnce(*const T) -> R) -> Result<R> {
        bracket(self.stream, other, || Ok(work(self.pointer.as_ptr())))
    }
}

impl<T: Pod> DeviceSliceMut<'_, T> {
    /// Copies from `source` on the host, and waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`], [`ErrorKind::Capture`] on a stream that is being captured, or what the runtime
    /// answers.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_from_host(&mut self, source: &[T]) -> Result<()> {
        // SAFETY: the stream is settled before the source's borrow ends.
        let enqueued = unsafe { self.copy_from_host_on(self.stream, source) };
        wait_for(self.stream, size_of_val(source), enqueued)
    }

    /// Enqueues a copy from `source` on the host, and returns at once. For borrows that the compiler can check, see
    /// [`Stream::scope`].
    ///
    /// # Safety
    /// Until the stream has done the copy (it was synchronised, or an event after it was), `source` must stay valid and
    /// not be written. Its borrow ends before that.
    ///
    /// # Errors
    /// As [`DeviceSliceMut::copy_from_host`].
    #[doc(alias = "cudaMemcpyAsync")]
    pub unsafe fn copy_from_host_async(&mut self, source: &[T]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_from_host_on(self.stream, source) }
    }

    /// Enqueues a copy from the host on `worker`, between two waits if that is not the buffer's stream.
    ///
    /// # Safety
    /// `source` must stay valid and unchanged until `worker` has done the copy, also if an error is returned.
    pub(crate) unsafe fn copy_from_host_on(&mut self, worker: &Stream, source: &[T]) -> Result<()> {
        same_length(self.length, source.len())?;
        bracket(self.stream, worker, || {
            // SAFETY: the view has as many elements as the source, which the caller keeps.
            unsafe { enqueue_copy(self.pointer.as_ptr(), source.as_ptr(), self.length, worker, Host::Involved) }
        })
    }

    /// Enqueues a copy from other elements on a device, this one or another.
    ///
    /// The copy runs on the stream of `self`. If `source` belongs to another stream, that is ordered before and after
    /// it, so the source can be dropped or written to right after.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`], or what the runtime answers.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_from<'b>(&mut self, source: impl Into<DeviceSlice<'b, T>>) -> Result<()> {
        let source = source.into();
        same_length(self.length, source.length)?;
        bracket(source.stream, self.stream, || {
            // SAFETY: both views have as many elements, and do not overlap as one is exclusive.
            unsafe {
                enqueue_copy(
                    self.pointer.as_ptr(),
                    source.pointer.as_ptr(),
                    self.length,
                    self.stream,
                    Host::NotInvolved,
                )
            }
        })
    }

    /// Enqueues setting all bytes to zero.
    ///
    /// # Errors
    /// What the runtime answers: [`ErrorKind::InvalidValue`] for memory of the host to which the stream's device was
    /// not [granted](crate::MemPool::set_access) access.
    #[doc(alias = "cudaMemsetAsync")]
    pub fn zero(&mut self) -> Result<()> {
        self.fill_bytes(0)
    }

    /// Enqueues setting all bytes to `byte`.
    ///
    /// # Errors
    /// As [`DeviceSliceMut::zero`].
    #[doc(alias = "cudaMemsetAsync")]
    pub fn fill_bytes(&mut self, byte: u8) -> Result<()> {
        let bytes = self.length * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.stream.enter("cudaMemsetAsync")?;
        // SAFETY: the view's bytes are valid for writing in the order of its stream, and any byte pattern is a `T`.
        unsafe { call!(cudaMemsetAsync(self.pointer.as_ptr().cast(), byte.into(), bytes, self.stream.raw())) }
            .map_err(|error| self.explain(error))
    }

    /// A fill is work of the device, which not all memory is open to.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::InvalidValue {
            return error;
        }
        let device = self.stream.device();
        error.about(format!("if the memory is not on {device}, that needs a grant: MemPool::set_access"))
    }

    /// Sets all elements to `value`.
    ///
    /// Enqueued, when the bytes of `value` are all the same. Else its first copy comes from the host, which is waited
    /// for, and is then doubled on the device.
    ///
    /// # Errors
    /// As [`DeviceSliceMut::zero`] and [`DeviceSliceMut::copy_from_host`].
    pub fn fill(&mut self, value: T) -> Result<()> {
        let bytes = bytemuck::bytes_of(&value);
        let Some(&byte) = bytes.first() else { return Ok(()) };
        if bytes.iter().all(|&other| other == byte) {
            return self.fill_bytes(byte);
        }
        if self.length == 0 {
            return Ok(());
        }
        self.reborrow().slice_mut(..1).copy_from_host(&[value])?;
        let mut done = 1;
        while done < self.length {
            let (filled, mut rest) = self.reborrow().split_at_mut(done);
            let step = done.min(rest.len());
            rest.reborrow().slice_mut(..step).copy_from(filled.as_slice().slice(..step))?;
            done += step;
        }
        Ok(())
    }

    /// Copies to `target` on the host, and waits for it.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_to_host`].
    pub fn copy_to_host(&self, target: &mut [T]) -> Result<()> {
        self.as_slice().copy_to_host(target)
    }

    /// Copies to a new vector, and waits for it.
    ///
    /// # Errors
    /// As [`DeviceSlice::copy_to_host`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_slice().to_vec()
    }

    /// Runs `work` for using the elements on another stream: what it enqueues on `other` comes after all that was
    /// enqueued on the buffer's stream, and before all that will be.
    ///
    /// `work` gets the device pointer. If it panics, the order is kept.
    ///
    /// # Errors
    /// What recording and waiting answer. When the way back fails, `other` is waited for instead.
    pub fn with_stream<R>(&mut self, other: &Stream, work: impl FnOnce(*mut T) -> R) -> Result<R> {
        bracket(self.stream, other, || Ok(work(self.pointer.as_ptr())))
    }
}

/// The operations on all of a buffer: those of its views.
impl<T: Pod> DeviceBuffer<T> {
    /// As [`DeviceSlice::copy_to_host`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_to_host(&self, target: &mut [T]) -> Result<()> {
        self.as_slice().copy_to_host(target)
    }

    /// As [`DeviceSlice::to_vec`].
    ///
    /// # Errors
    /// As there.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_slice().to_vec()
    }

    /// As [`DeviceSlice::copy_to_host_async`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemcpyAsync")]
    pub unsafe fn copy_to_host_async(&self, target: &mut [T]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.as_slice().copy_to_host_async(target) }
    }

    /// As [`DeviceSlice::read_with_stream`].
    ///
    /// # Errors
    /// As there.
    pub fn read_with_stream<R>(&self, other: &Stream, work: impl FnOnce(*const T) -> R) -> Result<R> {
        self.as_slice().read_with_stream(other, work)
    }

    /// As [`DeviceSliceMut::copy_from_host`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_from_host(&mut self, source: &[T]) -> Result<()> {
        self.as_slice_mut().copy_from_host(source)
    }

    /// As [`DeviceSliceMut::copy_from_host_async`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemcpyAsync")]
    pub unsafe fn copy_from_host_async(&mut self, source: &[T]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.as_slice_mut().copy_from_host_async(source) }
    }

    /// As [`DeviceSliceMut::copy_from`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn copy_from<'b>(&mut self, source: impl Into<DeviceSlice<'b, T>>) -> Result<()> {
        self.as_slice_mut().copy_from(source)
    }

    /// As [`DeviceSliceMut::zero`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemsetAsync")]
    pub fn zero(&mut self) -> Result<()> {
        self.as_slice_mut().zero()
    }

    /// As [`DeviceSliceMut::fill_bytes`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemsetAsync")]
    pub fn fill_bytes(&mut self, byte: u8) -> Result<()> {
        self.as_slice_mut().fill_bytes(byte)
    }

    /// As [`DeviceSliceMut::fill`].
    ///
    /// # Errors
    /// As there.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.as_slice_mut().fill(value)
    }

    /// As [`DeviceSliceMut::with_stream`].
    ///
    /// # Errors
    /// As there.
    pub fn with_stream<R>(&mut self, other: &Stream, work: impl FnOnce(*mut T) -> R) -> Result<R> {
        self.as_slice_mut().with_stream(other, work)
    }
}

/// Runs `work`, which enqueues on `worker`, after all that is on `home` so far and before all that will be.
fn bracket<R>(home: &Stream, worker: &Stream, work: impl FnOnce() -> Result<R>) -> Result<R> {
    struct BackOnPanic<'a> {
        home: &'a Stream,
        worker: &'a Stream,
    }
    impl BackOnPanic<'_> {
        fn back(&self) -> Result<()> {
            order(self.worker, self.home).or_else(|error| {
                // What is captured does not run, so there is nothing to wait for, nor could it be waited for.
                if !matches!(self.worker.is_capturing(), Ok(true)) {
                    settle(self.worker)?;
                }
                Err(error)
            })
        }
    }
    impl Drop for BackOnPanic<'_> {
        fn drop(&mut self) {
            if let Err(error) = self.back() {
                teardown::report(&error);
            }
        }
    }

    // Before anything is enqueued: without a way back there must be none forth.
    drop(home.enter("cudaEventRecord").map_err(Error::before_work)?);
    order(home, worker).map_err(Error::before_work)?;
    let on_panic = BackOnPanic { home, worker };
    let result = work();
    let back = on_panic.back();
    std::mem::forget(on_panic);
    let result = result?;
    back?;
    Ok(result)
}

/// Whether a copy reads or writes memory of the caller's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    Involved,
    NotInvolved,
}

/// # Safety
/// Both pointers must be valid for `length` elements and not overlap, in the order of `stream`.
unsafe fn enqueue_copy<T>(target: *mut T, source: *const T, length: usize, stream: &Stream, host: Host) -> Result<()> {
    // No overflow: this much memory exists.
    let bytes = length * size_of::<T>();
    if bytes == 0 {
        return Ok(());
    }
    let _current = stream.enter("cudaMemcpyAsync").map_err(Error::before_work)?;
    if host == Host::Involved {
        // The graph would use the memory when it is launched, long after the borrow.
        stream
            .refuse_capture("cudaMemcpyAsync", "a copy with borrowed host memory cannot be captured into a graph")
            .map_err(Error::before_work)?;
    }
    // The kind is left to the runtime, which knows every pointer: memory of a pool may be on the host too.
    // SAFETY: the caller's promise.
    unsafe {
        call!(cudaMemcpyAsync(target.cast(), source.cast(), bytes, cudaMemcpyKind::cudaMemcpyDefault, stream.raw()))
    }
}

/// Waits for a copy that may have been enqueued.
fn wait_for(stream: &Stream, bytes: usize, enqueued: Result<()>) -> Result<()> {
    if bytes == 0 || matches!(&enqueued, Err(error) if error.did_nothing()) {
        return enqueued;
    }
    let settled = settle(stream);
    enqueued.and(settled)
}

fn same_length(target: usize, source: usize) -> Result<()> {
    if target == source {
        return Ok(());
    }
    Err(Error::refused(
        ErrorKind::LengthMismatch,
        "cudaMemcpyAsync",
        format!("the target has {target} elements and the source {source}"),
    ))
}
