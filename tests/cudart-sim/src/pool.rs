//! Memory pools: what the program may set and ask, and how they answer a request.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::cuda::{cudaError, cudaMemAllocationHandleType};
use crate::handles::Id;
use crate::ipc::pools::Sharing;
use crate::memory::allocation::{Allocation, Kind, Place};
use crate::memory::arena::Arena;
use crate::memory::heap::{self, Found, Heap};
use crate::order::Epoch;
use crate::race::Track;
use crate::sim::Sim;
use crate::stream::{Marker, Op, StreamId};
use crate::work::Free;
use crate::Outcome;

/// Pools grow by, and are limited in, steps of this many bytes. Measured on an H200.
pub const STEP: usize = 32 << 20;

/// A pool's handle.
pub type PoolId = Id<Pool>;

/// See the module.
#[derive(Debug)]
pub struct Pool {
    pub at: Where,
    pub handle_types: u32,
    pub sharing: Sharing,
    /// What the first export leaves with the pool. Before that, its pointers are not exported.
    pub exported: Option<OwnedFd>,
    pub heap: Heap,
    pub max_size: usize,
    pub is_default: bool,
    pub reuse: Reuse,
    pub threshold: u64,
    pub used: usize,
    pub used_high: usize,
    pub reserved_high: usize,
    /// What devices other than the pool's own may do.
    pub access: BTreeMap<usize, u32>,
    pub live: usize,
    /// The program has destroyed it; it goes with its last allocation.
    pub destroyed: bool,
}

/// When a block that another stream freed may be given out.
#[derive(Debug, Clone, Copy)]
pub struct Reuse {
    pub follow_events: bool,
    pub opportunistic: bool,
    pub internal_dependencies: bool,
}

/// The memory a pool can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Where {
    Device(usize),
    Host,
    /// The one NUMA node.
    HostNuma,
    /// Managed, with or without a preferred device.
    Managed(Option<usize>),
}

impl Where {
    /// How its allocations are seen.
    pub fn place(self) -> Place {
        match self {
            Where::Device(device) => Place::Device(device),
            Where::Host | Where::HostNuma => Place::Host,
            Where::Managed(_) => Place::Managed,
        }
    }

    /// The ways in which such a pool can be shared with other processes, as a mask.
    pub fn handle_types(self) -> u32 {
        const FD: u32 = cudaMemAllocationHandleType::cudaMemHandleTypePosixFileDescriptor.0;
        const FABRIC: u32 = cudaMemAllocationHandleType::cudaMemHandleTypeFabric.0;
        match self {
            Where::Device(_) | Where::HostNuma => FD | FABRIC,
            Where::Host | Where::Managed(_) => 0,
        }
    }
}

/// The pools of one location that allocations come from when none is named.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub default: PoolId,
    pub current: PoolId,
}

impl Pool {
    /// A new pool without limits.
    pub fn new(at: Where, arena: Arc<Arena>) -> Self {
        Self {
            at,
            handle_types: 0,
            sharing: Sharing::Private,
            exported: None,
            heap: Heap::new(arena, !matches!(at, Where::Device(_)), STEP),
            max_size: usize::MAX,
            is_default: false,
            reuse: Reuse { follow_events: true, opportunistic: true, internal_dependencies: true },
            threshold: 0,
            used: 0,
            used_high: 0,
            reserved_high: 0,
            access: BTreeMap::new(),
            live: 0,
            destroyed: false,
        }
    }

    /// Whether a device's kernels and sets may touch the memory.
    pub fn is_reached_by(&self, device: usize) -> bool {
        match self.at {
            Where::Device(owner) if owner == device => true,
            Where::Managed(_) => true,
            _ => self.access.contains_key(&device),
        }
    }
}

impl Sim {
    /// A live pool that the program has not destroyed.
    pub fn pool(&mut self, id: PoolId) -> Outcome<&mut Pool> {
        self.pools.get_mut(id).filter(|pool| !pool.destroyed).ok_or(cudaError::cudaErrorInvalidValue)
    }

    /// A pool that was made here; another process's cannot be changed or allocated from.
    pub fn own_pool(&mut self, id: PoolId) -> Outcome<&mut Pool> {
        let own = |pool: &&mut Pool| !matches!(pool.sharing, Sharing::Imported(_));
        self.pool(id).ok().filter(own).ok_or(cudaError::cudaErrorInvalidValue)
    }

    /// The pools of a location; its default one was always there.
    pub fn pool_choice(&mut self, at: Where) -> Choice {
        if let Some(choice) = self.pool_choices.get(&at) {
            return *choice;
        }
        let default = self.pools.insert(Pool { is_default: true, ..Pool::new(at, Arc::clone(&self.arena)) });
        let choice = Choice { default, current: default };
        self.pool_choices.insert(at, choice);
        choice
    }

