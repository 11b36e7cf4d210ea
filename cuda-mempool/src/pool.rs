//! Pools: memory that is allocated and freed in the order of streams.

mod access;
mod attributes;
mod builder;
mod location;
mod places;
mod registry;
mod retired;

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use cuda_mempool_sys as sys;
use sys::{cudaError_t, cudaMemPool_t};

use crate::buffer::{Block, Home, FROM_POOL};
use crate::error::{call_entered, OutOfMemory};
use crate::{teardown, DeviceBuffer, Error, ErrorKind, Result, Stream};

pub use access::Access;
pub use attributes::{PoolUsage, ReusePolicy};
pub use builder::{HandleTypes, MemPoolBuilder};
pub use location::Location;
pub(crate) use retired::{reclaim, sweep};

/// A pool of memory, from which [`DeviceBuffer`]s are allocated in the order of a stream.
///
/// A handle: clones are the same pool, and a pool made here ends with the last of them. The default pools never end.
///
/// Buffers may outlive their pool. CUDA lets a pool be destroyed then, too, but drivers were seen to crash (580.159 on an
/// H200). So here a pool is destroyed when all of its memory is back: at once, or, when buffers are alive or nobody has
/// waited for their frees, the next time that another pool ends, memory is short, or
/// [`Device::synchronize`](crate::Device::synchronize) returns. Until then it keeps nothing that it could give back. Code
/// that calls `cudaMemPoolDestroy` itself should wait likewise.
///
/// ```
/// # cuda_mempool::example::run(|device| {
/// use cuda_mempool::{Location, MemPool, Stream};
/// let stream = Stream::new(device)?;
/// let pool = MemPool::builder(Location::Device(device))
///     .release_threshold(64 << 20) // keep up to 64 MiB across synchronisations
///     .build()?;
/// let buffer = pool.alloc::<f32>(&stream, 1 << 20)?;
/// assert_eq!(pool.usage()?.used, 4 << 20);
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct MemPool(Arc<Inner>);

struct Inner {
    raw: cudaMemPool_t,
    location: Location,
    owned: bool,
}

impl MemPool {
    /// Starts to describe a new pool at `location`.
    pub fn builder(location: impl Into<Location>) -> MemPoolBuilder {
        MemPoolBuilder::new(location.into())
    }

    fn from_parts(raw: cudaMemPool_t, location: Location, owned: bool) -> Self {
        teardown::watch_forks();
        let inner = Arc::new(Inner { raw, location, owned });
        if owned {
            registry::add(raw, &inner);
        }
        Self(inner)
    }

    /// Takes over a pool: it is destroyed with the last clone of the result.
    ///
    /// # Safety
    /// `raw` must be a live pool at `location`, made by `cudaMemPoolCreate`, and nobody else may destroy it.
    #[must_use]
    pub unsafe fn from_raw(raw: cudaMemPool_t, location: impl Into<Location>) -> Self {
        Self::from_parts(raw, location.into(), true)
    }

    /// Uses a pool that belongs to other code.
    ///
    /// # Safety
    /// `raw` must be a pool at `location` that was not imported from another process, and stay alive as long as any
    /// clone of the result. Buffers may outlive it.
    #[must_use]
    pub unsafe fn from_raw_borrowed(raw: cudaMemPool_t, location: impl Into<Location>) -> Self {
        Self::from_parts(raw, location.into(), false)
    }

    /// The raw handle. It stays valid as long as any clone of this pool.
    #[must_use]
    pub fn as_raw(&self) -> cudaMemPool_t {
        self.0.raw
    }

    /// Gives the raw handle away: the caller destroys the pool, if this crate would have; best when all that was allocated
    /// from it is freed and synchronised.
    ///
    /// # Errors
    /// Gives the pool back when other clones of it exist.
    pub fn into_raw(self) -> Result<cudaMemPool_t, Self> {
        let inner = Arc::try_unwrap(self.0).map_err(Self)?;
        // In a forked child, a lock that another thread held stays held.
        if inner.owned && !teardown::forked() {
            registry::remove(inner.raw);
        }
        Ok(ManuallyDrop::new(inner).raw)
    }

