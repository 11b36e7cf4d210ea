//! The raw calls, from Rust: what everything is compared with where no C compiler or toolkit is around.

use std::ffi::{c_void, CStr};
use std::ptr::null_mut;

use cuda_mempool_sys::*;

use crate::subject::Allocate;

pub struct RawRust {
    pool: cudaMemPool_t,
}

pub struct Worker {
    pool: cudaMemPool_t,
    stream: cudaStream_t,
    other: cudaStream_t,
    event: cudaEvent_t,
}

/// What a call answered that did not succeed. One word, so that checking costs no more than in C.
#[derive(Debug)]
pub struct Code(cudaError_t);

impl std::error::Error for Code {}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error {}", self.0 .0)
    }
}

/// Whether a call succeeded.
#[inline]
pub fn check(answer: cudaError_t) -> Result<(), Code> {
    match answer {
        cudaError_t::cudaSuccess => Ok(()),
        error => Err(Code(error)),
    }
}

impl Allocate for RawRust {
    const NAME: &'static CStr = c"raw calls from Rust";
    const VERSION: &'static CStr = crate::own::VERSION;
    const MEMORY: &'static CStr = c"device";
    const HANDS_OVER: bool = true;

    type Worker = Worker;
    type Block = *mut c_void;
    type Error = Code;

    fn open() -> Result<Self, Code> {
        let props = cudaMemPoolProps::new(
            cudaMemAllocationType::cudaMemAllocationTypePinned,
            cudaMemLocation::new(cudaMemLocationType::cudaMemLocationTypeDevice, 0),
            cudaMemAllocationHandleType::cudaMemHandleTypeNone,
        );
        let mut pool = null_mut();
        let mut keep_all = u64::MAX;
        let threshold = cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold;
        // SAFETY: the pointers are valid for the calls.
        unsafe {
            check(cudaMemPoolCreate(&mut pool, &props))?;
            check(cudaMemPoolSetAttribute(pool, threshold, std::ptr::addr_of_mut!(keep_all).cast()))?;
        }
        Ok(Self { pool })
    }

    fn start(&self) -> Result<Worker, Code> {
        let mut worker = Worker { pool: self.pool, stream: null_mut(), other: null_mut(), event: null_mut() };
        // SAFETY: the out pointers are valid.
        unsafe {
            check(cudaStreamCreateWithFlags(&mut worker.stream, cudaStreamNonBlocking))?;
            check(cudaStreamCreateWithFlags(&mut worker.other, cudaStreamNonBlocking))?;
            check(cudaEventCreateWithFlags(&mut worker.event, cudaEventDisableTiming))?;
        }
        Ok(worker)
    }

    #[inline]
    fn alloc(worker: &Worker, bytes: usize) -> Result<*mut c_void, Code> {
        let mut block = null_mut();
        // SAFETY: the handles live as long as the worker.
        check(unsafe { cudaMallocFromPoolAsync(&mut block, bytes, worker.pool, worker.stream) })?;
        Ok(block)
    }

    #[inline]
    fn free(worker: &Worker, block: *mut c_void) -> Result<(), Code> {
        // SAFETY: as above, and the block is freed once.
        check(unsafe { cudaFreeAsync(block, worker.stream) })
    }

    #[inline]
    fn hand_over(worker: &Worker, block: *mut c_void) -> Result<(), Code> {
        // SAFETY: as above.
        unsafe {
            check(cudaEventRecord(worker.event, worker.stream))?;
            check(cudaStreamWaitEvent(worker.other, worker.event, cudaEventWaitDefault))?;
            check(cudaFreeAsync(block, worker.other))
        }
    }
}

impl Drop for RawRust {
    fn drop(&mut self) {
        // SAFETY: all workers are gone.
        unsafe { cudaMemPoolDestroy(self.pool) };
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: the handles are not used again.
        unsafe {
            cudaStreamDestroy(self.stream);
            cudaStreamDestroy(self.other);
            cudaEventDestroy(self.event);
        }
    }
}
