//! Reuse across streams.
//!
//! On the stream where a block was freed, the next allocation can have it at once. Whether another stream can have it
//! is the pool's [`ReusePolicy`](crate::ReusePolicy), three switches that are all on at first.
//!
//! **Follow event dependencies**: the other stream has waited for an event behind the free.
//!
//! ```c
//! cudaMallocAsync(&memory, size, first);
//! kernel<<<blocks, threads, 0, first>>>(memory);
//! cudaFreeAsync(memory, first);
//! cudaEventRecord(event, first);
//! cudaStreamWaitEvent(second, event, 0);
//! cudaMallocAsync(&again, size, second);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! use cuda_mempool::{MemPool, ReusePolicy, Stream};
//!
//! let policy = ReusePolicy {
//!     follow_event_dependencies: true,
//!     allow_opportunistic: false,
//!     allow_internal_dependencies: false,
//! };
//! let pool = MemPool::builder(device).reuse(policy).build()?;
//! let (first, second) = (Stream::new(device)?, Stream::new(device)?);
//! let mut memory = pool.alloc::<u8>(&first, 32 << 20)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, &first) };
//! let address = memory.as_ptr();
//! drop(memory);
//! second.join(&first)?; // an event recorded and waited for
//! let again = pool.alloc::<u8>(&second, 32 << 20)?;
//! assert_eq!(again.as_ptr(), address);
//! # Ok(()) });
//! ```
//!
//! **Allow opportunistic**: the free happens to be done when the other stream asks.
//!
//! ```c
//! cudaMallocAsync(&memory, size, first);
//! kernel<<<blocks, threads, 0, first>>>(memory);
//! cudaFreeAsync(memory, first);
//! sleep(1); /* by then the kernel has ended */
//! cudaMallocAsync(&again, size, second);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # use cuda_mempool::{MemPool, ReusePolicy, Stream};
//! let policy = ReusePolicy {
//!     follow_event_dependencies: false,
//!     allow_opportunistic: true,
//!     allow_internal_dependencies: false,
//! };
//! # let pool = MemPool::builder(device).reuse(policy).release_threshold(u64::MAX).build()?;
//! # let (first, second) = (Stream::new(device)?, Stream::new(device)?);
//! let mut memory = pool.alloc::<u8>(&first, 32 << 20)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, &first) };
//! let address = memory.as_ptr();
//! drop(memory);
//! while !first.query()? {
//!     std::thread::yield_now();
//! }
//! let again = pool.alloc::<u8>(&second, 32 << 20)?;
//! assert_eq!(again.as_ptr(), address);
//! # Ok(()) });
//! ```
//!
//! **Allow internal dependencies**: when there is no memory left, the runtime makes the other stream wait for the free,
//! as if by an event.
//!
//! ```c
//! cudaMallocAsync(&memory, size, first);
//! kernel<<<blocks, threads, 0, first>>>(memory);
//! cudaFreeAsync(memory, first);
//! cudaMallocAsync(&again, size, second); /* may make `second` wait for `first` */
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # use cuda_mempool::{Feature, MemPool, ReusePolicy, Stream, Version};
//! # if Version::of_driver()? < Some(Version::new(12, 2)) { return Ok(()); }
//! let policy = ReusePolicy {
//!     follow_event_dependencies: false,
//!     allow_opportunistic: false,
//!     allow_internal_dependencies: true,
//! };
//! let pool = MemPool::builder(device).reuse(policy).max_size(32 << 20).build()?;
//! # let (first, second) = (Stream::new(device)?, Stream::new(device)?);
//! let mut memory = pool.alloc::<u8>(&first, 32 << 20)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, &first) };
//! let address = memory.as_ptr();
//! drop(memory);
//! let again = pool.alloc::<u8>(&second, 32 << 20)?; // there is no room for another block
//! assert_eq!(again.as_ptr(), address);
//! # Ok(()) });
//! ```
//!
//! The last two make it depend on timing which addresses are given out, and the last one lets streams wait that looked
//! independent. Where runs must repeat exactly, or streams never wait for each other, switch them off.
