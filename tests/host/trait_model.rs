//! Random calls of the `Allocator` trait against a model that knows every byte that is promised.

use std::alloc::Layout;
use std::ptr::NonNull;

use cuda_mempool::host::{NumaAllocator, NumaAllocatorBuilder};
use cuda_mempool::Result;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};

use crate::allocator_api::Allocator;
use crate::alone;

/// Small, so that blocks of every way come and go: out of stocks, chunks, and straight from the pool.
const CHUNK: usize = 256 << 10;
/// So that some requests fail.
const CAP: usize = 4 << 20;

/// A block is chosen by a number, modulo how many there are.
#[derive(Debug, Clone)]
enum Call {
    Allocate { layout: Layout, zeroed: bool },
    Grow { which: usize, more: usize, align: usize, zeroed: bool },
    Shrink { which: usize, less: usize, align: usize },
    Deallocate { which: usize },
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0), 6 => 1..300_usize, 3 => 300..20_000_usize, 2 => 20_000..3 * CHUNK]
}

/// Up to a mebibyte.
fn align() -> impl Strategy<Value = usize> {
    prop_oneof![5 => 0..5_u32, 2 => 5..13_u32, 1 => 13..21_u32].prop_map(|power| 1 << power)
}

fn call() -> impl Strategy<Value = Call> {
    let which = any::<usize>;
    prop_oneof![
        3 => (size(), align(), any::<bool>())
            .prop_map(|(size, align, zeroed)| Call::Allocate { layout: layout(size, align), zeroed }),
        2 => (which(), size(), align(), any::<bool>())
            .prop_map(|(which, more, align, zeroed)| Call::Grow { which, more, align, zeroed }),
        2 => (which(), any::<usize>(), align()).prop_map(|(which, less, align)| Call::Shrink { which, less, align }),
        2 => which().prop_map(|which| Call::Deallocate { which }),
    ]
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a valid layout")
}

/// What the model knows of a block: its first `layout.size()` bytes are all `mark`.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

struct Model<'a> {
    allocator: &'a NumaAllocator,
    blocks: Vec<Block>,
    mark: u8,
}

