//! Memory that is not allocated in the order of a stream, and what may be asked about any.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::sync::Arc;

use super::{capture, current, give, require};
use crate::cuda::{
    cudaError, cudaHostAllocMapped, cudaHostAllocPortable, cudaHostAllocWriteCombined, cudaHostRegisterIoMemory,
    cudaHostRegisterMapped, cudaHostRegisterPortable, cudaHostRegisterReadOnly, cudaMemoryType, cudaPointerAttributes,
};
use crate::memory::allocation::{Allocation, Kind, Place};
use crate::memory::space::Found;
use crate::race::Track;
use crate::sim::{self, Locked, Sim};
use crate::Outcome;

pub unsafe fn cudaMalloc(devPtr: *mut *mut c_void, size: usize) -> Outcome {
    require(!devPtr.is_null())?;
    let mut sim = sim::lock();
    let device = current::device(&sim)?;
    capture::police(&mut sim)?;
    let answer = sim.allocate_plain("cudaMalloc", Kind::Plain, Place::Device(device), size);
    // SAFETY: the caller's out pointer; null on failure and for no bytes.
    unsafe { give(devPtr, answer.unwrap_or(0) as *mut c_void)? };
    answer.map(drop)
}

pub unsafe fn cudaHostAlloc(pHost: *mut *mut c_void, size: usize, flags: c_uint) -> Outcome {
    let known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    require(!pHost.is_null() && flags & !known == 0)?;
    let mut sim = sim::lock();
    current::device(&sim)?;
    capture::police(&mut sim)?;
    let answer = sim.allocate_plain("cudaHostAlloc", Kind::Host { flags }, Place::Host, size);
    // SAFETY: the caller's out pointer; null on failure and for no bytes.
    unsafe { give(pHost, answer.unwrap_or(0) as *mut c_void)? };
    answer.map(drop)
}

pub unsafe fn cudaFree(devPtr: *mut c_void) -> Outcome {
    let mut sim = sim::lock();
    current::device(&sim)?;
    capture::police(&mut sim)?;
    if devPtr.is_null() {
        return Ok(());
    }
    let base = devPtr as usize;
    let kind = sim.space.at(base).map(|allocation| allocation.kind);
    match kind {
        Some(Kind::Plain) => {
            // Waits for all that may still use it.
            let mut sim = wait_for_all(sim);
            sim.free_by_host("cudaFree", base)
        }
        Some(Kind::Pool(_) | Kind::Imported { .. }) => sim.free_by_host("cudaFree", base),
        Some(Kind::Graph) if sim.is_graph_memory_live(base) => {
            let stream = current::stream(&mut sim, std::ptr::null_mut())?;
            sim.free_graph_memory("cudaFree", base, stream);
            Ok(())
        }
        _ => Err(cudaError::cudaErrorInvalidValue),
    }
}

pub unsafe fn cudaFreeHost(ptr: *mut c_void) -> Outcome {
    let mut sim = sim::lock();
    current::device(&sim)?;
    capture::police(&mut sim)?;
    if ptr.is_null() {
        return Ok(());
    }
    let is_pinned = |sim: &Sim| sim.space.at(ptr as usize).is_some_and(|a| matches!(a.kind, Kind::Host { .. }));
    require(is_pinned(&sim))?;
    let mut sim = wait_for_all(sim);
    sim.free_by_host("cudaFreeHost", ptr as usize)
}

/// Waits until every stream has done what was submitted so far.
fn wait_for_all(sim: Locked) -> Locked {
    (0..sim.devices.len()).fold(sim, sim::wait_for_device)
}

pub unsafe fn cudaHostRegister(ptr: *mut c_void, size: usize, flags: c_uint) -> Outcome {
    let known = cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    let base = ptr as usize;
    let end = base.checked_add(size).ok_or(cudaError::cudaErrorInvalidValue)?;
    require(base != 0 && size != 0 && flags & !known == 0)?;
    let mut sim = sim::lock();
    current::device(&sim)?;
    if sim.space.overlapping(base, end).is_some() {
        return Err(cudaError::cudaErrorHostMemoryAlreadyRegistered);
    }
    sim.space.insert(Arc::new(Allocation {
        base,
        size,
        kind: Kind::Registered { flags },
        place: Place::Host,
        track: Track::by_host(base, size, "cudaHostRegister"),
        segment: None,
    }));
    Ok(())
}

pub unsafe fn cudaHostUnregister(ptr: *mut c_void) -> Outcome {
    let sim = sim::lock();
    current::device(&sim)?;
    require(!ptr.is_null())?;
    let base = ptr as usize;
    if !sim.space.at(base).is_some_and(|allocation| matches!(allocation.kind, Kind::Registered { .. })) {
        return Err(cudaError::cudaErrorHostMemoryNotRegistered);
    }
    let mut sim = wait_for_all(sim);
    sim.space.forget(base);
    Ok(())
}

pub unsafe fn cudaHostGetDevicePointer(pDevice: *mut *mut c_void, pHost: *mut c_void, flags: c_uint) -> Outcome {
    require(!pDevice.is_null() && flags == 0)?;
    let sim = sim::lock();
    let device = current::device(&sim)?;
    let Found::Live(allocation) = sim.space.find(pHost as usize) else {
        return Err(cudaError::cudaErrorInvalidValue);
    };
    require(allocation.place == Place::Host && sim.is_reached_by(&allocation, device))?;
    // SAFETY: the caller's out pointer. Host and device use one address.
    unsafe { give(pDevice, pHost) }
}

pub unsafe fn cudaMemGetInfo(free: *mut usize, total: *mut usize) -> Outcome {
    let sim = sim::lock();
    let device = &sim.devices[current::device(&sim)?];
    // SAFETY: the caller's out pointers.
    unsafe {
        give(free, device.total - device.used)?;
        give(total, device.total)
    }
}

pub unsafe fn cudaPointerGetAttributes(attributes: *mut cudaPointerAttributes, ptr: *const c_void) -> Outcome {
    require(!attributes.is_null())?;
    let sim = sim::lock();
    let current = current::device(&sim)?;
    let mut answer = cudaPointerAttributes::default();
    let pointer = ptr.cast_mut();
    match sim.space.find(ptr as usize) {
        Found::Live(allocation) => {
            let reached = if sim.is_reached_by(&allocation, current) { pointer } else { std::ptr::null_mut() };
            (answer.type_, answer.device, answer.devicePointer, answer.hostPointer) = match allocation.place {
                Place::Device(device) => {
                    (cudaMemoryType::cudaMemoryTypeDevice, device as c_int, pointer, std::ptr::null_mut())
                }
                Place::Host => (cudaMemoryType::cudaMemoryTypeHost, current as c_int, reached, pointer),
                Place::Managed => (cudaMemoryType::cudaMemoryTypeManaged, current as c_int, pointer, pointer),
            };
        }
        Found::Ghost(_) | Found::Nothing => {
            /// What CUDA calls the device of memory it does not know.
            const INVALID_DEVICE: c_int = -2;
            (answer.device, answer.hostPointer) = (INVALID_DEVICE, pointer);
        }
    }
    // The struct was shorter before 13.0.
    let older = offset_of!(cudaPointerAttributes, hostPointer) + size_of::<*mut c_void>();
    let len = if sim.config.runtime_version < 13000 { older } else { size_of::<cudaPointerAttributes>() };
    // SAFETY: the caller's struct is of the version that this runtime says it is.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(&answer).cast::<u8>(), attributes.cast(), len) };
    Ok(())
}
