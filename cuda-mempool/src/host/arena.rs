//! The allocator over any source, with its cap, and what happens when memory is short.

use std::alloc::Layout;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::chunk::Chunk;
use super::class;
use super::heap::Heap;
use super::large::LargeBlocks;
use super::peak::Peak;
use super::shards::{Shards, Surplus};
use super::source::Source;
use super::stack::Stack;
use super::stats::Stats;
use super::way::{round_up, Way, LARGE_STEP};
use crate::{Error, ErrorKind, Result};

/// Bytes that a stock is filled with at a time, and the most blocks.
const REFILL_BYTES: usize = 16 << 10;
const REFILL_BLOCKS: usize = 32;

/// Blocks from chunks are at most this part of a chunk, or what is left over at a chunk's end would be dear.
const LONGEST_PART: usize = 8;

/// How much an arena takes, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The length of its chunks.
    pub(super) chunk: usize,
    /// All that it may have from its source at a time.
    pub(super) cap: usize,
}

pub(super) struct Arena<S: Source> {
    source: S,
    limits: Limits,
    shards: Shards,
    heap: Heap,
    large: LargeBlocks,
    /// What counts against the cap: what is taken, and what the source is being asked for.
    claimed: AtomicUsize,
    taken: Peak,
    /// Held while a chunk is made, so that threads that need one share it.
    growing: Mutex<()>,
}

impl<S: Source> Arena<S> {
    pub(super) fn new(source: S, limits: Limits) -> Self {
        Self {
            source,
            limits,
            shards: Shards::new(),
            heap: Heap::default(),
            large: LargeBlocks::default(),
            claimed: AtomicUsize::new(0),
            taken: Peak::default(),
            growing: Mutex::default(),
        }
    }

    pub(super) fn source(&self) -> &S {
        &self.source
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// A block of at least the layout's size, with its true length.
    #[inline]
    pub(super) fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>> {
        let way = self.way(layout);
        if let Way::Stock(class) = way {
            if let Some(block) = self.shards.pop(class) {
                return Ok(NonNull::slice_from_raw_parts(block, class::len_of(class)));
            }
        }
        self.allocate_slowly(way, layout)
    }

    #[cold]
    fn allocate_slowly(&self, way: Way, layout: Layout) -> Result<NonNull<[u8]>> {
        let block = way.block();
        let start = match way {
            Way::Nothing => return Ok(dangling(layout)),
            Way::Stock(class) => {
                let mut blocks = self.carve(block, (REFILL_BYTES / block.size()).clamp(1, REFILL_BLOCKS))?;
                let start = blocks.pop();
                self.shards.stock_up(class, blocks);
                start.expect("at least one block")
            }
            Way::Chunk(_) => self.carve(block, 1)?.pop().expect("one block"),
            Way::Source(_) => self.allocate_large(block)?,
        };
        self.shards.count(1, block.size() as isize);
        Ok(NonNull::slice_from_raw_parts(start, block.size()))
    }

    /// # Safety
    /// The block is from this arena and fits the layout, and is not used any more.
    #[inline]
    pub(super) unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        match self.way(layout) {
            Way::Stock(class) => {
                // SAFETY: the caller gives up a block of this class.
                if let Some(surplus) = unsafe { self.shards.push(class, block) } {
                    self.put_back(surplus);
                }
            }
            // SAFETY: passed on to the caller.
            way => unsafe { self.deallocate_slowly(way, block) },
        }
    }

    /// # Safety
    /// As [`Arena::deallocate`], with the way that the layout goes, which is not through a stock.
    #[cold]
    unsafe fn deallocate_slowly(&self, way: Way, block: NonNull<u8>) {
        let layout = way.block();
        if way == Way::Nothing {
            return;
        } else if way.is_carved() {
            let mut blocks = Stack::default();
            // SAFETY: the caller gives the block up, and it has room for a pointer.
            unsafe { blocks.push(block) };
            // SAFETY: the block was carved with this layout.
            unsafe { self.heap.give(blocks, layout) };
        } else {
            self.give(self.large.remove(block));
        }
        self.shards.count(-1, -(layout.size() as isize));
    }

    /// A block of the new layout with as much of the old contents as fits, in place where that can be. On failure the
    /// old block stays as it is.
    ///
    /// # Safety
    /// The block is from this arena and fits the old layout.
    pub(super) unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>> {
        let (before, after) = (self.way(old), self.way(new));
        let (old_block, new_block) = (before.block(), after.block());
        if old_block == new_block && before != Way::Nothing {
            return Ok(NonNull::slice_from_raw_parts(block, new_block.size()));
        }
        if before.is_carved() && after.is_carved() && old_block.align() == new_block.align() {
            // SAFETY: the block is out with the layout that its way says, and the alignments are equal.
            if let Some(resized) = unsafe { self.heap.resize(block, old_block, new_block) } {
                self.shards.count(0, new_block.size() as isize - old_block.size() as isize);
                return Ok(NonNull::slice_from_raw_parts(resized, new_block.size()));
            }
        }
        let moved = self.allocate(new)?;
        // SAFETY: both blocks are valid for the smaller size, and apart since the old one is not yet freed.
        unsafe { ptr::copy_nonoverlapping(block.as_ptr(), moved.as_ptr().cast(), old.size().min(new.size())) };
        // SAFETY: passed on to the caller.
        unsafe { self.deallocate(block, old) };
        Ok(moved)
    }

    /// Whether an address lies in memory of this arena, handed out or not.
    pub(super) fn contains(&self, address: usize) -> bool {
        self.heap.contains(address) || self.large.contains(address)
    }

