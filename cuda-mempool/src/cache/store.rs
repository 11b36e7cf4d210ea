//! What a cache and its buffers share: the blocks, and the ways to and from the pool.

use std::ffi::c_void;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use spin::mutex::SpinMutex;
use spin::relax::Yield;

use super::class::SizeClass;
use super::registry;
use super::shelf::Shelf;
use crate::buffer::free;
use crate::stream::order;
use crate::{teardown, Error, ErrorKind, MemPool, Result, Stream};

const FREE: &str = "cudaFreeAsync";

/// The blocks of a cache. Lives as long as the cache or a buffer from it.
///
/// Its lock is held for a few instructions at a time: nothing is called and nothing is dropped under it. So it spins, which
/// takes one atomic exchange, half of what a mutex takes that can put threads to sleep.
pub(crate) struct Store {
    pool: MemPool,
    stream: Stream,
    state: SpinMutex<State, Yield>,
}

struct State {
    /// The most bytes to keep: none once the cache is gone.
    cap: usize,
    /// Blocks that are ready for what is enqueued on the stream next.
    shelf: Shelf<Shelved>,
    hits: u64,
    misses: u64,
    waste: usize,
}

/// A block that goes out, with the handles that its buffer holds.
pub(crate) struct Lease {
    pub(crate) base: NonNull<c_void>,
    pub(crate) stream: Stream,
    pub(crate) store: Arc<Store>,
}

/// A block on the shelf. With it the shelf owns a handle of the store's stream and one of the store, for the next lease:
/// to count them down and up anew would take longer than all else. They are the same for all blocks, so that they need not
/// lie here: they were forgotten, and are copied.
struct Shelved(NonNull<c_void>);

// SAFETY: device memory belongs to no thread, and handles can be sent.
unsafe impl Send for Shelved {}

/// What a [`BlockCache`](crate::BlockCache) has done, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Allocations that were served from the cache.
    pub hits: u64,
    /// Allocations for which the pool was asked.
    pub misses: u64,
    /// Bytes of the blocks in the cache.
    pub cached_bytes: usize,
    /// Blocks in the cache.
    pub cached_blocks: usize,
    /// Bytes by which the blocks that are out are larger than what was asked for.
    pub waste: usize,
}

impl Store {
    pub(super) fn open(pool: MemPool, stream: Stream, cap: usize) -> Arc<Self> {
        let state = State { cap, shelf: Shelf::new(), hits: 0, misses: 0, waste: 0 };
        let store = Arc::new(Self { pool, stream, state: SpinMutex::new(state) });
        // In a forked child, locks that others held stay held.
        if !teardown::forked() {
            registry::add(&store);
        }
        store
    }

    /// Gives the pool all that is cached. What comes back later goes there too.
    pub(super) fn close(this: &Arc<Self>) {
        // In a forked child, locks that others held stay held.
        if teardown::forked() {
            return;
        }
        registry::remove(this);
        // Blocks on the shelf keep the store, which keeps them.
        Self::set_cap(this, 0);
    }

    /// Hands out a block of at least `bytes`, ready for what is enqueued on the stream next.
    #[inline]
    pub(crate) fn take(this: &Arc<Self>, bytes: usize) -> Result<Lease> {
        teardown::reachable("cudaMallocFromPoolAsync")?;
        let class = SizeClass::holding(bytes);
        let mut state = this.state.lock();
        if let Some(block) = state.shelf.take(class) {
            state.hits += 1;
            state.waste += class.bytes() - bytes;
            // SAFETY: it was on the shelf.
            return Ok(unsafe { Self::lease(this, block) });
        }
        state.misses += 1;
        drop(state);
        let base = Self::ask_pool(this, class, bytes)?;
        Ok(Lease { base, stream: this.stream.clone(), store: this.clone() })
    }

    /// # Safety
    /// The block must have been on the shelf, and be given up for the lease.
    #[inline]
    unsafe fn lease(this: &Arc<Self>, Shelved(base): Shelved) -> Lease {
        // SAFETY: with the block come a handle of the store's stream and one of the store, forgotten when it was shelved.
        unsafe { Lease { base, stream: ptr::read(&this.stream), store: ptr::read(this) } }
    }

    /// Asks the pool, and when it is out of memory makes room: first from this cache, then from all of the pool.
    #[inline(never)]
    fn ask_pool(this: &Arc<Self>, class: SizeClass, bytes: usize) -> Result<NonNull<c_void>> {
        let ask = || this.pool.alloc_bytes(&this.stream, class.bytes());
        let base = ask()
            .or_else(|error| retry(error, || Self::flush(this), ask))
            .or_else(|error| retry(error, || registry::flush(&this.pool), ask))
            .map_err(|error| error.with_requested(bytes))?;
        this.state.lock().waste += class.bytes() - bytes;
        Ok(base)
    }

    /// Takes back a block, as [`give_back`](Self::give_back), if that is quickly done: if all work on it is ordered on the
    /// store's own stream, and there is room. When it says so, the caller's two handles are the shelf's.
    ///
    /// # Safety
    /// As for [`give_back`](Self::give_back). When the answer is true, the handles given must be forgotten.
    #[inline]
    pub(crate) unsafe fn put(this: &Arc<Self>, stream: &Stream, base: NonNull<c_void>, bytes: usize) -> bool {
        // In a forked child, locks that others held stay held.
        if !stream.is_handle_of(&this.stream) || teardown::forked() {
            return false;
        }
        let class = SizeClass::holding(bytes);
        let mut state = this.state.lock();
        let fits = state.shelf.bytes() + class.bytes() <= state.cap;
        if fits {
            state.keep(class, Shelved(base), bytes);
        }
        // Once the lock is released, which is the last access to the store here, others may drop it.
        fits
    }

