//! Sizes and alignments at their limits, growing in place, the cap, trimming, and a source that fails.

use std::alloc::Layout;

use super::{arena, capped, layout, CHUNK};
use crate::host::way::LARGE_STEP;
use crate::ErrorKind;

#[test]
fn zero_bytes_are_nowhere() {
    let arena = arena();
    for align in [1, 8, 4096, 1 << 20] {
        let block = arena.allocate(layout(0, align)).unwrap();
        assert_eq!((block.len(), block.cast::<u8>().as_ptr() as usize), (0, align));
        // SAFETY: the block is from this arena.
        unsafe { arena.deallocate(block.cast(), layout(0, align)) };
    }
    assert_eq!(arena.source().takes(), 0);
    assert_eq!(arena.stats().live_blocks, 0);
}

#[test]
fn from_zero_bytes_and_back() {
    let arena = arena();
    let (nothing, some) = (layout(0, 8), layout(100, 8));
    let block = arena.allocate(nothing).unwrap();
    // SAFETY: the block is from this arena, with this layout.
    let block = unsafe { arena.resize(block.cast(), nothing, some) }.unwrap();
    assert!(block.len() >= 100);
    // SAFETY: as above.
    let block = unsafe { arena.resize(block.cast(), some, nothing) }.unwrap();
    assert_eq!(block.len(), 0);
    assert_eq!(arena.stats().live_blocks, 0);
}

#[test]
fn grows_and_shrinks_in_place() {
    let arena = arena();
    let [small, large] = [layout(1000, 8), layout(20_000, 8)];
    let block = arena.allocate(layout(1000, 8)).unwrap().cast::<u8>();
    // Its neighbours come from the same refill. Back in the chunk they make room.
    arena.trim().unwrap();
    // SAFETY: the block is from this arena, with this layout.
    let grown = unsafe { arena.resize(block, small, large) }.unwrap();
    assert_eq!(grown.cast::<u8>(), block);
    // SAFETY: as above.
    let shrunk = unsafe { arena.resize(block, large, small) }.unwrap();
    assert_eq!(shrunk.cast::<u8>(), block);
    assert!(shrunk.len() < grown.len());
    assert_eq!(arena.stats().live_bytes, shrunk.len());
    // SAFETY: as above.
    unsafe { arena.deallocate(block, small) };
}

#[test]
fn reported_room_needs_no_new_block() {
    let arena = arena();
    for size in [1, 100, 5000, CHUNK / 8, CHUNK, 3 * CHUNK + 1] {
        let asked = layout(size, 8);
        let block = arena.allocate(asked).unwrap();
        let whole = layout(block.len(), 8);
        // SAFETY: the block is from this arena, with this layout.
        let grown = unsafe { arena.resize(block.cast(), asked, whole) }.unwrap();
        assert_eq!(grown, block);
        // SAFETY: as above.
        unsafe { arena.deallocate(block.cast(), whole) };
    }
}