    /// Gives back what is free: the stocks, the chunks that are empty then, and what the source keeps. Says how many
    /// bytes of chunks that were.
    pub(super) fn trim(&self) -> Result<usize> {
        let bytes = self.release_chunks();
        self.source.trim()?;
        Ok(bytes)
    }

    pub(super) fn stats(&self) -> Stats {
        let (live, stocked_bytes) = self.shards.totals();
        let (chunks, chunk_bytes) = self.heap.chunks();
        let (large_blocks, large_bytes) = self.large.totals();
        Stats {
            // Negative only while another thread is between the two halves of a count.
            live_blocks: usize::try_from(live.blocks).unwrap_or(0),
            live_bytes: usize::try_from(live.bytes).unwrap_or(0),
            stocked_bytes,
            peak_carved_bytes: self.heap.out().highest(),
            chunks,
            chunk_bytes,
            large_blocks,
            large_bytes,
            taken_bytes: self.taken.now(),
            peak_taken_bytes: self.taken.highest(),
        }
    }

    #[inline]
    fn way(&self, layout: Layout) -> Way {
        Way::of(layout, self.limits.chunk / LONGEST_PART)
    }

    /// Up to `want` blocks, at least one, out of the chunks there are or else out of a new one.
    fn carve(&self, layout: Layout, want: usize) -> Result<Stack> {
        let carve = || Some(self.heap.take(layout, want)).filter(|blocks| blocks.count() > 0);
        if let Some(blocks) = carve() {
            return Ok(blocks);
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made a chunk meanwhile, and reclaiming may have made room.
        match carve() {
            Some(blocks) => Ok(blocks),
            None => self.grow(layout, want).or_else(|error| {
                self.reclaim();
                match carve() {
                    Some(blocks) => Ok(blocks),
                    None => self.grow(layout, want).map_err(|_| error),
                }
            }),
        }
    }

    /// A new chunk, and the first blocks out of it.
    fn grow(&self, layout: Layout, want: usize) -> Result<Stack> {
        // What one block takes with its header, its alignment, and the search in steps of a sixteenth.
        let enough = round_up((layout.size() + layout.align()) / 8 * 9 + 8 * class::GRANULE, LARGE_STEP);
        // Where the cap leaves less than a chunk, what it leaves.
        let left = self.limits.cap.saturating_sub(self.claimed.load(Ordering::Relaxed)) & !(LARGE_STEP - 1);
        let memory = self.take(self.limits.chunk.min(left).max(enough))?;
        // SAFETY: the source's memory is valid, and the chunk's from now on.
        let chunk = unsafe { Chunk::new(memory) };
        let blocks = self.heap.insert(chunk, layout, want);
        debug_assert!(blocks.count() > 0, "a new chunk has room for what it is made for");
        Ok(blocks)
    }

    fn allocate_large(&self, layout: Layout) -> Result<NonNull<u8>> {
        // A stronger alignment than the source's is had by asking for more.
        let spare = if layout.align() > S::ALIGN { layout.align() } else { 0 };
        let len = layout.size().saturating_add(spare);
        let whole = self.take(len).or_else(|error| {
            self.reclaim();
            self.take(len).map_err(|_| error)
        })?;
        Ok(self.large.insert(whole, layout.align()))
    }

    /// Memory from the source, within the cap.
    fn take(&self, len: usize) -> Result<NonNull<[u8]>> {
        let cap = self.limits.cap;
        let within = |claimed: usize| claimed.checked_add(len).filter(|&sum| sum <= cap);
        self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).map_err(|taken| {
            let why = format!("{len} bytes more would exceed the cap: {taken} of {cap} are taken");
            Error::refused(ErrorKind::OutOfMemory, "cudaMallocFromPoolAsync", why)
        })?;
        match self.source.take(len) {
            Ok(memory) => {
                self.taken.add(len);
                Ok(NonNull::slice_from_raw_parts(memory, len))
            }
            Err(error) => {
                self.claimed.fetch_sub(len, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// How many bytes that gave back. What is lost still counts as taken, and against the cap.
    fn give(&self, memory: NonNull<[u8]>) -> usize {
        // SAFETY: it came from `take`, has left the books, and nobody has a part of it.
        if !unsafe { self.source.give(memory) } {
            return 0;
        }
        self.taken.sub(memory.len());
        self.claimed.fetch_sub(memory.len(), Ordering::Relaxed);
        memory.len()
    }

    /// Makes as much room as can be had. Where the source fails to let go, the request that needs the room fails anew.
    #[cold]
    fn reclaim(&self) {
        let _ = self.trim();
    }

    fn release_chunks(&self) -> usize {
        self.put_back(self.shards.drain());
        self.heap.remove_empty().into_iter().map(|memory| self.give(memory)).sum()
    }

    #[cold]
    fn put_back(&self, surplus: Surplus) {
        for (class, blocks) in surplus {
            // SAFETY: blocks in the stocks are out, with the layout of their class.
            unsafe { self.heap.give(blocks, Way::Stock(class).block()) };
        }
    }
}

impl<S: Source> Drop for Arena<S> {
    fn drop(&mut self) {
        let whole = self.heap.remove_all().into_iter().chain(self.large.remove_all());
        for memory in whole.collect::<Vec<_>>() {
            self.give(memory);
        }
    }
}

/// The pointer of a block of zero bytes.
fn dangling(layout: Layout) -> NonNull<[u8]> {
    let start = ptr::null_mut::<u8>().wrapping_add(layout.align());
    // SAFETY: an alignment is not zero.
    NonNull::slice_from_raw_parts(unsafe { NonNull::new_unchecked(start) }, 0)
}
