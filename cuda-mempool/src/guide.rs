//! From a first buffer to pools, reuse, other devices and graphs.
//!
//! 1. [Buffers and their stream](buffers)
//! 2. [Host memory](host_memory)
//! 3. [Pools](pools)
//! 4. [Reuse across streams](reuse)
//! 5. [Other devices, and the host](access)
//! 6. [Graphs and capture](graphs)
//! 7. [Errors, and the end of things](ends)
//! 8. [Between processes](sharing)
//! 9. [Other crates, and C](other_crates)
//! 10. [From RMM](rmm)
//!
//! The samples in C are what each chapter's Rust replaces. A line of C that calls `kernel` launches one; in Rust that is
//! foreign code, and the one place where `unsafe` is left.

pub mod access;
pub mod buffers;
pub mod ends;
pub mod graphs;
pub mod host_memory;
pub mod other_crates;
pub mod pools;
pub mod reuse;
pub mod rmm;
#[cfg(target_os = "linux")]
pub mod sharing;
