//! The functions of tests/c/owner.c.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::path::Path;

use cuda_mempool::{Device, MemPool, Stream};
use cuda_mempool_sys::{cudaError_t, cudaMemPool_t, cudaStream_t};

extern "C" {
    fn owner_create(owner: *mut Owner, device: c_int) -> cudaError_t;
    fn owner_destroy(owner: *mut Owner) -> cudaError_t;
    fn owner_alloc(
        pool: cudaMemPool_t,
        stream: cudaStream_t,
        size: usize,
        byte: c_int,
        memory: *mut *mut c_void,
    ) -> cudaError_t;
    fn owner_free(memory: *mut c_void, stream: cudaStream_t) -> cudaError_t;
    fn owner_is_filled(
        memory: *const c_void,
        size: usize,
        byte: c_int,
        stream: cudaStream_t,
        is_filled: *mut c_int,
    ) -> cudaError_t;
    fn owner_used(pool: cudaMemPool_t, stream: cudaStream_t, used: *mut u64) -> cudaError_t;
    fn owner_fail() -> cudaError_t;
    fn owner_peek() -> cudaError_t;
    fn owner_take() -> cudaError_t;
    fn owner_runtime_file() -> *const c_char;
}

/// `struct owner`.
#[repr(C)]
pub struct Owner {
    pub device: c_int,
    pub pool: cudaMemPool_t,
    pub stream: cudaStream_t,
}

#[track_caller]
fn ok(answer: cudaError_t) {
    assert_eq!(answer, cudaError_t::cudaSuccess);
}

impl Owner {
    #[track_caller]
    pub fn new(device: Device) -> Self {
        let mut owner = Self { device: -1, pool: std::ptr::null_mut(), stream: std::ptr::null_mut() };
        // SAFETY: the out pointer is valid.
        ok(unsafe { owner_create(&mut owner, device.ordinal()) });
        owner
    }

    /// Destroys what was not given away.
    #[track_caller]
    pub fn destroy(mut self) {
        // SAFETY: the handles are the owner's, or null.
        ok(unsafe { owner_destroy(&mut self) });
    }
}

/// Memory that C allocates and fills.
///
/// # Safety
/// Pool and stream must be alive.
#[track_caller]
pub unsafe fn alloc(pool: cudaMemPool_t, stream: cudaStream_t, size: usize, byte: u8) -> *mut c_void {
    let mut memory = std::ptr::null_mut();
    // SAFETY: the out pointer is valid, and the handles are the caller's.
    ok(unsafe { owner_alloc(pool, stream, size, byte.into(), &mut memory) });
    memory
}

/// Has C free memory.
///
/// # Safety
/// As for `cudaFreeAsync`.
#[track_caller]
pub unsafe fn free(memory: *mut c_void, stream: cudaStream_t) {
    // SAFETY: the caller's promise.
    ok(unsafe { owner_free(memory, stream) });
}

/// Whether C finds every byte to be `byte`.
///
/// # Safety
/// The memory must be readable in the order of the stream, for that many bytes.
#[track_caller]
pub unsafe fn is_filled(memory: *const c_void, size: usize, byte: u8, stream: cudaStream_t) -> bool {
    let mut is_filled = 0;
    // SAFETY: the caller's promise, and the out pointer is valid.
    ok(unsafe { owner_is_filled(memory, size, byte.into(), stream, &mut is_filled) });
    is_filled != 0
}

/// How much of a pool C finds in use when the stream is done.
#[track_caller]
pub fn used(pool: &MemPool, stream: &Stream) -> u64 {
    let mut used = u64::MAX;
    // SAFETY: both are alive, and the out pointer is valid.
    ok(unsafe { owner_used(pool.as_raw(), stream.as_raw(), &mut used) });
    used
}

/// Has a call of the C side fail. The thread's last error is then the answer.
pub fn fail() -> cudaError_t {
    // SAFETY: takes nothing.
    unsafe { owner_fail() }
}

/// The thread's last error, as C sees it.
pub fn peek() -> cudaError_t {
    // SAFETY: takes nothing.
    unsafe { owner_peek() }
}

/// The thread's last error, which C clears.
pub fn take() -> cudaError_t {
    // SAFETY: takes nothing.
    unsafe { owner_take() }
}

/// The file of the runtime that C calls.
pub fn runtime_file() -> &'static Path {
    // SAFETY: takes nothing.
    let file = unsafe { owner_runtime_file() };
    assert!(!file.is_null());
    // SAFETY: the loader's string, which lives as long as the library.
    Path::new(unsafe { CStr::from_ptr(file) }.to_str().unwrap())
}
