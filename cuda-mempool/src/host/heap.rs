//! All chunks: blocks out of whichever has room, and back to the one they are from.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::chunk::{Chunk, Taken};
use super::peak::Peak;
use super::stack::Stack;

/// Chunks by their address, so that a block's is found by one look-up, and blocks come from the lowest that has room:
/// the others run empty and can be given back.
#[derive(Default)]
pub(super) struct Heap {
    chunks: RwLock<BTreeMap<usize, Box<Chunk>>>,
    out: Peak,
}

impl Heap {
    /// Up to `want` blocks, all from one chunk. Nothing when there is no room for one.
    pub(super) fn take(&self, layout: Layout, want: usize) -> Stack {
        let chunks = self.read();
        let blocks = take_from(&chunks, layout, want);
        self.out.add(blocks.count() * layout.size());
        blocks
    }

    /// # Safety
    /// The blocks are out, from this heap, with this layout.
    pub(super) unsafe fn give(&self, mut blocks: Stack, layout: Layout) {
        let chunks = self.read();
        self.out.sub(blocks.count() * layout.size());
        while let Some(block) = blocks.pop() {
            let chunk = chunk_of(&chunks, block);
            // SAFETY: passed on to the caller.
            unsafe { chunk.give(block, layout) };
        }
    }

    /// As [`Chunk::resize`].
    ///
    /// # Safety
    /// The block is out, from this heap, with the layout `old`; `new` has the same alignment.
    pub(super) unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        let chunks = self.read();
        // SAFETY: passed on to the caller.
        let resized = unsafe { chunk_of(&chunks, block).resize(block, old, new) }?;
        self.out.add(new.size().saturating_sub(old.size()));
        self.out.sub(old.size().saturating_sub(new.size()));
        Some(resized)
    }

    /// A new chunk, and up to `want` blocks out of it before other threads see it.
    pub(super) fn insert(&self, chunk: Chunk, layout: Layout, want: usize) -> Stack {
        let blocks = match chunk.take(layout, want, true) {
            Taken::Blocks(blocks) => blocks,
            Taken::Refused | Taken::Busy => Stack::default(),
        };
        self.out.add(blocks.count() * layout.size());
        self.write().insert(chunk.memory().as_ptr() as *mut u8 as usize, Box::new(chunk));
        blocks
    }

    /// Removes the chunks of which nothing is out.
    pub(super) fn remove_empty(&self) -> Vec<NonNull<[u8]>> {
        let mut removed = Vec::new();
        self.write().retain(|_, chunk| {
            let empty = chunk.is_empty();
            if empty {
                removed.push(chunk.memory());
            }
            !empty
        });
        removed
    }

    /// Removes every chunk, whatever is out.
    pub(super) fn remove_all(&mut self) -> Vec<NonNull<[u8]>> {
        let chunks = std::mem::take(self.chunks.get_mut().unwrap_or_else(PoisonError::into_inner));
        chunks.into_values().map(|chunk| chunk.memory()).collect()
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        let chunks = self.read();
        chunks.range(..=address).next_back().is_some_and(|(_, chunk)| chunk.contains(address))
    }

    /// The number of chunks and of their bytes.
    pub(super) fn chunks(&self) -> (usize, usize) {
        let chunks = self.read();
        (chunks.len(), chunks.values().map(|chunk| chunk.memory().len()).sum())
    }

    /// Bytes of the blocks that are out.
    pub(super) fn out(&self) -> &Peak {
        &self.out
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<usize, Box<Chunk>>> {
        self.chunks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<usize, Box<Chunk>>> {
        self.chunks.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// First without waiting, so that threads go to different chunks. Only a chunk that another thread holds can be worth
/// waiting for.
fn take_from(chunks: &BTreeMap<usize, Box<Chunk>>, layout: Layout, want: usize) -> Stack {
    let mut busy = Vec::new();
    for chunk in chunks.values() {
        match chunk.take(layout, want, false) {
            Taken::Blocks(blocks) => return blocks,
            Taken::Busy => busy.push(chunk),
            Taken::Refused => {}
        }
    }
    for chunk in busy {
        if let Taken::Blocks(blocks) = chunk.take(layout, want, true) {
            return blocks;
        }
    }
    Stack::default()
}

fn chunk_of(chunks: &BTreeMap<usize, Box<Chunk>>, block: NonNull<u8>) -> &Chunk {
    let (_, chunk) = chunks.range(..=block.as_ptr() as usize).next_back().expect("a block of this allocator");
    chunk
}
