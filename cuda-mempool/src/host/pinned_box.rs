//! An owned value or slice in pinned memory, without the `Allocator` traits.

use std::alloc::Layout;
use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use bytemuck::Zeroable;

use super::NumaAllocator;
use crate::{teardown, Error, ErrorKind, Result};

/// A `Box` in the memory of a [`NumaAllocator`], for compilers and programs without an `Allocator` trait.
///
/// Its length is fixed. It dereferences to what it holds, so it goes wherever a slice goes.
///
/// ```
/// # cuda_mempool::example::run(|device| {
/// use cuda_mempool::host::{NumaAllocator, PinnedBox};
/// let pinned = NumaAllocator::builder().near(device).build()?;
/// let mut words = PinnedBox::from_iter(&pinned, (0..5).filter(|n| n % 2 == 0))?;
/// words[0] = 7;
/// assert_eq!(*words, [7, 2, 4]);
/// assert!(pinned.contains(&*words));
/// # Ok(()) });
/// ```
pub struct PinnedBox<T: ?Sized> {
    pointer: NonNull<T>,
    allocator: NumaAllocator,
}

// SAFETY: it owns what it holds, and its handle can be used on any thread.
unsafe impl<T: ?Sized + Send> Send for PinnedBox<T> {}
// SAFETY: as above. By shared reference it only lends what it holds.
unsafe impl<T: ?Sized + Sync> Sync for PinnedBox<T> {}

impl<T> PinnedBox<T> {
    /// Moves a value into pinned memory.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], of the system or by the cap, or what the runtime answers. The value is dropped then.
    pub fn new(allocator: &NumaAllocator, value: T) -> Result<Self> {
        let pointer = allocator.try_allocate(Layout::new::<T>())?.cast::<T>();
        // SAFETY: the block is fresh, and has room for a `T` at its alignment.
        unsafe { pointer.as_ptr().write(value) };
        Ok(Self { pointer, allocator: allocator.clone() })
    }
}

impl<T> PinnedBox<[T]> {
    /// A copy of a slice.
    ///
    /// # Errors
    /// As [`PinnedBox::new`].
    pub fn from_slice(allocator: &NumaAllocator, elements: &[T]) -> Result<Self>
    where
        T: Clone,
    {
        let mut filling = Filling::new(allocator, elements.len())?;
        elements.iter().cloned().try_for_each(|element| filling.push(element))?;
        filling.finish()
    }

    /// `length` elements, of which each is made from its index.
    ///
    /// # Errors
    /// As [`PinnedBox::new`]; [`ErrorKind::SizeOverflow`].
    pub fn from_fn(allocator: &NumaAllocator, length: usize, make: impl FnMut(usize) -> T) -> Result<Self> {
        let mut filling = Filling::new(allocator, length)?;
        (0..length).map(make).try_for_each(|element| filling.push(element))?;
        filling.finish()
    }

    /// All elements of an iterator.
    ///
    /// # Errors
    /// As [`PinnedBox::from_fn`]. What came out of the iterator is dropped then.
    pub fn from_iter(allocator: &NumaAllocator, elements: impl IntoIterator<Item = T>) -> Result<Self> {
        let elements = elements.into_iter();
        let mut filling = Filling::new(allocator, elements.size_hint().0)?;
        for element in elements {
            filling.push(element)?;
        }
        filling.finish()
    }

    /// `length` elements whose bytes are zero.
    ///
    /// # Errors
    /// As [`PinnedBox::from_fn`].
    pub fn zeroed(allocator: &NumaAllocator, length: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        let mut filling = Filling::<T>::new(allocator, length)?;
        // SAFETY: the block has room for that many elements.
        unsafe { filling.start.as_ptr().write_bytes(0, length) };
        filling.length = length;
        filling.finish()
    }
}

impl<T: ?Sized> PinnedBox<T> {
    /// The allocator that the memory is from.
    #[must_use]
    pub fn allocator(&self) -> &NumaAllocator {
        &self.allocator
    }