impl Model<'_> {
    fn run(&mut self, call: &Call) {
        match *call {
            Call::Allocate { layout, zeroed } => {
                let block =
                    if zeroed { self.allocator.allocate_zeroed(layout) } else { self.allocator.allocate(layout) };
                match block {
                    Ok(block) => self.enter(block, layout, 0, zeroed, 0),
                    Err(_) => self.expect_reason(),
                }
            }
            Call::Grow { which, more, align, zeroed } => {
                let Some(old) = self.take(which) else { return };
                let new = layout(old.layout.size() + more, align);
                // SAFETY: the block is live with this layout, and the new size is no less.
                let grown = unsafe {
                    if zeroed {
                        self.allocator.grow_zeroed(old.start, old.layout, new)
                    } else {
                        self.allocator.grow(old.start, old.layout, new)
                    }
                };
                self.resized(old, grown.ok(), new, zeroed);
            }
            Call::Shrink { which, less, align } => {
                let Some(old) = self.take(which) else { return };
                let new = layout(old.layout.size() - less % (old.layout.size() + 1), align);
                // SAFETY: the block is live with this layout, and the new size is no more.
                let shrunk = unsafe { self.allocator.shrink(old.start, old.layout, new) };
                self.resized(old, shrunk.ok(), new, false);
            }
            Call::Deallocate { which } => {
                let Some(block) = self.take(which) else { return };
                // SAFETY: the block is live with this layout, and the model has forgotten it.
                unsafe { self.allocator.deallocate(block.start, block.layout) };
            }
        }
    }

    /// A block that the model knows, looked at for the last time.
    fn take(&mut self, which: usize) -> Option<Block> {
        let index = which.checked_rem(self.blocks.len())?;
        let block = self.blocks.swap_remove(index);
        check(&block, block.layout.size());
        Some(block)
    }

    fn resized(&mut self, old: Block, block: Option<NonNull<[u8]>>, new: Layout, zeroed: bool) {
        match block {
            Some(block) => self.enter(block, new, old.layout.size().min(new.size()), zeroed, old.mark),
            None => {
                self.expect_reason();
                check(&old, old.layout.size());
                self.blocks.push(old);
            }
        }
    }

    /// Looks at what is promised of a block that was handed out, of which `kept` bytes are to be `mark`, and fills it to
    /// its last byte. It is then known by some layout that fits it.
    fn enter(&mut self, block: NonNull<[u8]>, asked: Layout, kept: usize, zeroed: bool, mark: u8) {
        let (start, length) = (block.cast::<u8>(), block.len());
        assert!(length >= asked.size(), "{asked:?} in {length} bytes");
        assert_eq!(start.as_ptr() as usize % asked.align(), 0, "{asked:?} at {start:?}");
        assert_eq!(length == 0, asked.size() == 0, "no bytes take no memory: {asked:?} in {length}");
        check(&Block { start, layout: asked, mark }, kept);
        // SAFETY: the block is the model's for its whole length, and zeroed memory is initialised.
        assert!(!zeroed || unsafe { &block.as_ref()[kept..] }.iter().all(|&byte| byte == 0), "{asked:?} is not zero");
        for other in &self.blocks {
            let (first, second) = (start.as_ptr() as usize, other.start.as_ptr() as usize);
            let apart = first + length <= second || second + other.layout.size() <= first;
            assert!(length == 0 || other.layout.size() == 0 || apart, "{asked:?} is in {:?}", other.layout);
        }
        self.mark = self.mark.wrapping_add(1);
        // SAFETY: as above.
        unsafe { start.as_ptr().write_bytes(self.mark, length) };
        let fitting = if self.mark % 2 == 0 { asked.size() } else { length };
        self.blocks.push(Block { start, layout: layout(fitting, asked.align()), mark: self.mark });
    }

    /// After a failure the allocator has the reason, once.
    fn expect_reason(&self) {
        assert!(self.allocator.take_last_error().is_some() && self.allocator.take_last_error().is_none());
    }
}

fn check(block: &Block, length: usize) {
    // SAFETY: the block is live, and was filled when it entered the model.
    let bytes = unsafe { std::slice::from_raw_parts(block.start.as_ptr(), length) };
    assert!(bytes.iter().all(|&byte| byte == block.mark), "{:?} was overwritten", block.layout);
}

fn follow(builder: NumaAllocatorBuilder, calls: &[Call]) -> Result<()> {
    let allocator = builder.chunk_size(CHUNK).cap(CAP).build()?;
    let mut model = Model { allocator: &allocator, blocks: Vec::new(), mark: 0 };
    for call in calls {
        model.run(call);
        let live = model.blocks.iter().filter(|block| block.layout.size() > 0);
        assert_eq!(allocator.stats().live_blocks, live.count());
    }
    while !model.blocks.is_empty() {
        model.run(&Call::Deallocate { which: 0 });
    }
    assert_eq!(allocator.stats().live_bytes, 0);
    allocator.trim()?;
    assert_eq!(allocator.stats().taken_bytes, 0, "nothing is live, so everything can be given back");
    Ok(())
}

fn keeps_its_promises(builder: &NumaAllocatorBuilder) {
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    let calls = prop::collection::vec(call(), 1..150);
    let outcome = TestRunner::new(config)
        .run(&calls, |calls| follow(builder.clone(), &calls).map_err(|error| TestCaseError::fail(error.to_string())));
    outcome.unwrap_or_else(|why| panic!("{why}"));
}

pub fn the_trait_keeps_its_promises() {
    alone(|device| {
        keeps_its_promises(&NumaAllocator::builder().near(device));
        keeps_its_promises(&NumaAllocator::builder().near(device).registered());
        Ok(())
    });
}
