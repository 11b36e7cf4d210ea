//! The allocator over the system's memory: no CUDA here, so that sanitizers, valgrind and Miri can follow.
//!
//! ```sh
//! cargo +nightly miri test -p cuda-mempool --lib host::
//! RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu -p cuda-mempool --lib host::
//! RUSTFLAGS=-Zsanitizer=address cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu -p cuda-mempool --lib host::
//! CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind -q --error-exitcode=9" cargo test -p cuda-mempool --lib host::
//! ```
//!
//! `CUDA_MEMPOOL_HAMMER_SECONDS` makes the threads go on for longer. The thread sanitizer must see into the locks of the
//! standard library, so it needs that built anew.

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
