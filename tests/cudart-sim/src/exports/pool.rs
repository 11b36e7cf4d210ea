//! Pools.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use super::{current, give, require};
use crate::cuda::{
    cudaError, cudaMemAccessDesc, cudaMemAccessFlags, cudaMemAllocationType, cudaMemLocation, cudaMemLocationType,
    cudaMemPoolAttr, cudaMemPoolCreateUsageHwDecompress, cudaMemPoolProps, cudaMemPool_t,
};
use crate::handles::Id;
use crate::ipc::pools::{self, Sharing};
use crate::pool::{Pool, Where, STEP};
use crate::sim::{self, Sim};
use crate::Outcome;

pub unsafe fn cudaMemPoolCreate(memPool: *mut cudaMemPool_t, poolProps: *const cudaMemPoolProps) -> Outcome {
    require(!memPool.is_null() && !poolProps.is_null())?;
    // SAFETY: the caller's struct.
    let props = unsafe { &*poolProps };
    let mut sim = sim::lock();
    current::device(&sim)?;
    let pool = new_pool(&sim, props)?;
    let id = sim.pools.insert(pool);
    // SAFETY: the caller's out pointer.
    unsafe { give(memPool, id.as_raw()) }
}

fn new_pool(sim: &Sim, props: &cudaMemPoolProps) -> Outcome<Pool> {
    let at = place(sim, props.allocType, &props.location)?;
    let handle_types = props.handleTypes.0;
    require(handle_types & !at.handle_types() == 0)?;
    require(props.reserved.iter().all(|byte| *byte == 0) && props.reserved1 == 0)?;
    require(u32::from(props.usage) & !cudaMemPoolCreateUsageHwDecompress == 0)?;
    let max_size = match props.maxSize {
        0 => usize::MAX,
        size => size.checked_next_multiple_of(STEP).unwrap_or(usize::MAX),
    };
    // What is exported must not lie in one file with what is not.
    let (arena, sharing) = if handle_types == 0 {
        (Arc::clone(&sim.arena), Sharing::Private)
    } else {
        pools::file_for(sim, at).map_err(|_| cudaError::cudaErrorMemoryAllocation)?
    };
    Ok(Pool { handle_types, sharing, max_size, ..Pool::new(at, arena) })
}

/// Where a pool of this kind at this location lies.
fn place(sim: &Sim, kind: cudaMemAllocationType, location: &cudaMemLocation) -> Outcome<Where> {
    // SAFETY: both arms are plain integers.
    let id = unsafe { location.__bindgen_anon_1.id };
    let on_device = |id| sim.device(id).map_err(|_| cudaError::cudaErrorInvalidValue);
    match (kind, location.type_) {
        (cudaMemAllocationType::cudaMemAllocationTypePinned, cudaMemLocationType::cudaMemLocationTypeDevice) => {
            Ok(Where::Device(on_device(id)?))
        }
        (cudaMemAllocationType::cudaMemAllocationTypePinned, cudaMemLocationType::cudaMemLocationTypeHost) => {
            Ok(Where::Host)
        }
        // There is one node.
        (cudaMemAllocationType::cudaMemAllocationTypePinned, cudaMemLocationType::cudaMemLocationTypeHostNuma)
            if id == 0 =>
        {
            Ok(Where::HostNuma)
        }
        (cudaMemAllocationType::cudaMemAllocationTypeManaged, cudaMemLocationType::cudaMemLocationTypeNone) => {
            Ok(Where::Managed(None))
        }
        (cudaMemAllocationType::cudaMemAllocationTypeManaged, cudaMemLocationType::cudaMemLocationTypeDevice) => {
            Ok(Where::Managed(Some(on_device(id)?)))
        }
        _ => Err(cudaError::cudaErrorInvalidValue),
    }
}

pub unsafe fn cudaMemPoolDestroy(memPool: cudaMemPool_t) -> Outcome {
    let mut sim = sim::lock();
    let id = Id::from_raw(memPool);
    let pool = sim.pool(id)?;
    require(!pool.is_default)?;
    pool.destroyed = true;
    for choice in sim.pool_choices.values_mut().filter(|choice| choice.current == id) {
        choice.current = choice.default;
    }
    sim.remove_pool_if_over(id);
    Ok(())
}

pub unsafe fn cudaMemPoolTrimTo(memPool: cudaMemPool_t, minBytesToKeep: usize) -> Outcome {
    let mut sim = sim::lock();
    let pool = sim.own_pool(Id::from_raw(memPool))?;
    let (released, place) = (pool.heap.release(minBytesToKeep), pool.at.place());
    sim.refund(place, released);
    Ok(())
}

