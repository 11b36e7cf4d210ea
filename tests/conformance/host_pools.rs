//! Host and host-NUMA pools: memory for the processor that copy engines reach and kernels do not, until granted.

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        processor_writes_and_reads_after_a_synchronisation,
        copies_reach_it_without_a_grant,
        memset_without_a_grant_is_refused_at_the_call,
        kernel_with_a_grant_writes_it,
        statistics_are_those_of_any_pool,
    ],
    isolated: [kernel_without_a_grant_faults],
    questions: [placement, from_the_default_pools, managed_memory],
}

const SIZE: usize = 4096;

fn pools() -> Result<[Pool; 2], Skip> {
    Ok([Pool::host()?, Pool::host_numa(NO_HANDLE)?])
}

/// The bytes of a block of `SIZE`, which no stream must be using.
fn bytes<'m>(memory: &'m mut Memory<'_>) -> &'m mut [u8] {
    // SAFETY: host memory of that size; the facts look at it between synchronisations only.
    unsafe { std::slice::from_raw_parts_mut(memory.ptr().cast(), SIZE) }
}

fn processor_writes_and_reads_after_a_synchronisation() -> Outcome {
    let stream = Stream::new();
    for pool in pools()? {
        let mut memory = pool.alloc(SIZE, &stream);
        stream.synchronize();
        bytes(&mut memory).fill(7);
        assert!(bytes(&mut memory).iter().all(|byte| *byte == 7));
        memory.free();
        stream.synchronize();
    }
    Ok(())
}

fn copies_reach_it_without_a_grant() -> Outcome {
    let stream = Stream::new();
    let device = Malloced::new(SIZE);
    for pool in pools()? {
        let mut memory = pool.alloc(SIZE, &stream);
        stream.synchronize();
        bytes(&mut memory).fill(1);
        let any = cudaMemcpyKind::cudaMemcpyDefault;
        ok!(cudaMemcpyAsync(device.ptr(), memory.ptr(), SIZE, any, stream.raw()));
        stream.synchronize();
        bytes(&mut memory).fill(2);
        ok!(cudaMemcpyAsync(memory.ptr(), device.ptr(), SIZE, any, stream.raw()));
        stream.synchronize();
        assert!(bytes(&mut memory).iter().all(|byte| *byte == 1), "there and back");
        let mut back = vec![0u8; SIZE];
        let to = back.as_mut_ptr().cast();
        ok!(cudaMemcpyAsync(to, memory.ptr(), SIZE, any, stream.raw()));
        stream.synchronize();
        assert!(back.iter().all(|byte| *byte == 1), "to system memory");
    }
    Ok(())
}

fn memset_without_a_grant_is_refused_at_the_call() -> Outcome {
    let stream = Stream::new();
    for pool in pools()? {
        let mut memory = pool.alloc(SIZE, &stream);
        stream.synchronize();
        bytes(&mut memory).fill(7);
        answers!(cudaMemsetAsync(memory.ptr(), 1, SIZE, stream.raw()) => cudaErrorInvalidValue);
        stream.synchronize();
        assert!(bytes(&mut memory).iter().all(|byte| *byte == 7));
    }
    Ok(())
}

fn kernel_with_a_grant_writes_it() -> Outcome {
    let kernels = machine::kernels()?;
    let stream = Stream::new();
    for pool in pools()? {
        let mut memory = pool.alloc(SIZE, &stream);
        pool.grant(0);
        // SAFETY: memory of that size, allocated on the same stream, which the device may write.
        unsafe { kernels.fill(stream.raw(), memory.ptr().cast(), SIZE as u64 / 4, 0x0505_0505) }?;
        stream.synchronize();
        assert!(bytes(&mut memory).iter().all(|byte| *byte == 5));
        // SAFETY: as above.
        unsafe { kernels.increment(stream.raw(), memory.ptr().cast(), SIZE as u64 / 4) }?;
        stream.synchronize();
        assert_eq!(bytes(&mut memory)[..4], 0x0505_0506_u32.to_ne_bytes());
    }
    Ok(())
}

