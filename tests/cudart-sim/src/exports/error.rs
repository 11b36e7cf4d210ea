//! Errors and versions.

use std::ffi::{c_char, c_int};

use super::give;
use crate::cuda::cudaError;
use crate::{call, error, sim, Outcome};

pub unsafe fn cudaGetLastError() -> cudaError {
    call::take_last_error()
}

pub unsafe fn cudaPeekAtLastError() -> cudaError {
    call::peek_last_error()
}

pub unsafe fn cudaGetErrorName(error: cudaError) -> *const c_char {
    error::name(error).as_ptr()
}

pub unsafe fn cudaGetErrorString(error: cudaError) -> *const c_char {
    error::text(error).as_ptr()
}

pub unsafe fn cudaRuntimeGetVersion(runtimeVersion: *mut c_int) -> Outcome {
    // SAFETY: the caller's out pointer.
    unsafe { give(runtimeVersion, sim::lock().config.runtime_version) }
}

pub unsafe fn cudaDriverGetVersion(driverVersion: *mut c_int) -> Outcome {
    // SAFETY: the caller's out pointer.
    unsafe { give(driverVersion, sim::lock().config.driver_version) }
}