pub unsafe fn cudaMemPoolGetAttribute(memPool: cudaMemPool_t, attr: cudaMemPoolAttr, value: *mut c_void) -> Outcome {
    require(!value.is_null())?;
    let mut sim = sim::lock();
    let pool = sim.own_pool(Id::from_raw(memPool))?;
    let flag = |on: bool| {
        // SAFETY: these attributes are ints, by the caller's contract.
        unsafe { value.cast::<c_int>().write(c_int::from(on)) };
        Ok(())
    };
    let bytes = |bytes: u64| {
        // SAFETY: these attributes are 64-bit numbers, by the caller's contract.
        unsafe { value.cast::<u64>().write(bytes) };
        Ok(())
    };
    match attr {
        cudaMemPoolAttr::cudaMemPoolReuseFollowEventDependencies => flag(pool.reuse.follow_events),
        cudaMemPoolAttr::cudaMemPoolReuseAllowOpportunistic => flag(pool.reuse.opportunistic),
        cudaMemPoolAttr::cudaMemPoolReuseAllowInternalDependencies => flag(pool.reuse.internal_dependencies),
        cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold => bytes(pool.threshold),
        cudaMemPoolAttr::cudaMemPoolAttrReservedMemCurrent => bytes(pool.heap.reserved() as u64),
        cudaMemPoolAttr::cudaMemPoolAttrReservedMemHigh => bytes(pool.reserved_high as u64),
        cudaMemPoolAttr::cudaMemPoolAttrUsedMemCurrent => bytes(pool.used as u64),
        cudaMemPoolAttr::cudaMemPoolAttrUsedMemHigh => bytes(pool.used_high as u64),
        _ => Err(cudaError::cudaErrorInvalidValue),
    }
}

pub unsafe fn cudaMemPoolSetAttribute(memPool: cudaMemPool_t, attr: cudaMemPoolAttr, value: *mut c_void) -> Outcome {
    require(!value.is_null())?;
    let mut sim = sim::lock();
    let pool = sim.own_pool(Id::from_raw(memPool))?;
    // SAFETY: each is only called for attributes of its width, by the caller's contract.
    let flag = || unsafe { value.cast::<c_int>().read() != 0 };
    // SAFETY: as above.
    let bytes = || unsafe { value.cast::<u64>().read() };
    match attr {
        cudaMemPoolAttr::cudaMemPoolReuseFollowEventDependencies => pool.reuse.follow_events = flag(),
        cudaMemPoolAttr::cudaMemPoolReuseAllowOpportunistic => pool.reuse.opportunistic = flag(),
        cudaMemPoolAttr::cudaMemPoolReuseAllowInternalDependencies => pool.reuse.internal_dependencies = flag(),
        cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold => pool.threshold = bytes(),
        // A high mark can only be set back.
        cudaMemPoolAttr::cudaMemPoolAttrReservedMemHigh if bytes() == 0 => pool.reserved_high = pool.heap.reserved(),
        cudaMemPoolAttr::cudaMemPoolAttrUsedMemHigh if bytes() == 0 => pool.used_high = pool.used,
        _ => return Err(cudaError::cudaErrorInvalidValue),
    }
    Ok(())
}

const NO_ACCESS: u32 = cudaMemAccessFlags::cudaMemAccessFlagsProtNone.0;
const READ_WRITE: u32 = cudaMemAccessFlags::cudaMemAccessFlagsProtReadWrite.0;

pub unsafe fn cudaMemPoolSetAccess(
    memPool: cudaMemPool_t,
    descList: *const cudaMemAccessDesc,
    count: usize,
) -> Outcome {
    require(count == 0 || !descList.is_null())?;
    let mut sim = sim::lock();
    let devices = sim.devices.len();
    let pool = sim.pool(Id::from_raw(memPool))?;
    let wanted = if count == 0 {
        &[]
    } else {
        // SAFETY: the caller's list of so many.
        unsafe { std::slice::from_raw_parts(descList, count) }
    };
    let mut access = pool.access.clone();
    // All or nothing.
    for desc in wanted {
        let (device, flags) = checked_access(pool, desc, devices)?;
        if flags == NO_ACCESS {
            access.remove(&device);
        } else {
            access.insert(device, flags);
        }
    }
    pool.access = access;
    Ok(())
}

