//! Pools as memory resources.

use std::ffi::c_void;
use std::ptr::NonNull;

use cuda_mempool_sys::cudaMemPool_t;

use super::{request, DeviceMemoryResource, ResourceId};
use crate::buffer::free;
use crate::{Access, Device, Error, ErrorKind, HandleTypes, Location, MemPool, Result, Stream};

/// By which handle what a resource hands out can be shared with other processes. The numbers are CUDA's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
#[doc(alias = "cudaMemAllocationHandleType")]
pub enum AllocationHandleType {
    /// By none.
    #[default]
    None = 0,
    /// By POSIX file descriptors.
    PosixFileDescriptor = 1,
    /// By Win32 handles.
    Win32 = 2,
    /// By Win32 kernel-mode handles.
    Win32Kmt = 4,
    /// By fabric handles.
    Fabric = 8,
}

impl From<AllocationHandleType> for HandleTypes {
    fn from(handle_type: AllocationHandleType) -> Self {
        Self::from_bits(handle_type as u32)
    }
}

/// A pool of its own on one device.
///
/// It is not `Clone`: share it by reference or in an `Arc`. Two of them are never equal; one is equal to a
/// [view](CudaAsyncViewMemoryResource) of its pool.
#[derive(Debug)]
pub struct CudaAsyncMemoryResource(PoolResource);

/// A pool that belongs to somebody else.
#[derive(Debug)]
pub struct CudaAsyncViewMemoryResource(PoolResource);

/// A pool of its own of managed memory, which moves to where it is used.
#[derive(Debug)]
pub struct CudaAsyncManagedMemoryResource(PoolResource);

/// A pool of its own of pinned memory of the host, which the current device may read and write.
#[derive(Debug)]
pub struct CudaAsyncPinnedMemoryResource(PoolResource);

/// What the resources over a pool have in common.
#[derive(Debug)]
struct PoolResource {
    pool: MemPool,
    device: Device,
}

impl CudaAsyncMemoryResource {
    /// Makes a pool on the current device.
    ///
    /// - `initial_pool_size`: bytes that the pool has from the start; half of the device's free memory if not given.
    /// - `release_threshold`: bytes that the pool keeps when streams are synchronised; the device's total memory if not
    ///   given. If it is below the initial size, the difference goes back at the next synchronisation.
    /// - `export_handle_type`: by which handle allocations can be shared with other processes; none if not given.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::resource::{CudaAsyncMemoryResource, DeviceMemoryResource};
    /// use cuda_mempool::Stream;
    ///
    /// let resource = CudaAsyncMemoryResource::new(Some(1 << 20), None, None)?;
    /// let stream = Stream::new(device)?;
    /// let pointer = resource.allocate(1000, &stream)?;
    /// // … kernels on `stream` …
    /// // SAFETY: given back once, with the same size, after all work on it in the order of the stream.
    /// unsafe { resource.deallocate(pointer, 1000, &stream) }?;
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device has no pools, or none that can be shared by that handle, with what
    /// is missing: nothing was made then. [`ErrorKind::OutOfMemory`] when the initial size cannot be had, and what the
    /// runtime answers.
    #[doc(alias = "cuda_async_memory_resource")]
    #[doc(alias = "cudaMemPoolCreate")]
    pub fn new(
        initial_pool_size: Option<usize>,
        release_threshold: Option<usize>,
        export_handle_type: Option<AllocationHandleType>,
    ) -> Result<Self> {
        let device = Device::current()?;
        let memory = device.memory()?;
        let pool = MemPool::builder(device)
            .handle_types(export_handle_type.unwrap_or_default().into())
            .release_threshold(u64::MAX)
            .build()?;
        prime(&pool, device, initial_pool_size.unwrap_or(memory.free / 2))?;
        // Only now: the synchronisation within would have given back what is above.
        pool.set_release_threshold(release_threshold.unwrap_or(memory.total) as u64)?;
        Ok(Self(PoolResource { pool, device }))
    }
}

/// Has the pool get memory from the system and keep it.
fn prime(pool: &MemPool, device: Device, bytes: usize) -> Result<()> {
    let stream = Stream::new(device)?;
    drop(pool.alloc::<u8>(&stream, bytes)?);
    // So that any stream gets this memory, not only those that come after this one.
    stream.synchronize()
}

impl CudaAsyncViewMemoryResource {
    /// A view of a pool, which it keeps alive. On a pool that is not on one device, the synchronous forms of allocation
    /// work on the current device.
    ///
    /// # Errors
    /// What asking for the current device answers.
    pub fn new(pool: &MemPool) -> Result<Self> {
        let device = match pool.location() {
            Location::Device(device) | Location::ManagedOn(device) => device,
            _ => Device::current()?,
        };
        Ok(Self(PoolResource { pool: pool.clone(), device }))
    }

