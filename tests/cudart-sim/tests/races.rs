//! The race detector finds each kind of race, and is silent when the missing order is added.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::*;
use cudart_sim::control::cudartSimRaces;
use cudart_sim::cuda::*;

const SIZE: usize = 4096;

/// Runs a program without and with its order, on an allocation of one stream.
fn finds(what: &str, program: impl Fn(bool, cudaStream_t, cudaStream_t)) {
    let _alone = alone();
    race_mode(c"count");
    for ordered in [true, false] {
        let (one, other) = (stream(), stream());
        program(ordered, one, other);
        // SAFETY: the handles are live.
        unsafe {
            ok(cudaStreamSynchronize(one));
            ok(cudaStreamSynchronize(other));
            ok(cudaStreamDestroy(one));
            ok(cudaStreamDestroy(other));
        }
        if ordered {
            assert_eq!(cudartSimRaces(), 0, "a false alarm: {}", last_race());
        } else {
            assert_eq!(cudartSimRaces(), 1, "found: {}", last_race());
            assert!(last_race().starts_with(what), "{}", last_race());
            assert!(last_race().contains("0x"), "{}", last_race());
        }
    }
}

fn malloc_async(stream: cudaStream_t) -> *mut c_void {
    let mut pointer = null_mut();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaMallocAsync(&mut pointer, SIZE, stream) });
    pointer
}

#[test]
fn a_use_before_the_allocation_is_ordered() {
    finds("use before the allocation is ordered", |ordered, one, other| {
        let pointer = malloc_async(one);
        if ordered {
            order(one, other);
        }
        // SAFETY: the pointer is live.
        unsafe {
            ok(cudaMemsetAsync(pointer, 1, SIZE, other));
            order(other, one);
            ok(cudaFreeAsync(pointer, one));
        }
    });
}

#[test]
fn a_use_before_an_allocation_that_has_not_even_run() {
    finds("use before the allocation is ordered", |ordered, one, other| {
        let gate = Gate::on(one);
        let pointer = malloc_async(one);
        if ordered {
            order(one, other);
        }
        ok(fill(other, pointer, SIZE, 3));
        if !ordered {
            // SAFETY: the handle is live.
            ok(unsafe { cudaStreamSynchronize(other) });
        }
        drop(gate);
        order(other, one);
        // SAFETY: the pointer is live.
        ok(unsafe { cudaFreeAsync(pointer, one) });
    });
}

