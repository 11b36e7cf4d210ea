//! The kernel's memory as the source of chunks and large blocks.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_mempool_sys::cudaDeviceAttr;

use super::mapping::Mapping;
use super::pool_source::PoolSource;
use super::source::Source;
use super::stretches::Stretches;
use super::way::round_up;
use crate::{Access, Device, Location, Result};

/// What is mapped at a time is a multiple of this many bytes, as what a pool gets is.
const STEP: usize = 32 << 20;

/// Mappings, out of which blocks are cut. What is free stays mapped until it is trimmed.
pub(super) struct MappedSource {
    place: Location,
    device: Device,
    /// By their address.
    regions: Mutex<BTreeMap<usize, Region>>,
}

struct Region {
    mapping: Mapping,
    free: Stretches,
}

impl MappedSource {
    /// Of memory at `place`, registered in the context of `device`.
    pub(super) fn new(place: Location, device: Device) -> Result<Self> {
        Mapping::require_place(place)?;
        Ok(Self { place, device, regions: Mutex::default() })
    }

    pub(super) fn place(&self) -> Location {
        self.place
    }

    /// All that is mapped, in bytes.
    pub(super) fn reserved(&self) -> usize {
        self.lock().values().map(|region| region.mapping.len()).sum()
    }

    /// Registered memory is there for every device that knows it by the same address as the host.
    pub(super) fn access(device: Device) -> Result<Access> {
        let same = device.attribute(cudaDeviceAttr::cudaDevAttrCanUseHostPointerForRegisteredMem)?;
        Ok(if same == Some(1) { Access::ReadWrite } else { Access::None })
    }

    /// Maps as much as is missing to have `bytes` free.
    pub(super) fn prime(&self, bytes: usize) -> Result<()> {
        let free: usize = self.lock().values().map(|region| region.free.free()).sum();
        if bytes > free {
            self.map(bytes - free, 0)?;
        }
        Ok(())
    }

    /// A new region, of which the first `len` bytes are taken. Other threads go on meanwhile.
    fn map(&self, bytes: usize, len: usize) -> Result<NonNull<u8>> {
        let mapping = Mapping::new(round_up(bytes, STEP), self.place, self.device)?;
        let start = mapping.start();
        let mut region = Region::new(mapping);
        if len > 0 {
            region.take(len);
        }
        self.lock().insert(start.as_ptr() as usize, region);
        Ok(start)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Region {
    /// One that is all free.
    fn new(mapping: Mapping) -> Self {
        Self { free: Stretches::new(mapping.len()), mapping }
    }

    fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        let offset = self.free.take(len)?;
        // SAFETY: it is within the mapping.
        Some(unsafe { NonNull::new_unchecked(self.mapping.start().as_ptr().add(offset)) })
    }
}

// SAFETY: a mapping is valid until it is dropped, which happens when nothing of it is out, and no two blocks overlap.
unsafe impl Source for MappedSource {
    /// All lengths are multiples of it, so everything that is cut off begins at one.
    const ALIGN: usize = PoolSource::ALIGN;

    fn take(&self, len: usize) -> Result<NonNull<u8>> {
        let found = self.lock().values_mut().find_map(|region| region.take(len));
        found.map_or_else(|| self.map(len, len), Ok)
    }

    unsafe fn give(&self, block: NonNull<[u8]>) -> bool {
        let address = block.cast::<u8>().as_ptr() as usize;
        let mut regions = self.lock();
        let (start, region) = regions.range_mut(..=address).next_back().expect("a block of this source");
        region.free.give(address - start, block.len());
        true
    }

    fn trim(&self) -> Result<()> {
        let mut regions = self.lock();
        let free: Vec<usize> =
            regions.iter().filter(|(_, region)| region.free.is_all_free()).map(|(&start, _)| start).collect();
        let removed: Vec<Region> = free.iter().filter_map(|start| regions.remove(start)).collect();
        // What takes long does not keep other threads waiting.
        drop(regions);
        let mut outcome = Ok(());
        for region in removed {
            if let Err((mapping, error)) = region.mapping.close() {
                self.lock().insert(mapping.start().as_ptr() as usize, Region::new(mapping));
                outcome = Err(error);
            }
        }
        outcome
    }
}
