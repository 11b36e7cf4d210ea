//! Pools and memory that several processes see.
//!
//! An exportable pool has a file of its own, which starts with a page that says what pool it is. The descriptor of that
//! file is the pool's handle; a pointer's blob names the pool and a place in the file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{blob, unique, ProcessFile};
use crate::cuda::cudaError;
use crate::memory::allocation::{Allocation, Kind, Place};
use crate::memory::arena::{Arena, Segment};
use crate::pool::{Pool, PoolId, Where};
use crate::race::Track;
use crate::sim::Sim;
use crate::Outcome;

const POOL_MARK: &[u8; 8] = b"simPOOL1";
const POINTER_MARK: &[u8; 8] = b"simPOINT";
const MEMORY_MARK: &[u8; 8] = b"simMEMRY";
const PAGE: u64 = 4096;

/// Which pool it is for all processes, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// It cannot be shared.
    Private,
    /// Made here, and seen by others under this identity.
    Exported(u64),
    /// Made by another process.
    Imported(u64),
}

/// What of other processes' memory is mapped here.
#[derive(Debug, Default)]
pub struct Mapped {
    /// By pool and place.
    pointers: HashMap<(u64, u64), Mapping>,
    /// By process file and place.
    opened: HashMap<(u64, u64), Mapping>,
}

#[derive(Debug)]
struct Mapping {
    base: usize,
    /// How often it was asked for.
    count: usize,
}

/// A new pool file with its first page.
pub fn file_for(sim: &Sim, at: Where) -> io::Result<(Arc<Arena>, Sharing)> {
    let (kind, device) = match at {
        Where::Device(device) => (0, sim.devices[device].place as u64),
        Where::HostNuma => (1, 0),
        Where::Host | Where::Managed(_) => return Err(io::ErrorKind::Unsupported.into()),
    };
    let identity = unique();
    let mut page = blob::Writer::new(POOL_MARK);
    page.put(identity);
    page.put(kind);
    page.put(device);
    let arena = Arena::new()?;
    arena.start_with(&page.finish(), PAGE as usize)?;
    Ok((Arc::new(arena), Sharing::Exported(identity)))
}

/// A pool in a descriptor that came from anywhere; none when it is no pool of the simulator.
pub fn import(sim: &Sim, descriptor: i32) -> Option<Pool> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: the descriptor is only used in this call; if it is not open, the call says so.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let file = File::from(descriptor.try_clone_to_owned().ok()?);
    let mut page = [0; blob::LEN];
    file.read_exact_at(&mut page, 0).ok()?;
    let mut page = blob::Reader::new(page, POOL_MARK)?;
    let identity = page.take()?;
    let at = match (page.take()?, page.take()?) {
        (0, device) => Where::Device(sim.device_at(device)?),
        (1, 0) => Where::HostNuma,
        _ => return None,
    };
    Some(Pool { sharing: Sharing::Imported(identity), ..Pool::new(at, Arc::new(Arena::existing(file))) })
}

/// A descriptor of a pool's file for another process; like CUDA's, it is not closed on exec.
pub fn descriptor(pool: &mut Pool) -> Outcome<i32> {
    if pool.exported.is_none() {
        let kept = pool.heap.arena().file().try_clone_to_owned();
        pool.exported = Some(kept.map_err(|_| cudaError::cudaErrorOperatingSystem)?);
    }
    // SAFETY: the descriptor is open.
    let copy = unsafe { libc::fcntl(pool.heap.arena().file().as_raw_fd(), libc::F_DUPFD, 0) };
    if copy < 0 {
        Err(cudaError::cudaErrorOperatingSystem)
    } else {
        Ok(copy)
    }
}

impl Sim {
    /// The blob of a pool allocation.
    pub fn export_pointer(&self, base: usize) -> Outcome<[u8; blob::LEN]> {
        let invalid = cudaError::cudaErrorInvalidValue;
        let allocation = self.space.at(base).ok_or(invalid)?;
        let Kind::Pool(pool) = allocation.kind else { return Err(invalid) };
        let pool = self.pools.get(pool).filter(|pool| pool.exported.is_some()).ok_or(invalid)?;
        let Sharing::Exported(identity) = pool.sharing else { return Err(invalid) };
        let segment = allocation.segment.as_ref().ok_or(invalid)?;
        let mut blob = blob::Writer::new(POINTER_MARK);
        blob.put(identity);
        blob.put(segment.place(base).1);
        blob.put(allocation.size as u64);
        Ok(blob.finish())
    }

