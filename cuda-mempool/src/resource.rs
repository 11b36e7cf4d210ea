//! Memory resources: one interface over whatever hands out device memory, as RAPIDS RMM has it.
//!
//! [`CudaAsyncMemoryResource`] is a pool of its own behind that interface. The adaptors wrap any resource, another
//! adaptor too: [`StatisticsAdaptor`] counts, [`LimitAdaptor`] refuses beyond a limit, [`RetryAdaptor`] makes room and
//! tries again, [`LogAdaptor`] writes a timeline. A [`DeviceBuffer`](crate::DeviceBuffer) can live on any of them.
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use std::sync::Arc;
//! use cuda_mempool::resource::{CudaAsyncMemoryResource, RetryAdaptor, StatisticsAdaptor};
//! use cuda_mempool::{DeviceBuffer, Stream};
//!
//! let pool = CudaAsyncMemoryResource::new(Some(1 << 20), None, None)?;
//! let resource = Arc::new(StatisticsAdaptor::new(RetryAdaptor::new(pool)));
//!
//! let stream = Stream::new(device)?;
//! let buffer = DeviceBuffer::<f32>::from_resource(resource.clone(), &stream, 1000)?;
//! assert_eq!(resource.bytes().current, 4000);
//! drop(buffer);
//! assert_eq!(resource.bytes().current, 0);
//! # Ok(()) });
//! ```
//!
//! # From C++ to Rust
//!
//! C++ overloads are methods of different names here; where C++ throws, these return an error.
//!
//! | `rmm::mr::cuda_async_memory_resource` | [`CudaAsyncMemoryResource`] |
//! |---|---|
//! | `allocation_handle_type::none` = 0 | [`AllocationHandleType::None`] |
//! | `allocation_handle_type::posix_file_descriptor` = 1 | [`AllocationHandleType::PosixFileDescriptor`] |
//! | `allocation_handle_type::win32` = 2 | [`AllocationHandleType::Win32`] |
//! | `allocation_handle_type::win32_kmt` = 4 | [`AllocationHandleType::Win32Kmt`] |
//! | `allocation_handle_type::fabric` = 8 | [`AllocationHandleType::Fabric`] |
//! | `cuda_async_memory_resource(initial_pool_size, release_threshold, export_handle_type)` | [`new`](CudaAsyncMemoryResource::new) |
//! | `pool_handle()` | [`pool_handle`](CudaAsyncMemoryResource::pool_handle) |
//! | copy and move construction and assignment, deleted | not `Clone`; moving a Rust value copies no resource |
//! | `throw rmm::logic_error` where pools are not supported | [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) |
//!
//! | `rmm::mr::device_memory_resource` | [`DeviceMemoryResource`] |
//! |---|---|
//! | `allocate(bytes, stream)` | [`allocate`](DeviceMemoryResource::allocate) |
//! | `deallocate(ptr, bytes, stream)` | [`deallocate`](DeviceMemoryResource::deallocate) |
//! | `allocate(bytes, alignment)` | [`allocate_aligned`](DeviceMemoryResource::allocate_aligned) |
//! | `deallocate(ptr, bytes, alignment)` | [`deallocate_aligned`](DeviceMemoryResource::deallocate_aligned) |
//! | `allocate_async(bytes, stream)` | [`allocate_async`](DeviceMemoryResource::allocate_async) |
//! | `deallocate_async(ptr, bytes, stream)` | [`deallocate_async`](DeviceMemoryResource::deallocate_async) |
//! | `allocate_async(bytes, alignment, stream)` | [`allocate_async_aligned`](DeviceMemoryResource::allocate_async_aligned) |
//! | `deallocate_async(ptr, bytes, alignment, stream)` | [`deallocate_async_aligned`](DeviceMemoryResource::deallocate_async_aligned) |
//! | `is_equal(other)` | [`is_equal`](DeviceMemoryResource::is_equal) |
//! | `operator==`, `operator!=` | `==` and `!=`, on `dyn DeviceMemoryResource` too |
//! | `stream` left out: the default stream | said: [`Stream::legacy`](crate::Stream::legacy) |
//! | copy and move of the base class | none: a trait has no state |
//!
//! Related classes of RMM: `cuda_async_view_memory_resource` is [`CudaAsyncViewMemoryResource`],
//! `cuda_async_managed_memory_resource` is [`CudaAsyncManagedMemoryResource`], `cuda_async_pinned_memory_resource` is
//! [`CudaAsyncPinnedMemoryResource`], `statistics_resource_adaptor` is [`StatisticsAdaptor`],
//! `limiting_resource_adaptor` is [`LimitAdaptor`], `failure_callback_resource_adaptor` is [`RetryAdaptor`],
//! `logging_resource_adaptor` is [`LogAdaptor`], and what `pool_memory_resource` is for, a
//! [`BlockCache`](crate::BlockCache) does.

mod adaptor;
#[cfg(test)]
mod fake;
mod pool;
pub(crate) mod request;
mod traits;

pub use adaptor::{Counter, LimitAdaptor, LogAdaptor, RetryAdaptor, StatisticsAdaptor};
pub use pool::{
    AllocationHandleType, CudaAsyncManagedMemoryResource, CudaAsyncMemoryResource, CudaAsyncPinnedMemoryResource,
    CudaAsyncViewMemoryResource,
};
pub use traits::{DeviceMemoryResource, ResourceId, ALIGNMENT};
