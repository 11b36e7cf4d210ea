//! Blocks that came straight from the source.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the source gave for each block, by the block's address.
#[derive(Default)]
pub(super) struct LargeBlocks(Mutex<BTreeMap<usize, Whole>>);

struct Whole(NonNull<[u8]>);

// SAFETY: an entry owns its memory, and nothing in it belongs to a thread.
unsafe impl Send for Whole {}

impl LargeBlocks {
    /// Remembers a block, whose address is the first in `whole` with this alignment.
    pub(super) fn insert(&self, whole: NonNull<[u8]>, align: usize) -> NonNull<u8> {
        let start = whole.cast::<u8>();
        let offset = (start.as_ptr() as usize).wrapping_neg() & (align - 1);
        // SAFETY: whoever took the memory took enough to align the block in it.
        let block = unsafe { NonNull::new_unchecked(start.as_ptr().add(offset)) };
        self.lock().insert(block.as_ptr() as usize, Whole(whole));
        block
    }

    /// Forgets a block, and says what the source gave for it.
    pub(super) fn remove(&self, block: NonNull<u8>) -> NonNull<[u8]> {
        self.lock().remove(&(block.as_ptr() as usize)).expect("a block of this allocator").0
    }

    pub(super) fn remove_all(&mut self) -> Vec<NonNull<[u8]>> {
        let blocks = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        blocks.into_values().map(|whole| whole.0).collect()
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        let blocks = self.lock();
        blocks.range(..=address).next_back().is_some_and(|(_, whole)| {
            let start = whole.0.cast::<u8>().as_ptr() as usize;
            (start..start + whole.0.len()).contains(&address)
        })
    }

    /// The number of blocks, and the bytes that they took from the source.
    pub(super) fn totals(&self) -> (usize, usize) {
        let blocks = self.lock();
        (blocks.len(), blocks.values().map(|whole| whole.0.len()).sum())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Whole>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
