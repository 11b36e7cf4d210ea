//! Memory outside of pools: `cudaMalloc` and `cudaHostAlloc`.

use std::sync::Arc;

use super::allocation::{Allocation, Kind, Place};
use super::heap::Heap;
use crate::cuda::cudaError;
use crate::race::Track;
use crate::sim::Sim;
use crate::Outcome;

impl Sim {
    /// Allocates at once. No bytes are null.
    pub fn allocate_plain(&mut self, name: &'static str, kind: Kind, place: Place, size: usize) -> Outcome<usize> {
        let out_of_memory = cudaError::cudaErrorMemoryAllocation;
        if size == 0 {
            return Ok(0);
        }
        let found = match self.plain_heap(place).take_own(size, None) {
            Some(found) => found,
            None => {
                let growth = self.plain_heap(place).growth_for(size).ok_or(out_of_memory)?;
                if !self.charge(place, growth) {
                    return Err(out_of_memory);
                }
                self.plain_heap(place).grow(size).map_err(|_| {
                    self.refund(place, growth);
                    out_of_memory
                })?
            }
        };
        self.space.insert(Arc::new(Allocation {
            base: found.address,
            size,
            kind,
            place,
            track: Track::by_host(found.address, size, name),
            segment: Some(found.segment),
        }));
        Ok(found.address)
    }

    /// The host frees an allocation that starts at `base`, in no stream's order.
    ///
    /// # Errors
    /// Invalid value when another thread has freed it meanwhile.
    pub fn free_by_host(&mut self, name: &'static str, base: usize) -> Outcome {
        let allocation = self.space.remove(base).ok_or(cudaError::cudaErrorInvalidValue)?;
        if let Some(race) = allocation.track.freed_by_host(&self.host, name) {
            self.found(&race);
        }
        match allocation.kind {
            Kind::Pool(id) => self.give_back(id, base, allocation.size, None),
            Kind::Imported { pool, at } => self.unmap_pointer(pool, at, base),
            _ => self.free_plain(&allocation),
        }
        Ok(())
    }

    /// The memory of an ended allocation goes back.
    pub fn free_plain(&mut self, allocation: &Allocation) {
        let heap = self.plain_heap(allocation.place);
        heap.free_now(allocation.base);
        let released = heap.release(0);
        self.refund(allocation.place, released);
    }

    fn plain_heap(&mut self, place: Place) -> &mut Heap {
        match place {
            Place::Device(device) => &mut self.devices[device].plain,
            Place::Host | Place::Managed => &mut self.pinned,
        }
    }

    /// Whether a device's kernels and sets may touch an allocation.
    pub fn is_reached_by(&self, allocation: &Allocation, device: usize) -> bool {
        match allocation.kind {
            Kind::Pool(id) | Kind::Imported { pool: id, .. } => {
                self.pools.get(id).is_some_and(|pool| pool.is_reached_by(device))
            }
            Kind::Plain | Kind::Opened { .. } | Kind::Graph => {
                allocation.place == Place::Device(device)
                    || matches!(allocation.place, Place::Device(owner) if self.devices[device].peers.contains(&owner))
            }
            Kind::Host { .. } | Kind::Registered { .. } => true,
        }
    }
}
