//! Stocks of free blocks, one to a thread as far as possible, so that threads do not meet.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use spin::mutex::{SpinMutex, SpinMutexGuard};
use spin::relax::Yield;

use super::class;
use super::stack::Stack;

/// Blocks of one class that a stock holds before it lets go of them.
const CLASS_LIMIT: usize = 64;

/// Bytes that a stock holds before it lets go of everything.
const LIMIT: usize = 4 << 20;

thread_local! {
    /// Which shard this thread uses, modulo their number.
    static HOME: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The next thread's home.
static NEXT_HOME: AtomicUsize = AtomicUsize::new(0);

/// The stocks of an allocator. Whatever thread frees a block has it in its own stock, whoever made it.
pub(super) struct Shards(Box<[Shard]>);

/// Apart from its neighbours by two cache lines, which CPUs fetch together.
///
/// The lock is held for a few instructions, and the next thread that wants it is elsewhere from then on: so it spins.
#[repr(align(128))]
struct Shard(SpinMutex<Stock, Yield>);

struct Stock {
    shelves: [Shelf; class::STOCKED],
    /// Bytes of all free blocks in stock.
    bytes: usize,
    /// What callers hold that did not pass over a shelf.
    live: Live,
}

/// The blocks of one class.
#[derive(Default)]
struct Shelf {
    free: Stack,
    /// Blocks that callers took here, less those that they brought here.
    live: isize,
}

/// What callers hold. One thread may make what another frees, so only the sum over the shards is never negative.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Live {
    pub(super) blocks: isize,
    pub(super) bytes: isize,
}

/// Blocks that no longer fit into a stock, by class.
pub(super) struct Surplus(Vec<(usize, Stack)>);

impl Shards {
    /// Twice as many as CPUs, so that two threads that run at once seldom share one.
    pub(super) fn new() -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let count = (2 * cpus).next_power_of_two().clamp(4, 256);
        Self((0..count).map(|_| Shard(SpinMutex::new(Stock::default()))).collect())
    }

    /// A block of a class, from this thread's stock.
    #[inline]
    pub(super) fn pop(&self, class: usize) -> Option<NonNull<u8>> {
        let mut stock = self.home();
        let shelf = &mut stock.shelves[class];
        let block = shelf.free.pop()?;
        shelf.live += 1;
        stock.bytes -= class::len_of(class);
        Some(block)
    }

    /// A freed block, into this thread's stock. What then is too much comes back.
    ///
    /// # Safety
    /// The block is of this class, and free from now on.
    #[inline]
    pub(super) unsafe fn push(&self, class: usize, block: NonNull<u8>) -> Option<Surplus> {
        let mut stock = self.home();
        let shelf = &mut stock.shelves[class];
        // SAFETY: the caller gives the block up, and every class has room for a pointer.
        unsafe { shelf.free.push(block) };
        shelf.live -= 1;
        let overfull = shelf.free.count() > CLASS_LIMIT;
        stock.bytes += class::len_of(class);
        if overfull || stock.bytes > LIMIT {
            Some(stock.surplus(class))
        } else {
            None
        }
    }

    /// Blocks for later.
    pub(super) fn stock_up(&self, class: usize, mut blocks: Stack) {
        let mut stock = self.home();
        while let Some(block) = blocks.pop() {
            stock.bytes += class::len_of(class);
            // SAFETY: the block comes from a stack, so it is free and large enough.
            unsafe { stock.shelves[class].free.push(block) };
        }
    }

    /// Everything out of every stock.
    pub(super) fn drain(&self) -> Surplus {
        Surplus(self.0.iter().flat_map(|shard| shard.0.lock().drain().0).collect())
    }

    /// Counts what did not come from a stock or go there.
    pub(super) fn count(&self, blocks: isize, bytes: isize) {
        self.home().live.add(blocks, bytes);
    }

    /// What callers hold, and the bytes in stock.
    pub(super) fn totals(&self) -> (Live, usize) {
        let mut live = Live::default();
        let mut stocked = 0;
        for shard in &*self.0 {
            let stock = shard.0.lock();
            stocked += stock.bytes;
            live.add(stock.live.blocks, stock.live.bytes);
            for (class, shelf) in stock.shelves.iter().enumerate() {
                live.add(shelf.live, shelf.live * class::len_of(class) as isize);
            }
        }
        (live, stocked)
    }

    /// This thread's stock. A thread that finds its shard taken goes on to the next, so that two threads do not keep
    /// meeting.
    #[inline]
    fn home(&self) -> SpinMutexGuard<'_, Stock, Yield> {
        let home = HOME.get();
        if home != usize::MAX {
            if let Some(stock) = self.0[home & (self.0.len() - 1)].0.try_lock() {
                return stock;
            }
        }
        self.next_home()
    }

    #[cold]
    fn next_home(&self) -> SpinMutexGuard<'_, Stock, Yield> {
        let home = NEXT_HOME.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1);
        HOME.set(home);
        self.0[home & (self.0.len() - 1)].0.lock()
    }
}

impl Stock {
    /// The class that is overfull, or everything when that would not help.
    #[cold]
    fn surplus(&mut self, class: usize) -> Surplus {
        if self.bytes > LIMIT {
            return self.drain();
        }
        let blocks = std::mem::take(&mut self.shelves[class].free);
        self.bytes -= blocks.count() * class::len_of(class);
        Surplus(vec![(class, blocks)])
    }

    fn drain(&mut self) -> Surplus {
        self.bytes = 0;
        let shelves = self.shelves.iter_mut().map(|shelf| std::mem::take(&mut shelf.free)).enumerate();
        Surplus(shelves.filter(|(_, blocks)| blocks.count() > 0).collect())
    }
}

impl Default for Stock {
    fn default() -> Self {
        Self { shelves: std::array::from_fn(|_| Shelf::default()), bytes: 0, live: Live::default() }
    }
}

impl Live {
    #[inline]
    fn add(&mut self, blocks: isize, bytes: isize) {
        self.blocks += blocks;
        self.bytes += bytes;
    }
}

impl IntoIterator for Surplus {
    type Item = (usize, Stack);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
