//! Views of a buffer or of a part of it.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::{DeviceBuffer, Stream};

/// Elements of a [`DeviceBuffer`], to read. What `&[T]` is to a `Vec`, on the buffer's stream.
pub struct DeviceSlice<'a, T> {
    pub(super) pointer: NonNull<T>,
    pub(super) length: usize,
    pub(super) stream: &'a Stream,
    elements: PhantomData<&'a [T]>,
}

/// Elements of a [`DeviceBuffer`], to write. What `&mut [T]` is to a `Vec`, on the buffer's stream.
pub struct DeviceSliceMut<'a, T> {
    pub(super) pointer: NonNull<T>,
    pub(super) length: usize,
    pub(super) stream: &'a Stream,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: a shared view of elements that are only read, through a runtime that may be called from any thread.
unsafe impl<T: Sync> Send for DeviceSlice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for DeviceSlice<'_, T> {}
// SAFETY: an exclusive view of elements, through a runtime that may be called from any thread.
unsafe impl<T: Send> Send for DeviceSliceMut<'_, T> {}
// SAFETY: by shared reference the elements are only read.
unsafe impl<T: Sync> Sync for DeviceSliceMut<'_, T> {}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// # Safety
    /// As for [`DeviceSlice::from_raw`].
    pub(super) unsafe fn new(pointer: NonNull<T>, length: usize, stream: &'a Stream) -> Self {
        Self { pointer, length, stream, elements: PhantomData }
    }

    /// A view of memory that other code owns.
    ///
    /// # Safety
    /// - `pointer` must be non-null, aligned, and point to `length` elements that the stream's device can reach and that
    ///   stay allocated for `'a` in the order of `stream`.
    /// - All that writes to them must be ordered before or after what is enqueued on `stream` during `'a`.
    #[must_use]
    pub unsafe fn from_raw(pointer: *const T, length: usize, stream: &'a Stream) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new(NonNull::new_unchecked(pointer.cast_mut()), length, stream) }
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

    /// The stream of the buffer.
    #[must_use]
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The device pointer, for kernels that read, enqueued on [`stream`](Self::stream).
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.pointer.as_ptr()
    }

    /// A part of it.
    ///
    /// # Panics
    /// When the range is not within the view, as for slices.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let range = within(range, self.length);
        // SAFETY: the range is within this view.
        unsafe { Self::new(offset(self.pointer, range.start), range.len(), self.stream) }
    }

    /// The elements before `middle`, and the others.
    ///
    /// # Panics
    /// When `middle` is greater than the length.
    #[must_use]
    pub fn split_at(&self, middle: usize) -> (Self, Self) {
        (self.slice(..middle), self.slice(middle..))
    }
}

impl<'a, T: Pod> DeviceSliceMut<'a, T> {
    /// # Safety
    /// As for [`DeviceSliceMut::from_raw`].
    pub(super) unsafe fn new(pointer: NonNull<T>, length: usize, stream: &'a Stream) -> Self {
        Self { pointer, length, stream, elements: PhantomData }
    }

    /// A view of memory that other code owns.
    ///
    /// # Safety
    /// - `pointer` must be non-null, aligned, and point to `length` elements that the stream's device can reach and that
    ///   stay allocated for `'a` in the order of `stream`.
    /// - All other use of them must be ordered before or after what is enqueued on `stream` during `'a`.
    #[must_use]
    pub unsafe fn from_raw(pointer: *mut T, length: usize, stream: &'a Stream) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new(NonNull::new_unchecked(pointer), length, stream) }
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

    /// The stream of the buffer.
    #[must_use]
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// The device pointer, for kernels that read, enqueued on [`stream`](Self::stream).
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.pointer.as_ptr()
    }

    /// The device pointer, for kernels enqueued on [`stream`](Self::stream).
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.pointer.as_ptr()
    }

    /// The same elements, to read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        // SAFETY: what is exclusively ours can be shared while we are borrowed.
        unsafe { DeviceSlice::new(self.pointer, self.length, self.stream) }
    }

    /// The same elements for a shorter time, so that this view can be used again.
    #[must_use]
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        // SAFETY: we are exclusively borrowed meanwhile.
        unsafe { DeviceSliceMut::new(self.pointer, self.length, self.stream) }
    }

    /// A part of it, which takes the place of the whole.
    ///
    /// # Panics
    /// When the range is not within the view, as for slices.
    #[must_use]
    pub fn slice_mut(self, range: impl RangeBounds<usize>) -> Self {
        let range = within(range, self.length);
        // SAFETY: the range is within this view, which is used up.
        unsafe { Self::new(offset(self.pointer, range.start), range.len(), self.stream) }
    }

    /// The elements before `middle`, and the others.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// # use cuda_mempool::{MemPool, Stream};
    /// # let (stream, pool) = (Stream::new(device)?, MemPool::default_for(device)?);
    /// let mut buffer = pool.from_slice(&stream, &[1_u8, 2, 3, 4])?;
    /// let (mut left, right) = buffer.as_slice_mut().split_at_mut(2);
    /// left.copy_from(&right)?;
    /// assert_eq!(buffer.to_vec()?, [3, 4, 3, 4]);
    /// # Ok(()) });
    /// ```
    ///
    /// # Panics
    /// When `middle` is greater than the length.
    #[must_use]
    pub fn split_at_mut(self, middle: usize) -> (Self, Self) {
        assert!(middle <= self.length, "split at {middle} of {} elements", self.length);
        // SAFETY: the two parts do not overlap, and this view is used up.
        unsafe {
            (
                Self::new(self.pointer, middle, self.stream),
                Self::new(offset(self.pointer, middle), self.length - middle, self.stream),
            )
        }
    }
}

/// The pointer `elements` further. Device memory is no object of Rust's, so this is plain arithmetic.
///
/// # Safety
/// The result must lie within the memory of `pointer`, or at its end.
unsafe fn offset<T>(pointer: NonNull<T>, elements: usize) -> NonNull<T> {
    // SAFETY: memory does not wrap around to null.
    unsafe { NonNull::new_unchecked(pointer.as_ptr().wrapping_add(elements)) }
}

pub(crate) fn within(range: impl RangeBounds<usize>, length: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(length),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= length => start..end,
        _ => panic!("range {:?} of {length} elements", (range.start_bound(), range.end_bound())),
    }
}

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

impl<'a, T: Pod> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_slice_mut()
    }
}

impl<'a, T: Pod> From<&'a DeviceSliceMut<'_, T>> for DeviceSlice<'a, T> {
    fn from(view: &'a DeviceSliceMut<'_, T>) -> Self {
        view.as_slice()
    }
}

impl<T> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSlice")
            .field("pointer", &self.pointer)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for DeviceSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSliceMut")
            .field("pointer", &self.pointer)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