    /// Takes back a block, of which `bytes` had been asked for, after all work enqueued on `stream` so far. On failure the
    /// block is still out.
    ///
    /// # Safety
    /// The block must come from [`take`](Self::take), for as many bytes, and not be used nor given back again. All work
    /// on it must be ordered on `stream`.
    #[cold]
    pub(crate) unsafe fn give_back(
        this: &Arc<Self>,
        stream: &Stream,
        base: NonNull<c_void>,
        bytes: usize,
    ) -> Result<()> {
        if teardown::forked() {
            return Ok(());
        }
        let class = SizeClass::holding(bytes);
        if *stream != this.stream {
            teardown::reachable(FREE)?;
            if !this.keeps(class) || !this.waits_for(stream) {
                // SAFETY: the caller's promise.
                return unsafe { this.free(class, stream, base, bytes) };
            }
        }
        loop {
            let mut state = this.state.lock();
            let Some(beside) = state.cap.checked_sub(class.bytes()) else {
                drop(state);
                // SAFETY: the caller's promise.
                return unsafe { this.free(class, stream, base, bytes) };
            };
            let Some(oldest) = state.shelf.take_oldest_above(beside) else {
                // The shelf's handles.
                mem::forget((this.stream.clone(), this.clone()));
                state.keep(class, Shelved(base), bytes);
                return Ok(());
            };
            drop(state);
            Self::release(this, oldest);
        }
    }

    /// Whether blocks of this class are kept. After the end of the cache none are.
    fn keeps(&self, class: SizeClass) -> bool {
        class.bytes() <= self.state.lock().cap
    }

    /// Has the stream wait for another one, if that can be had. In a capture it cannot: an event would stand for captured
    /// work, and not for what came before.
    fn waits_for(&self, other: &Stream) -> bool {
        !captures(other) && !captures(&self.stream) && order(other, &self.stream).is_ok()
    }

    /// Whether a capture is in the way of giving back what is cached. A stream that cannot be reached from this thread is
    /// not used for that.
    pub(super) fn is_captured(&self) -> bool {
        !self.stream.is_elsewhere() && captures(&self.stream)
    }

    /// Gives the pool a block that was out, in the order of `stream`.
    ///
    /// # Safety
    /// As for [`give_back`](Self::give_back).
    unsafe fn free(&self, class: SizeClass, stream: &Stream, base: NonNull<c_void>, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise; the block is an allocation of the runtime.
        teardown::try_release(FREE, || unsafe { free(base, stream) })?;
        self.state.lock().waste -= class.bytes() - bytes;
        Ok(())
    }

    /// Gives the pool blocks until at most `bytes_to_keep` are cached.
    pub(super) fn trim(this: &Arc<Self>, bytes_to_keep: usize) {
        // In a forked child, locks that others held stay held.
        if teardown::forked() {
            return;
        }
        let oldest = || this.state.lock().shelf.take_oldest_above(bytes_to_keep);
        while let Some(block) = oldest() {
            Self::release(this, block);
        }
    }

    /// Gives the pool a block from the shelf.
    fn release(this: &Arc<Self>, block: Shelved) {
        // SAFETY: it was on the shelf.
        let lease = unsafe { Self::lease(this, block) };
        // SAFETY: the block is an allocation of the runtime and nobody's any more. All work on it is ordered on the
        // stream.
        teardown::release(FREE, || unsafe { free(lease.base, &lease.stream) });
    }

    /// Gives the pool all that is cached, and waits until it is the pool's. That may fail: what matters is whether the
    /// pool has memory then.
    pub(super) fn flush(this: &Arc<Self>) {
        Self::trim(this, 0);
        let _ = this.stream.synchronize();
    }

    pub(super) fn set_cap(this: &Arc<Self>, bytes: usize) {
        // As above.
        if teardown::forked() {
            return;
        }
        this.state.lock().cap = bytes;
        Self::trim(this, bytes);
    }

    pub(super) fn stats(&self) -> CacheStats {
        // As above.
        if teardown::forked() {
            return CacheStats::default();
        }
        let state = self.state.lock();
        CacheStats {
            hits: state.hits,
            misses: state.misses,
            cached_bytes: state.shelf.bytes(),
            cached_blocks: state.shelf.blocks(),
            waste: state.waste,
        }
    }

    pub(super) fn pool(&self) -> &MemPool {
        &self.pool
    }

    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl State {
    #[inline]
    fn keep(&mut self, class: SizeClass, block: Shelved, bytes: usize) {
        self.waste -= class.bytes() - bytes;
        self.shelf.put(class, block);
    }
}

fn captures(stream: &Stream) -> bool {
    stream.may_be_capturing() && stream.is_capturing().unwrap_or(true)
}

/// Makes room and tries again, if memory is what lacks.
#[cold]
fn retry<R>(error: Error, make_room: impl FnOnce(), again: impl FnOnce() -> Result<R>) -> Result<R> {
    if error.kind() != ErrorKind::OutOfMemory {
        return Err(error);
    }
    make_room();
    again()
}
