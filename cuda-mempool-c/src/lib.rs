//! Pinned memory of a chosen NUMA node, for C: an allocator over the host pools of the CUDA runtime.
//!
//! `include/cuda_mempool.h` is made of this crate's public items and their documentation, by `cargo xtask header`.
//! No panic reaches C: each function catches it and fails.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]
// The documentation is that of the C functions, whose contracts have no heading of their own.
#![allow(clippy::missing_safety_doc)]

mod allocator;
mod block;
mod failure;
mod stats;

pub use allocator::*;
pub use failure::cuda_mempool_last_error;
pub use stats::*;
