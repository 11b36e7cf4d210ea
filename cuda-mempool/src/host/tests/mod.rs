//! The allocator over the system's memory: no CUDA here, so that sanitizers, valgrind and Miri can follow.
//!
//! CONTRIBUTING.md has the commands. `CUDA_MEMPOOL_HAMMER_SECONDS` makes the threads go on for longer.

mod bounds;
mod model;
mod source;
mod threads;

use std::alloc::Layout;

use self::source::System;
use super::arena::{Arena, Limits};

/// Small enough that chunks and large blocks come and go in a short test.
const CHUNK: usize = 512 << 10;

fn arena() -> Arena<System> {
    capped(usize::MAX)
}

fn capped(cap: usize) -> Arena<System> {
    Arena::new(System::default(), Limits { chunk: CHUNK, cap })
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}
