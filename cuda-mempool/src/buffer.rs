//! Memory on a device, freed in the order of its stream.

mod allocate;
mod block;
mod copy;
mod slice;
mod unpooled;

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{size_of, ManuallyDrop};
use std::ops::RangeBounds;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::stream::order;
use crate::{Device, Error, Result, Stream};

pub(crate) use allocate::FROM_POOL;
pub use block::Home;
pub(crate) use block::{free, Block};
#[cfg(target_os = "linux")]
pub(crate) use slice::within;
pub use slice::{DeviceSlice, DeviceSliceMut};
#[cfg(target_os = "linux")]
pub(crate) use unpooled::malloc;

/// An array of `T` in the memory of a pool, or [of none](Self::unpooled), owned, and freed when dropped.
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
    /// What is given back in the end. It begins before `pointer` where more than the runtime's alignment was needed.
    block: ManuallyDrop<Block>,
    owns: PhantomData<T>,
}

/// A [`DeviceBuffer`] taken apart, for code that goes on without this crate.
#[derive(Debug, Clone)]
pub struct RawDeviceBuffer<T> {
    /// Its first element. Dangling, but aligned, when there are no bytes.
    pub pointer: *mut T,
    /// How many elements there are.
    pub length: usize,
    /// What was allocated: null when there are no bytes. Differs from `pointer` only for element types whose alignment
    /// is above 256.
    pub base: *mut c_void,
    /// The stream that all work on the memory so far is ordered on.
    pub stream: Stream,
    /// Who gets `base` back: `cudaFreeAsync`, unless the buffer came from a cache or a memory resource.
    pub home: Home,
}

// What the next two rest on.
const _: () = {
    const fn sent_and_shared<T: Send + Sync>() {}
    sent_and_shared::<Home>();
    sent_and_shared::<Stream>();
};
// SAFETY: it owns its elements, which are reached through the runtime alone; the runtime's functions may be called from
// any thread. A per-thread stream's own check keeps its work on its thread.
unsafe impl<T: Send> Send for DeviceBuffer<T> {}
// SAFETY: as above. By shared reference the memory is only read.
unsafe impl<T: Sync> Sync for DeviceBuffer<T> {}

impl<T> DeviceBuffer<T> {
    /// # Safety
    /// As for [`DeviceBuffer::from_raw`].
    #[inline]
    unsafe fn from_block(pointer: NonNull<T>, length: usize, block: Block) -> Self {
        Self { pointer, length, block: ManuallyDrop::new(block), owns: PhantomData }
    }

    /// Takes over memory: it goes to its home, in the order of its stream, when dropped.
    ///
    /// # Safety
    /// - `base` must be null, or memory that its home takes back ([`Home::RUNTIME`]: that `cudaFreeAsync` frees) and that
    ///   nobody else gives back; with a null `base`, `length * size_of::<T>()` must be 0.
    /// - `pointer` must be non-null, aligned, and point to `length` elements within that memory, which the stream's
    ///   device can reach.
    /// - All work on the memory so far must be ordered before what is enqueued on `stream` from now on.
    #[must_use]
    pub unsafe fn from_raw(raw: RawDeviceBuffer<T>) -> Self {
        let RawDeviceBuffer { pointer, length, base, stream, home } = raw;
        // SAFETY: the caller's promise.
        unsafe { Self::from_block(NonNull::new_unchecked(pointer), length, Block { base, stream, home }) }
    }

    /// Takes the buffer apart. The memory is the caller's to give back.
    #[must_use]
    pub fn into_raw(self) -> RawDeviceBuffer<T> {
        let (pointer, length) = (self.pointer.as_ptr(), self.length);
        let Block { base, stream, home } = self.into_block();
        RawDeviceBuffer { pointer, length, base, stream, home }
    }

    fn into_block(self) -> Block {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used nor dropped again.
        unsafe { ManuallyDrop::take(&mut this.block) }
    }

    /// Enqueues the free, as dropping does, and says whether that succeeded.
    ///
    /// # Errors
    /// What `cudaFreeAsync` or the memory resource answers, with the buffer.
    #[doc(alias = "cudaFreeAsync")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        let (pointer, length) = (self.pointer, self.length);
        // SAFETY: the memory is this buffer's, which is gone.
        unsafe { self.into_block().give_back() }.map_err(|(block, error)| {
            // SAFETY: the block is this buffer's as before.
            (unsafe { Self::from_block(pointer, length, block) }, error)
        })
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
        &self.block.stream
    }

    /// The device of its stream. The memory lies where it was allocated, which may be elsewhere.
    #[must_use]
    pub fn device(&self) -> Device {
        self.block.stream.device()
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
        if self.block.stream != *stream {
            order(&self.block.stream, stream)?;
            self.block.stream = stream.clone();
        }
        Ok(())
    }
}

impl<T> Drop for DeviceBuffer<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the memory is this buffer's, which is gone; the field is not used again.
        unsafe { Block::release(&mut self.block) };
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// All of it, to read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        // SAFETY: the view borrows the buffer, which stays alive and on its stream meanwhile.
        unsafe { DeviceSlice::new(self.pointer, self.length, &self.block.stream) }
    }

    /// All of it, to write.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        // SAFETY: the view borrows the buffer exclusively, which stays alive and on its stream meanwhile.
        unsafe { DeviceSliceMut::new(self.pointer, self.length, &self.block.stream) }
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
            .field("stream", &self.block.stream)
            .finish_non_exhaustive()
    }
}
