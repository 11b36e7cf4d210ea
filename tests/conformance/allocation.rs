//! Allocation: sizes, addresses, and what must be refused.

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        size_zero_of_malloc_async_gives_null,
        size_zero_of_a_pool_gives_null,
        size_zero_of_malloc_gives_null,
        size_zero_of_host_alloc_gives_null,
        one_byte_twice_lies_512_bytes_apart_and_counts_as_two,
        thousand_bytes_count_as_thousand,
        device_memory_is_aligned_to_512,
        host_numa_memory_is_aligned_to_512,
        too_large_is_out_of_memory_and_stays_the_last_error,
        too_large_for_a_pool_is_out_of_memory,
        twice_the_free_memory_is_out_of_memory,
        null_out_pointer_is_refused_whatever_the_size,
        null_pool_is_refused_whatever_the_size,
        alloc_on_the_default_streams,
        memory_holds_what_was_written,
        memory_of_two_live_blocks_is_apart,
    ],
    questions: [block_of_the_same_stream, sizes_reserved, out_pointer_after_a_refusal],
}

/// What an out pointer holds before a call, to be seen unless the call writes it.
const UNTOUCHED: *mut c_void = 0x1234 as *mut c_void;

fn size_zero_of_malloc_async_gives_null() -> Outcome {
    let stream = Stream::new();
    let mut pointer = UNTOUCHED;
    ok!(cudaMallocAsync(&mut pointer, 0, stream.raw()));
    assert!(pointer.is_null());
    Ok(())
}

fn size_zero_of_a_pool_gives_null() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let mut pointer = UNTOUCHED;
    ok!(cudaMallocFromPoolAsync(&mut pointer, 0, pool.raw(), stream.raw()));
    assert!(pointer.is_null());
    assert_eq!((pool.used(), pool.reserved()), (0, 0));
    Ok(())
}

fn size_zero_of_malloc_gives_null() -> Outcome {
    let mut pointer = UNTOUCHED;
    ok!(cudaMalloc(&mut pointer, 0));
    assert!(pointer.is_null());
    Ok(())
}

fn size_zero_of_host_alloc_gives_null() -> Outcome {
    let mut pointer = UNTOUCHED;
    ok!(cudaHostAlloc(&mut pointer, 0, cudaHostAllocDefault));
    assert!(pointer.is_null());
    Ok(())
}

fn one_byte_twice_lies_512_bytes_apart_and_counts_as_two() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let first = pool.alloc(1, &stream);
    let second = pool.alloc(1, &stream);
    assert_eq!((first.ptr() as usize).abs_diff(second.ptr() as usize), 512);
    assert_eq!(pool.used(), 2);
    assert_eq!(pool.reserved(), STEP);
    Ok(())
}

fn thousand_bytes_count_as_thousand() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(1000, &stream);
    assert_eq!(pool.used(), 1000);
    memory.free();
    stream.synchronize();
    assert_eq!(pool.used(), 0);
    Ok(())
}

/// The largest power of two that divides every address over a range of sizes.
fn smallest_alignment(pool: &Pool) -> usize {
    let stream = Stream::new();
    let sizes = [1, 3, 127, 129, 255, 257, 511, 513, 1000, 5000, 100_000, 1_000_001];
    let blocks: Vec<_> = sizes.iter().flat_map(|size| [*size; 5]).map(|size| pool.alloc(size, &stream)).collect();
    let all_bits = blocks.iter().fold(0, |bits, block| bits | block.ptr() as usize);
    1 << all_bits.trailing_zeros()
}

fn device_memory_is_aligned_to_512() -> Outcome {
    assert_eq!(smallest_alignment(&Pool::device()), 512);
    Ok(())
}

fn host_numa_memory_is_aligned_to_512() -> Outcome {
    assert_eq!(smallest_alignment(&Pool::host_numa(NO_HANDLE)?), 512);
    Ok(())
}

/// Sizes that device 0 has not.
fn too_large() -> impl Iterator<Item = usize> {
    let (_free, total) = machine::memory();
    let sizes = [1 << 38, 1 << 45, 1 << 60, isize::MAX as usize, usize::MAX - 511, usize::MAX];
    sizes.into_iter().filter(move |size| *size > total)
}

