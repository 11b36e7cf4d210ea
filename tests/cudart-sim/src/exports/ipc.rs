//! Sharing between processes.

use crate::cuda::*;
use crate::Outcome;
use std::ffi::*;

pub unsafe fn cudaIpcGetEventHandle(_handle: *mut cudaIpcEventHandle_t, _event: cudaEvent_t) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaIpcOpenEventHandle(_event: *mut cudaEvent_t, _handle: cudaIpcEventHandle_t) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaIpcGetMemHandle(_handle: *mut cudaIpcMemHandle_t, _devPtr: *mut c_void) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaIpcOpenMemHandle(_devPtr: *mut *mut c_void, _handle: cudaIpcMemHandle_t, _flags: c_uint) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaIpcCloseMemHandle(_devPtr: *mut c_void) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaMemPoolExportToShareableHandle(
    _shareableHandle: *mut c_void,
    _memPool: cudaMemPool_t,
    _handleType: cudaMemAllocationHandleType,
    _flags: c_uint,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaMemPoolImportFromShareableHandle(
    _memPool: *mut cudaMemPool_t,
    _shareableHandle: *mut c_void,
    _handleType: cudaMemAllocationHandleType,
    _flags: c_uint,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaMemPoolExportPointer(_exportData: *mut cudaMemPoolPtrExportData, _ptr: *mut c_void) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}

pub unsafe fn cudaMemPoolImportPointer(
    _ptr: *mut *mut c_void,
    _memPool: cudaMemPool_t,
    _exportData: *mut cudaMemPoolPtrExportData,
) -> Outcome {
    Err(cudaError::cudaErrorNotSupported)
}
