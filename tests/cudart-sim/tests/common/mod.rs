//! What the tests share. They call the exported functions directly: the library is part of each test program.

#![allow(dead_code)] // not every test program uses all of it

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use cudart_sim::control::*;
use cudart_sim::cuda::*;

/// One test at a time: counters, races and the sticky error are the process's.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock();
    cudartSimReset();
    race_mode(c"error");
    turn
}

pub fn race_mode(mode: &std::ffi::CStr) {
    // SAFETY: a C string.
    ok(unsafe { cudartSimSetRaceMode(mode.as_ptr()) });
}

/// A call that must succeed.
#[track_caller]
pub fn ok(answer: cudaError) {
    assert_eq!(answer, cudaError::cudaSuccess, "races: {}", last_race());
}

pub fn last_race() -> String {
    let mut buffer = vec![0_u8; 4096];
    // SAFETY: the buffer has as many bytes.
    let needed = unsafe { cudartSimLastRace(buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.truncate(needed - 1);
    String::from_utf8(buffer).unwrap()
}

pub fn stream() -> cudaStream_t {
    let mut stream = null_mut();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaStreamCreateWithFlags(&mut stream, cudaStreamNonBlocking) });
    stream
}

pub fn event() -> cudaEvent_t {
    let mut event = null_mut();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaEventCreateWithFlags(&mut event, cudaEventDisableTiming) });
    event
}

/// `to` goes on only when `from` has come here.
pub fn order(from: cudaStream_t, to: cudaStream_t) {
    let event = event();
    // SAFETY: the handles are live.
    unsafe {
        ok(cudaEventRecord(event, from));
        ok(cudaStreamWaitEvent(to, event, 0));
        ok(cudaEventDestroy(event));
    }
}

pub fn location(kind: cudaMemLocationType, id: c_int) -> cudaMemLocation {
    cudaMemLocation { type_: kind, __bindgen_anon_1: cudaMemLocation__bindgen_ty_1 { id } }
}

pub fn device_props() -> cudaMemPoolProps {
    cudaMemPoolProps {
        allocType: cudaMemAllocationType::cudaMemAllocationTypePinned,
        location: location(cudaMemLocationType::cudaMemLocationTypeDevice, 0),
        ..Default::default()
    }
}

pub fn host_numa_props() -> cudaMemPoolProps {
    cudaMemPoolProps { location: location(cudaMemLocationType::cudaMemLocationTypeHostNuma, 0), ..device_props() }
}

pub fn pool(props: &cudaMemPoolProps) -> cudaMemPool_t {
    let mut pool = null_mut();
    // SAFETY: the pointers are valid.
    ok(unsafe { cudaMemPoolCreate(&mut pool, props) });
    pool
}

pub fn attribute(pool: cudaMemPool_t, attribute: cudaMemPoolAttr) -> u64 {
    let mut value = 0_u64;
    // SAFETY: a word is wide enough for every attribute.
    ok(unsafe { cudaMemPoolGetAttribute(pool, attribute, std::ptr::addr_of_mut!(value).cast()) });
    value
}

pub fn set_attribute(pool: cudaMemPool_t, attribute: cudaMemPoolAttr, mut value: u64) {
    // SAFETY: a word is wide enough for every attribute.
    ok(unsafe { cudaMemPoolSetAttribute(pool, attribute, std::ptr::addr_of_mut!(value).cast()) });
}

pub fn allocate(pool: cudaMemPool_t, size: usize, stream: cudaStream_t) -> *mut c_void {
    let mut pointer = null_mut();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaMallocFromPoolAsync(&mut pointer, size, pool, stream) });
    pointer
}

/// Whether the stream has done its work before the time is over.
pub fn settles(stream: cudaStream_t, within: Duration) -> bool {
    let end = Instant::now() + within;
    // SAFETY: the handle is live.
    while unsafe { cudaStreamQuery(stream) } == cudaError::cudaErrorNotReady {
        // SAFETY: may be called at any time.
        unsafe { cudaGetLastError() };
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

pub fn shared_event() -> cudaEvent_t {
    let mut event = null_mut();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaEventCreateWithFlags(&mut event, cudaEventInterprocess | cudaEventDisableTiming) });
    event
}

pub fn handle(event: cudaEvent_t) -> [u8; 64] {
    let mut handle = cudaIpcEventHandle_t::default();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaIpcGetEventHandle(&mut handle, event) });
    handle.reserved.map(|byte| byte as u8)
}

pub fn open_event(handle: [u8; 64]) -> Result<cudaEvent_t, cudaError> {
    let mut event = null_mut();
    // SAFETY: the out pointer is valid.
    match unsafe { cudaIpcOpenEventHandle(&mut event, cudaIpcEventHandle_t { reserved: handle.map(|byte| byte as _) }) }
    {
        cudaError::cudaSuccess => Ok(event),
        error => Err(error),
    }
}

/// Holds a stream up until it is opened.
pub struct Gate(Box<AtomicBool>);

impl Gate {
    /// Blocks the stream from here on.
    pub fn on(stream: cudaStream_t) -> Self {
        unsafe extern "C" fn hold(open: *mut c_void) {
            // SAFETY: the gate outlives the function: it waits for it when it is dropped.
            let open = unsafe { &*open.cast::<AtomicBool>() };
            while !open.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(50));
            }
            open.store(false, Ordering::Release);
        }
        let gate = Self(Box::new(AtomicBool::new(false)));
        let open = std::ptr::from_ref(&*gate.0).cast_mut().cast();
        // SAFETY: as above.
        ok(unsafe { cudaLaunchHostFunc(stream, Some(hold), open) });
        gate
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        let patience = Instant::now() + Duration::from_secs(20);
        while self.0.load(Ordering::Acquire) {
            assert!(Instant::now() < patience, "the stream never came to its gate");
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Live objects.
pub fn live() -> cudartSimLiveObjects {
    let mut live = cudartSimLiveObjects::default();
    // SAFETY: the out pointer is valid.
    unsafe { cudartSimLive(&mut live) };
    live
}

/// Runs a kernel that fills what it was given.
pub fn fill(stream: cudaStream_t, pointer: *mut c_void, size: usize, value: u8) -> cudaError {
    unsafe extern "C" fn kernel(argument: *mut c_void, memory: *const *mut c_void) {
        // SAFETY: the argument is the one made below, and the memory as large as was declared.
        unsafe {
            let (size, value) = *Box::from_raw(argument.cast::<(usize, u8)>());
            std::ptr::write_bytes((*memory).cast::<u8>(), value, size);
        }
    }
    let argument = Box::into_raw(Box::new((size, value)));
    let access = Access { pointer, size, write: 1 };
    // SAFETY: the kernel takes this argument and this one access.
    let answer = unsafe { cudartSimLaunch(stream, c"fill".as_ptr(), Some(kernel), argument.cast(), &access, 1) };
    if answer != cudaError::cudaSuccess {
        // SAFETY: no kernel will take it.
        drop(unsafe { Box::from_raw(argument) });
    }
    answer
}
