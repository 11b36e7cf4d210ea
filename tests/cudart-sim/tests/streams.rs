//! Streams, events and copies: what waits for what.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use cudart_sim::control::*;
use cudart_sim::cuda::*;

const DEFAULT: cudaMemcpyKind = cudaMemcpyKind::cudaMemcpyDefault;
const NOT_READY: cudaError = cudaError::cudaErrorNotReady;

#[test]
fn a_stream_runs_in_order_and_others_do_not_wait() {
    let _alone = alone();
    let (one, other, ready) = (stream(), stream(), event());
    // SAFETY: the handles are live.
    unsafe {
        let gate = Gate::on(one);
        ok(cudaEventRecord(ready, one));
        assert_eq!(cudaStreamQuery(one), NOT_READY);
        assert_eq!(cudaEventQuery(ready), NOT_READY);
        assert_eq!(cudaGetLastError(), NOT_READY);
        ok(cudaStreamSynchronize(other));
        ok(cudaStreamWaitEvent(other, ready, 0));
        assert_eq!(cudaStreamQuery(other), NOT_READY);
        drop(gate);
        ok(cudaStreamSynchronize(other));
        ok(cudaEventQuery(ready));
        ok(cudaStreamDestroy(one));
        assert_eq!(cudaStreamQuery(one), cudaError::cudaErrorInvalidResourceHandle);
        assert_eq!(cudaStreamSynchronize(ready.cast()), cudaError::cudaErrorInvalidResourceHandle);
        ok(cudaEventDestroy(ready));
        assert_eq!(cudaEventQuery(ready), cudaError::cudaErrorInvalidResourceHandle);
        ok(cudaStreamDestroy(other));
    }
}