fn too_large_is_out_of_memory_and_stays_the_last_error() -> Outcome {
    let stream = Stream::new();
    for size in too_large() {
        let mut pointer = UNTOUCHED;
        let answer = cu!(cudaMallocAsync(&mut pointer, size, stream.raw()));
        assert!(answer == cudaError_t::cudaErrorMemoryAllocation, "{size} bytes: {}", name(answer));
        assert!(pointer.is_null(), "{size} bytes: out pointer {pointer:?}");
        // A call that succeeds in between does not change it.
        ok_and_last_error_stays(&stream);
        assert_eq!(cu!(cudaGetLastError()), cudaError_t::cudaErrorMemoryAllocation);
        assert_eq!(cu!(cudaGetLastError()), cudaError_t::cudaSuccess);
    }
    Ok(())
}

#[track_caller]
fn ok_and_last_error_stays(stream: &Stream) {
    assert_eq!(cu!(cudaFreeAsync(null_mut(), stream.raw())), cudaError_t::cudaSuccess);
    assert_eq!(cu!(cudaPeekAtLastError()), cudaError_t::cudaErrorMemoryAllocation);
}

fn too_large_for_a_pool_is_out_of_memory() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    for size in too_large() {
        let mut pointer = UNTOUCHED;
        answers!(cudaMallocFromPoolAsync(&mut pointer, size, pool.raw(), stream.raw()) => cudaErrorMemoryAllocation);
        assert!(pointer.is_null(), "{size} bytes: out pointer {pointer:?}");
    }
    assert_eq!((pool.used(), pool.reserved()), (0, 0));
    Ok(())
}

fn twice_the_free_memory_is_out_of_memory() -> Outcome {
    let stream = Stream::new();
    let (free, total) = machine::memory();
    for size in [2 * free, 2 * total] {
        let mut pointer = UNTOUCHED;
        answers!(cudaMallocAsync(&mut pointer, size, stream.raw()) => cudaErrorMemoryAllocation);
        assert!(pointer.is_null(), "out pointer {pointer:?}");
    }
    Ok(())
}

fn null_out_pointer_is_refused_whatever_the_size() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    for size in [0, 100] {
        answers!(cudaMallocAsync(null_mut(), size, stream.raw()) => cudaErrorInvalidValue);
        answers!(cudaMallocFromPoolAsync(null_mut(), size, pool.raw(), stream.raw()) => cudaErrorInvalidValue);
        answers!(cudaMalloc(null_mut(), size) => cudaErrorInvalidValue);
        answers!(cudaHostAlloc(null_mut(), size, cudaHostAllocDefault) => cudaErrorInvalidValue);
    }
    Ok(())
}

fn null_pool_is_refused_whatever_the_size() -> Outcome {
    let stream = Stream::new();
    for size in [0, 100] {
        let mut pointer = UNTOUCHED;
        answers!(cudaMallocFromPoolAsync(&mut pointer, size, null_mut(), stream.raw()) => cudaErrorInvalidValue);
        assert!(pointer.is_null(), "{size} bytes: out pointer {pointer:?}");
    }
    Ok(())
}

fn alloc_on_the_default_streams() -> Outcome {
    let pool = Pool::device();
    for stream in [cudaStreamPerThread, cudaStreamLegacy, null_mut()] {
        let mut pointer = null_mut();
        ok!(cudaMallocAsync(&mut pointer, 100, stream));
        ok!(cudaFreeAsync(pointer, stream));
        ok!(cudaMallocFromPoolAsync(&mut pointer, 100, pool.raw(), stream));
        ok!(cudaFreeAsync(pointer, stream));
        ok!(cudaStreamSynchronize(stream));
    }
    assert_eq!(pool.used(), 0);
    Ok(())
}

fn memory_holds_what_was_written() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(1000, &stream);
    ok!(cudaMemsetAsync(memory.ptr(), 0xab, 1000, stream.raw()));
    let bytes: Vec<u8> = (0..=255).cycle().take(500).collect();
    let from = bytes.as_ptr().cast();
    ok!(cudaMemcpyAsync(memory.at(300), from, 500, cudaMemcpyKind::cudaMemcpyHostToDevice, stream.raw()));
    let mut back = vec![0u8; 1000];
    let to = back.as_mut_ptr().cast();
    ok!(cudaMemcpyAsync(to, memory.ptr(), 1000, cudaMemcpyKind::cudaMemcpyDeviceToHost, stream.raw()));
    stream.synchronize();
    let expected: Vec<u8> = [vec![0xab; 300], bytes, vec![0xab; 200]].concat();
    assert!(back == expected, "the memory does not hold what was written");
    Ok(())
}

