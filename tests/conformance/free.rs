//! Free: by which function, on which stream, and what must be refused.

use std::alloc::{alloc, dealloc, Layout};
use std::thread;

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        null_may_be_freed,
        double_free_is_refused_before_a_synchronisation,
        double_free_is_refused_after_a_synchronisation,
        free_of_an_interior_pointer_is_refused,
        free_of_system_memory_is_refused,
        free_async_of_pinned_host_memory_is_refused,
        free_async_of_malloc_memory,
        free_of_pool_memory,
        free_of_no_allocation_is_refused,
        free_of_malloc_memory_twice_is_refused,
        free_host_of_null,
        free_host_of_host_pool_memory_is_refused,
        free_on_another_stream_after_the_first_was_destroyed,
        free_on_another_threads_per_thread_stream,
    ],
    questions: [when_pool_memory_is_free_after_cuda_free],
}

fn null_may_be_freed() -> Outcome {
    let stream = Stream::new();
    ok!(cudaFreeAsync(null_mut(), stream.raw()));
    Ok(())
}

fn double_free_is_refused_before_a_synchronisation() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let pointer = pool.alloc(100, &stream).release();
    ok!(cudaFreeAsync(pointer, stream.raw()));
    answers!(cudaFreeAsync(pointer, stream.raw()) => cudaErrorInvalidValue);
    Ok(())
}

fn double_free_is_refused_after_a_synchronisation() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let pointer = pool.alloc(100, &stream).release();
    ok!(cudaFreeAsync(pointer, stream.raw()));
    stream.synchronize();
    answers!(cudaFreeAsync(pointer, stream.raw()) => cudaErrorInvalidValue);
    Ok(())
}

fn free_of_an_interior_pointer_is_refused() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(4096, &stream);
    answers!(cudaFreeAsync(memory.at(256), stream.raw()) => cudaErrorInvalidValue);
    // The block is as it was.
    memory.free();
    Ok(())
}

fn free_of_system_memory_is_refused() -> Outcome {
    let stream = Stream::new();
    let layout = Layout::from_size_align(64, 64).expect("a valid layout");
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc(layout) };
    answers!(cudaFreeAsync(memory.cast(), stream.raw()) => cudaErrorInvalidValue);
    // SAFETY: allocated above with this layout, and not freed by the call that was refused.
    unsafe { dealloc(memory, layout) };
    Ok(())
}

fn free_async_of_pinned_host_memory_is_refused() -> Outcome {
    let stream = Stream::new();
    let memory = HostMemory::new(100);
    answers!(cudaFreeAsync(memory.ptr(), stream.raw()) => cudaErrorInvalidValue);
    Ok(())
}

fn free_async_of_malloc_memory() -> Outcome {
    let stream = Stream::new();
    let pointer = Malloced::new(100).release();
    ok!(cudaFreeAsync(pointer, stream.raw()));
    stream.synchronize();
    Ok(())
}

/// When the pool counts it as unused is another matter.
fn free_of_pool_memory() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let pointer = pool.alloc(100, &stream).release();
    stream.synchronize();
    ok!(cudaFree(pointer));
    Ok(())
}

fn free_of_no_allocation_is_refused() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(4096, &stream);
    let malloced = Malloced::new(4096);
    stream.synchronize();
    let inside = malloced.ptr().wrapping_byte_add(256);
    let nowhere = 0x1234 as *mut c_void;
    for pointer in [nowhere, inside] {
        answers!(cudaFreeAsync(pointer, stream.raw()) => cudaErrorInvalidValue);
    }
    for pointer in [nowhere, memory.at(256), inside] {
        answers!(cudaFree(pointer) => cudaErrorInvalidValue);
    }
    answers!(cudaFreeHost(memory.ptr()) => cudaErrorInvalidValue);
    Ok(())
}

fn free_of_malloc_memory_twice_is_refused() -> Outcome {
    let stream = Stream::new();
    let pointer = Malloced::new(4096).release();
    ok!(cudaFree(pointer));
    answers!(cudaFree(pointer) => cudaErrorInvalidValue);
    answers!(cudaFreeAsync(pointer, stream.raw()) => cudaErrorInvalidValue);
    Ok(())
}

fn free_host_of_null() -> Outcome {
    ok!(cudaFreeHost(null_mut()));
    Ok(())
}

fn free_host_of_host_pool_memory_is_refused() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::host_numa(NO_HANDLE)?;
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    answers!(cudaFreeHost(memory.ptr()) => cudaErrorInvalidValue);
    memory.free();
    Ok(())
}

fn free_on_another_stream_after_the_first_was_destroyed() -> Outcome {
    let pool = Pool::device();
    let first = Stream::new();
    let pointer = pool.alloc(100, &first).release();
    // The order that a free on another stream needs.
    first.synchronize();
    first.destroy();
    let second = Stream::new();
    ok!(cudaFreeAsync(pointer, second.raw()));
    second.synchronize();
    assert_eq!(pool.used(), 0);
    Ok(())
}

/// Success, though the two streams are not the same: an order is the caller's to make, here by a synchronisation.
fn free_on_another_threads_per_thread_stream() -> Outcome {
    let mut pointer = null_mut();
    ok!(cudaMallocAsync(&mut pointer, 100, cudaStreamPerThread));
    ok!(cudaStreamSynchronize(cudaStreamPerThread));
    let address = pointer as usize;
    let freed = thread::spawn(move || {
        ok!(cudaFreeAsync(address as *mut c_void, cudaStreamPerThread));
        ok!(cudaStreamSynchronize(cudaStreamPerThread));
    });
    freed.join().expect("the free succeeds");
    Ok(())
}

fn when_pool_memory_is_free_after_cuda_free() -> Outcome {
    for (what, on_legacy) in [("a non-blocking stream", false), ("the legacy stream", true)] {
        let stream = Stream::new();
        let pool = Pool::device();
        let mut pointer = null_mut();
        let raw = if on_legacy { cudaStreamLegacy } else { stream.raw() };
        ok!(cudaMallocFromPoolAsync(&mut pointer, 100, pool.raw(), raw));
        ok!(cudaStreamSynchronize(raw));
        let report = |when: &str| say!("    {when}: used {}, reserved {}", pool.used(), pool.reserved());
        say!("allocated on {what}, cudaFree: {}", name(ask!(cudaFree(pointer))));
        report("at once");
        say!("    cudaFreeAsync then: {}", name(ask!(cudaFreeAsync(pointer, raw))));
        ok!(cudaStreamSynchronize(raw));
        report("its stream synchronised");
        ok!(cudaStreamSynchronize(cudaStreamLegacy));
        report("legacy stream synchronised");
        ok!(cudaStreamSynchronize(cudaStreamPerThread));
        report("per-thread stream synchronised");
        ok!(cudaDeviceSynchronize());
        report("device synchronised");
        ok!(cudaMemPoolTrimTo(pool.raw(), 0));
        report("trimmed");
        drop(pool.alloc(1, &stream));
        stream.synchronize();
        report("after one more allocation, freed and synchronised");
    }
    Ok(())
}