#[test]
fn a_later_record_does_not_hold_up_who_waits_for_an_earlier() {
    let _alone = alone();
    let (one, other, event) = (stream(), stream(), event());
    // SAFETY: the handles are live.
    unsafe {
        ok(cudaEventQuery(event));
        ok(cudaEventRecord(event, one));
        ok(cudaStreamWaitEvent(other, event, 0));
        let gate = Gate::on(one);
        ok(cudaEventRecord(event, one));
        ok(cudaStreamSynchronize(other));
        assert_eq!(cudaEventQuery(event), NOT_READY);
        drop(gate);
        ok(cudaEventSynchronize(event));
        ok(cudaEventDestroy(event));
        ok(cudaStreamDestroy(one));
        ok(cudaStreamDestroy(other));
    }
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_only() {
    let _alone = alone();
    let free_stream = stream();
    // SAFETY: the handles are live.
    unsafe {
        let mut blocking = null_mut();
        ok(cudaStreamCreate(&mut blocking));
        let gate = Gate::on(free_stream);
        ok(cudaStreamSynchronize(cudaStreamLegacy));
        ok(cudaLaunchHostFunc(cudaStreamLegacy, Some(nothing), null_mut()));
        ok(cudaStreamSynchronize(null_mut()));
        let blocked = Gate::on(blocking);
        ok(cudaLaunchHostFunc(cudaStreamLegacy, Some(nothing), null_mut()));
        assert_eq!(cudaStreamQuery(cudaStreamLegacy), NOT_READY);
        drop(blocked);
        ok(cudaStreamSynchronize(cudaStreamLegacy));
        let legacy = Gate::on(cudaStreamLegacy);
        ok(cudaLaunchHostFunc(blocking, Some(nothing), null_mut()));
        ok(cudaLaunchHostFunc(cudaStreamPerThread, Some(nothing), null_mut()));
        assert_eq!(cudaStreamQuery(blocking), NOT_READY);
        assert_eq!(cudaStreamQuery(cudaStreamPerThread), NOT_READY);
        drop(legacy);
        drop(gate);
        ok(cudaDeviceSynchronize());
        ok(cudaStreamDestroy(blocking));
        ok(cudaStreamDestroy(free_stream));
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn pageable_memory_is_needed_no_longer_than_the_call() {
    let _alone = alone();
    let stream = stream();
    // SAFETY: the pointers are valid for the copies.
    unsafe {
        let mut device = null_mut();
        ok(cudaMallocAsync(&mut device, 1000, stream));
        let gate = Gate::on(stream);
        let mut source = vec![7_u8; 1000];
        ok(cudaMemcpyAsync(device, source.as_ptr().cast(), 1000, DEFAULT, stream));
        source.fill(0);
        drop(source);
        drop(gate);
        let mut target = vec![0_u8; 1000];
        ok(cudaMemcpyAsync(target.as_mut_ptr().cast(), device, 1000, DEFAULT, stream));
        assert!(target.iter().all(|byte| *byte == 7), "there when the call comes back");
        // Pinned memory is read when the copy runs.
        let mut pinned = null_mut();
        ok(cudaHostAlloc(&mut pinned, 1000, 0));
        std::ptr::write_bytes(pinned.cast::<u8>(), 1, 1000);
        let gate = Gate::on(stream);
        ok(cudaMemcpyAsync(device, pinned, 1000, DEFAULT, stream));
        std::ptr::write_bytes(pinned.cast::<u8>(), 2, 1000);
        drop(gate);
        ok(cudaMemcpyAsync(target.as_mut_ptr().cast(), device, 1000, DEFAULT, stream));
        assert!(target.iter().all(|byte| *byte == 2));
        ok(cudaFreeAsync(device, stream));
        ok(cudaFreeHost(pinned));
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn arguments_of_copies_are_checked() {
    let _alone = alone();
    let stream = stream();
    let mut own = [0_u8; 100];
    let own: *mut c_void = own.as_mut_ptr().cast();
    // SAFETY: the pointers are valid or meant to be refused.
    unsafe {
        let mut device = null_mut();
        ok(cudaMalloc(&mut device, 100));
        let invalid = cudaError::cudaErrorInvalidValue;
        assert_eq!(cudaMemcpy(device, own, 101, DEFAULT), invalid, "beyond the allocation");
        assert_eq!(cudaMemcpy(null_mut(), own, 1, DEFAULT), invalid);
        assert_eq!(cudaMemcpy(own, own, 1, cudaMemcpyKind::cudaMemcpyHostToDevice), invalid);
        assert_eq!(cudaMemcpy(own, own, 1, cudaMemcpyKind(5)), cudaError::cudaErrorInvalidMemcpyDirection);
        assert_eq!(cudaMemset(own, 0, 1), invalid);
        ok(cudaMemcpy(null_mut(), null_mut(), 0, DEFAULT));
        assert_eq!(cudaMemcpyPeer(device, 0, device, 9, 1), cudaError::cudaErrorInvalidDevice);
        ok(cudaMemset(device, 3, 100));
        ok(cudaMemcpy(own, device, 100, cudaMemcpyKind::cudaMemcpyDeviceToHost));
        assert_eq!(*own.cast::<u8>().add(99), 3);
        ok(cudaFree(device));
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn events_tell_the_time_between_them() {
    let _alone = alone();
    let stream = stream();
    // SAFETY: the handles are live.
    unsafe {
        let (mut start, mut end, mut ms) = (null_mut(), null_mut(), 0.0);
        ok(cudaEventCreate(&mut start));
        ok(cudaEventCreate(&mut end));
        assert_eq!(cudaEventElapsedTime(&mut ms, start, end), cudaError::cudaErrorInvalidResourceHandle);
        ok(cudaEventRecord(start, stream));
        let gate = Gate::on(stream);
        ok(cudaEventRecord(end, stream));
        assert_eq!(cudaEventElapsedTime(&mut ms, start, end), NOT_READY);
        std::thread::sleep(Duration::from_millis(5));
        drop(gate);
        ok(cudaEventSynchronize(end));
        ok(cudaEventElapsedTime(&mut ms, start, end));
        assert!((5.0..20_000.0).contains(&ms), "{ms} ms");
        let untimed = event();
        ok(cudaEventRecord(untimed, stream));
        assert_eq!(cudaEventElapsedTime(&mut ms, start, untimed), cudaError::cudaErrorInvalidResourceHandle);
        for event in [start, end, untimed] {
            ok(cudaEventDestroy(event));
        }
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn a_stream_waits_for_values_in_memory() {
    type ValueFunction = unsafe extern "C" fn(cudaStream_t, u64, u32, u32) -> u32;
    let _alone = alone();
    // SAFETY: the functions have this type; the word is registered and touched by atomics only.
    unsafe {
        let entry = |name: &std::ffi::CStr| {
            let (mut address, mut found) = (null_mut(), cudaDriverEntryPointQueryResult(9));
            ok(cudaGetDriverEntryPointByVersion(name.as_ptr(), &mut address, 12000, 0, &mut found));
            assert_eq!(found.0, 0, "{name:?}");
            std::mem::transmute::<*mut c_void, ValueFunction>(address)
        };
        let (wait, write) = (entry(c"cuStreamWaitValue32"), entry(c"cuStreamWriteValue32"));
        let (one, other) = (stream(), stream());
        let word = std::sync::atomic::AtomicU32::new(0);
        let at = word.as_ptr();
        ok(cudaHostRegister(at.cast(), 4, cudaHostRegisterMapped));
        // Each comparison, with a value that it does not wait for and one that it does.
        for (flags, value, too_early, enough) in [(0, 5, 4, 6), (1, 5, 6, 5), (2, 4, 3, 12), (3, !2, 2, 0)] {
            word.store(too_early, Ordering::Release);
            assert_eq!(wait(one, at as u64, value, flags), 0);
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(cudaStreamQuery(one), NOT_READY, "comparison {flags}");
            assert_eq!(write(other, at as u64, enough, 0), 0);
            ok(cudaStreamSynchronize(one));
        }
        assert_eq!(wait(one, at as u64 + 1, 0, 0), 1, "not aligned");
        assert_eq!(wait(one, at as u64, 0, 4), 1, "no such comparison");
        ok(cudaHostUnregister(at.cast()));
        assert_eq!(cudaHostUnregister(at.cast()), cudaError::cudaErrorHostMemoryNotRegistered);
        let (mut nothing, mut found) = (at.cast(), cudaDriverEntryPointQueryResult(9));
        ok(cudaGetDriverEntryPointByVersion(c"cuNothing".as_ptr(), &mut nothing, 12000, 0, &mut found));
        assert_eq!(found, cudaDriverEntryPointQueryResult::cudaDriverEntryPointSymbolNotFound);
        assert!(nothing.is_null());
        ok(cudaStreamDestroy(one));
        ok(cudaStreamDestroy(other));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn many_streams_and_threads_neither_stop_nor_grow() {
    let _alone = alone();
    let (threads_before, done) = (threads(), AtomicUsize::new(0));
    let streams: Vec<usize> = (0..200).map(|_| stream() as usize).collect();
    std::thread::scope(|scope| {
        for thread in 0..64 {
            let (streams, done) = (&streams, &done);
            scope.spawn(move || {
                for round in 0..50 {
                    let one = streams[(thread * 3 + round) % streams.len()] as cudaStream_t;
                    let other = streams[(thread * 7 + round * 5) % streams.len()] as cudaStream_t;
                    // SAFETY: the pointer is live until its free, and each use is ordered.
                    unsafe {
                        let mut pointer = null_mut();
                        ok(cudaMallocAsync(&mut pointer, 4096, one));
                        ok(cudaMemsetAsync(pointer, 1, 4096, one));
                        order(one, other);
                        ok(fill(other, pointer, 4096, 2));
                        let mut byte = 0_u8;
                        let to: *mut u8 = &mut byte;
                        ok(cudaMemcpyAsync(to.cast(), pointer.cast::<u8>().add(4095).cast(), 1, DEFAULT, other));
                        assert_eq!(byte, 2);
                        ok(cudaFreeAsync(pointer, other));
                        if round % 10 == 0 {
                            ok(cudaStreamSynchronize(one));
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 64 * 50);
    // SAFETY: the handles are live.
    unsafe {
        ok(cudaDeviceSynchronize());
        streams.iter().for_each(|stream| ok(cudaStreamDestroy(*stream as cudaStream_t)));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
    assert_eq!(live().objects(), 0);
    // Workers without work end.
    let patience = std::time::Instant::now() + Duration::from_secs(20);
    while threads() > threads_before + 1 {
        assert!(std::time::Instant::now() < patience, "{} threads stay", threads());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn random_delays_change_nothing_that_is_ordered() {
    let _alone = alone();
    cudartSimSetDelay(200, 7);
    let (one, other) = (stream(), stream());
    for round in 0..50_u8 {
        // SAFETY: the pointer is live until its free, and each use is ordered.
        unsafe {
            let (mut pointer, mut byte) = (null_mut(), 0_u8);
            ok(cudaMallocAsync(&mut pointer, 1, one));
            ok(cudaMemsetAsync(pointer, round.into(), 1, one));
            order(one, other);
            ok(cudaMemcpyAsync((&mut byte as *mut u8).cast(), pointer, 1, DEFAULT, other));
            assert_eq!(byte, round);
            order(other, one);
            ok(cudaFreeAsync(pointer, one));
        }
    }
    cudartSimSetDelay(0, 0);
    // SAFETY: the handles are live.
    unsafe {
        ok(cudaDeviceSynchronize());
        ok(cudaStreamDestroy(one));
        ok(cudaStreamDestroy(other));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}
