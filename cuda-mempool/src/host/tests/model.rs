//! Random sequences of calls against a model that knows what every block must contain.

use std::alloc::Layout;
use std::ptr::NonNull;

use proptest::prelude::*;

use super::source::System;
use super::{arena, capped, layout, CHUNK};
use crate::host::arena::Arena;

#[derive(Debug, Clone)]
enum Call {
    Allocate(Layout),
    /// Of the block at this place in the list, modulo its length.
    Free(usize),
    /// To this size and alignment, be it larger or smaller.
    Resize(usize, Layout),
    Trim,
}

/// What the model knows of a block: its bytes are all `mark`.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    /// The length that was reported.
    len: usize,
    mark: u8,
}

/// A few mebibytes at most, with small ones likeliest, and zero.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0),
        8 => 1..256_usize,
        4 => 256..8192_usize,
        2 => 8192..2 * CHUNK,
        1 => (4..19_u32, -1..=1_isize).prop_map(|(power, off)| (1_usize << power).saturating_add_signed(off)),
    ]
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let align = prop_oneof![6 => 0..5_u32, 2 => 5..13_u32, 1 => 13..21_u32];
    (size(), align).prop_map(|(size, align)| layout(size, 1 << align))
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => any_layout().prop_map(Call::Allocate),
        4 => any::<usize>().prop_map(Call::Free),
        4 => (any::<usize>(), any_layout()).prop_map(|(which, layout)| Call::Resize(which, layout)),
        1 => Just(Call::Trim),
    ]
}

struct Model<'a> {
    arena: &'a Arena<System>,
    blocks: Vec<Block>,
    mark: u8,
}

impl Model<'_> {
    fn run(&mut self, call: &Call) {
        match *call {
            Call::Allocate(layout) => {
                if let Ok(block) = self.arena.allocate(layout) {
                    self.enter(block, layout, 0);
                }
            }
            Call::Free(which) if !self.blocks.is_empty() => {
                let block = self.blocks.swap_remove(which % self.blocks.len());
                block.check(block.len);
                let layout = block.fitting_layout();
                // SAFETY: the block has just left the model, and the layout fits.
                unsafe { self.arena.deallocate(block.start, layout) };
            }
            Call::Resize(which, layout) if !self.blocks.is_empty() => {
                let which = which % self.blocks.len();
                let old = &self.blocks[which];
                // SAFETY: the block is live, and the layout fits.
                match unsafe { self.arena.resize(old.start, old.fitting_layout(), layout) } {
                    Ok(moved) => {
                        let old = self.blocks.swap_remove(which);
                        let kept = old.layout.size().min(layout.size());
                        Block { start: moved.cast(), ..old }.check(kept);
                        self.enter(moved, layout, kept);
                    }
                    Err(_) => old.check(old.len),
                }
            }
            Call::Free(_) | Call::Resize(..) => {}
            Call::Trim => {
                self.arena.trim().expect("the source does not fail to trim");
            }
        }
    }

    /// Takes a block into the model and fills it to its last byte.
    fn enter(&mut self, block: NonNull<[u8]>, layout: Layout, kept: usize) {
        let (start, len) = (block.cast::<u8>(), block.len());
        assert!(len >= layout.size() && len >= kept);
        assert_eq!(start.as_ptr() as usize % layout.align(), 0, "{layout:?} at {start:?}");
        assert!(layout.size() > 0 || len == 0, "a block of zero bytes has none");
        self.mark = self.mark.wrapping_add(1);
        // SAFETY: the block is ours for its whole length.
        unsafe { start.as_ptr().write_bytes(self.mark, len) };
        self.blocks.push(Block { start, layout, len, mark: self.mark });
    }

    fn check_totals(&self) {
        let stats = self.arena.stats();
        let live: Vec<_> = self.blocks.iter().filter(|block| block.len > 0).collect();
        assert_eq!(stats.live_blocks, live.len());
        assert_eq!(stats.live_bytes, live.iter().map(|block| block.len).sum::<usize>());
        assert_eq!(stats.taken_bytes, stats.chunk_bytes + stats.large_bytes);
        assert_eq!(stats.taken_bytes, self.arena.source().out());
        assert!(stats.live_bytes + stats.stocked_bytes <= stats.taken_bytes);
        assert!(stats.taken_bytes <= stats.peak_taken_bytes);
        for block in live {
            let start = block.start.as_ptr() as usize;
            assert!(self.arena.contains(start) && self.arena.contains(start + block.len - 1));
        }
    }
}

impl Block {
    /// Any layout between what was asked for and what was given is one to free with. This one is in the middle.
    fn fitting_layout(&self) -> Layout {
        layout((self.layout.size() + self.len) / 2, self.layout.align())
    }

    fn check(&self, len: usize) {
        // SAFETY: the block was filled to its end when it entered the model.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) };
        assert!(bytes.iter().all(|&byte| byte == self.mark), "{:?} was overwritten", self.layout);
    }
}

fn follow(arena: &Arena<System>, calls: &[Call]) {
    let mut model = Model { arena, blocks: Vec::new(), mark: 0 };
    for call in calls {
        model.run(call);
        model.check_totals();
    }
    while !model.blocks.is_empty() {
        model.run(&Call::Free(0));
    }
    model.run(&Call::Trim);
    assert_eq!(arena.source().out(), 0, "nothing is live, so everything can be given back");
    model.check_totals();
}

/// Miri takes a thousand times as long.
const CASES: u32 = if cfg!(miri) { 2 } else { 100 };
const CALLS: usize = if cfg!(miri) { 40 } else { 200 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn contents_stay(calls in prop::collection::vec(call(), 1..CALLS)) {
        follow(&arena(), &calls);
    }

    #[test]
    fn contents_stay_when_memory_is_short(cap in 1..6 * CHUNK, calls in prop::collection::vec(call(), 1..CALLS)) {
        let arena = capped(cap);
        follow(&arena, &calls);
        assert!(arena.stats().peak_taken_bytes <= cap);
    }
}
