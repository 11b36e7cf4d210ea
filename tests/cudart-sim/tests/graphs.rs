//! Capture, graphs and the memory that graphs own.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::*;
use cudart_sim::cuda::*;

const SIZE: usize = 1 << 20;
const GLOBAL: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
const THREAD: cudaStreamCaptureMode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
const INVALID: cudaError = cudaError::cudaErrorInvalidValue;

fn usage(attribute: cudaGraphMemAttributeType) -> u64 {
    let mut bytes = 0_u64;
    // SAFETY: the out pointer is one to a 64-bit number.
    ok(unsafe { cudaDeviceGetGraphMemAttribute(0, attribute, std::ptr::addr_of_mut!(bytes).cast()) });
    bytes
}

fn used() -> u64 {
    usage(cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemCurrent)
}

fn reserved() -> u64 {
    usage(cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemCurrent)
}

fn status(stream: cudaStream_t) -> cudaStreamCaptureStatus {
    let mut status = cudaStreamCaptureStatus(9);
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaStreamIsCapturing(stream, &mut status) });
    status
}

fn instantiate(graph: cudaGraph_t, flags: u64) -> cudaGraphExec_t {
    let mut exec = null_mut();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaGraphInstantiateWithFlags(&mut exec, graph, flags) });
    exec
}

#[test]
fn captured_work_runs_at_each_launch() {
    let _alone = alone();
    let (one, other) = (stream(), stream());
    // SAFETY: the pointers are live for their uses; the target outlives the launches.
    unsafe {
        let mut target = null_mut();
        ok(cudaHostAlloc(&mut target, SIZE, 0));
        let (mut pointer, mut graph) = (null_mut(), null_mut());
        ok(cudaStreamBeginCapture(one, THREAD));
        assert_eq!(status(one), cudaStreamCaptureStatus::cudaStreamCaptureStatusActive);
        ok(cudaMallocAsync(&mut pointer, SIZE, one));
        ok(cudaMemsetAsync(pointer, 5, SIZE, one));
        order(one, other);
        assert_eq!(status(other), cudaStreamCaptureStatus::cudaStreamCaptureStatusActive);
        ok(cudaMemcpyAsync(target, pointer, SIZE, cudaMemcpyKind::cudaMemcpyDefault, other));
        order(other, one);
        ok(cudaFreeAsync(pointer, one));
        ok(cudaStreamEndCapture(one, &mut graph));
        assert_eq!(status(other), cudaStreamCaptureStatus::cudaStreamCaptureStatusNone);
        let exec = instantiate(graph, 0);
        let bytes = std::slice::from_raw_parts(target.cast::<u8>(), SIZE);
        for stream in [one, other] {
            std::ptr::write_bytes(target.cast::<u8>(), 0, SIZE);
            ok(cudaGraphLaunch(exec, stream));
            ok(cudaStreamSynchronize(stream));
            assert!(bytes.iter().all(|byte| *byte == 5));
        }
        assert_eq!(used(), 0);
        assert_eq!(usage(cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh), SIZE as u64);
        ok(cudaGraphExecDestroy(exec));
        ok(cudaGraphDestroy(graph));
        assert!(reserved() > 0, "the device keeps what graphs had");
        ok(cudaDeviceGraphMemTrim(0));
        assert_eq!(reserved(), 0);
        let mut zero = 0_u64;
        let zero: *mut c_void = std::ptr::addr_of_mut!(zero).cast();
        ok(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh, zero));
        assert_eq!(usage(cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh), 0);
        ok(cudaFreeHost(target));
        ok(cudaStreamDestroy(one));
        ok(cudaStreamDestroy(other));
    }
}

