//! Pinned memory of a chosen NUMA node for the collections of the standard library.
//!
//! Copies between a device and pinned memory run at the full speed of the bus, and beside other work; ordinary memory is
//! copied at a fraction of that. A [`NumaAllocator`] hands out such memory about as fast as the system's allocator hands
//! out ordinary memory (on an H200's host, 64 bytes in twice its time, 4 KiB and more in less than half of it):
//!
//! - With the feature `nightly` it implements `core::alloc::Allocator`, for `Vec`, `Box`, `VecDeque`, `BTreeMap` and
//!   all others.
//! - With the feature `allocator-api2` it implements the `Allocator` of that crate (0.2), for hashbrown's `HashMap`,
//!   and for the `Vec` and `Box` of that crate.
//! - [`PinnedBox`] needs neither.
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::host::{NumaAllocator, PinnedBox};
//! use cuda_mempool::{MemPool, Stream};
//!
//! let pinned = NumaAllocator::builder().near(device).build()?;
//! let input = PinnedBox::from_fn(&pinned, 1000, |index| index as f32)?;
//! let mut output = PinnedBox::zeroed(&pinned, 1000)?;
//!
//! let stream = Stream::new(device)?;
//! let mut buffer = MemPool::default_for(device)?.alloc(&stream, 1000)?;
//! stream.scope(|s| {
//!     s.copy_from_host(&mut buffer, &input)?;
//!     s.copy_to_host(&buffer, &mut output)
//! })?;
//! assert_eq!(input, output);
//! # Ok(()) });
//! ```
//!
//! # How it works
//!
//! The memory comes from a pool of its own, by the chunk. Each thread keeps a stock of free blocks by size class, so most
//! calls touch nothing that other threads use; any thread may free what another made. Stocks are filled from the chunks
//! and emptied into them by the batch. What is larger than an eighth of a chunk, and than 256 KiB, comes straight from the
//! pool, which keeps what it has: getting memory from the system is slow, and [`NumaAllocator::prime`] does it ahead of time.
//!
//! # Registered memory
//!
//! With [`registered`](NumaAllocatorBuilder::registered) the memory does not come from a pool: the kernel gives it, in huge
//! pages and to several threads at once, and it is registered with CUDA. Where getting memory is what takes time, that is
//! the choice. On an H200's host (driver 580.159, CUDA 13.0, sixteen threads), [`NumaAllocator::prime`] of 4 GiB took 0.12
//! times as long as `cudaHostAlloc` of as much, and 0.64 times from a pool; copies were equally fast. What a pool gets from
//! the system the driver gets for one caller at a time: no number of threads, pools, streams or pieces was faster.
//!
//! # Access
//!
//! Host memory of a pool is the CPU's alone until a device is given access. A copy works all the same, but not at the
//! speed of pinned memory: the driver takes it for ordinary memory and stages it. Measured on an H200 (driver 580.159,
//! CUDA 13.0), 1 GiB to the device went at 8 GB/s without access and at 55 GB/s with it, as fast as from `cudaHostAlloc`.
//! So [`near`](NumaAllocatorBuilder::near) gives the device access; others that copy with the memory, or with an
//! allocator on a [node](NumaAllocatorBuilder::node) of choice, need a [grant](NumaAllocatorBuilder::grant). A kernel that
//! uses memory without access breaks its context for good: [`device_ptr`](NumaAllocator::device_ptr) tells beforehand.
//!
//! # What the device still uses
//!
//! Freed memory is handed out again at once; it is not ordered after work on a device. A collection must outlive what a
//! stream does with its memory. [`Stream::scope`](crate::Stream::scope) sees to that; whoever gives pointers to kernels
//! has to.

mod allocator;
mod arena;
mod backing;
mod builder;
mod chunk;
mod class;
mod heap;
mod large;
#[cfg(target_os = "linux")]
mod mapped_source;
#[cfg(target_os = "linux")]
mod mapping;
mod node;
mod peak;
mod pinned_box;
mod pool_source;
mod shards;
mod source;
mod stack;
mod stats;
#[cfg(target_os = "linux")]
mod stretches;
#[cfg(test)]
mod tests;
mod traits;
mod way;

pub use allocator::NumaAllocator;
pub use builder::NumaAllocatorBuilder;
pub use pinned_box::PinnedBox;
pub use stats::Stats;