    /// Drops this handle; when it is the last one and all memory is back, destroys the pool and says whether that
    /// succeeded. A pool with memory in use is destroyed later, which is a success.
    ///
    /// # Errors
    /// What `cudaMemPoolDestroy` answers, or [`ErrorKind::DeviceFault`] before it is called, with the pool.
    #[doc(alias = "cudaMemPoolDestroy")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::into_inner(self.0) else { return Ok(()) };
        let inner = ManuallyDrop::new(inner);
        teardown::try_release("cudaMemPoolDestroy", || inner.destroy())
            .map_err(|error| (Self::from_parts(inner.raw, inner.location, inner.owned), error))
    }

    /// Where its memory lies.
    #[must_use]
    pub fn location(&self) -> Location {
        self.0.location
    }

    /// Allocates `length` elements, for use in the order of `stream`. Their contents are unspecified.
    ///
    /// Nothing waits, unless memory is short that pools had which were dropped: then for the stream's device and the
    /// pool's, and for others where it may have been freed. No bytes need no CUDA call. An alignment of `T` above 256 is met
    /// by allocating more.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// # use cuda_mempool::{ErrorKind, MemPool, Stream};
    /// # let stream = Stream::new(device)?;
    /// let pool = MemPool::default_for(device)?;
    /// let buffer = pool.alloc::<u64>(&stream, 1000)?;
    /// assert_eq!(buffer.size_in_bytes(), 8000);
    ///
    /// let error = pool.alloc::<u8>(&stream, isize::MAX as usize).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    /// assert!(error.out_of_memory().unwrap().device_free.is_some());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] with the numbers behind it; [`ErrorKind::SizeOverflow`]; [`ErrorKind::Capture`] on a
    /// stream that is being captured, where the memory would be the graph's; [`ErrorKind::Unsupported`] when the
    /// stream's device cannot use pools at this location; or what the runtime answers.
    #[doc(alias = "cudaMallocFromPoolAsync")]
    #[doc(alias = "cudaMallocAsync")]
    #[inline]
    pub fn alloc<T: Pod>(&self, stream: &Stream, length: usize) -> Result<DeviceBuffer<T>> {
        // SAFETY: fresh memory of the runtime, in the order of `stream`.
        unsafe {
            DeviceBuffer::allocate(FROM_POOL, stream, length, |bytes| {
                let base = self.alloc_bytes(stream, bytes)?.as_ptr();
                Ok(Block { base, stream: stream.clone(), home: Home::RUNTIME })
            })
        }
    }

    /// Allocates `length` elements whose bytes are zero.
    ///
    /// # Errors
    /// As [`MemPool::alloc`] and [`DeviceSliceMut::zero`](crate::DeviceSliceMut::zero).
    #[doc(alias = "cudaMemsetAsync")]
    pub fn alloc_zeroed<T: Pod>(&self, stream: &Stream, length: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(stream, length)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// Allocates a copy of `elements`, and waits for the copy.
    ///
    /// # Errors
    /// As [`MemPool::alloc`] and [`DeviceSliceMut::copy_from_host`](crate::DeviceSliceMut::copy_from_host).
    #[doc(alias = "cudaMemcpyAsync")]
    pub fn from_slice<T: Pod>(&self, stream: &Stream, elements: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(stream, elements.len())?;
        buffer.copy_from_host(elements)?;
        Ok(buffer)
    }

    #[inline]
    pub(crate) fn alloc_bytes(&self, stream: &Stream, bytes: usize) -> Result<NonNull<c_void>> {
        let _current = stream.enter(FROM_POOL)?;
        stream.refuse_capture(FROM_POOL, "memory allocated on a stream that is being captured would be the graph's")?;
        if let Some(feature) = self.0.location.host_feature() {
            stream.device().require(feature, FROM_POOL)?;
        }
        self.take(stream, bytes).or_else(|error| self.take_again(error, stream, bytes))
    }

    #[inline]
    fn take(&self, stream: &Stream, bytes: usize) -> Result<NonNull<c_void>> {
        let mut base = std::ptr::null_mut();
        // SAFETY: the out pointer is valid, and pool and stream are alive.
        unsafe { call_entered!(cudaMallocFromPoolAsync(&mut base, bytes, self.0.raw, stream.raw())) }?;
        NonNull::new(base).ok_or_else(null_pointer)
    }

    /// Memory of pools that were dropped must not be what is missing.
    #[cold]
    fn take_again(&self, error: Error, stream: &Stream, bytes: usize) -> Result<NonNull<c_void>> {
        // Waiting makes other devices current, and may fail to put this stream's back.
        let take = || {
            let _current = stream.enter(FROM_POOL)?;
            self.take(stream, bytes)
        };
        let answer = match error.raw() {
            cudaError_t::cudaErrorMemoryAllocation => retired::reclaim(self.0.location, stream.device(), error, take),
            _ => Err(error),
        };
        answer.map_err(|error| self.explain(error, stream, bytes))
    }

    /// Adds the numbers to an out-of-memory error.
    #[cold]
    fn explain(&self, error: Error, stream: &Stream, requested: usize) -> Error {
        if error.raw() != cudaError_t::cudaErrorMemoryAllocation {
            return error;
        }
        error.with_out_of_memory(OutOfMemory::now(requested, Some(self), stream.device()))
    }
}

#[cold]
fn null_pointer() -> Error {
    Error::refused(ErrorKind::Other, FROM_POOL, "success, but a null pointer")
}

/// Handles of one pool are equal.
impl PartialEq for MemPool {
    fn eq(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw
    }
}

impl Eq for MemPool {}

impl fmt::Debug for MemPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemPool").field("raw", &self.0.raw).field("location", &self.0.location).finish_non_exhaustive()
    }
}

// SAFETY: the runtime's functions may be called with one pool from several threads at once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Inner {
    fn destroy(&self) -> Result<()> {
        if !self.owned {
            return Ok(());
        }
        let mut asides = Vec::new();
        // SAFETY: the pool is owned, and this is its last use.
        let ended =
            registry::while_removing(self.raw, || unsafe { retired::end(self.raw, self.location, &mut asides) });
        // Not while nobody else can look for pools: the hook may be anybody's code.
        asides.iter().for_each(teardown::report);
        retired::sweep();
        ended
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            teardown::release("cudaMemPoolDestroy", || self.destroy());
        }
    }
}
