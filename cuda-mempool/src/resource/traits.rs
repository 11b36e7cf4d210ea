//! The interface of memory resources.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use cuda_mempool_sys::cudaMemPool_t;

use crate::{Device, Result, Stream};

/// What every block is aligned to at least, in bytes.
pub const ALIGNMENT: usize = 256;

/// Something that hands out device memory in stream order.
///
/// A resource implements the forms that say all, [`allocate_async_aligned`](Self::allocate_async_aligned) and
/// [`deallocate_async_aligned`](Self::deallocate_async_aligned); the others come down to them. References, `Box`, `Rc`
/// and `Arc` of a resource are resources.
///
/// Zero bytes take no memory: the pointer is aligned and must not be used, and giving it back does nothing.
///
/// # Safety
/// - A block that was handed out has the bytes and the alignment that were asked for, overlaps no other that is out,
///   and stays usable, in the order of the stream it was asked for, until it is given back, also when the resource
///   is moved.
/// - Equal [`id`](Self::id)s mean that either resource takes back what the other handed out.
pub unsafe trait DeviceMemoryResource {
    /// Hands out `bytes` bytes, aligned to `alignment`, for work that is enqueued on `stream` from now on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) when there is not enough,
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) when the alignment is not a power of two,
    /// [`ErrorKind::SizeOverflow`](crate::ErrorKind::SizeOverflow) when no pointer could span that much, and what the
    /// resource has besides.
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>>;

    /// Takes a block back, in the order of `stream`.
    ///
    /// # Errors
    /// What the resource answers. The block is still out then.
    ///
    /// # Safety
    /// - This resource, or one with an equal [`id`](Self::id), must have handed out `pointer`, for the same `bytes` and
    ///   `alignment`, and it must not have been given back since.
    /// - All work on the block must be ordered before what is enqueued on `stream` from now on.
    unsafe fn deallocate_async_aligned(
        &self,
        pointer: NonNull<c_void>,
        bytes: usize,
        alignment: usize,
        stream: &Stream,
    ) -> Result<()>;

    /// Whose blocks this resource can take back.
    fn id(&self) -> ResourceId;

    /// The device on whose default stream the synchronous forms work.
    fn device(&self) -> Device;

    /// Gives what it holds but has not handed out back to whom it came from, as far as that is possible now.
    ///
    /// # Errors
    /// What the resource answers.
    fn trim(&self) -> Result<()>;

    /// Hands out memory aligned to [`ALIGNMENT`], for work that is enqueued on `stream` from now on.
    ///
    /// # Errors
    /// As [`allocate_async_aligned`](Self::allocate_async_aligned).
    fn allocate(&self, bytes: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        self.allocate_async_aligned(bytes, ALIGNMENT, stream)
    }

    /// Takes back what [`allocate`](Self::allocate) or [`allocate_async`](Self::allocate_async) handed out.
    ///
    /// # Errors
    /// As [`deallocate_async_aligned`](Self::deallocate_async_aligned).
    ///
    /// # Safety
    /// As for [`deallocate_async_aligned`](Self::deallocate_async_aligned), with [`ALIGNMENT`].
    unsafe fn deallocate(&self, pointer: NonNull<c_void>, bytes: usize, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_async_aligned(pointer, bytes, ALIGNMENT, stream) }
    }

    /// [`allocate`](Self::allocate) by its other name.
    ///
    /// # Errors
    /// As [`allocate_async_aligned`](Self::allocate_async_aligned).
    fn allocate_async(&self, bytes: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        self.allocate(bytes, stream)
    }

    /// [`deallocate`](Self::deallocate) by its other name.
    ///
    /// # Errors
    /// As [`deallocate_async_aligned`](Self::deallocate_async_aligned).
    ///
    /// # Safety
    /// As for [`deallocate`](Self::deallocate).
    unsafe fn deallocate_async(&self, pointer: NonNull<c_void>, bytes: usize, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(pointer, bytes, stream) }
    }

    /// Hands out memory that any stream may use at once: synchronises the default stream of the
    /// [`device`](Self::device), on which it is allocated.
    ///
    /// # Errors
    /// As [`allocate_async_aligned`](Self::allocate_async_aligned), and what synchronising answers.
    fn allocate_aligned(&self, bytes: usize, alignment: usize) -> Result<NonNull<c_void>> {
        let stream = Stream::legacy(self.device());
        let pointer = self.allocate_async_aligned(bytes, alignment, &stream)?;
        if let Err(error) = stream.synchronize() {
            // SAFETY: the block was handed out above and is not used.
            let _ = unsafe { self.deallocate_async_aligned(pointer, bytes, alignment, &stream) };
            return Err(error);
        }
        Ok(pointer)
    }

    /// Takes a block back and returns when that is done: synchronises the default stream of the
    /// [`device`](Self::device), on which it is freed.
    ///
    /// # Errors
    /// As [`deallocate_async_aligned`](Self::deallocate_async_aligned). When only synchronising fails, the block has
    /// been given back, and `Ok` is returned.
    ///
    /// # Safety
    /// As for [`deallocate_async_aligned`](Self::deallocate_async_aligned), and all work on the block must be done.
    unsafe fn deallocate_aligned(&self, pointer: NonNull<c_void>, bytes: usize, alignment: usize) -> Result<()> {
        let stream = Stream::legacy(self.device());
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_async_aligned(pointer, bytes, alignment, &stream) }?;
        let _ = stream.synchronize();
        Ok(())
    }

    /// Whether each of the two can take back what the other handed out.
    fn is_equal(&self, other: &dyn DeviceMemoryResource) -> bool {
        self.id() == other.id()
    }
}

