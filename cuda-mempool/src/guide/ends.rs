//! Errors, and the end of things.
//!
//! An [`Error`](crate::Error) has a [`kind`](crate::Error::kind) to decide by, the C function and its code. Out of
//! memory comes with the numbers that tell why:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{ErrorKind, MemPool, Stream};
//! # let (stream, pool) = (Stream::new(device)?, MemPool::builder(device).build()?);
//! let error = pool.alloc::<u64>(&stream, 1 << 50).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::OutOfMemory);
//! assert_eq!(error.function(), "cudaMallocFromPoolAsync");
//! let numbers = error.out_of_memory().unwrap();
//! assert_eq!(numbers.requested, 8 << 50);
//! assert_eq!(numbers.pool_used, Some(0));
//! # Ok(()) });
//! ```
//!
//! There is no hidden way out: no other kind of memory, and no second try but one: where pools were dropped whose memory
//! nobody has waited for, the device is waited for, as that memory may be what is missing. Near the limit it helps to wait
//! for the frees of a stream and give back what the pool holds in pieces, with
//! [`sync_and_trim`](crate::MemPool::sync_and_trim).
//!
//! # Dropping
//!
//! Everything can be dropped in any order: a stream, pool or event is a handle that its users share, and memory
//! outlives its pool (which is [destroyed](crate::MemPool) when all of it is back). What a drop cannot return goes to
//! [`on_drop_error`](crate::on_drop_error); where it matters, `close` returns it and the value:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{MemPool, Stream};
//! # let (stream, pool) = (Stream::new(device)?, MemPool::builder(device).build()?);
//! let buffer = pool.alloc::<u8>(&stream, 100)?;
//! drop(pool);
//! drop(stream);
//! if let Err((_buffer, error)) = buffer.close() {
//!     return Err(error);
//! }
//! # Ok(()) });
//! ```
//!
//! At the end of the process, and in a forked child, there is nothing to do, and nothing is done.
