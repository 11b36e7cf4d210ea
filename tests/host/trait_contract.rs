//! What the `Allocator` traits promise to whoever calls them by hand.

use std::alloc::Layout;
use std::ptr::NonNull;

use cuda_mempool::ErrorKind;

use crate::allocator_api::{AllocError, Allocator};
use crate::{alone, pinned, with_each_kind};

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// From the smallest class to a block that is larger than a chunk.
const SIZES: [usize; 8] = [1, 24, 64, 1000, 4096, 100_000, 5 << 20, 40 << 20];

fn bytes(block: &NonNull<[u8]>) -> &[u8] {
    // SAFETY: the tests write blocks before they read them.
    unsafe { block.as_ref() }
}

fn fill(block: NonNull<[u8]>, value: u8) {
    // SAFETY: a block is the test's for its whole length.
    unsafe { block.cast::<u8>().as_ptr().write_bytes(value, block.len()) };
}

pub fn alignments_up_to_a_mebibyte() {
    with_each_kind(|_, pinned| {
        let mut blocks = Vec::new();
        for power in 0..=20 {
            for size in SIZES {
                let layout = layout(size, 1 << power);
                let block = pinned.allocate(layout).unwrap();
                assert_eq!(block.cast::<u8>().as_ptr() as usize % layout.align(), 0);
                assert!(block.len() >= size);
                assert!(pinned.contains(block.as_ptr()));
                blocks.push((block, layout));
            }
            // Two strong alignments of large blocks would take much memory at once.
            for (block, layout) in blocks.drain(..) {
                // SAFETY: allocated above with this layout.
                unsafe { pinned.deallocate(block.cast(), layout) };
            }
        }
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn nothing_is_allocated_for_zero_bytes() {
    with_each_kind(|_, pinned| {
        for align in [1, 64, 1 << 20] {
            let nothing = layout(0, align);
            for block in [pinned.allocate(nothing).unwrap(), pinned.allocate_zeroed(nothing).unwrap()] {
                assert_eq!(block.len(), 0);
                assert_eq!(block.cast::<u8>().as_ptr() as usize % align, 0);
                // SAFETY: a block of this layout.
                unsafe { pinned.deallocate(block.cast(), nothing) };
            }
        }
        assert_eq!(pinned.stats().taken_bytes, 0);
        Ok(())
    });
}

pub fn zeroed_memory_is_zero_to_its_end() {
    with_each_kind(|_, pinned| {
        for size in SIZES {
            let layout = layout(size, 8);
            let used = pinned.allocate(layout).unwrap();
            fill(used, 0xff);
            // SAFETY: allocated above with this layout.
            unsafe { pinned.deallocate(used.cast(), layout) };
            let zeroed = pinned.allocate_zeroed(layout).unwrap();
            assert!(bytes(&zeroed).iter().all(|&byte| byte == 0), "{size} bytes");
            // SAFETY: as above.
            unsafe { pinned.deallocate(zeroed.cast(), layout) };
        }
        Ok(())
    });
}

pub fn growing_keeps_the_contents_and_zeroes_the_rest() {
    with_each_kind(|_, pinned| {
        let larger = SIZES[1..].iter().chain(&[50 << 20]);
        for ((old, new), align) in SIZES.into_iter().zip(larger.copied()).flat_map(|pair| [(pair, 1), (pair, 4096)]) {
            let (old, new) = (layout(old, align), layout(new, align));
            let block = pinned.allocate(old).unwrap();
            fill(block, 7);
            // SAFETY: allocated above with this layout.
            let grown = unsafe { pinned.grow_zeroed(block.cast(), old, new) }.unwrap();
            let (kept, rest) = bytes(&grown).split_at(old.size());
            assert!(kept.iter().all(|&byte| byte == 7) && rest.len() >= new.size() - old.size());
            assert!(rest.iter().all(|&byte| byte == 0));
            // SAFETY: as above.
            let shrunk = unsafe { pinned.shrink(grown.cast(), new, old) }.unwrap();
            assert!(bytes(&shrunk)[..old.size()].iter().all(|&byte| byte == 7));
            // SAFETY: as above.
            unsafe { pinned.deallocate(shrunk.cast(), old) };
        }
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn alignment_may_change_on_the_way() {
    with_each_kind(|_, pinned| {
        for (old, new) in [(8, 4096), (4096, 8), (16, 32), (64, 1 << 20), (1 << 20, 1)] {
            let (old, new) = (layout(3000, old), layout(5000, new));
            let block = pinned.allocate(old).unwrap();
            fill(block, 9);
            // SAFETY: allocated above with this layout.
            let grown = unsafe { pinned.grow(block.cast(), old, new) }.unwrap();
            assert_eq!(grown.cast::<u8>().as_ptr() as usize % new.align(), 0);
            assert!(bytes(&grown)[..3000].iter().all(|&byte| byte == 9));
            // SAFETY: as above.
            unsafe { pinned.deallocate(grown.cast(), new) };
        }
        Ok(())
    });
}

pub fn the_reported_length_can_be_used_and_freed_with() {
    with_each_kind(|_, pinned| {
        for size in SIZES {
            let block = pinned.allocate(layout(size, 8)).unwrap();
            fill(block, 1);
            // SAFETY: allocated above; the whole length fits.
            unsafe { pinned.deallocate(block.cast(), layout(block.len(), 8)) };
        }
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn failure_is_an_alloc_error_with_a_reason() {
    with_each_kind(|_, pinned| {
        assert!(pinned.take_last_error().is_none());
        let absurd = layout(isize::MAX as usize, 1);
        assert_eq!(pinned.allocate(absurd), Err(AllocError));
        assert_eq!(pinned.take_last_error().unwrap().kind(), ErrorKind::OutOfMemory);
        assert!(pinned.take_last_error().is_none());

        let small = layout(10, 1);
        let block = pinned.allocate(small).unwrap();
        fill(block, 5);
        // SAFETY: allocated above with this layout.
        assert_eq!(unsafe { pinned.grow(block.cast(), small, absurd) }, Err(AllocError));
        assert!(pinned.take_last_error().is_some());
        assert!(bytes(&block).iter().all(|&byte| byte == 5), "a block that could not grow stays");
        // SAFETY: as above.
        unsafe { pinned.deallocate(block.cast(), small) };
        Ok(())
    });
}

pub fn a_clone_frees_what_its_original_allocated() {
    alone(|device| {
        let first = pinned(device)?;
        let second = first.clone();
        let block = first.allocate(layout(100, 8)).unwrap();
        fill(block, 3);
        drop(first);
        assert!(bytes(&block).iter().all(|&byte| byte == 3));
        // SAFETY: clones are one allocator.
        unsafe { second.deallocate(block.cast(), layout(100, 8)) };
        assert_eq!(second.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn blocks_without_the_trait_tell_the_reason() {
    alone(|device| {
        let pinned = pinned(device)?;
        let (short, long, absurd) = (layout(100, 8), layout(10_000, 64), layout(1 << 50, 8));
        let block = pinned.try_allocate(short)?;
        fill(block, 7);
        // SAFETY: the block is this allocator's, with this layout.
        let refused = unsafe { pinned.try_resize(block.cast(), short, absurd) }.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
        assert!(pinned.take_last_error().is_none());
        // SAFETY: as above: a failure leaves it as it was.
        let block = unsafe { pinned.try_resize(block.cast(), short, long) }?;
        assert!(block.len() >= 10_000 && bytes(&block)[..100].iter().all(|&byte| byte == 7));
        // SAFETY: as above.
        unsafe { pinned.free(block.cast(), long) };
        assert_eq!(pinned.stats().live_blocks, 0);
        assert!(!pinned.is_inherited());
        Ok(())
    });
}
