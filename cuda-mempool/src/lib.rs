//! GPU memory that is allocated and freed in the order of a stream, from the memory pools of the CUDA runtime.
//!
//! A [`DeviceBuffer`] is allocated from a [`MemPool`] and belongs to a [`Stream`]. All its operations are enqueued on
//! that stream, its free included, so nothing waits and nothing races:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::{MemPool, Stream};
//!
//! let stream = Stream::new(device)?;
//! let pool = MemPool::default_for(device)?;
//! let numbers = pool.from_slice(&stream, &[1_u32, 2, 3])?;
//! let mut copy = pool.alloc(&stream, 3)?;
//! copy.copy_from(&numbers)?;
//! drop(numbers); // freed when the copy is done
//! assert_eq!(copy.to_vec()?, [1, 2, 3]);
//! # Ok(()) });
//! ```
//!
//! [The guide](guide) goes from a first buffer to pools, other devices and graphs, and shows each C sample of CUDA's own
//! guide beside what replaces it. What raw code needs is in [`sys`], and every type gives its raw handle out and takes
//! one in (`as_raw`, `into_raw`, `from_raw`).
//!
//! A [`BlockCache`] in front of a pool hands out again what its buffers gave back, without a call of the driver.
//! [`resource`] has the interface of RAPIDS RMM for pools, caches and what wraps them.
//!
//! # What is promised
//!
//! - Safe code has no race, on the device or the host, and uses no memory after its free.
//! - Memory of the host is given back only when no device can use it any more. Where the runtime refuses to wait by any
//!   means although the device works, the process is aborted.
//! - Dropping never panics. It waits for a device only where there is no other order: a buffer of another thread's
//!   [per-thread stream](Stream::per_thread), what is not of a pool (`ipc`'s memory of `cudaMalloc`), and the last handle
//!   of a [`NumaAllocator`](host::NumaAllocator), for its own frees. What goes wrong is told to [`on_drop_error`]; `close`
//!   returns it.
//! - The current device is put back after each call that needs another one. Where a thread never used CUDA, that is
//!   device 0, and newer drivers make its context then.
//! - An [`Error`] names the C function, and the thread's last error is clear after it.
//! - Where CUDA must not be called, it is not: everything that would answers [`ErrorKind::NotPermitted`] in a [host
//!   function](Stream::launch_host_fn) and in a forked child, in which dropping does nothing. (A child made by bare `clone`
//!   calls, past `fork`, cannot be told apart.) And all that works on another thread's per-thread stream answers
//!   [`ErrorKind::WrongThread`].
#![cfg_attr(feature = "nightly", feature(allocator_api))]
#![deny(missing_docs, missing_debug_implementations, unsafe_op_in_unsafe_fn)]
#![warn(unreachable_pub)]

mod buffer;
mod cache;
mod current;
mod device;
mod error;
mod event;
#[doc(hidden)]
pub mod example;
mod graph_memory;
pub mod guide;
pub mod host;
#[cfg(target_os = "linux")]
pub mod ipc;
#[cfg(doctest)]
mod must_not_compile;
mod pool;
pub mod resource;
mod stream;
mod support;
mod teardown;
mod version;

/// The README's page of code runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub use buffer::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Home, RawDeviceBuffer};
pub use bytemuck;
pub use cache::{BlockCache, CacheStats};
pub use cuda_mempool_sys as sys;
pub use device::{Device, MemoryInfo};
pub use error::{Error, ErrorKind, OutOfMemory, Result};
pub use event::{Event, EventBuilder};
pub use pool::{Access, HandleTypes, Location, MemPool, MemPoolBuilder, PoolUsage, ReusePolicy};
pub use stream::{Scope, Stream, StreamBuilder};
pub use support::{Feature, Support};
pub use teardown::on_drop_error;
pub use version::Version;