    /// A view of a pool on the current device that belongs to other code, and is not destroyed with it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] for null, and what asking for the current device answers.
    ///
    /// # Safety
    /// `pool` must be null, or a pool on the current device that was not imported from another process and stays alive
    /// as long as this.
    #[doc(alias = "cuda_async_view_memory_resource")]
    pub unsafe fn from_raw(pool: cudaMemPool_t) -> Result<Self> {
        if pool.is_null() {
            return Err(Error::refused(
                ErrorKind::InvalidValue,
                "cudaMallocFromPoolAsync",
                "the pool's handle is null",
            ));
        }
        let device = Device::current()?;
        // SAFETY: the caller's promise.
        let pool = unsafe { MemPool::from_raw_borrowed(pool, device) };
        Ok(Self(PoolResource { pool, device }))
    }
}

impl CudaAsyncManagedMemoryResource {
    /// Makes a pool that keeps `release_threshold` bytes when streams are synchronised; all if not given.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where there are no such pools, with what is missing (CUDA 13.0, or the device), and
    /// what the runtime answers.
    #[doc(alias = "cuda_async_managed_memory_resource")]
    pub fn new(release_threshold: Option<usize>) -> Result<Self> {
        Ok(Self(PoolResource {
            device: Device::current()?,
            pool: MemPool::builder(Location::Managed).release_threshold(threshold(release_threshold)).build()?,
        }))
    }
}

impl CudaAsyncPinnedMemoryResource {
    /// Makes a pool that keeps `release_threshold` bytes when streams are synchronised; all if not given. Its memory
    /// lies on NUMA node `node` of the host, or where the system puts it if not given, which needs CUDA 13.0.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where there are no such pools, with what is missing, and what the runtime answers.
    #[doc(alias = "cuda_async_pinned_memory_resource")]
    pub fn new(node: Option<u32>, release_threshold: Option<usize>) -> Result<Self> {
        let device = Device::current()?;
        let pool = MemPool::builder(node.map_or(Location::Host, Location::HostNuma))
            .release_threshold(threshold(release_threshold))
            .grant(device, Access::ReadWrite)
            .build()?;
        Ok(Self(PoolResource { pool, device }))
    }
}

fn threshold(bytes: Option<usize>) -> u64 {
    bytes.map_or(u64::MAX, |bytes| bytes as u64)
}

impl PoolResource {
    #[inline]
    fn allocate(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        request::allocate(bytes, alignment, |whole| self.pool.alloc_bytes(stream, whole))
    }

    /// # Safety
    /// As for [`DeviceMemoryResource::deallocate_async_aligned`].
    #[inline]
    unsafe fn deallocate(pointer: NonNull<c_void>, bytes: usize, alignment: usize, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's promise.
        request::deallocate(pointer, bytes, alignment, |base, _| unsafe { free(base, stream) })
    }
}

macro_rules! over_a_pool {
    ($($resource:ty),*) => {$(
        impl $resource {
            /// The handle of the pool. It stays valid as long as this.
            #[must_use]
            pub fn pool_handle(&self) -> cudaMemPool_t {
                self.0.pool.as_raw()
            }

            /// The pool.
            #[must_use]
            pub fn pool(&self) -> &MemPool {
                &self.0.pool
            }
        }

        // SAFETY: blocks are allocations of the pool, which live until they are freed, wherever that is called.
        unsafe impl DeviceMemoryResource for $resource {
            #[inline]
            fn allocate_async_aligned(
                &self,
                bytes: usize,
                alignment: usize,
                stream: &Stream,
            ) -> Result<NonNull<c_void>> {
                self.0.allocate(bytes, alignment, stream)
            }

            #[inline]
            unsafe fn deallocate_async_aligned(
                &self,
                pointer: NonNull<c_void>,
                bytes: usize,
                alignment: usize,
                stream: &Stream,
            ) -> Result<()> {
                // SAFETY: the caller's promise.
                unsafe { PoolResource::deallocate(pointer, bytes, alignment, stream) }
            }

            fn id(&self) -> ResourceId {
                ResourceId::of_pool(self.pool_handle())
            }

            fn device(&self) -> Device {
                self.0.device
            }

            /// Gives the system back what no stream waits for any more.
            fn trim(&self) -> Result<()> {
                self.0.pool.trim_to(0)
            }
        }

        /// Resources over one pool are equal.
        impl<R: DeviceMemoryResource> PartialEq<R> for $resource {
            fn eq(&self, other: &R) -> bool {
                self.id() == other.id()
            }
        }
    )*};
}

over_a_pool!(
    CudaAsyncMemoryResource,
    CudaAsyncViewMemoryResource,
    CudaAsyncManagedMemoryResource,
    CudaAsyncPinnedMemoryResource
);
