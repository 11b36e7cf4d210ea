//! Host memory.
//!
//! The plain copies wait until they are done, so they can take any slice:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{MemPool, Stream};
//! # let (stream, pool) = (Stream::new(device)?, MemPool::default_for(device)?);
//! let mut buffer = pool.alloc::<f64>(&stream, 2)?;
//! buffer.copy_from_host(&[0.5, 1.5])?;
//! let mut back = [0.0; 2];
//! buffer.copy_to_host(&mut back)?;
//! assert_eq!(back, [0.5, 1.5]);
//! # Ok(()) });
//! ```
//!
//! A copy that does not wait uses the slice after the call returned. [`Stream::scope`](crate::Stream::scope) makes that
//! safe as [`std::thread::scope`] does for threads: what is lent in it must outlive it, and it waits for the stream
//! before it returns, whatever happens. In between, copies and kernels run one after the other while the host goes on:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # use cuda_mempool::{MemPool, Stream};
//! # let (stream, pool) = (Stream::new(device)?, MemPool::default_for(device)?);
//! let input = vec![1_u8; 1000];
//! let mut output = vec![0_u8; 1000];
//! let mut seen = 0;
//! let mut buffer = pool.alloc::<u8>(&stream, 1000)?;
//! stream.scope(|s| {
//!     s.copy_from_host(&mut buffer, &input)?;
//!     // SAFETY: the kernel writes 500 bytes, on the buffer's stream.
//!     unsafe { kernel(buffer.as_mut_ptr(), 500, &stream) };
//!     s.copy_to_host(&buffer, &mut output)?;
//!     s.launch_host_fn(|| seen += 1)
//! })?;
//! assert_eq!(seen, 1);
//! assert_eq!(output[499..501], [7, 1]);
//! # Ok(()) });
//! ```
//!
//! Where lifetimes cannot say what is true, `unsafe` copies return at once and leave the waiting to the caller:
//! [`copy_to_host_async`](crate::DeviceBuffer::copy_to_host_async) and
//! [`copy_from_host_async`](crate::DeviceBuffer::copy_from_host_async).
//!
//! Copies from and to ordinary (pageable) memory go through a buffer of the driver's, at a fraction of the speed of
//! pinned memory.