/// The device and flags of a description that is allowed.
fn checked_access(pool: &Pool, desc: &cudaMemAccessDesc, devices: usize) -> Outcome<(usize, u32)> {
    let flags = desc.flags.0;
    if desc.location.type_ != cudaMemLocationType::cudaMemLocationTypeDevice {
        return Err(cudaError::cudaErrorNotSupported);
    }
    // SAFETY: both arms are plain integers.
    let id = unsafe { desc.location.__bindgen_anon_1.id };
    let device = usize::try_from(id).ok().filter(|id| *id < devices).ok_or(cudaError::cudaErrorInvalidDevice)?;
    let owner = pool.at == Where::Device(device);
    match flags {
        READ_WRITE => Ok((device, flags)),
        NO_ACCESS if owner => Err(cudaError::cudaErrorInvalidDevice),
        NO_ACCESS => Ok((device, flags)),
        _ => Err(cudaError::cudaErrorNotSupported),
    }
}

pub unsafe fn cudaMemPoolGetAccess(
    flags: *mut cudaMemAccessFlags,
    memPool: cudaMemPool_t,
    location: *mut cudaMemLocation,
) -> Outcome {
    require(!flags.is_null() && !location.is_null())?;
    // SAFETY: the caller's location; both arms are plain integers.
    let (kind, id) = unsafe { ((*location).type_, (*location).__bindgen_anon_1.id) };
    let mut sim = sim::lock();
    let device = sim.device(id);
    let pool = sim.pool(Id::from_raw(memPool))?;
    let answer = match kind {
        cudaMemLocationType::cudaMemLocationTypeDevice => {
            if pool.is_reached_by(device?) {
                READ_WRITE
            } else {
                NO_ACCESS
            }
        }
        cudaMemLocationType::cudaMemLocationTypeHost | cudaMemLocationType::cudaMemLocationTypeHostNuma => {
            if matches!(pool.at, Where::Device(_)) {
                NO_ACCESS
            } else {
                READ_WRITE
            }
        }
        _ => return Err(cudaError::cudaErrorInvalidValue),
    };
    // SAFETY: the caller's out pointer.
    unsafe { give(flags, cudaMemAccessFlags(answer)) }
}

pub unsafe fn cudaDeviceGetDefaultMemPool(memPool: *mut cudaMemPool_t, device: c_int) -> Outcome {
    let mut sim = sim::lock();
    let device = sim.device(device)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(memPool, sim.pool_choice(Where::Device(device)).default.as_raw()) }
}

pub unsafe fn cudaDeviceGetMemPool(memPool: *mut cudaMemPool_t, device: c_int) -> Outcome {
    let mut sim = sim::lock();
    // Unlike its neighbours it does not say that the device is not there.
    let device = sim.device(device).map_err(|_| cudaError::cudaErrorInvalidValue)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(memPool, sim.pool_choice(Where::Device(device)).current.as_raw()) }
}

pub unsafe fn cudaDeviceSetMemPool(device: c_int, memPool: cudaMemPool_t) -> Outcome {
    let mut sim = sim::lock();
    let device = sim.device(device)?;
    sim.choose_pool(Where::Device(device), Id::from_raw(memPool))
}

pub unsafe fn cudaMemGetDefaultMemPool(
    memPool: *mut cudaMemPool_t,
    location: *mut cudaMemLocation,
    type_: cudaMemAllocationType,
) -> Outcome {
    require(!memPool.is_null() && !location.is_null())?;
    let mut sim = sim::lock();
    // SAFETY: the caller's location.
    let at = place(&sim, type_, unsafe { &*location })?;
    // SAFETY: the caller's out pointer.
    unsafe { give(memPool, sim.pool_choice(at).default.as_raw()) }
}

pub unsafe fn cudaMemGetMemPool(
    memPool: *mut cudaMemPool_t,
    location: *mut cudaMemLocation,
    type_: cudaMemAllocationType,
) -> Outcome {
    require(!memPool.is_null() && !location.is_null())?;
    let mut sim = sim::lock();
    // SAFETY: the caller's location.
    let at = place(&sim, type_, unsafe { &*location })?;
    // SAFETY: the caller's out pointer.
    unsafe { give(memPool, sim.pool_choice(at).current.as_raw()) }
}

pub unsafe fn cudaMemSetMemPool(
    location: *mut cudaMemLocation,
    type_: cudaMemAllocationType,
    memPool: cudaMemPool_t,
) -> Outcome {
    require(!location.is_null())?;
    let mut sim = sim::lock();
    // SAFETY: the caller's location.
    let at = place(&sim, type_, unsafe { &*location })?;
    sim.choose_pool(at, Id::from_raw(memPool))
}