/// Tells resources apart: see [`DeviceMemoryResource::id`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResourceId(Identity);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Identity {
    /// The address behind a pool's handle.
    Pool(usize),
    Number(u64),
}

impl ResourceId {
    /// Of a resource whose blocks are those of a pool and nothing else, so that any resource over the same pool can
    /// take them back.
    #[must_use]
    pub fn of_pool(pool: cudaMemPool_t) -> Self {
        Self(Identity::Pool(pool as usize))
    }

    /// Of a resource that is equal to itself alone, such as one that keeps accounts of its blocks.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Identity::Number(NEXT.fetch_add(1, Ordering::Relaxed)))
    }
}

macro_rules! equal_by_id {
    ($($resource:ty),*) => {$(
        impl PartialEq for $resource {
            fn eq(&self, other: &Self) -> bool {
                self.id() == other.id()
            }
        }

        impl Eq for $resource {}
    )*};
}

equal_by_id!(
    dyn DeviceMemoryResource + '_,
    dyn DeviceMemoryResource + Send + '_,
    dyn DeviceMemoryResource + Send + Sync + '_
);

macro_rules! through_pointer {
    ($($pointer:ty),*) => {$(
        // SAFETY: it is the resource pointed to.
        unsafe impl<R: DeviceMemoryResource + ?Sized> DeviceMemoryResource for $pointer {
            fn allocate_async_aligned(
                &self,
                bytes: usize,
                alignment: usize,
                stream: &Stream,
            ) -> Result<NonNull<c_void>> {
                (**self).allocate_async_aligned(bytes, alignment, stream)
            }

            unsafe fn deallocate_async_aligned(
                &self,
                pointer: NonNull<c_void>,
                bytes: usize,
                alignment: usize,
                stream: &Stream,
            ) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { (**self).deallocate_async_aligned(pointer, bytes, alignment, stream) }
            }

            fn id(&self) -> ResourceId {
                (**self).id()
            }

            fn device(&self) -> Device {
                (**self).device()
            }

            fn trim(&self) -> Result<()> {
                (**self).trim()
            }
        }
    )*};
}

through_pointer!(&R, Box<R>, Rc<R>, Arc<R>);