#[test]
fn memory_of_a_launch_lives_until_it_is_freed() {
    let _alone = alone();
    let stream = stream();
    // SAFETY: the pointers are live for their uses.
    unsafe {
        let (mut pointer, mut graph) = (null_mut(), null_mut());
        ok(cudaStreamBeginCapture(stream, THREAD));
        ok(cudaMallocAsync(&mut pointer, SIZE, stream));
        ok(cudaStreamEndCapture(stream, &mut graph));
        assert_eq!(cudaFreeAsync(pointer, stream), INVALID, "never launched");
        let exec = instantiate(graph, 0);
        ok(cudaGraphLaunch(exec, stream));
        assert_eq!(used(), SIZE as u64);
        assert_eq!(cudaGraphLaunch(exec, stream), INVALID, "its memory is still live");
        ok(cudaMemsetAsync(pointer, 1, SIZE, stream));
        ok(cudaFreeAsync(pointer, stream));
        assert_eq!(cudaFreeAsync(pointer, stream), INVALID);
        ok(cudaGraphLaunch(exec, stream));
        ok(cudaGraphExecDestroy(exec));
        let again = instantiate(graph, cudaGraphInstantiateFlags::cudaGraphInstantiateFlagAutoFreeOnLaunch.0.into());
        ok(cudaGraphLaunch(again, stream));
        ok(cudaGraphLaunch(again, stream));
        assert_eq!(live().graph_allocations, 1);
        ok(cudaStreamSynchronize(stream));
        ok(cudaFree(pointer));
        assert_eq!(used(), 0);
        ok(cudaGraphExecDestroy(again));
        ok(cudaGraphDestroy(graph));
        ok(cudaDeviceGraphMemTrim(0));
        assert_eq!(reserved(), 0);
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let _alone = alone();
    let (host_pool, stream, other) = (pool(&host_numa_props()), stream(), stream());
    // SAFETY: the pointers are live for their uses.
    unsafe {
        let (mut pointer, mut uncaptured, mut graph) = (null_mut(), null_mut(), null_mut());
        ok(cudaMallocAsync(&mut uncaptured, 100, stream));
        ok(cudaStreamBeginCapture(stream, THREAD));
        let unsupported = cudaError::cudaErrorNotSupported;
        assert_eq!(cudaMallocFromPoolAsync(&mut pointer, 100, host_pool, stream), unsupported);
        assert_eq!(cudaFreeAsync(uncaptured, stream), INVALID);
        ok(cudaStreamEndCapture(stream, &mut graph));
        ok(cudaGraphDestroy(graph));
        ok(cudaFreeAsync(uncaptured, stream));
        ok(cudaMemPoolDestroy(host_pool));

        ok(cudaStreamBeginCapture(stream, GLOBAL));
        let capturing = cudaError::cudaErrorStreamCaptureUnsupported;
        let disturb = std::thread::spawn(|| {
            let stream = common::stream();
            let answer = cudaMallocAsync(&mut null_mut(), 100, stream);
            ok(cudaStreamDestroy(stream));
            answer
        });
        assert_eq!(disturb.join().unwrap(), capturing);
        assert_eq!(status(stream), cudaStreamCaptureStatus::cudaStreamCaptureStatusInvalidated);
        let invalidated = cudaError::cudaErrorStreamCaptureInvalidated;
        assert_eq!(cudaStreamEndCapture(stream, &mut graph), invalidated);
        assert!(graph.is_null());

        // A thread that says it knows what it does is let through.
        ok(cudaStreamBeginCapture(stream, GLOBAL));
        let relaxed = std::thread::spawn(|| {
            let mut mode = cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
            ok(cudaThreadExchangeStreamCaptureMode(&mut mode));
            assert_eq!(mode, GLOBAL);
            let (stream, mut pointer) = (common::stream(), null_mut());
            ok(cudaMallocAsync(&mut pointer, 100, stream));
            ok(cudaFreeAsync(pointer, stream));
            ok(cudaStreamDestroy(stream));
        });
        relaxed.join().unwrap();
        order(stream, other);
        ok(cudaMemsetAsync(uncaptured, 0, 0, other));
        ok(cudaLaunchHostFunc(other, Some(nothing), null_mut()));
        assert_eq!(cudaStreamEndCapture(other, &mut graph), cudaError::cudaErrorStreamCaptureUnmatched);
        assert_eq!(cudaStreamEndCapture(stream, &mut graph), cudaError::cudaErrorStreamCaptureUnjoined);
        assert_eq!(cudaStreamEndCapture(stream, &mut graph), cudaError::cudaErrorIllegalState);

        ok(cudaStreamBeginCapture(stream, THREAD));
        assert_eq!(cudaStreamSynchronize(stream), capturing);
        assert_eq!(cudaStreamEndCapture(stream, &mut graph), invalidated);
        assert_eq!(cudaStreamBeginCapture(cudaStreamLegacy, THREAD), capturing);
        ok(cudaStreamDestroy(stream));
        ok(cudaStreamDestroy(other));
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn memory_nodes_are_added_by_hand() {
    let _alone = alone();
    let stream = stream();
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        let (mut graph, mut alloc, mut free) = (null_mut(), null_mut(), null_mut());
        ok(cudaGraphCreate(&mut graph, 0));
        let mut params = cudaMemAllocNodeParams { poolProps: device_props(), bytesize: SIZE, ..Default::default() };
        ok(cudaGraphAddMemAllocNode(&mut alloc, graph, std::ptr::null(), 0, &mut params));
        assert!(!params.dptr.is_null());
        ok(cudaGraphAddMemFreeNode(&mut free, graph, &alloc, 1, params.dptr));
        let (mut again, mut freed) = (cudaMemAllocNodeParams::default(), null_mut::<c_void>());
        ok(cudaGraphMemAllocNodeGetParams(alloc, &mut again));
        assert_eq!((again.dptr, again.bytesize), (params.dptr, SIZE));
        ok(cudaGraphMemFreeNodeGetParams(free, std::ptr::addr_of_mut!(freed).cast()));
        assert_eq!(freed, params.dptr);
        assert_eq!(cudaGraphMemFreeNodeGetParams(alloc, std::ptr::addr_of_mut!(freed).cast()), INVALID);
        let exec = instantiate(graph, 0);
        for _ in 0..3 {
            ok(cudaGraphLaunch(exec, stream));
        }
        ok(cudaStreamSynchronize(stream));
        ok(cudaGraphDestroy(graph));
        assert_eq!(cudaGraphDestroy(graph), INVALID);
        ok(cudaGraphExecDestroy(exec));
        ok(cudaDeviceGraphMemTrim(0));
        ok(cudaStreamDestroy(stream));
        assert_eq!(live().objects(), 0);
    }
}
