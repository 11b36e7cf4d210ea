//! Sharing pools, memory and events between processes.

use std::ffi::{c_int, c_uint, c_void};

use super::{current, give, require};
use crate::cuda::{
    cudaError, cudaEventDisableTiming, cudaEventInterprocess, cudaEvent_t, cudaIpcEventHandle_t, cudaIpcMemHandle_t,
    cudaIpcMemLazyEnablePeerAccess, cudaMemAllocationHandleType, cudaMemPoolPtrExportData, cudaMemPool_t,
};
use crate::event::Event;
use crate::handles::Id;
use crate::ipc::board::{Failure, Shared};
use crate::ipc::pools::{self, Sharing};
use crate::memory::space::Found;
use crate::{sim, Outcome};

pub unsafe fn cudaMemPoolExportToShareableHandle(
    shareableHandle: *mut c_void,
    memPool: cudaMemPool_t,
    handleType: cudaMemAllocationHandleType,
    flags: c_uint,
) -> Outcome {
    require(!shareableHandle.is_null() && flags == 0)?;
    let mut sim = sim::lock();
    let pool = sim.own_pool(Id::from_raw(memPool))?;
    require(handleType.0.is_power_of_two() && pool.handle_types & handleType.0 != 0)?;
    require(matches!(pool.sharing, Sharing::Exported(_)))?;
    if handleType != cudaMemAllocationHandleType::cudaMemHandleTypePosixFileDescriptor {
        // There is no fabric here.
        return Err(cudaError::cudaErrorNotPermitted);
    }
    // SAFETY: for this type the caller's pointer is one to an int.
    unsafe { give(shareableHandle.cast::<c_int>(), pools::descriptor(pool)?) }
}

pub unsafe fn cudaMemPoolImportFromShareableHandle(
    memPool: *mut cudaMemPool_t,
    shareableHandle: *mut c_void,
    handleType: cudaMemAllocationHandleType,
    flags: c_uint,
) -> Outcome {
    // Descriptor 0 is a null pointer, and as such refused.
    require(!memPool.is_null() && !shareableHandle.is_null() && flags == 0)?;
    let mut sim = sim::lock();
    current::device(&sim)?;
    match handleType {
        cudaMemAllocationHandleType::cudaMemHandleTypePosixFileDescriptor => {}
        cudaMemAllocationHandleType::cudaMemHandleTypeFabric => return Err(cudaError::cudaErrorNotPermitted),
        _ => return Err(cudaError::cudaErrorInvalidValue),
    }
    // The descriptor is the pointer's value.
    let descriptor = c_int::try_from(shareableHandle as isize).unwrap_or(-1);
    let pool = pools::import(&sim, descriptor).ok_or(cudaError::cudaErrorUnknown)?;
    let id = sim.pools.insert(pool);
    // SAFETY: the caller's out pointer.
    unsafe { give(memPool, id.as_raw()) }
}

pub unsafe fn cudaMemPoolExportPointer(exportData: *mut cudaMemPoolPtrExportData, ptr: *mut c_void) -> Outcome {
    let reserved = sim::lock().export_pointer(ptr as usize)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(exportData, cudaMemPoolPtrExportData { reserved }) }
}

pub unsafe fn cudaMemPoolImportPointer(
    ptr: *mut *mut c_void,
    memPool: cudaMemPool_t,
    exportData: *mut cudaMemPoolPtrExportData,
) -> Outcome {
    require(!ptr.is_null() && !exportData.is_null())?;
    // SAFETY: the caller's blob.
    let blob = unsafe { (*exportData).reserved };
    let address = sim::lock().import_pointer(Id::from_raw(memPool), blob)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(ptr, address as *mut c_void) }
}

pub unsafe fn cudaIpcGetEventHandle(handle: *mut cudaIpcEventHandle_t, event: cudaEvent_t) -> Outcome {
    let sim = sim::lock();
    let shared = sim.events.get(Id::from_raw(event)).and_then(|event| event.shared.as_ref());
    let bytes = shared.ok_or(cudaError::cudaErrorInvalidResourceHandle)?.handle();
    // SAFETY: the caller's out pointer.
    unsafe { give(handle.cast(), bytes) }
}

pub unsafe fn cudaIpcOpenEventHandle(event: *mut cudaEvent_t, handle: cudaIpcEventHandle_t) -> Outcome {
    require(!event.is_null())?;
    let mut sim = sim::lock();
    let device = current::device(&sim)?;
    let shared = Shared::open(handle.reserved.map(|byte| byte as u8)).map_err(|failure| match failure {
        Failure::Own => cudaError::cudaErrorDeviceUninitialized,
        Failure::NotThere => cudaError::cudaErrorMapBufferObjectFailed,
    })?;
    let flags = cudaEventInterprocess | cudaEventDisableTiming;
    let id = sim.events.insert(Event { device, flags, record: None, shared: Some(shared), captured: None });
    // SAFETY: the caller's out pointer.
    unsafe { give(event, id.as_raw()) }
}

pub unsafe fn cudaIpcGetMemHandle(handle: *mut cudaIpcMemHandle_t, devPtr: *mut c_void) -> Outcome {
    let sim = sim::lock();
    let Found::Live(allocation) = sim.space.find(devPtr as usize) else {
        return Err(cudaError::cudaErrorInvalidValue);
    };
    // SAFETY: the caller's out pointer.
    unsafe { give(handle.cast(), sim.memory_handle(&allocation)?) }
}

pub unsafe fn cudaIpcOpenMemHandle(devPtr: *mut *mut c_void, handle: cudaIpcMemHandle_t, flags: c_uint) -> Outcome {
    require(!devPtr.is_null() && flags == cudaIpcMemLazyEnablePeerAccess)?;
    let mut sim = sim::lock();
    current::device(&sim)?;
    let address = sim.open_memory(handle.reserved.map(|byte| byte as u8))?;
    // SAFETY: the caller's out pointer.
    unsafe { give(devPtr, address as *mut c_void) }
}

pub unsafe fn cudaIpcCloseMemHandle(devPtr: *mut c_void) -> Outcome {
    sim::lock().close_memory(devPtr as usize)
}
