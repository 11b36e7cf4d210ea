//! What a cache and its buffers share: the blocks, and the ways to and from the pool.

use std::ffi::c_void;
use std::mem;
use std::ptr::NonNull;
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
    /// Whether the cache is still there. Afterwards nothing is kept.
    open: bool,
    cap: usize,
    /// Blocks that are ready for what is enqueued on the stream next.
    shelf: Shelf<Pointer>,
    /// The handles of buffers that gave their blocks back. A hit passes them on: to count them up and down anew would
    /// take longer than all else.
    tickets: Vec<Ticket>,
    hits: u64,
    misses: u64,
    waste: usize,
}

/// What a buffer from the cache holds besides memory.
pub(crate) struct Ticket {
    pub(crate) stream: Stream,
    pub(crate) store: Arc<Store>,
}

/// A block's address.
struct Pointer(NonNull<c_void>);

// SAFETY: device memory belongs to no thread.
unsafe impl Send for Pointer {}

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
        let state = State { open: true, cap, shelf: Shelf::new(), tickets: Vec::new(), hits: 0, misses: 0, waste: 0 };
        let store = Arc::new(Self { pool, stream, state: SpinMutex::new(state) });
        registry::add(&store);
        store
    }

    /// Gives the pool all that is cached. What comes back later goes there too.
    pub(super) fn close(this: &Arc<Self>) {
        // In a forked child, locks that others held stay held.
        if teardown::forked() {
            return;
        }
        registry::remove(this);
        let tickets = {
            let mut state = this.state.lock();
            state.open = false;
            // They keep the store, which keeps them.
            mem::take(&mut state.tickets)
        };
        drop(tickets);
        this.trim(0);
    }

    /// Hands out a block of at least `bytes`, ready for what is enqueued on the stream next.
    #[inline]
    pub(crate) fn take(this: &Arc<Self>, bytes: usize) -> Result<(NonNull<c_void>, Ticket)> {
        teardown::reachable("cudaMallocFromPoolAsync")?;
        let class = SizeClass::holding(bytes);
        let mut state = this.state.lock();
        let block = state.shelf.take(class);
        match block {
            Some(_) => state.hits += 1,
            None => state.misses += 1,
        }
        state.waste += class.bytes() - bytes;
        let ticket = state.tickets.pop();
        drop(state);
        let ticket = ticket.unwrap_or_else(|| Ticket { stream: this.stream.clone(), store: this.clone() });
        match block {
            Some(Pointer(base)) => Ok((base, ticket)),
            None => Ok((this.ask_pool(class, bytes)?, ticket)),
        }
    }

    /// Asks the pool, and when it is out of memory makes room: first from this cache, then from all of the pool.
    #[inline(never)]
    fn ask_pool(&self, class: SizeClass, bytes: usize) -> Result<NonNull<c_void>> {
        let ask = || self.pool.alloc_bytes(&self.stream, class.bytes());
        ask()
            .or_else(|error| retry(error, || self.flush(), ask))
            .or_else(|error| retry(error, || registry::flush(&self.pool), ask))
            .inspect_err(|_| self.state.lock().waste -= class.bytes() - bytes)
    }

    /// Takes back a block, of which `bytes` had been asked for, after all work enqueued on `stream` so far. On failure
    /// the block is still out.
    ///
    /// # Safety
    /// The block must come from [`take`](Self::take), for as many bytes, and not be used nor given back again. All work
    /// on it must be ordered on `stream`.
    #[inline]
    pub(crate) unsafe fn give_back(ticket: Ticket, base: NonNull<c_void>, bytes: usize) -> Result<(), (Ticket, Error)> {
        if teardown::forked() {
            return Ok(());
        }
        if ticket.stream == ticket.store.stream {
            // SAFETY: the caller's promise.
            unsafe { Self::put(ticket, base, bytes) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { Self::bring_back(ticket, base, bytes) }
        }
    }

    /// # Safety
    /// As for [`give_back`](Self::give_back), for a ticket of the cache's stream.
    #[inline]
    unsafe fn put(ticket: Ticket, base: NonNull<c_void>, bytes: usize) -> Result<(), (Ticket, Error)> {
        // SAFETY: the ticket keeps the store. Once the ticket is in the store, others could drop it there, but not
        // before the lock is released, which is the last access here.
        let store = unsafe { &*Arc::as_ptr(&ticket.store) };
        let class = SizeClass::holding(bytes);
        let mut state = store.state.lock();
        if !state.open {
            drop(state);
            // SAFETY: the caller's promise.
            return unsafe { Self::free(ticket, base) };
        }
        state.waste -= class.bytes() - bytes;
        state.shelf.put(class, Pointer(base));
        while let Some(excess) = state.excess() {
            drop(state);
            store.release(excess);
            state = store.state.lock();
        }
        // A cache that was closed meanwhile gives its tickets to nobody any more.
        if state.open {
            state.tickets.push(ticket);
        }
        Ok(())
    }

    /// Takes back a block whose work is ordered on another stream.
    ///
    /// # Safety
    /// As for [`give_back`](Self::give_back).
    #[cold]
    unsafe fn bring_back(mut ticket: Ticket, base: NonNull<c_void>, bytes: usize) -> Result<(), (Ticket, Error)> {
        if let Err(error) = teardown::reachable(FREE) {
            return Err((ticket, error));
        }
        let store = ticket.store.clone();
        if store.is_open() && store.waits_for(&ticket.stream) {
            ticket.stream = store.stream.clone();
            // SAFETY: the caller's promise; the cache's stream waits for the work.
            return unsafe { Self::put(ticket, base, bytes) };
        }
        // SAFETY: the caller's promise.
        unsafe { Self::free(ticket, base) }?;
        store.state.lock().waste -= SizeClass::holding(bytes).bytes() - bytes;
        Ok(())
    }

    /// Has the stream wait for another one, if that can be had. In a capture it cannot: an event would stand for captured
    /// work, and not for what came before.
    fn waits_for(&self, other: &Stream) -> bool {
        let captures = |stream: &Stream| stream.may_be_capturing() && stream.is_capturing().unwrap_or(true);
        !captures(other) && !captures(&self.stream) && order(other, &self.stream).is_ok()
    }

    /// Gives a block to the pool, in the order of the ticket's stream.
    ///
    /// # Safety
    /// As for [`give_back`](Self::give_back).
    unsafe fn free(ticket: Ticket, base: NonNull<c_void>) -> Result<(), (Ticket, Error)> {
        // SAFETY: the caller's promise; the block is an allocation of the runtime.
        teardown::try_release(FREE, || unsafe { free(base, &ticket.stream) }).map_err(|error| (ticket, error))
    }

    /// Gives the pool blocks until at most `bytes_to_keep` are cached.
    pub(super) fn trim(&self, bytes_to_keep: usize) {
        let oldest = || self.state.lock().shelf.take_oldest_above(bytes_to_keep);
        while let Some(block) = oldest() {
            self.release(block);
        }
    }

    /// Gives the pool a block from the shelf.
    fn release(&self, Pointer(base): Pointer) {
        // SAFETY: the block is an allocation of the runtime and nobody's any more. All work on it is ordered on the
        // stream.
        teardown::release(FREE, || unsafe { free(base, &self.stream) });
    }

    /// Gives the pool all that is cached, and waits until it is the pool's. That may fail: what matters is whether the
    /// pool has memory then.
    pub(super) fn flush(&self) {
        self.trim(0);
        let _ = self.stream.synchronize();
    }

    pub(super) fn set_cap(&self, bytes: usize) {
        self.state.lock().cap = bytes;
        self.trim(bytes);
    }

    pub(super) fn stats(&self) -> CacheStats {
        let state = self.state.lock();
        CacheStats {
            hits: state.hits,
            misses: state.misses,
            cached_bytes: state.shelf.bytes(),
            cached_blocks: state.shelf.blocks(),
            waste: state.waste,
        }
    }

    fn is_open(&self) -> bool {
        self.state.lock().open
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
    /// A block that has to go because there are more than may be kept.
    #[inline]
    fn excess(&mut self) -> Option<Pointer> {
        self.shelf.take_oldest_above(self.cap)
    }
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
