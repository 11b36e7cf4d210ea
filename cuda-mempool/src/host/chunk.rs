//! One block of the source, carved into small ones.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::class::{GRANULE, HEADER};
use super::stack::Stack;
use super::way::round_up;

/// Free lists for blocks up to 2 GiB.
type Tlsf = rlsf::Tlsf<'static, u32, u64, 26, LISTS>;

/// Lists to each doubling of the length.
const LISTS: usize = 64;

/// The longest chunk, in bytes.
pub(super) const MAX_LEN: usize = 1 << 30;

/// A chunk has its own lists and lock: the lists cannot let go of a chunk among others, and threads that need new blocks
/// at the same time find them in different chunks.
pub(super) struct Chunk {
    memory: NonNull<[u8]>,
    carved: Mutex<Carved>,
    /// The least number of bytes that was refused since a block came back. Tells without the lock what is not worth
    /// trying.
    refuses: AtomicUsize,
}

struct Carved {
    tlsf: Tlsf,
    /// Bytes that are out.
    out: usize,
}

// SAFETY: a chunk owns its memory, and nothing in it belongs to a thread. What is shared is behind the lock.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

/// What became of an attempt to take blocks from a chunk.
pub(super) enum Taken {
    /// At least one, at most as many as asked for.
    Blocks(Stack),
    /// There is no room.
    Refused,
    /// Another thread has the lock.
    Busy,
}

impl Chunk {
    /// # Safety
    /// `memory` is valid for reads and writes, and the chunk's alone until it is dropped.
    pub(super) unsafe fn new(memory: NonNull<[u8]>) -> Self {
        let mut tlsf = Tlsf::new();
        // SAFETY: the caller gives the memory to the chunk, which drops these lists with it.
        unsafe { tlsf.insert_free_block_ptr(memory) };
        Self { memory, carved: Mutex::new(Carved { tlsf, out: 0 }), refuses: AtomicUsize::new(usize::MAX) }
    }

    pub(super) fn memory(&self) -> NonNull<[u8]> {
        self.memory
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        let start = self.memory.as_ptr() as *mut u8 as usize;
        (start..start + self.memory.len()).contains(&address)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().out == 0
    }

    /// Takes up to `want` blocks. Does not wait for the lock unless told to.
    pub(super) fn take(&self, layout: Layout, want: usize, wait: bool) -> Taken {
        let need = layout.size() + layout.align();
        if need >= self.refuses.load(Ordering::Relaxed) {
            return Taken::Refused;
        }
        let mut carved = match self.carved.try_lock() {
            Ok(carved) => carved,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if wait => self.lock(),
            Err(TryLockError::WouldBlock) => return Taken::Busy,
        };
        let layout_of_list = whole_list(layout);
        let mut blocks = Stack::default();
        while blocks.count() < want {
            let Some(block) = carved.tlsf.allocate(layout_of_list) else {
                self.refuses.fetch_min(need, Ordering::Relaxed);
                break;
            };
            // SAFETY: a fresh block is free, and every block has room for a pointer.
            unsafe { blocks.push(block) };
        }
        carved.out += blocks.count() * layout.size();
        if blocks.count() == 0 {
            Taken::Refused
        } else {
            Taken::Blocks(blocks)
        }
    }

    /// # Safety
    /// The block is out, from this chunk, with this layout.
    pub(super) unsafe fn give(&self, block: NonNull<u8>, layout: Layout) {
        let mut carved = self.lock();
        // SAFETY: the caller's block is from these lists and has this alignment.
        unsafe { carved.tlsf.deallocate(block, layout.align()) };
        carved.out -= layout.size();
        self.refuses.store(usize::MAX, Ordering::Relaxed);
    }

    /// Makes a block longer or shorter within this chunk, where it is if possible. On failure it stays as it is.
    ///
    /// # Safety
    /// The block is out, from this chunk, with the layout `old`; `new` has the same alignment.
    pub(super) unsafe fn resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<u8>> {
        let mut carved = self.lock();
        // SAFETY: the caller's block is from these lists and has this alignment.
        let resized = unsafe { carved.tlsf.reallocate(block, whole_list(new)) }?;
        carved.out = carved.out - old.size() + new.size();
        self.refuses.store(usize::MAX, Ordering::Relaxed);
        Some(resized)
    }

    fn lock(&self) -> MutexGuard<'_, Carved> {
        self.carved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layout with so much added that, with its header, the block begins a list.
///
/// A list is searched only for what its shortest block can hold. So a block between two lists would, when it is free
/// again, not be found for the next request of the same length.
fn whole_list(layout: Layout) -> Layout {
    let gross = round_up(layout.size() + HEADER, GRANULE);
    let apart = ((1 << gross.ilog2()) / LISTS).max(GRANULE);
    let size = round_up(gross, apart) - HEADER;
    // SAFETY: the size is at most a 64th longer, of what fits into a chunk. The alignment is from a layout.
    unsafe { Layout::from_size_align_unchecked(size, layout.align()) }
}
