//! Buffers and their stream.
//!
//! A stream is a queue. Memory that is allocated on a stream may be used by what is enqueued after, and its free comes in
//! its turn. Nothing waits for anything on the host:
//!
//! ```c
//! cudaStream_t stream = cudaStreamPerThread;
//! cudaMallocAsync(&memory, 512, stream);
//! kernel<<<blocks, threads, 0, stream>>>(memory);
//! cudaFreeAsync(memory, stream);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! use cuda_mempool::{MemPool, Stream};
//!
//! let stream = Stream::per_thread(device);
//! let pool = MemPool::current_for(device)?;
//! let mut memory = pool.alloc::<u8>(&stream, 512)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, &stream) };
//! drop(memory); // enqueues the free
//! # Ok(()) });
//! ```
//!
//! Streams made with [`Stream::new`](crate::Stream::new) are the better choice: they can be used from any thread.
//!
//! # On other streams
//!
//! Streams run side by side. To use memory on another one takes two orders: the use after the allocation, and the free
//! after the use. In C these are events, and to forget one is a race that seldom shows:
//!
//! ```c
//! cudaMallocAsync(&memory, size, first);
//! cudaEventRecord(allocated, first);
//! cudaStreamWaitEvent(second, allocated, 0);
//! kernel<<<blocks, threads, 0, second>>>(memory);
//! cudaEventRecord(used, second);
//! cudaStreamWaitEvent(third, used, 0);
//! cudaFreeAsync(memory, third);
//! ```
//!
//! A [`DeviceBuffer`](crate::DeviceBuffer) that moves to a stream brings these orders with it:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # use cuda_mempool::{MemPool, Stream};
//! # let pool = MemPool::default_for(device)?;
//! let (first, second, third) = (Stream::new(device)?, Stream::new(device)?, Stream::new(device)?);
//! let mut memory = pool.alloc::<u8>(&first, 512)?;
//! memory.set_stream(&second)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, &second) };
//! memory.set_stream(&third)?;
//! drop(memory);
//! # Ok(()) });
//! ```
//!
//! For one visit, [`with_stream`](crate::DeviceBuffer::with_stream) goes there and back:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # use cuda_mempool::{MemPool, Stream};
//! # let pool = MemPool::default_for(device)?;
//! # let (first, second) = (Stream::new(device)?, Stream::new(device)?);
//! let mut memory = pool.alloc::<u8>(&first, 512)?;
//! memory.with_stream(&second, |pointer| {
//!     // SAFETY: the kernel writes 512 bytes, on the stream that the buffer was brought to.
//!     unsafe { kernel(pointer, 512, &second) }
//! })?;
//! assert_eq!(memory.to_vec()?, [7; 512]);
//! # Ok(()) });
//! ```
//!
//! Copies between buffers order themselves, whatever the streams, and the source can be dropped at once:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{MemPool, Stream};
//! # let pool = MemPool::default_for(device)?;
//! # let (first, second) = (Stream::new(device)?, Stream::new(device)?);
//! let source = pool.from_slice(&first, &[1_i32, 2, 3])?;
//! let mut target = pool.alloc(&second, 3)?;
//! target.copy_from(&source)?;
//! drop(source);
//! assert_eq!(target.to_vec()?, [1, 2, 3]);
//! # Ok(()) });
//! ```
//!
//! # Memory from elsewhere
//!
//! `cudaFreeAsync` also frees what `cudaMalloc` made:
//!
//! ```c
//! cudaMalloc(&memory, size);
//! kernel<<<blocks, threads, 0, stream>>>(memory);
//! cudaFreeAsync(memory, stream);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # let stream = cuda_mempool::Stream::new(device)?;
//! use cuda_mempool::DeviceBuffer;
//!
//! let mut memory = DeviceBuffer::<u8>::unpooled(&stream, 512)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, &stream) };
//! drop(memory);
//! # Ok(()) });
//! ```
//!
//! Where other code has called `cudaMalloc`, its memory becomes a buffer by
//! [`from_raw`](crate::DeviceBuffer::from_raw).
//!
//! And memory of a pool can be freed with `cudaFree`, which does not wait for streams by itself:
//!
//! ```c
//! cudaMallocAsync(&memory, size, stream);
//! kernel<<<blocks, threads, 0, stream>>>(memory);
//! cudaStreamSynchronize(stream);
//! cudaFree(memory);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # use cuda_mempool::{sys, MemPool, Stream};
//! # let pool = MemPool::default_for(device)?;
//! # let stream = Stream::new(device)?;
//! let mut memory = pool.alloc::<u8>(&stream, 512)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, &stream) };
//! let raw = memory.into_raw();
//! raw.stream.synchronize()?;
//! // SAFETY: the memory is ours to free, and nothing uses it any more.
//! let answer = unsafe { sys::cudaFree(raw.base) };
//! assert_eq!(answer, sys::cudaError_t::cudaSuccess);
//! # Ok(()) });
//! ```
