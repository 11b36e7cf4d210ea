//! From RMM.
//!
//! RAPIDS RMM's `cuda_async_memory_resource` has its counterpart in [`resource`](crate::resource), which lists every member
//! of it and of its base class. Overloads are methods of different names, and what throws in C++ returns an error.
//!
//! # Making a resource
//!
//! Three optional values: how much to bring into the pool at once (else half of the memory that is free), how much it
//! keeps at synchronisations (else as much as the device has), and how it is shared (else not at all).
//!
//! ```cpp
//! rmm::mr::cuda_async_memory_resource all_defaults;
//! rmm::mr::cuda_async_memory_resource resource{1 << 20, 1 << 30};
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|_| {
//! use cuda_mempool::resource::CudaAsyncMemoryResource;
//!
//! let all_defaults = CudaAsyncMemoryResource::new(None, None, None)?;
//! let resource = CudaAsyncMemoryResource::new(Some(1 << 20), Some(1 << 30), None)?;
//! # Ok(()) });
//! ```
//!
//! ```cpp
//! using handles = rmm::mr::cuda_async_memory_resource::allocation_handle_type;
//! rmm::mr::cuda_async_memory_resource shared{0, std::nullopt, handles::posix_file_descriptor};
//! static_assert(static_cast<int>(handles::none) == 0 && static_cast<int>(handles::posix_file_descriptor) == 1);
//! static_assert(static_cast<int>(handles::win32) == 2 && static_cast<int>(handles::win32_kmt) == 4);
//! static_assert(static_cast<int>(handles::fabric) == 8);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|_| {
//! use cuda_mempool::resource::{AllocationHandleType as Handles, CudaAsyncMemoryResource};
//!
//! let shared = CudaAsyncMemoryResource::new(Some(0), None, Some(Handles::PosixFileDescriptor))?;
//! assert!(Handles::None as i32 == 0 && Handles::PosixFileDescriptor as i32 == 1);
//! assert!(Handles::Win32 as i32 == 2 && Handles::Win32Kmt as i32 == 4);
//! assert!(Handles::Fabric as i32 == 8);
//! # Ok(()) });
//! ```
//!
//! The pool beneath, for everything else:
//!
//! ```cpp
//! cudaMemPool_t pool = resource.pool_handle();
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|_| {
//! # let resource = cuda_mempool::resource::CudaAsyncMemoryResource::new(Some(0), None, None)?;
//! let pool = resource.pool_handle();
//! assert_eq!(resource.pool().as_raw(), pool); // and as a `MemPool`
//! # Ok(()) });
//! ```
//!
//! # Allocating
//!
//! In the order of a stream; then, of blocks aligned by more than the usual 256 bytes; and without a stream, which works on
//! the device's default one and waits.
//!
//! ```cpp
//! void *memory = resource.allocate_async(1000, stream);
//! resource.deallocate_async(memory, 1000, stream);
//! memory = resource.allocate_async(1000, 4096, stream);
//! resource.deallocate_async(memory, 1000, 4096, stream);
//! memory = resource.allocate(1000, 256);
//! resource.deallocate(memory, 1000, 256);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # let resource = cuda_mempool::resource::CudaAsyncMemoryResource::new(Some(0), None, None)?;
//! # let stream = cuda_mempool::Stream::new(device)?;
//! use cuda_mempool::resource::DeviceMemoryResource;
//!
//! let memory = resource.allocate_async(1000, &stream)?;
//! // SAFETY: it is the block just made, which nothing uses any more; and so below.
//! unsafe { resource.deallocate_async(memory, 1000, &stream)? };
//! let memory = resource.allocate_async_aligned(1000, 4096, &stream)?;
//! // SAFETY: as above.
//! unsafe { resource.deallocate_async_aligned(memory, 1000, 4096, &stream)? };
//! let memory = resource.allocate_aligned(1000, 256)?;
//! // SAFETY: as above.
//! unsafe { resource.deallocate_aligned(memory, 1000, 256)? };
//! # Ok(()) });
//! ```
//!
//! A buffer that owns its block is what one mostly wants:
//!
//! ```cpp
//! rmm::device_uvector<float> values(1000, stream, resource);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # let resource = cuda_mempool::resource::CudaAsyncMemoryResource::new(Some(0), None, None)?;
//! # let stream = cuda_mempool::Stream::new(device)?;
//! use std::sync::Arc;
//! use cuda_mempool::DeviceBuffer;
//!
//! let values = DeviceBuffer::<f32>::from_resource(Arc::new(resource), &stream, 1000)?;
//! # Ok(()) });
//! ```
//!
//! # Equality
//!
//! Resources are equal when either takes back what the other handed out, which is when their pools are the same. (RMM
//! also wants them to be of one class, so its view differs from the resource that it is a view of.)
//!
//! ```cpp
//! rmm::mr::cuda_async_view_memory_resource view{resource.pool_handle()}, same{resource.pool_handle()};
//! assert(resource == resource && view == same && view.is_equal(same));
//! assert(resource != other && resource != view);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|_| {
//! # use cuda_mempool::resource::CudaAsyncMemoryResource;
//! # let resource = CudaAsyncMemoryResource::new(Some(0), None, None)?;
//! # let other = CudaAsyncMemoryResource::new(Some(0), None, None)?;
//! use cuda_mempool::resource::{CudaAsyncViewMemoryResource, DeviceMemoryResource};
//!
//! let view = CudaAsyncViewMemoryResource::new(resource.pool())?;
//! assert!(resource == view && resource.is_equal(&view));
//! assert!(resource != other);
//! # Ok(()) });
//! ```
