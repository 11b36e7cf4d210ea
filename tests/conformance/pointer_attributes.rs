//! `cudaPointerGetAttributes`, and the driver's range of a pointer.

use crate::driver::{entry_point, CuResult, CUDA_SUCCESS};
use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        host_numa_memory_is_of_type_host_without_device_pointer,
        range_of_pool_memory_is_the_exact_request,
        range_starts_at_the_base,
        range_of_host_numa_memory_starts_at_no_address,
    ],
    questions: [attributes_of_all_kinds, range_of_other_memory, missing_entry_point],
}

#[track_caller]
fn attributes(pointer: *const c_void) -> cudaPointerAttributes {
    let mut attributes = cudaPointerAttributes::default();
    ok!(cudaPointerGetAttributes(&mut attributes, pointer));
    attributes
}

fn host_numa_memory_is_of_type_host_without_device_pointer() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::host_numa(NO_HANDLE)?;
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    let attributes = attributes(memory.ptr());
    assert_eq!(attributes.type_, cudaMemoryType::cudaMemoryTypeHost);
    assert!(attributes.devicePointer.is_null());
    assert_eq!(attributes.hostPointer, memory.ptr());
    Ok(())
}

type GetAttribute = unsafe extern "C" fn(*mut c_void, u32, u64) -> CuResult;
const RANGE_START: u32 = 11;
const RANGE_SIZE: u32 = 12;
const MEMPOOL_HANDLE: u32 = 17;

/// A 64-bit attribute of a pointer, from the driver.
pub fn driver_attribute(attribute: u32, pointer: *mut c_void) -> Result<(CuResult, u64), Skip> {
    let function = entry_point(c"cuPointerGetAttribute")?;
    // SAFETY: the driver's function of this name has this signature, and the attributes asked for fill 64 bits.
    let (answer, value) = unsafe {
        let function = std::mem::transmute::<*mut c_void, GetAttribute>(function);
        let mut value = 0u64;
        (function(std::ptr::from_mut(&mut value).cast(), attribute, pointer as u64), value)
    };
    Ok((answer, value))
}

/// Size and start of the block that a pointer lies in.
pub fn range(pointer: *mut c_void) -> Result<(u64, u64), Skip> {
    let (size_answer, size) = driver_attribute(RANGE_SIZE, pointer)?;
    let (start_answer, start) = driver_attribute(RANGE_START, pointer)?;
    assert_eq!((size_answer, start_answer), (CUDA_SUCCESS, CUDA_SUCCESS));
    Ok((size, start))
}

fn range_of_pool_memory_is_the_exact_request() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    for size in [1, 100, 1000, 100_000, 1_000_001] {
        let memory = pool.alloc(size, &stream);
        stream.synchronize();
        assert_eq!(range(memory.ptr())?, (size as u64, memory.ptr() as u64));
    }
    Ok(())
}

fn range_starts_at_the_base() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(100_000, &stream);
    stream.synchronize();
    assert_eq!(range(memory.at(5000))?, (100_000, memory.ptr() as u64));
    Ok(())
}

/// Its size is exact, but where it starts is known to another function alone, and that when a device can reach it.
fn range_of_host_numa_memory_starts_at_no_address() -> Outcome {
    type GetRange = unsafe extern "C" fn(*mut u64, *mut usize, u64) -> CuResult;
    const NOT_FOUND: CuResult = CuResult(500);
    let function = entry_point(c"cuMemGetAddressRange")?;
    let ask = |pointer: *mut c_void| {
        let (mut start, mut size) = (0, 0);
        // SAFETY: the driver's function of this name has this signature, and the out pointers are valid.
        let answer =
            unsafe { std::mem::transmute::<*mut c_void, GetRange>(function)(&mut start, &mut size, pointer as u64) };
        (answer, start, size)
    };
    let stream = Stream::new();
    let pool = Pool::host_numa(NO_HANDLE)?;
    let (_first, memory) = (pool.alloc(3000, &stream), pool.alloc(100_000, &stream));
    stream.synchronize();
    let (size, start) = range(memory.at(5000))?;
    assert_eq!(size, 100_000);
    assert!(start < memory.ptr() as u64 && start < 32 << 20, "{start:#x} is within the pool's first step");
    assert_eq!(ask(memory.at(5000)).0, NOT_FOUND);
    pool.grant(0);
    assert_eq!(ask(memory.at(5000)), (CUDA_SUCCESS, memory.ptr() as u64, 100_000));
    Ok(())
}