    /// Takes it apart. Whoever has the parts owns what is in it; the handle keeps the memory.
    #[must_use]
    pub fn into_raw_parts(self) -> (NonNull<T>, NumaAllocator) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used nor dropped again.
        (this.pointer, unsafe { ptr::read(&this.allocator) })
    }

    /// Puts the parts together again.
    ///
    /// # Safety
    /// They must be from one [`into_raw_parts`](Self::into_raw_parts), and be used once.
    #[must_use]
    pub unsafe fn from_raw_parts(pointer: NonNull<T>, allocator: NumaAllocator) -> Self {
        Self { pointer, allocator }
    }
}

impl<T: ?Sized> Drop for PinnedBox<T> {
    fn drop(&mut self) {
        let layout = Layout::for_value::<T>(self);
        if layout.size() > 0 && teardown::forked() {
            // The memory is not there, nor what is in it.
            return;
        }
        let _free = Free { allocator: &self.allocator, block: self.pointer.cast(), layout };
        // SAFETY: the value is owned, and this is its end.
        unsafe { ptr::drop_in_place(self.pointer.as_ptr()) };
    }
}

impl<T: ?Sized> Deref for PinnedBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value is owned and initialised.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for PinnedBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { self.pointer.as_mut() }
    }
}

impl<T: ?Sized + PartialEq> PartialEq for PinnedBox<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: ?Sized + Eq> Eq for PinnedBox<T> {}

impl<T: ?Sized + fmt::Debug> fmt::Debug for PinnedBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Frees memory after what is in it was dropped, also when that panics.
struct Free<'a> {
    allocator: &'a NumaAllocator,
    block: NonNull<u8>,
    layout: Layout,
}

impl Drop for Free<'_> {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout, and what was in it is gone.
        unsafe { self.allocator.free(self.block, self.layout) };
    }
}

/// A slice that is being filled. Dropped early, it drops what is there.
struct Filling<'a, T> {
    start: NonNull<T>,
    length: usize,
    room: Layout,
    allocator: &'a NumaAllocator,
}

impl<'a, T> Filling<'a, T> {
    fn new(allocator: &'a NumaAllocator, length: usize) -> Result<Self> {
        let room = room_for::<T>(length)?;
        let start = allocator.try_allocate(room)?.cast();
        Ok(Self { start, length: 0, room, allocator })
    }

    fn push(&mut self, element: T) -> Result<()> {
        if mem::size_of::<T>() > 0 && (self.length + 1) * mem::size_of::<T>() > self.room.size() {
            self.resize(room_for::<T>(self.length.saturating_mul(2).max(4))?)?;
        }
        // SAFETY: there is room, at the element's alignment.
        unsafe { self.start.as_ptr().add(self.length).write(element) };
        self.length += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<PinnedBox<[T]>> {
        let exact = room_for::<T>(self.length)?;
        if exact != self.room {
            self.resize(exact)?;
        }
        let this = ManuallyDrop::new(self);
        let pointer = NonNull::slice_from_raw_parts(this.start, this.length);
        Ok(PinnedBox { pointer, allocator: this.allocator.clone() })
    }

    fn resize(&mut self, room: Layout) -> Result<()> {
        // SAFETY: the block has the layout `room` that is remembered.
        self.start = unsafe { self.allocator.try_resize(self.start.cast(), self.room, room) }?.cast();
        self.room = room;
        Ok(())
    }
}

impl<T> Drop for Filling<'_, T> {
    fn drop(&mut self) {
        let _free = Free { allocator: self.allocator, block: self.start.cast(), layout: self.room };
        // SAFETY: so many elements are there, and owned.
        unsafe { ptr::drop_in_place(ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.length)) };
    }
}

fn room_for<T>(length: usize) -> Result<Layout> {
    Layout::array::<T>(length).map_err(|_| {
        let why = format!("{length} elements of {} bytes are more than memory can be addressed", mem::size_of::<T>());
        Error::refused(ErrorKind::SizeOverflow, "cudaMallocFromPoolAsync", why)
    })
}
