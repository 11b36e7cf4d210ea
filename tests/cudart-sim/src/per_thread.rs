//! The names that NVIDIA's headers call when a program is compiled with a default stream per thread: stream 0 is the
//! calling thread's own.

#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::cuda::{self, *};
use crate::exports::with_per_thread_default;

/// Exports each function a second time, with the suffix. That the signature is the bound one is checked by the call.
macro_rules! per_thread {
    ($suffix:literal: $(fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        $(
            #[export_name = concat!(stringify!($name), $suffix)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> cudaError_t {
                // SAFETY: the contract is that of the function without the suffix.
                with_per_thread_default(|| unsafe { cuda::$name($($arg),*) })
            }
        )*
    };
}

per_thread! { "_ptds":
    fn cudaMemcpy(dst: *mut c_void, src: *const c_void, count: usize, kind: cudaMemcpyKind);
    fn cudaMemset(devPtr: *mut c_void, value: c_int, count: usize);
}

per_thread! { "_ptsz":
    fn cudaEventRecord(event: cudaEvent_t, stream: cudaStream_t);
    fn cudaEventRecordWithFlags(event: cudaEvent_t, stream: cudaStream_t, flags: c_uint);
    fn cudaFreeAsync(devPtr: *mut c_void, hStream: cudaStream_t);
    fn cudaGetDriverEntryPointByVersion(
        symbol: *const c_char,
        funcPtr: *mut *mut c_void,
        cudaVersion: c_uint,
        flags: c_ulonglong,
        driverStatus: *mut cudaDriverEntryPointQueryResult,
    );
    fn cudaGraphLaunch(graphExec: cudaGraphExec_t, stream: cudaStream_t);
    fn cudaLaunchHostFunc(stream: cudaStream_t, fn_: cudaHostFn_t, userData: *mut c_void);
    fn cudaMallocAsync(devPtr: *mut *mut c_void, size: usize, hStream: cudaStream_t);
    fn cudaMallocFromPoolAsync(ptr: *mut *mut c_void, size: usize, memPool: cudaMemPool_t, stream: cudaStream_t);
    fn cudaMemcpyAsync(
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    );
    fn cudaMemsetAsync(devPtr: *mut c_void, value: c_int, count: usize, stream: cudaStream_t);
    fn cudaStreamBeginCapture(stream: cudaStream_t, mode: cudaStreamCaptureMode);
    fn cudaStreamEndCapture(stream: cudaStream_t, pGraph: *mut cudaGraph_t);
    fn cudaStreamGetDevice(hStream: cudaStream_t, device: *mut c_int);
    fn cudaStreamGetFlags(hStream: cudaStream_t, flags: *mut c_uint);
    fn cudaStreamGetPriority(hStream: cudaStream_t, priority: *mut c_int);
    fn cudaStreamIsCapturing(stream: cudaStream_t, pCaptureStatus: *mut cudaStreamCaptureStatus);
    fn cudaStreamQuery(stream: cudaStream_t);
    fn cudaStreamSynchronize(stream: cudaStream_t);
    fn cudaStreamWaitEvent(stream: cudaStream_t, event: cudaEvent_t, flags: c_uint);
}