    /// Maps what a blob names, out of an imported pool.
    pub fn import_pointer(&mut self, id: PoolId, bytes: [u8; blob::LEN]) -> Outcome<usize> {
        let invalid = cudaError::cudaErrorInvalidValue;
        let pool = self.pool(id)?;
        let (at, arena) = (pool.at, Arc::clone(pool.heap.arena()));
        let Sharing::Imported(identity) = pool.sharing else { return Err(invalid) };
        let mut blob = blob::Reader::new(bytes, POINTER_MARK).ok_or(invalid)?;
        let (of, offset, size) = (|| Some((blob.take()?, blob.take()?, blob.take()?)))().ok_or(invalid)?;
        if of != identity {
            return Err(invalid);
        }
        if let Some(mapping) = self.mapped.pointers.get_mut(&(identity, offset)) {
            // Measured on an H200: device memory is given out again, with one free for all; host memory is not.
            if at == Where::HostNuma {
                return Err(cudaError::cudaErrorAlreadyMapped);
            }
            mapping.count += 1;
            return Ok(mapping.base);
        }
        let (segment, base) = map(&arena, offset, size, at == Where::HostNuma).ok_or(invalid)?;
        self.mapped.pointers.insert((identity, offset), Mapping { base, count: 1 });
        self.add_foreign(Kind::Imported { pool: id, at: (identity, offset) }, at.place(), segment, base, size);
        self.pool(id)?.live += 1;
        Ok(base)
    }

    fn add_foreign(&mut self, kind: Kind, place: Place, segment: Segment, base: usize, size: u64) {
        let size = size as usize;
        self.space.insert(Arc::new(Allocation {
            base,
            size,
            kind,
            place,
            // The other process has ordered its allocation before it told.
            track: Track::by_host(base, size, "import"),
            segment: Some(Arc::new(segment)),
        }));
    }

    /// An imported pointer was freed: its mapping is gone for all who imported it.
    pub fn unmap_pointer(&mut self, pool: PoolId, at: (u64, u64), base: usize) {
        let mapping = self.mapped.pointers.remove(&at);
        if mapping.is_some_and(|mapping| mapping.count > 1) {
            self.space.doom(base);
        }
        let imported = self.pools.get_mut(pool).expect("a pool stays as long as its allocations");
        imported.live -= 1;
        self.remove_pool_if_over(pool);
    }

    /// The handle of `cudaMalloc` memory, for the allocation that holds the address.
    pub fn memory_handle(&self, allocation: &Allocation) -> Outcome<[u8; blob::LEN]> {
        let invalid = cudaError::cudaErrorInvalidValue;
        let (Kind::Plain, Place::Device(device), Some(segment)) =
            (allocation.kind, allocation.place, &allocation.segment)
        else {
            return Err(invalid);
        };
        let (arena, offset) = segment.place(allocation.base);
        let mut blob = blob::Writer::new(MEMORY_MARK);
        ProcessFile::of(arena.file()).put(&mut blob);
        blob.put(offset);
        blob.put(allocation.size as u64);
        blob.put(self.devices[device].place as u64);
        Ok(blob.finish())
    }

    /// Opens another process's `cudaMalloc` memory. Opening it again gives the same address.
    pub fn open_memory(&mut self, handle: [u8; blob::LEN]) -> Outcome<usize> {
        let invalid = cudaError::cudaErrorInvalidValue;
        let mut blob = blob::Reader::new(handle, MEMORY_MARK).ok_or(invalid)?;
        let file = ProcessFile::take(&mut blob).ok_or(invalid)?;
        let (offset, size, device) = (|| Some((blob.take()?, blob.take()?, blob.take()?)))().ok_or(invalid)?;
        let device = self.device_at(device).ok_or(invalid)?;
        if file.is_own() {
            return Err(cudaError::cudaErrorDeviceUninitialized);
        }
        let at = (file.process, offset);
        if let Some(mapping) = self.mapped.opened.get_mut(&at) {
            mapping.count += 1;
            return Ok(mapping.base);
        }
        let arena = Arc::new(Arena::existing(file.open().ok_or(invalid)?));
        let (segment, base) = map(&arena, offset, size, false).ok_or(invalid)?;
        self.mapped.opened.insert(at, Mapping { base, count: 1 });
        self.add_foreign(Kind::Opened { at }, Place::Device(device), segment, base, size);
        Ok(base)
    }

    /// Closes opened memory once; the last close unmaps it.
    pub fn close_memory(&mut self, base: usize) -> Outcome {
        let invalid = cudaError::cudaErrorInvalidValue;
        let Some(Kind::Opened { at }) = self.space.at(base).map(|allocation| allocation.kind) else {
            return Err(invalid);
        };
        let mapping = self.mapped.opened.get_mut(&at).ok_or(invalid)?;
        mapping.count -= 1;
        if mapping.count == 0 {
            self.mapped.opened.remove(&at);
            self.space.remove(base);
        }
        Ok(())
    }
}

/// Maps the pages of a place in a file; gives the address of the place itself. None when the file has no such place.
fn map(arena: &Arc<Arena>, offset: u64, size: u64, host: bool) -> Option<(Segment, usize)> {
    let start = offset / PAGE * PAGE;
    let end = offset.checked_add(size).filter(|end| *end > offset)?.checked_next_multiple_of(PAGE)?;
    if arena.len().ok()? < end {
        return None;
    }
    let segment = Segment::foreign(arena, start, (end - start) as usize, host).ok()?;
    let base = segment.user + (offset - start) as usize;
    Some((segment, base))
}