#[test]
fn absurd_sizes_are_refused() {
    let arena = arena();
    for align in [1, 32, 1 << 20] {
        let layout = Layout::from_size_align(isize::MAX as usize - (align - 1), align).unwrap();
        assert_eq!(arena.allocate(layout).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
    assert_eq!(arena.stats().taken_bytes, 0);
}

#[test]
fn the_cap_is_kept_and_says_so() {
    let arena = capped(2 * CHUNK);
    let large = layout(CHUNK, 8);
    let blocks = [arena.allocate(large).unwrap(), arena.allocate(large).unwrap()];
    let error = arena.allocate(layout(1, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains(&(2 * CHUNK).to_string()), "{error}");
    for block in blocks {
        // SAFETY: the block is from this arena, with this layout.
        unsafe { arena.deallocate(block.cast(), large) };
    }
    assert!(arena.allocate(layout(1, 1)).is_ok());
}

#[test]
fn a_cap_below_a_chunk_is_used_up() {
    let arena = capped(2 * LARGE_STEP + 5);
    let block = arena.allocate(layout(100, 8)).unwrap();
    assert_eq!(arena.stats().chunk_bytes, 2 * LARGE_STEP);
    // SAFETY: the block is from this arena, with this layout.
    unsafe { arena.deallocate(block.cast(), layout(100, 8)) };
}

#[test]
fn stocks_and_empty_chunks_make_room_for_large_blocks() {
    let arena = capped(CHUNK);
    let small = layout(64, 8);
    let block = arena.allocate(small).unwrap();
    // SAFETY: the block is from this arena, with this layout.
    unsafe { arena.deallocate(block.cast(), small) };
    assert_eq!(arena.stats().chunk_bytes, CHUNK);
    let block = arena.allocate(layout(CHUNK, 8)).expect("the chunk is empty, so it can go");
    assert_eq!(arena.stats().chunk_bytes, 0);
    // SAFETY: as above.
    unsafe { arena.deallocate(block.cast(), layout(CHUNK, 8)) };
}

#[test]
fn stocks_make_room_in_their_chunk() {
    let arena = capped(CHUNK);
    let small = layout(CHUNK / 16, 8);
    let blocks: Vec<_> = std::iter::from_fn(|| arena.allocate(small).ok()).collect();
    assert!(blocks.len() >= 12);
    for block in blocks {
        // SAFETY: the block is from this arena, with this layout.
        unsafe { arena.deallocate(block.cast(), small) };
    }
    let long = layout(CHUNK / 8, 8);
    let block = arena.allocate(long).expect("what is in stock is free");
    // SAFETY: as above.
    unsafe { arena.deallocate(block.cast(), long) };
}

#[test]
fn room_that_came_back_is_found() {
    let arena = capped(CHUNK);
    let long = layout(CHUNK / 8, 8);
    let blocks: Vec<_> = std::iter::from_fn(|| arena.allocate(long).ok()).collect();
    assert!(blocks.len() >= 6);
    for &block in &blocks {
        // SAFETY: the block is from this arena, with this layout.
        unsafe { arena.deallocate(block.cast(), long) };
        // Out of the stock.
        arena.trim().unwrap();
        assert_eq!(arena.allocate(long).unwrap(), block);
    }
    for block in blocks {
        // SAFETY: as above.
        unsafe { arena.deallocate(block.cast(), long) };
    }
}

#[test]
fn trim_gives_free_chunks_back_and_no_others() {
    let arena = arena();
    let long = layout(CHUNK / 8, 8);
    let blocks: Vec<_> = (0..20).map(|_| arena.allocate(long).unwrap()).collect();
    let chunks = arena.stats().chunks;
    assert!(chunks >= 3);
    for block in &blocks[1..] {
        // SAFETY: the block is from this arena, with this layout.
        unsafe { arena.deallocate(block.cast(), long) };
    }
    assert_eq!(arena.stats().chunks, chunks, "chunks stay for the next blocks");
    assert_eq!(arena.trim().unwrap(), (chunks - 1) * CHUNK);
    assert_eq!((arena.stats().chunks, arena.stats().stocked_bytes), (1, 0));
    // SAFETY: as above.
    unsafe { arena.deallocate(blocks[0].cast(), long) };
    assert_eq!(arena.trim().unwrap(), CHUNK);
    assert_eq!(arena.stats().taken_bytes, 0);
}

#[test]
fn a_chunk_serves_many_blocks() {
    let arena = arena();
    for _ in 0..10_000 {
        let block = arena.allocate(layout(64, 8)).unwrap();
        // SAFETY: the block is from this arena, with this layout.
        unsafe { arena.deallocate(block.cast(), layout(64, 8)) };
    }
    assert_eq!(arena.source().takes(), 1);
    assert_eq!(arena.stats().live_blocks, 0);
}

#[test]
fn stocks_are_bounded() {
    let arena = arena();
    for (size, count, most) in [(64, 1000, 70 * 100), (200 << 10, 110, 5 << 20)] {
        arena.trim().unwrap();
        let blocks: Vec<_> = (0..count).map(|_| arena.allocate(layout(size, 8)).unwrap()).collect();
        for block in blocks {
            // SAFETY: the block is from this arena, with this layout.
            unsafe { arena.deallocate(block.cast(), layout(size, 8)) };
        }
        let stocked = arena.stats().stocked_bytes;
        assert!(stocked > 0 && stocked < most, "{stocked} bytes of blocks of {size}");
    }
}

#[test]
fn a_dry_source_fails_the_request_alone() {
    let arena = arena();
    let (small, large) = (layout(64, 8), layout(CHUNK, 8));
    let block = arena.allocate(small).unwrap();
    // SAFETY: the block is ours.
    unsafe { block.cast::<u8>().as_ptr().write_bytes(7, 64) };
    arena.source().run_dry();
    assert_eq!(arena.allocate(large).unwrap_err().kind(), ErrorKind::OutOfMemory);
    // SAFETY: the block is from this arena, with this layout.
    assert!(unsafe { arena.resize(block.cast(), small, large) }.is_err());
    // SAFETY: a failed resize leaves the block as it is.
    assert_eq!(unsafe { *block.cast::<u8>().as_ptr().add(63) }, 7);
    assert!(arena.allocate(small).is_ok(), "the chunk still has room");
    arena.source().recover();
    assert!(arena.allocate(large).is_ok());
    // What is still live goes with the arena.
}

#[test]
fn what_the_source_refuses_was_never_taken() {
    let arena = arena();
    arena.allocate(layout(1 << 50, 8)).unwrap_err();
    assert_eq!((arena.stats().taken_bytes, arena.stats().peak_taken_bytes), (0, 0));
    assert!(arena.allocate(layout(CHUNK, 8)).is_ok());
    assert_eq!((arena.stats().taken_bytes, arena.stats().peak_taken_bytes), (CHUNK, CHUNK));
    // What is still live goes with the arena.
}

#[test]
fn every_take_may_fail() {
    let asks = [layout(64, 8), layout(CHUNK / 8, 64), layout(CHUNK, 4096), layout(100, 1), layout(CHUNK / 9, 8)];
    for succeed in 1..6 {
        let arena = arena();
        let mut blocks = Vec::new();
        for ask in asks.iter().cycle().take(40) {
            if arena.source().takes() >= succeed {
                arena.source().run_dry();
            }
            if let Ok(block) = arena.allocate(*ask) {
                blocks.push((block, *ask));
            }
        }
        assert_eq!(arena.source().takes(), succeed);
        assert_eq!(arena.stats().live_blocks, blocks.len());
        for (block, ask) in blocks {
            // SAFETY: the block is from this arena, with this layout.
            unsafe { arena.deallocate(block.cast(), ask) };
        }
        arena.trim().unwrap();
        assert_eq!(arena.source().out(), 0);
    }
}