    /// Makes a pool the current one of a location.
    ///
    /// # Errors
    /// Invalid value when it lies elsewhere or is none.
    pub fn choose_pool(&mut self, at: Where, id: PoolId) -> Outcome {
        if self.pool(id)?.at != at {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        let choice = Choice { current: id, ..self.pool_choice(at) };
        self.pool_choices.insert(at, choice);
        Ok(())
    }

    /// Allocates from a pool in the order of a stream.
    pub fn allocate(&mut self, name: &'static str, id: PoolId, size: usize, stream: StreamId) -> Outcome<usize> {
        if size == 0 {
            return Ok(0);
        }
        let out_of_memory = cudaError::cudaErrorMemoryAllocation;
        let (found, waits) = match self.find_ready(id, size, stream)? {
            Some(found) => (found, false),
            None => match self.grow(id, size)? {
                Some(found) => (found, false),
                None => (self.find_busy(id, size)?.ok_or(out_of_memory)?, true),
            },
        };
        let Found { address, segment, after, free } = found;
        if let Some(free) = free.filter(|free| free.stream != stream) {
            if waits {
                self.submit(stream, name, Vec::new(), Op::Await(free.done));
            }
        }
        let pool = self.pool(id)?;
        pool.live += 1;
        pool.used += size;
        pool.used_high = pool.used_high.max(pool.used);
        let allocation = Arc::new(Allocation {
            base: address,
            size,
            kind: Kind::Pool(id),
            place: pool.at.place(),
            track: Track::in_stream(address, size),
            segment: Some(segment),
        });
        self.space.insert(Arc::clone(&allocation));
        self.submit(stream, name, Vec::new(), Op::Alloc(allocation, after));
        Ok(address)
    }

    /// A block that the stream can have without waiting, by its own order or by the pool's policy.
    fn find_ready(&mut self, id: PoolId, size: usize, stream: StreamId) -> Outcome<Option<Found>> {
        let Sim { pools, streams, .. } = self;
        let pool = pools.get_mut(id).ok_or(cudaError::cudaErrorInvalidValue)?;
        if let Some(found) = pool.heap.take_own(size, Some(stream)) {
            return Ok(Some(found));
        }
        let promised = &streams.get(stream).ok_or(cudaError::cudaErrorInvalidResourceHandle)?.submitted;
        let reuse = pool.reuse;
        let found = pool.heap.take_freed(size, |free| {
            let freed = Epoch { slot: free.stream.slot(), count: free.count };
            (reuse.follow_events && promised.covers(freed)) || (reuse.opportunistic && free.done.is_done())
        });
        Ok(found.map(with_order_of_free))
    }

    /// A block in new memory, when there is room for it.
    fn grow(&mut self, id: PoolId, size: usize) -> Outcome<Option<Found>> {
        let pool = self.pool(id)?;
        let (place, max) = (pool.at.place(), pool.max_size);
        let Some(growth) = pool.heap.growth_for(size) else { return Ok(None) };
        let fits = |pool: &Pool| pool.heap.reserved().checked_add(growth).is_some_and(|sum| sum <= max);
        if !fits(pool) || !self.charge(place, growth) {
            // What lies unused in pieces too small may make room.
            let pool = self.pool(id)?;
            let released = pool.heap.release(0);
            let fits = fits(pool);
            self.refund(place, released);
            if !fits || !self.charge(place, growth) {
                return Ok(None);
            }
        }
        let pool = self.pool(id)?;
        match pool.heap.grow(size) {
            Ok(found) => {
                pool.reserved_high = pool.reserved_high.max(pool.heap.reserved());
                Ok(Some(found))
            }
            Err(_) => {
                self.refund(place, growth);
                Ok(None)
            }
        }
    }

    /// A block whose free by another stream has to be waited for, when the pool's policy allows that.
    fn find_busy(&mut self, id: PoolId, size: usize) -> Outcome<Option<Found>> {
        let pool = self.pool(id)?;
        if !pool.reuse.internal_dependencies {
            return Ok(None);
        }
        Ok(pool.heap.take_freed(size, |_| true))
    }

    /// Frees pool memory, which starts at `base`, in the order of a stream.
    pub fn free_in_stream(&mut self, name: &'static str, base: usize, stream: StreamId) {
        let allocation = self.space.remove(base).expect("the caller looked it up");
        let done = Arc::<Marker>::default();
        let (kind, size) = (allocation.kind, allocation.size);
        if let Kind::Imported { pool, at } = kind {
            self.unmap_pointer(pool, at, base);
        }
        let op = Op::Free(Free { allocation, done: Arc::clone(&done) });
        let count = self.submit(stream, name, Vec::new(), op);
        if let Kind::Pool(id) = kind {
            let free = heap::Free { stream, count, done };
            self.give_back(id, base, size, Some(free));
        }
    }

    /// A block of a pool is free, in a stream's order or at once.
    pub fn give_back(&mut self, id: PoolId, base: usize, size: usize, free: Option<heap::Free>) {
        let pool = self.pools.get_mut(id).expect("a pool stays as long as its allocations");
        match free {
            Some(free) => pool.heap.free(base, free),
            None => pool.heap.free_now(base),
        }
        pool.used -= size;
        pool.live -= 1;
        self.remove_pool_if_over(id);
    }

    /// A destroyed pool goes with its last allocation.
    pub fn remove_pool_if_over(&mut self, id: PoolId) {
        if self.pools.get(id).is_some_and(|pool| pool.destroyed && pool.live == 0) {
            let pool = self.pools.remove(id).expect("looked up above");
            self.refund(pool.at.place(), pool.heap.reserved());
        }
    }
}

/// A block whose free has run must still be used in its order.
fn with_order_of_free(mut found: Found) -> Found {
    if let Some(stamp) = found.free.as_ref().and_then(|free| free.done.stamp()) {
        found.after.push(stamp);
    }
    found
}