fn kernel_without_a_grant_faults() -> Outcome {
    let kernels = machine::kernels()?;
    let stream = Stream::new();
    let pool = Pool::host_numa(NO_HANDLE)?;
    let memory = pool.alloc(SIZE, &stream);
    stream.synchronize();
    // SAFETY: the device has no way to the memory, so that the kernel can do no harm outside this process.
    unsafe { kernels.fill(stream.raw(), memory.ptr().cast(), SIZE as u64 / 4, 1) }?;
    answers!(cudaStreamSynchronize(stream.raw()) => cudaErrorIllegalAddress);
    // The device is spoilt for this process.
    answers!(cudaStreamSynchronize(stream.raw()) => cudaErrorIllegalAddress);
    Ok(())
}

fn statistics_are_those_of_any_pool() -> Outcome {
    let stream = Stream::new();
    for pool in pools()? {
        let memory = pool.alloc(100, &stream);
        assert_eq!(pool.used(), 100);
        memory.free();
        stream.synchronize();
        assert_eq!((pool.used(), pool.reserved()), (0, 0));
    }
    Ok(())
}

/// What the mapping is, as the kernel tells it.
fn placement() -> Outcome {
    let stream = Stream::new();
    for (what, pool) in ["host", "host-NUMA"].into_iter().zip(pools()?) {
        let mut memory = pool.alloc(MIB, &stream);
        stream.synchronize();
        bytes(&mut memory).fill(1);
        let address = memory.ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let line = maps.lines().find(|line| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let parsed = range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
            matches!(parsed, Some((Ok(from), Ok(to))) if (from..to).contains(&address))
        });
        let file = line.and_then(|line| line.split_whitespace().nth(5));
        say!("{what}: mapped {}, of file {file:?}, reserved {}", line.is_some(), pool.reserved());
    }
    Ok(())
}

#[cfg(cuda_since_13_0)]
fn from_the_default_pools() -> Outcome {
    let stream = Stream::new();
    for (what, mut location) in [("host", cudaMemLocation::host()), ("host-NUMA", cudaMemLocation::host_numa(0))] {
        let (mut pool, mut pointer) = (null_mut(), null_mut());
        say!("{what}: {}", name(ask!(cudaMemGetDefaultMemPool(&mut pool, &mut location, PINNED))));
        let answer = ask!(cudaMallocFromPoolAsync(&mut pointer, 100, pool, stream.raw()));
        say!("    allocate: {}", name(answer));
        say!("    free: {}", name(ask!(cudaFreeAsync(pointer, stream.raw()))));
    }
    Ok(())
}

#[cfg(not(cuda_since_13_0))]
fn from_the_default_pools() -> Outcome {
    Skip::because(format!("{}: these bindings lack it", name(cudaError_t::cudaErrorNotSupported)))
}

fn managed_memory() -> Outcome {
    machine::has_managed_pools()?;
    let stream = Stream::new();
    for (what, location) in [("none", cudaMemLocation::none()), ("device 0", cudaMemLocation::device(0))] {
        let pool = Pool::create(&cudaMemPoolProps::new(MANAGED, location, NO_HANDLE));
        let mut memory = pool.alloc(SIZE, &stream);
        stream.synchronize();
        say!("{what}: reserved {}, used {}", pool.reserved(), pool.used());
        bytes(&mut memory).fill(3);
        say!("    memset: {}", name(ask!(cudaMemsetAsync(memory.ptr(), 4, SIZE, stream.raw()))));
        stream.synchronize();
        say!("    first byte {}", bytes(&mut memory)[0]);
        say!("    free: {}", name(ask!(cudaFreeAsync(memory.release(), stream.raw()))));
        stream.synchronize();
        say!("    after: reserved {}, used {}", pool.reserved(), pool.used());
        for attribute in 1..=8 {
            say!("    attribute {attribute}: {}", pool.attribute(cudaMemPoolAttr(attribute)));
        }
    }
    Ok(())
}