fn attributes_of_all_kinds() -> Outcome {
    let stream = Stream::new();
    let report = |what: &str, pointer: *const c_void| {
        let mut attributes = cudaPointerAttributes::default();
        let answer = ask!(cudaPointerGetAttributes(&mut attributes, pointer));
        let relation = |other: *mut c_void| match other {
            other if other.is_null() => "null",
            other if other.cast_const() == pointer => "itself",
            _ => "another",
        };
        say!(
            "{what}: {}, type {}, device {}, device pointer {}, host pointer {}",
            name(answer),
            attributes.type_.0,
            attributes.device,
            relation(attributes.devicePointer),
            relation(attributes.hostPointer)
        );
    };
    let local = 0u8;
    report("stack", std::ptr::from_ref(&local).cast());
    report("null", null());
    report("0x1234", 0x1234 as *const c_void);
    let malloced = Malloced::new(4096);
    report("cudaMalloc", malloced.ptr());
    report("cudaMalloc, interior", malloced.ptr().wrapping_byte_add(100));
    let host = HostMemory::new(4096);
    report("cudaHostAlloc", host.ptr());
    let device_pool = Pool::device();
    let memory = device_pool.alloc(100, &stream);
    report("device pool", memory.ptr());
    report("device pool, beyond the end", memory.at(200));
    let address = memory.ptr();
    memory.free();
    report("device pool, freed", address);
    stream.synchronize();
    report("device pool, freed and synchronised", address);
    for (what, pool) in [("host", Pool::host()), ("host-NUMA", Pool::host_numa(NO_HANDLE))] {
        let Ok(pool) = pool else { continue };
        let memory = pool.alloc(100, &stream);
        report(&format!("{what} pool, not synchronised"), memory.ptr());
        stream.synchronize();
        report(&format!("{what} pool"), memory.ptr());
        pool.grant(0);
        report(&format!("{what} pool, granted"), memory.ptr());
    }
    if machine::has_managed_pools().is_ok() {
        let pool = Pool::create(&cudaMemPoolProps::new(MANAGED, cudaMemLocation::device(0), NO_HANDLE));
        let memory = pool.alloc(100, &stream);
        stream.synchronize();
        report("managed pool", memory.ptr());
    }
    Ok(())
}

fn range_of_other_memory() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(1000, &stream);
    let malloced = Malloced::new(1000);
    let host = HostMemory::new(1000);
    let mut local = 0u8;
    let stack = std::ptr::from_mut(&mut local).cast();
    for (what, pointer) in [
        ("pool", memory.ptr()),
        ("pool, beyond the end", memory.at(1020)),
        ("cudaMalloc", malloced.ptr()),
        ("cudaMalloc, interior", malloced.ptr().wrapping_byte_add(100)),
        ("cudaHostAlloc", host.ptr()),
        ("stack", stack),
    ] {
        let (size, start) = (driver_attribute(RANGE_SIZE, pointer)?, driver_attribute(RANGE_START, pointer)?);
        let handle = driver_attribute(MEMPOOL_HANDLE, pointer)?;
        say!("{what}: size {size:?}, start {:?}, pool {:?}", start.0, handle.0);
        if start.0 == CUDA_SUCCESS {
            say!("    {} bytes after the start", (pointer as u64).wrapping_sub(start.1));
        }
        if handle.0 == CUDA_SUCCESS {
            say!("    of the pool it came from: {}, of none: {}", handle.1 == pool.raw() as u64, handle.1 == 0);
        }
    }
    Ok(())
}

fn missing_entry_point() -> Outcome {
    say!("{:?}", entry_point(c"cuNoSuchFunction"));
    for function in [c"cuStreamWaitValue32", c"cuStreamWriteValue32", c"cuPointerGetAttribute", c"cuLaunchKernel"] {
        say!("{function:?}: {}", if entry_point(function).is_ok() { "there" } else { "missing" });
    }
    Ok(())
}
