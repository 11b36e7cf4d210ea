//! Memory on a device, freed in the order of its stream.

mod copy;
mod slice;

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{size_of, ManuallyDrop};
use std::ops::RangeBounds;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::error::call;
use crate::stream::order;
use crate::{teardown, Device, Error, Result, Stream};

pub use slice::{DeviceSlice, DeviceSliceMut};

/// An array of `T` in the memory of a pool, owned, and freed when dropped.
///
/// It belongs to a stream. Its operations are enqueued there, and so is its free: nothing waits, and whatever is
/// enqueued on that stream later comes after. Work on other streams is brought into this order by
/// [`set_stream`](Self::set_stream), [`with_stream`](Self::with_stream) and the copies between buffers, so safe code has
/// no race.
///
/// Contents start unspecified, unless it was made by [`alloc_zeroed`](crate::MemPool::alloc_zeroed) or
/// [`from_slice`](crate::MemPool::from_slice).
///
/// It does not keep its pool: the pool may be dropped first, and its memory lives on until the last buffer is freed.
///
/// ```
/// # cuda_mempool::example::run(|device| {
/// use cuda_mempool::{MemPool, Stream};
/// let stream = Stream::new(device)?;
/// let pool = MemPool::default_for(device)?;
/// let mut buffer = pool.from_slice(&stream, &[1.0_f32, 2.0, 3.0])?;
/// buffer.slice_mut(1..).zero()?;
/// assert_eq!(buffer.to_vec()?, [1.0, 0.0, 0.0]);
/// # Ok(()) });
/// ```
///
/// Two parts can be written to at a time only where they do not overlap:
///
/// ```compile_fail,E0499
/// # fn f(buffer: &mut cuda_mempool::DeviceBuffer<u8>) {
/// let first = buffer.slice_mut(..2);
/// let second = buffer.slice_mut(1..);
/// first.zero();
/// # }
/// ```
pub struct DeviceBuffer<T> {
    pointer: NonNull<T>,
    length: usize,
    /// What is freed: null when nothing is allocated, and before `pointer` where more than the runtime's alignment was
    /// needed.
    base: *mut c_void,
    stream: Stream,
    owns: PhantomData<T>,
}

/// A [`DeviceBuffer`] taken apart, for code that goes on without this crate.
#[derive(Debug, Clone)]
pub struct RawDeviceBuffer<T> {
    /// Its first element. Dangling, but aligned, when there are no bytes.
    pub pointer: *mut T,
    /// How many elements there are.
    pub length: usize,
    /// What to give to `cudaFreeAsync`: null when there are no bytes. Differs from `pointer` only for element types
    /// whose alignment is above 256.
    pub base: *mut c_void,
    /// The stream that all work on the memory so far is ordered on.
    pub stream: Stream,
}

// SAFETY: it owns its elements, which are reached through the runtime alone; the runtime's functions may be called from
// any thread. A per-thread stream's own check keeps its work on its thread.
unsafe impl<T: Send> Send for DeviceBuffer<T> {}
// SAFETY: as above. By shared reference the memory is only read.
unsafe impl<T: Sync> Sync for DeviceBuffer<T> {}

impl<T> DeviceBuffer<T> {
    pub(crate) fn without_memory(length: usize, stream: Stream) -> Self {
        Self { pointer: NonNull::dangling(), length, base: std::ptr::null_mut(), stream, owns: PhantomData }
    }

    /// # Safety
    /// As for [`DeviceBuffer::from_raw`].
    #[inline]
    pub(crate) unsafe fn from_parts(pointer: NonNull<T>, length: usize, base: *mut c_void, stream: Stream) -> Self {
        Self { pointer, length, base, stream, owns: PhantomData }
    }

