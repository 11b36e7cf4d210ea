//! The ways of working that CUDA's guide to stream-ordered allocation teaches: none is a race.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::*;
use cudart_sim::control::cudartSimRaces;
use cudart_sim::cuda::*;

const SIZE: usize = 512;

fn malloc_async(size: usize, stream: cudaStream_t) -> *mut c_void {
    let mut pointer = null_mut();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaMallocAsync(&mut pointer, size, stream) });
    pointer
}

/// Runs one way of working on three streams.
fn is_no_race(body: impl Fn([cudaStream_t; 3])) {
    let _alone = alone();
    let streams = [stream(), stream(), stream()];
    body(streams);
    // SAFETY: the handles are live.
    unsafe {
        ok(cudaDeviceSynchronize());
        streams.into_iter().for_each(|stream| ok(cudaStreamDestroy(stream)));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
    assert_eq!(live().objects(), 0);
}

#[test]
fn one_stream_for_all() {
    is_no_race(|_| {
        let pointer = malloc_async(SIZE, cudaStreamPerThread);
        ok(fill(cudaStreamPerThread, pointer, SIZE, 1));
        // SAFETY: the pointer is live.
        ok(unsafe { cudaFreeAsync(pointer, cudaStreamPerThread) });
    });
}

#[test]
fn events_from_allocation_to_use_to_free() {
    is_no_race(|[one, two, three]| {
        let pointer = malloc_async(SIZE, one);
        order(one, two);
        ok(fill(two, pointer, SIZE, 1));
        order(two, three);
        // SAFETY: the pointer is live.
        ok(unsafe { cudaFreeAsync(pointer, three) });
    });
}

#[test]
fn plain_memory_freed_in_stream_order() {
    is_no_race(|[one, ..]| {
        let mut pointer = null_mut();
        // SAFETY: the pointers are valid.
        unsafe {
            ok(cudaMalloc(&mut pointer, SIZE));
            ok(fill(one, pointer, SIZE, 1));
            ok(cudaFreeAsync(pointer, one));
        }
    });
}

#[test]
fn pool_memory_freed_after_a_synchronisation() {
    is_no_race(|[one, ..]| {
        let pointer = malloc_async(SIZE, one);
        ok(fill(one, pointer, SIZE, 1));
        // SAFETY: the pointer is live.
        unsafe {
            ok(cudaStreamSynchronize(one));
            ok(cudaFree(pointer));
        }
    });
}

#[test]
fn a_phase_that_allocates_much_and_then_trims() {
    is_no_race(|[one, ..]| {
        let mut pool = null_mut();
        // SAFETY: the pointers are valid.
        unsafe {
            ok(cudaDeviceGetDefaultMemPool(&mut pool, 0));
            set_attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold, u64::MAX);
            for _ in 0..10 {
                let pointers: Vec<_> = (1..=10).map(|size| malloc_async(size * 100_000, one)).collect();
                pointers.iter().for_each(|pointer| ok(fill(one, *pointer, 100_000, 1)));
                pointers.into_iter().for_each(|pointer| ok(cudaFreeAsync(pointer, one)));
            }
            ok(cudaStreamSynchronize(one));
            ok(cudaMemPoolTrimTo(pool, 0));
            set_attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold, 0);
            assert_eq!(attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReservedMemCurrent), 0);
        }
    });
}

#[test]
fn reuse_behind_an_event_and_behind_finished_work() {
    is_no_race(|[one, two, three]| {
        for (with_event, other) in [(true, two), (false, three)] {
            // All that the pool has taken, so that nothing else is there to be given out.
            const STEP: usize = 32 << 20;
            let first = malloc_async(STEP, one);
            ok(fill(one, first, SIZE, 1));
            // SAFETY: the pointers are live.
            unsafe {
                ok(cudaFreeAsync(first, one));
                if with_event {
                    order(one, other);
                } else {
                    while cudaStreamQuery(one) == cudaError::cudaErrorNotReady {}
                }
                let second = malloc_async(STEP, other);
                assert_eq!(first, second, "the freed block is used again");
                ok(fill(other, second, SIZE, 2));
                ok(cudaFreeAsync(second, other));
                ok(cudaStreamSynchronize(other));
            }
        }
    });
}
