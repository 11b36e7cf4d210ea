//! Memory of the C functions.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut;

use cuda_mempool::sys::{
    cudaDeviceSynchronize, cudaError_t, cudaFree, cudaFreeHost, cudaHostAlloc, cudaHostAllocDefault, cudaMalloc,
};

/// Memory of `cudaHostAlloc`.
pub struct HostMemory(pub *mut c_void);

impl HostMemory {
    pub fn new(bytes: usize) -> Self {
        let mut memory = null_mut();
        // SAFETY: the out pointer is valid.
        check(unsafe { cudaHostAlloc(&mut memory, bytes, cudaHostAllocDefault) });
        Self(black_box(memory))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated above and freed once.
        check(unsafe { cudaFreeHost(self.0) });
    }
}

/// Memory of `cudaMalloc`.
pub struct DeviceMemory(pub *mut c_void);

impl DeviceMemory {
    pub fn new(bytes: usize) -> Self {
        let mut memory = null_mut();
        // SAFETY: the out pointer is valid.
        check(unsafe { cudaMalloc(&mut memory, bytes) });
        Self(memory)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated above, freed once, and nothing uses it any more.
        unsafe {
            check(cudaDeviceSynchronize());
            check(cudaFree(self.0));
        }
    }
}

pub fn check(answer: cudaError_t) {
    assert_eq!(answer, cudaError_t::cudaSuccess);
}
