//! What a fact borrows from the runtime, given back even when an assertion fails.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use cuda_mempool_sys::{
    cudaError_t, cudaEventDisableTiming, cudaEvent_t, cudaHostAllocDefault, cudaStreamDefault, cudaStreamNonBlocking,
    cudaStream_t,
};

/// A stream of the device that was current when it was made.
pub struct Stream(cudaStream_t);

impl Stream {
    /// One that has no order with the legacy default stream.
    #[track_caller]
    pub fn new() -> Self {
        Self::with_flags(cudaStreamNonBlocking)
    }

    /// One that is ordered with the legacy default stream.
    #[track_caller]
    pub fn blocking() -> Self {
        Self::with_flags(cudaStreamDefault)
    }

    #[track_caller]
    fn with_flags(flags: c_uint) -> Self {
        let mut stream = null_mut();
        ok!(cudaStreamCreateWithFlags(&mut stream, flags));
        Self(stream)
    }

    pub fn raw(&self) -> cudaStream_t {
        self.0
    }

    #[track_caller]
    pub fn synchronize(&self) {
        ok!(cudaStreamSynchronize(self.0));
    }

    pub fn query(&self) -> cudaError_t {
        ask!(cudaStreamQuery(self.0))
    }

    /// Whether the stream has nothing left to do, asked once.
    #[track_caller]
    pub fn is_idle(&self) -> bool {
        match self.query() {
            cudaError_t::cudaSuccess => true,
            cudaError_t::cudaErrorNotReady => false,
            error => panic!("cudaStreamQuery answered {}", super::answer::name(error)),
        }
    }

    /// Whether the stream runs dry within that time.
    #[track_caller]
    pub fn settles_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while !self.is_idle() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Ends the stream, as dropping it does.
    #[track_caller]
    pub fn destroy(self) {
        ok!(cudaStreamDestroy(self.0));
        std::mem::forget(self);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        ask!(cudaStreamDestroy(self.0));
    }
}

/// An event.
pub struct Event(cudaEvent_t);

impl Event {
    #[track_caller]
    pub fn new() -> Self {
        Self::with_flags(cudaEventDisableTiming)
    }

    #[track_caller]
    pub fn with_flags(flags: c_uint) -> Self {
        let mut event = null_mut();
        ok!(cudaEventCreateWithFlags(&mut event, flags));
        Self(event)
    }

    /// Takes over an event that the runtime has handed out.
    pub fn from_raw(event: cudaEvent_t) -> Self {
        Self(event)
    }

    #[track_caller]
    pub fn recorded_on(stream: &Stream) -> Self {
        let event = Self::new();
        event.record(stream);
        event
    }

    #[track_caller]
    pub fn record(&self, stream: &Stream) {
        ok!(cudaEventRecord(self.0, stream.raw()));
    }

    #[track_caller]
    pub fn hold_up(&self, stream: &Stream) {
        ok!(cudaStreamWaitEvent(stream.raw(), self.0, 0));
    }

    pub fn query(&self) -> cudaError_t {
        ask!(cudaEventQuery(self.0))
    }

    pub fn raw(&self) -> cudaEvent_t {
        self.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        ask!(cudaEventDestroy(self.0));
    }
}

/// Device memory of `cudaMalloc`.
pub struct Malloced(*mut c_void);

impl Malloced {
    #[track_caller]
    pub fn new(size: usize) -> Self {
        let mut pointer = null_mut();
        ok!(cudaMalloc(&mut pointer, size));
        Self(pointer)
    }

    pub fn ptr(&self) -> *mut c_void {
        self.0
    }

    /// The memory, to be freed by the fact itself.
    pub fn release(self) -> *mut c_void {
        let pointer = self.0;
        std::mem::forget(self);
        pointer
    }
}

impl Drop for Malloced {
    fn drop(&mut self) {
        ask!(cudaFree(self.0));
    }
}

/// Pinned host memory of `cudaHostAlloc`: what asynchronous copies to and from the host need to be asynchronous.
pub struct HostMemory(*mut c_void);

impl HostMemory {
    #[track_caller]
    pub fn new(size: usize) -> Self {
        let mut pointer = null_mut();
        ok!(cudaHostAlloc(&mut pointer, size, cudaHostAllocDefault));
        Self(pointer)
    }

    pub fn ptr(&self) -> *mut c_void {
        self.0
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        ask!(cudaFreeHost(self.0));
    }
}

/// Makes a device the calling thread's current one, for a while.
pub struct CurrentDevice {
    before: c_int,
}

impl CurrentDevice {
    #[track_caller]
    pub fn set(device: c_int) -> Self {
        let mut before = 0;
        ok!(cudaGetDevice(&mut before));
        ok!(cudaSetDevice(device));
        Self { before }
    }
}

impl Drop for CurrentDevice {
    fn drop(&mut self) {
        ask!(cudaSetDevice(self.before));
    }
}