#[test]
fn a_free_before_a_use_is_ordered() {
    finds("free before a use is ordered", |ordered, one, other| {
        let pointer = malloc_async(one);
        order(one, other);
        ok(fill(other, pointer, SIZE, 3));
        // SAFETY: the handles are live.
        unsafe {
            let done = event();
            ok(cudaEventRecord(done, other));
            // The order of execution is the same with and without the wait; only what orders it differs.
            while cudaStreamQuery(one) == cudaError::cudaErrorNotReady {}
            if ordered {
                ok(cudaStreamWaitEvent(one, done, 0));
            } else {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            ok(cudaFreeAsync(pointer, one));
            ok(cudaEventDestroy(done));
        }
    });
}

#[test]
fn a_use_after_free_on_the_same_stream() {
    finds("use after free", |ordered, one, _| {
        let pointer = malloc_async(one);
        // SAFETY: in the racing run the address is only looked up.
        unsafe {
            if ordered {
                ok(cudaMemsetAsync(pointer, 1, SIZE, one));
            }
            ok(cudaFreeAsync(pointer, one));
            if !ordered {
                ok(cudaMemsetAsync(pointer, 1, SIZE, one));
            }
        }
    });
}

#[test]
fn a_use_after_free_when_the_memory_went_back() {
    finds("use after free", |ordered, one, _| {
        let pointer = malloc_async(one);
        let mut target = [0_u8; 16];
        let copy = |target: &mut [u8; 16]| {
            // SAFETY: in the racing run the address is only looked up.
            ok(unsafe {
                cudaMemcpyAsync(target.as_mut_ptr().cast(), pointer, 16, cudaMemcpyKind::cudaMemcpyDefault, one)
            });
        };
        if ordered {
            copy(&mut target);
        }
        // SAFETY: the handles are live.
        unsafe {
            ok(cudaFreeAsync(pointer, one));
            // The threshold is 0, so the memory is gone behind this.
            ok(cudaStreamSynchronize(one));
        }
        if !ordered {
            copy(&mut target);
        }
    });
}

#[test]
fn overlapping_copies_of_which_one_writes() {
    finds("unordered overlapping accesses", |ordered, one, other| {
        let pointer = malloc_async(one);
        order(one, other);
        // SAFETY: the pointers are live; both streams are synchronised before the last free.
        unsafe {
            ok(cudaMemsetAsync(pointer, 1, SIZE, one));
            if ordered {
                order(one, other);
            }
            ok(cudaMemsetAsync(pointer.cast::<u8>().add(SIZE - 1).cast(), 2, 1, other));
            order(other, one);
            ok(cudaFreeAsync(pointer, one));
        }
    });
}

#[test]
fn what_does_not_overlap_or_only_reads_is_no_race() {
    let _alone = alone();
    let (one, other) = (stream(), stream());
    // SAFETY: the pointers are live until the last free, which is ordered after all uses.
    unsafe {
        let (pointer, mut targets) = (malloc_async(one), [null_mut(); 2]);
        ok(cudaMemsetAsync(pointer, 1, SIZE, one));
        order(one, other);
        ok(cudaMemsetAsync(pointer, 1, SIZE / 2, one));
        ok(cudaMemsetAsync(pointer.cast::<u8>().add(SIZE / 2).cast(), 2, SIZE / 2, other));
        order(one, other);
        order(other, one);
        for (target, stream) in targets.iter_mut().zip([one, other]) {
            ok(cudaMallocAsync(target, SIZE, stream));
            ok(cudaMemcpyAsync(*target, pointer, SIZE, cudaMemcpyKind::cudaMemcpyDefault, stream));
            ok(cudaFreeAsync(*target, stream));
        }
        order(other, one);
        ok(cudaFreeAsync(pointer, one));
        ok(cudaDeviceSynchronize());
        ok(cudaStreamDestroy(one));
        ok(cudaStreamDestroy(other));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}

#[test]
fn the_host_orders_what_it_has_waited_for() {
    let _alone = alone();
    let (one, other) = (stream(), stream());
    // SAFETY: the pointer is live until the free.
    unsafe {
        let pointer = malloc_async(one);
        ok(cudaStreamSynchronize(one));
        ok(fill(other, pointer, SIZE, 1));
        while cudaStreamQuery(other) == cudaError::cudaErrorNotReady {}
        cudaGetLastError();
        ok(cudaFreeAsync(pointer, one));
        let pointer = malloc_async(one);
        let (send, receive) = std::sync::mpsc::channel::<()>();
        unsafe extern "C" fn tell(sender: *mut c_void) {
            // SAFETY: the box made below.
            let sender = unsafe { Box::from_raw(sender.cast::<std::sync::mpsc::Sender<()>>()) };
            sender.send(()).unwrap();
        }
        ok(cudaLaunchHostFunc(one, Some(tell), Box::into_raw(Box::new(send)).cast()));
        receive.recv().unwrap();
        // The host function told that the allocation has run.
        ok(fill(other, pointer, SIZE, 1));
        ok(cudaStreamSynchronize(other));
        ok(cudaFree(pointer));
        ok(cudaStreamDestroy(one));
        ok(cudaStreamDestroy(other));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}

#[test]
fn reuse_by_the_pool_is_ordered_by_the_pool() {
    let _alone = alone();
    // Its own block, one that another stream is done with, and one that another stream is busy with.
    for (busy, max_size) in [(false, 0), (true, 32 << 20)] {
        let pool = pool(&cudaMemPoolProps { maxSize: max_size, ..device_props() });
        set_attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold, u64::MAX);
        let (one, other) = (stream(), stream());
        let size = 32 << 20;
        // SAFETY: the pointers are live for their uses.
        unsafe {
            let first = allocate(pool, size, one);
            let gate = busy.then(|| Gate::on(one));
            ok(cudaMemsetAsync(first, 1, size, one));
            ok(cudaFreeAsync(first, one));
            while !busy && cudaStreamQuery(one) == cudaError::cudaErrorNotReady {}
            let second = allocate(pool, size, other);
            assert_eq!(first, second);
            if busy {
                assert_eq!(cudaStreamQuery(other), cudaError::cudaErrorNotReady);
            }
            drop(gate);
            ok(cudaMemsetAsync(second, 2, size, other));
            ok(cudaFreeAsync(second, other));
            ok(cudaDeviceSynchronize());
            ok(cudaStreamDestroy(one));
            ok(cudaStreamDestroy(other));
            ok(cudaMemPoolDestroy(pool));
        }
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}

#[test]
fn a_race_answers_a_sticky_error() {
    let _alone = alone();
    let one = stream();
    // SAFETY: the freed address is only looked up.
    unsafe {
        let pointer = malloc_async(one);
        ok(cudaFreeAsync(pointer, one));
        ok(cudaMemsetAsync(pointer, 1, SIZE, one));
        let sticky = cudaError::cudaErrorIllegalAddress;
        assert_eq!(cudaStreamSynchronize(one), sticky);
        assert_eq!(cudaGetLastError(), sticky);
        assert_eq!(cudaGetLastError(), sticky);
        assert_eq!(cudaMemGetInfo(null_mut(), null_mut()), sticky);
        cudart_sim::control::cudartSimReset();
        ok(cudaStreamSynchronize(one));
        ok(cudaStreamDestroy(one));
    }
}

#[test]
fn waiting_for_the_device_covers_streams_that_are_gone() {
    let _alone = alone();
    for stream_is_per_thread in [false, true] {
        let pointer = std::thread::spawn(move || {
            let one = if stream_is_per_thread { cudaStreamPerThread } else { stream() };
            let pointer = malloc_async(one);
            // SAFETY: the pointer and the stream are live.
            unsafe {
                ok(cudaMemsetAsync(pointer, 1, SIZE, one));
                if !stream_is_per_thread {
                    ok(cudaStreamDestroy(one));
                }
            }
            pointer as usize
        });
        // The thread's own stream ends with it.
        let pointer = pointer.join().expect("no panic") as *mut c_void;
        let other = stream();
        // SAFETY: the pointer is live, and the work on it is done when the device is.
        unsafe {
            ok(cudaDeviceSynchronize());
            ok(cudaFreeAsync(pointer, other));
            ok(cudaStreamSynchronize(other));
            ok(cudaStreamDestroy(other));
        }
        assert_eq!(cudartSimRaces(), 0, "{}", last_race());
    }
}

#[test]
fn default_streams_are_ordered_implicitly() {
    let _alone = alone();
    // SAFETY: the pointers are live for their uses.
    unsafe {
        let mut blocking = null_mut();
        ok(cudaStreamCreate(&mut blocking));
        let pointer = malloc_async(blocking);
        // The legacy stream waits for the blocking one, and the other way round.
        ok(cudaMemsetAsync(pointer, 1, SIZE, cudaStreamLegacy));
        ok(cudaMemsetAsync(pointer, 2, SIZE, blocking));
        ok(cudaMemsetAsync(pointer, 3, SIZE, null_mut()));
        ok(cudaMemsetAsync(pointer, 4, SIZE, cudaStreamLegacy));
        let mut byte = 0_u8;
        ok(cudaMemcpy((&mut byte as *mut u8).cast(), pointer, 1, cudaMemcpyKind::cudaMemcpyDefault));
        assert_eq!(byte, 4);
        ok(cudaFreeAsync(pointer, cudaStreamPerThread));
        ok(cudaDeviceSynchronize());
        ok(cudaStreamDestroy(blocking));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}

#[test]
fn what_a_destroyed_stream_did_is_ordered_as_if_it_were_there() {
    let _alone = alone();
    // SAFETY: the pointers are live for their uses.
    unsafe {
        let (mut blocking, late) = (null_mut(), stream());
        ok(cudaStreamCreate(&mut blocking));
        let pointer = malloc_async(blocking);
        ok(cudaStreamDestroy(blocking));
        // The legacy stream comes after all that blocking streams were given before.
        ok(cudaMemsetAsync(pointer, 1, SIZE, cudaStreamLegacy));
        ok(cudaFreeAsync(pointer, cudaStreamLegacy));
        let gone = stream();
        let pointer = malloc_async(gone);
        let gate = Gate::on(gone);
        ok(cudaStreamDestroy(gone));
        drop(gate);
        ok(cudaDeviceSynchronize());
        ok(cudaFreeAsync(pointer, late));
        ok(cudaDeviceSynchronize());
        ok(cudaStreamDestroy(late));
    }
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}