    /// Takes over memory: it is freed with `cudaFreeAsync` on its stream when dropped.
    ///
    /// # Safety
    /// - `base` must be null, or memory that `cudaFreeAsync` frees and that nobody else frees; with a null `base`,
    ///   `length * size_of::<T>()` must be 0.
    /// - `pointer` must be non-null, aligned, and point to `length` elements within that memory, which the stream's
    ///   device can reach.
    /// - All work on the memory so far must be ordered before what is enqueued on `stream` from now on.
    #[must_use]
    pub unsafe fn from_raw(raw: RawDeviceBuffer<T>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_parts(NonNull::new_unchecked(raw.pointer), raw.length, raw.base, raw.stream) }
    }

    /// Takes the buffer apart. The memory is the caller's to free.
    #[must_use]
    pub fn into_raw(self) -> RawDeviceBuffer<T> {
        let this = ManuallyDrop::new(self);
        RawDeviceBuffer {
            pointer: this.pointer.as_ptr(),
            length: this.length,
            base: this.base,
            // SAFETY: `this` is never used nor dropped again.
            stream: unsafe { std::ptr::read(&this.stream) },
        }
    }

    /// Enqueues the free, as dropping does, and says whether that succeeded.
    ///
    /// # Errors
    /// What `cudaFreeAsync` answers, with the buffer.
    #[doc(alias = "cudaFreeAsync")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        match teardown::try_release("cudaFreeAsync", || self.free()) {
            Ok(()) => {
                drop(self.into_raw().stream);
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many bytes the elements take.
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        // No overflow: this much is allocated.
        self.length * size_of::<T>()
    }

    /// The stream that it belongs to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The device of its stream. The memory may lie elsewhere: see the pool.
    #[must_use]
    pub fn device(&self) -> Device {
        self.stream.device()
    }

    /// The device pointer, for kernels that read, enqueued on [`stream`](Self::stream).
    ///
    /// On another stream, use [`read_with_stream`](Self::read_with_stream).
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.pointer.as_ptr()
    }

    /// The device pointer, for kernels enqueued on [`stream`](Self::stream).
    ///
    /// On another stream, use [`with_stream`](Self::with_stream).
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.pointer.as_ptr()
    }

    /// Moves the buffer to another stream: what is enqueued there from now on comes after all work on it so far.
    ///
    /// Costs an event record and a wait; nothing when it is the same stream. If it belonged to another thread's
    /// [per-thread stream](Stream::per_thread), waits until that device is idle.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// # use cuda_mempool::{MemPool, Stream};
    /// # let pool = MemPool::default_for(device)?;
    /// let (first, second) = (Stream::new(device)?, Stream::new(device)?);
    /// let mut buffer = pool.alloc_zeroed::<u8>(&first, 100)?;
    /// buffer.set_stream(&second)?;
    /// drop(first);
    /// assert_eq!(buffer.to_vec()?, [0; 100]);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// What recording and waiting answer, and [`ErrorKind::WrongThread`](crate::ErrorKind::WrongThread). The buffer
    /// stays on its stream then.
    #[doc(alias = "cudaStreamWaitEvent")]
    pub fn set_stream(&mut self, stream: &Stream) -> Result<()> {
        if self.stream != *stream {
            order(&self.stream, stream)?;
            self.stream = stream.clone();
        }
        Ok(())
    }

    /// Frees what was allocated, in the order of the stream.
    #[inline]
    fn free(&self) -> Result<()> {
        if self.base.is_null() {
            return Ok(());
        }
        if self.stream.is_elsewhere() {
            return self.free_from_afar();
        }
        let _current = self.stream.enter("cudaFreeAsync")?;
        // SAFETY: `base` was allocated, is freed only here, and all work on it was ordered on this stream.
        unsafe { call!(cudaFreeAsync(self.base, self.stream.raw())) }
    }

    /// Another thread's per-thread stream cannot be reached: its work is waited for instead.
    #[cold]
    fn free_from_afar(&self) -> Result<()> {
        let device = self.stream.device();
        device.synchronize()?;
        let own = Stream::per_thread(device);
        let _current = own.enter("cudaFreeAsync")?;
        // SAFETY: as in `free`; the work is done, so any stream will do.
        unsafe { call!(cudaFreeAsync(self.base, own.raw())) }
    }
}

impl<T> Drop for DeviceBuffer<T> {
    #[inline]
    fn drop(&mut self) {
        if !self.base.is_null() {
            teardown::release("cudaFreeAsync", || self.free());
        }
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// All of it, to read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        // SAFETY: the view borrows the buffer, which stays alive and on its stream meanwhile.
        unsafe { DeviceSlice::new(self.pointer, self.length, &self.stream) }
    }

    /// All of it, to write.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        // SAFETY: the view borrows the buffer exclusively, which stays alive and on its stream meanwhile.
        unsafe { DeviceSliceMut::new(self.pointer, self.length, &self.stream) }
    }

    /// A part of it, to read.
    ///
    /// # Panics
    /// When the range is not within the buffer, as for slices.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> DeviceSlice<'_, T> {
        self.as_slice().slice(range)
    }

    /// A part of it, to write.
    ///
    /// # Panics
    /// When the range is not within the buffer, as for slices.
    #[must_use]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        self.as_slice_mut().slice_mut(range)
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("pointer", &self.pointer)
            .field("length", &self.length)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