fn memory_of_two_live_blocks_is_apart() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let blocks: Vec<_> = (0..50).map(|_| pool.alloc(8, &stream)).collect();
    for (i, block) in blocks.iter().enumerate() {
        ok!(cudaMemsetAsync(block.ptr(), i as i32, 8, stream.raw()));
    }
    for (i, block) in blocks.iter().enumerate() {
        let mut back = [0xffu8; 8];
        let to = back.as_mut_ptr().cast();
        ok!(cudaMemcpyAsync(to, block.ptr(), 8, cudaMemcpyKind::cudaMemcpyDefault, stream.raw()));
        stream.synchronize();
        assert_eq!(back, [i as u8; 8]);
    }
    Ok(())
}

fn block_of_the_same_stream() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    pool.set_threshold(u64::MAX);
    let gate = Gate::close(&stream);
    let first = pool.alloc(MIB, &stream);
    let address = first.ptr();
    first.free();
    let second = pool.alloc(MIB, &stream);
    say!("freed and asked for again on a busy stream: same block {}", second.ptr() == address);
    second.free();
    let smaller = pool.alloc(1000, &stream);
    say!("a smaller one: same block {}", smaller.ptr() == address);
    pool.allow_reuse(&[]);
    smaller.free();
    let third = pool.alloc(MIB, &stream);
    say!("without any reuse policy: same block {}", third.ptr() == address);
    gate.open();
    Ok(())
}

fn sizes_reserved() -> Outcome {
    let stream = Stream::new();
    for size in [1, MIB, 31 * MIB, 32 * MIB, 32 * MIB + 1, 33 * MIB, 64 * MIB, 100 * MIB, 1000 * MIB] {
        let pool = Pool::device();
        let _memory = pool.alloc(size, &stream);
        say!("{size} bytes: reserved {} MiB, used {}", pool.reserved() >> 20, pool.used());
    }
    let pool = Pool::device();
    let mut blocks: Vec<Memory> = Vec::new();
    for size in [20 * MIB, 20 * MIB, 20 * MIB, 12 * MIB, 8 * MIB, MIB, 512] {
        blocks.push(pool.alloc(size, &stream));
        let offset = (blocks[blocks.len() - 1].ptr() as usize).wrapping_sub(blocks[0].ptr() as usize);
        say!("then {size} bytes: reserved {} MiB, {offset} after the first", pool.reserved() >> 20);
    }
    for (what, pool) in [("host", Pool::host()), ("host-NUMA", Pool::host_numa(NO_HANDLE))] {
        let Ok(pool) = pool else { continue };
        let _memory = pool.alloc(1, &stream);
        stream.synchronize();
        say!("{what}, 1 byte: reserved {} MiB, used {}", pool.reserved() >> 20, pool.used());
    }
    Ok(())
}

fn out_pointer_after_a_refusal() -> Outcome {
    let mut pointer = UNTOUCHED;
    let answer = ask!(cudaMalloc(&mut pointer, usize::MAX));
    say!("cudaMalloc(usize::MAX): {}, out {pointer:?}", name(answer));
    pointer = UNTOUCHED;
    let answer = ask!(cudaHostAlloc(&mut pointer, 1 << 60, 0));
    say!("cudaHostAlloc(2^60): {}, out {pointer:?}", name(answer));
    pointer = UNTOUCHED;
    let answer = ask!(cudaHostAlloc(&mut pointer, 100, 0xff00));
    say!("cudaHostAlloc with unknown flags: {}, out {pointer:?}", name(answer));
    let stream = Stream::new();
    let pool = Pool::device_up_to(32 * MIB);
    pointer = UNTOUCHED;
    let answer = ask!(cudaMallocFromPoolAsync(&mut pointer, 33 * MIB, pool.raw(), stream.raw()));
    say!("33 MiB of a pool of at most 32: {}, out {pointer:?}, reserved {}", name(answer), pool.reserved());
    if let Ok(host) = Pool::host_numa(NO_HANDLE) {
        let memory = host.alloc(100, &stream);
        stream.synchronize();
        say!("cudaFree of host-NUMA pool memory: {}", name(ask!(cudaFree(memory.release()))));
        pointer = UNTOUCHED;
        let answer = ask!(cudaMallocFromPoolAsync(&mut pointer, 1 << 60, host.raw(), stream.raw()));
        say!("2^60 of a host-NUMA pool: {}, out {pointer:?}, reserved {}", name(answer), host.reserved());
    }
    Ok(())
}
