//! What the compiler must refuse, each beside a twin that it must take: so the refusal is for the reason given. (The
//! error codes are compared by nightly's rustdoc alone.)
//!
//! # Host memory lent to a scope
//!
//! It must outlive the scope:
//!
//! ```no_run
//! # fn f(stream: &cuda_mempool::Stream, buffer: &cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! let mut output = [0_u32; 3];
//! stream.scope(|s| s.copy_to_host(buffer, &mut output))
//! # }
//! ```
//!
//! ```compile_fail,E0597
//! # fn f(stream: &cuda_mempool::Stream, buffer: &cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! stream.scope(|s| {
//!     let mut output = [0_u32; 3];
//!     s.copy_to_host(buffer, &mut output)
//! })
//! # }
//! ```
//!
//! It cannot be read before the scope is over:
//!
//! ```no_run
//! # fn f(stream: &cuda_mempool::Stream, buffer: &cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<u32> {
//! let mut output = [0_u32; 3];
//! stream.scope(|s| s.copy_to_host(buffer, &mut output))?;
//! Ok(output[0])
//! # }
//! ```
//!
//! ```compile_fail,E0503
//! # fn f(stream: &cuda_mempool::Stream, buffer: &cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<u32> {
//! let mut output = [0_u32; 3];
//! stream.scope(|s| {
//!     s.copy_to_host(buffer, &mut output)?;
//!     Ok(output[0])
//! })
//! # }
//! ```
//!
//! Nor lent twice, nor written while it is read:
//!
//! ```no_run
//! # fn f(stream: &cuda_mempool::Stream, buffer: &cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! let mut output = [0_u32; 6];
//! let (left, right) = output.split_at_mut(3);
//! stream.scope(|s| {
//!     s.copy_to_host(buffer, left)?;
//!     s.copy_to_host(buffer, right)
//! })
//! # }
//! ```
//!
//! ```compile_fail,E0499
//! # fn f(stream: &cuda_mempool::Stream, buffer: &cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! let mut output = [0_u32; 3];
//! stream.scope(|s| {
//!     s.copy_to_host(buffer, &mut output)?;
//!     s.copy_to_host(buffer, &mut output)
//! })
//! # }
//! ```
//!
//! ```compile_fail,E0506
//! # fn f(stream: &cuda_mempool::Stream, buffer: &mut cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! let mut input = [0_u32; 3];
//! stream.scope(|s| {
//!     s.copy_from_host(buffer, &input)?;
//!     input[0] = 1;
//!     Ok(())
//! })
//! # }
//! ```
//!
//! The scope itself stays inside:
//!
//! ```compile_fail,E0521
//! # fn f(stream: &cuda_mempool::Stream) {
//! let mut kept = None;
//! let _ = stream.scope(|s| {
//!     kept = Some(s);
//!     Ok(())
//! });
//! # }
//! ```
//!
//! # Host functions
//!
//! Outside a scope they cannot borrow; in one, they can. What they hold must be able to go to another thread.
//!
//! ```no_run
//! # fn f(stream: &cuda_mempool::Stream) -> cuda_mempool::Result<()> {
//! let mut count = 0;
//! stream.scope(|s| s.launch_host_fn(|| count += 1))
//! # }
//! ```
//!
//! ```compile_fail,E0597
//! # fn f(stream: &cuda_mempool::Stream) -> cuda_mempool::Result<()> {
//! let count = std::sync::atomic::AtomicU32::new(0);
//! let borrowed = &count;
//! stream.launch_host_fn(move || borrowed.store(1, std::sync::atomic::Ordering::Relaxed))
//! # }
//! ```
//!
//! ```compile_fail,E0277
//! # fn f(stream: &cuda_mempool::Stream) -> cuda_mempool::Result<()> {
//! let count = std::rc::Rc::new(0);
//! stream.launch_host_fn(move || drop(count))
//! # }
//! ```
//!
//! # Views
//!
//! A view does not outlive its buffer, and keeps it where it is:
//!
//! ```no_run
//! # fn f(mut buffer: cuda_mempool::DeviceBuffer<u32>, other: &cuda_mempool::Stream) -> cuda_mempool::Result<()> {
//! let view = buffer.slice(..2);
//! view.to_vec()?;
//! buffer.set_stream(other)?;
//! drop(buffer);
//! # Ok(()) }
//! ```
//!
//! ```compile_fail,E0505
//! # fn f(buffer: cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<Vec<u32>> {
//! let view = buffer.slice(..2);
//! drop(buffer);
//! view.to_vec()
//! # }
//! ```
//!
//! ```compile_fail,E0502
//! # fn f(buffer: &mut cuda_mempool::DeviceBuffer<u32>, other: &cuda_mempool::Stream) -> cuda_mempool::Result<Vec<u32>> {
//! let view = buffer.slice(..2);
//! buffer.set_stream(other)?;
//! view.to_vec()
//! # }
//! ```
//!
//! One part cannot be both ends of a copy, nor be written through two views:
//!
//! ```no_run
//! # fn f(buffer: &mut cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! let (mut left, right) = buffer.as_slice_mut().split_at_mut(1);
//! left.copy_from(&right)
//! # }
//! ```
//!
//! ```compile_fail,E0502
//! # fn f(buffer: &mut cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! buffer.copy_from(&*buffer)
//! # }
//! ```
//!
//! ```compile_fail,E0499
//! # fn f(buffer: &mut cuda_mempool::DeviceBuffer<u32>) -> cuda_mempool::Result<()> {
//! let mut left = buffer.slice_mut(..2);
//! let mut right = buffer.slice_mut(1..);
//! left.zero()?;
//! right.zero()
//! # }
//! ```
//!
//! # Elements
//!
//! Only plain data: no references, and nothing that must be dropped.
//!
//! ```no_run
//! # fn f(pool: &cuda_mempool::MemPool, stream: &cuda_mempool::Stream) -> cuda_mempool::Result<()> {
//! pool.alloc::<[f32; 4]>(stream, 3).map(drop)
//! # }
//! ```
//!
//! ```compile_fail,E0277
//! # fn f(pool: &cuda_mempool::MemPool, stream: &cuda_mempool::Stream) -> cuda_mempool::Result<()> {
//! pool.alloc::<String>(stream, 3).map(drop)
//! # }
//! ```
//!
//! ```compile_fail,E0277
//! # fn f(pool: &cuda_mempool::MemPool, stream: &cuda_mempool::Stream) -> cuda_mempool::Result<()> {
//! pool.alloc::<bool>(stream, 3).map(drop)
//! # }
//! ```
//!
//! # Memory resources
//!
//! They are shared, and never copied:
//!
//! ```no_run
//! # use cuda_mempool::resource::CudaAsyncMemoryResource;
//! # fn f(resource: std::sync::Arc<CudaAsyncMemoryResource>) -> std::sync::Arc<CudaAsyncMemoryResource> {
//! std::sync::Arc::clone(&resource)
//! # }
//! ```
//!
//! ```compile_fail,E0277
//! # use cuda_mempool::resource::CudaAsyncMemoryResource;
//! # fn f(resource: CudaAsyncMemoryResource) -> CudaAsyncMemoryResource {
//! Clone::clone(&resource)
//! # }
//! ```
