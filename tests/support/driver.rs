//! Functions of the CUDA driver, reached through the runtime: nothing links `libcuda`.

use std::ffi::{c_void, CStr};
use std::fmt;

/// What a driver function answers: 0 is success.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CuResult(pub u32);

pub const CUDA_SUCCESS: CuResult = CuResult(0);

impl fmt::Debug for CuResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUresult {}", self.0)
    }
}

/// Why a driver function cannot be had here, or what it refused.
#[derive(Debug)]
pub struct DriverError(pub String);

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The driver function of this name, with the signature that CUDA 12.0 gave it.
///
/// The last error of the thread is left clear.
#[cfg(cuda_since_12_5)]
pub fn entry_point(name: &CStr) -> Result<*mut c_void, DriverError> {
    use cuda_mempool_sys::{
        cudaDriverEntryPointQueryResult, cudaError_t, cudaGetDriverEntryPointByVersion, cudaGetLastError,
    };

    const VERSION: u32 = 12000;
    const DEFAULT_FLAGS: u64 = 0;
    let mut function = std::ptr::null_mut();
    let mut found = cudaDriverEntryPointQueryResult::cudaDriverEntryPointSymbolNotFound;
    // SAFETY: the name is a C string and both out pointers are valid.
    let answer =
        unsafe { cudaGetDriverEntryPointByVersion(name.as_ptr(), &mut function, VERSION, DEFAULT_FLAGS, &mut found) };
    if answer == cudaError_t::cudaSuccess
        && found == cudaDriverEntryPointQueryResult::cudaDriverEntryPointSuccess
        && !function.is_null()
    {
        return Ok(function);
    }
    // SAFETY: the call has no requirement.
    unsafe { cudaGetLastError() };
    Err(DriverError(format!("no driver function {name:?}: error {}, query result {}", answer.0, found.0)))
}

/// The driver function of this name: these bindings have no way to it.
#[cfg(not(cuda_since_12_5))]
pub fn entry_point(name: &CStr) -> Result<*mut c_void, DriverError> {
    Err(DriverError(format!("no driver function {name:?}: these bindings lack cudaGetDriverEntryPointByVersion")))
}
