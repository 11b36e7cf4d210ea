//! `cudaMemPoolCreate`: which properties it takes, and what a new pool is like.

use std::mem::size_of;

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        device_pool_without_handle,
        device_pool_with_fd,
        device_pool_with_fabric_handle,
        device_pool_with_fd_and_fabric_handle,
        no_device_pool_with_win32_handle,
        no_pool_on_a_device_that_is_not_there,
        host_pool_without_handle,
        no_host_pool_with_fd,
        host_numa_pool_without_handle,
        host_numa_pool_with_fd,
        no_host_numa_pool_on_a_node_that_is_not_there,
        no_host_numa_pool_on_the_next_node_of_a_machine_with_one,
        no_pool_on_the_current_numa_node,
        managed_pool_without_location,
        managed_pool_of_a_device,
        max_size_is_rounded_up_to_a_step,
        max_size_of_one_and_a_quarter_steps_makes_two,
        every_reserved_byte_must_be_zero,
        size_of_properties,
        new_pool_allows_all_reuse_and_keeps_nothing,
        newer_attributes_are_unknown_to_an_older_driver,
        no_pool_of_an_unknown_kind_or_place,
        no_host_pool_with_fabric_handle,
        host_numa_pool_with_fabric_handle,
        number_of_the_host_is_ignored,
        max_size_is_filled_by_steps,
        null_arguments_are_refused,
    ],
    questions: [odd_properties],
}

fn device(ordinal: i32, handles: cudaMemAllocationHandleType) -> cudaMemPoolProps {
    cudaMemPoolProps::new(PINNED, cudaMemLocation::device(ordinal), handles)
}

#[track_caller]
fn is_refused(props: &cudaMemPoolProps) {
    let mut pool = null_mut();
    answers!(cudaMemPoolCreate(&mut pool, props) => cudaErrorInvalidValue);
}

fn device_pool_without_handle() -> Outcome {
    Pool::create(&device(0, NO_HANDLE));
    Ok(())
}

fn device_pool_with_fd() -> Outcome {
    machine::shares_by_fd()?;
    Pool::create(&device(0, FD));
    Ok(())
}

fn shares_by_fabric() -> Outcome {
    if machine::pools_have(FABRIC) {
        Ok(())
    } else {
        Skip::because("device 0 has no pools with fabric handles")
    }
}

fn device_pool_with_fabric_handle() -> Outcome {
    shares_by_fabric()?;
    Pool::create(&device(0, FABRIC));
    Ok(())
}

fn device_pool_with_fd_and_fabric_handle() -> Outcome {
    machine::shares_by_fd()?;
    shares_by_fabric()?;
    Pool::create(&device(0, cudaMemAllocationHandleType(FD.0 | FABRIC.0)));
    Ok(())
}

fn no_device_pool_with_win32_handle() -> Outcome {
    is_refused(&device(0, WIN32));
    Ok(())
}

fn no_pool_on_a_device_that_is_not_there() -> Outcome {
    is_refused(&device(machine::devices(), NO_HANDLE));
    is_refused(&device(NO_DEVICE, NO_HANDLE));
    Ok(())
}

fn host_pool_without_handle() -> Outcome {
    Pool::host()?;
    Ok(())
}

fn no_host_pool_with_fd() -> Outcome {
    machine::has_host_pools()?;
    is_refused(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host(), FD));
    Ok(())
}

fn host_numa_pool_without_handle() -> Outcome {
    Pool::host_numa(NO_HANDLE)?;
    Ok(())
}

fn host_numa_pool_with_fd() -> Outcome {
    Pool::host_numa(FD)?;
    Ok(())
}

fn no_host_numa_pool_on_a_node_that_is_not_there() -> Outcome {
    machine::host_numa_node()?;
    is_refused(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host_numa(NO_NODE), NO_HANDLE));
    Ok(())
}

fn no_host_numa_pool_on_the_next_node_of_a_machine_with_one() -> Outcome {
    machine::host_numa_node()?;
    if machine::has_node(1) {
        return Skip::because("this machine has a NUMA node 1");
    }
    is_refused(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host_numa(1), NO_HANDLE));
    Ok(())
}

fn no_pool_on_the_current_numa_node() -> Outcome {
    is_refused(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host_numa_current(), NO_HANDLE));
    Ok(())
}

fn managed_pool_without_location() -> Outcome {
    machine::has_managed_pools()?;
    Pool::create(&cudaMemPoolProps::new(MANAGED, cudaMemLocation::none(), NO_HANDLE));
    Ok(())
}

fn managed_pool_of_a_device() -> Outcome {
    machine::has_managed_pools()?;
    Pool::create(&cudaMemPoolProps::new(MANAGED, cudaMemLocation::device(0), NO_HANDLE));
    Ok(())
}

/// Blocks of 1 MiB that a pool of this size gives out, and what it has reserved in the end.
fn blocks_of_a_mib(max_size: usize) -> (usize, u64) {
    let stream = Stream::new();
    let pool = Pool::device_up_to(max_size);
    let mut blocks = Vec::new();
    loop {
        let mut block = null_mut();
        if ask!(cudaMallocFromPoolAsync(&mut block, MIB, pool.raw(), stream.raw())) != cudaError_t::cudaSuccess {
            break;
        }
        blocks.push(block);
        assert!(blocks.len() < 1000, "there is no limit");
    }
    let reserved = pool.reserved();
    for &block in &blocks {
        ok!(cudaFreeAsync(block, stream.raw()));
    }
    stream.synchronize();
    (blocks.len(), reserved)
}

fn has_max_size() -> Outcome {
    if machine::driver_version() >= 12020 {
        Ok(())
    } else {
        Skip::because("the driver has no size limit for pools")
    }
}

fn max_size_is_rounded_up_to_a_step() -> Outcome {
    has_max_size()?;
    for max_size in [1, 2048, MIB] {
        assert_eq!(blocks_of_a_mib(max_size), (32, STEP), "with maxSize {max_size}");
    }
    Ok(())
}

fn max_size_of_one_and_a_quarter_steps_makes_two() -> Outcome {
    has_max_size()?;
    assert_eq!(blocks_of_a_mib(40 * MIB), (64, 2 * STEP));
    Ok(())
}

fn every_reserved_byte_must_be_zero() -> Outcome {
    if machine::driver_version() >= 13050 {
        return Skip::because("measured with a driver for CUDA 13.0: a newer one may know more fields");
    }
    const END_OF_USAGE: usize = 34;
    for offset in END_OF_USAGE..size_of::<cudaMemPoolProps>() {
        let mut props = device(0, NO_HANDLE);
        let byte = std::ptr::from_mut(&mut props).cast::<u8>().wrapping_add(offset);
        // SAFETY: the offset is within the struct, and any byte is a valid value of a reserved one.
        unsafe { byte.write(1) };
        let mut pool = null_mut();
        let answer = ask!(cudaMemPoolCreate(&mut pool, &props));
        assert!(answer == cudaError_t::cudaErrorInvalidValue, "byte {offset}: {}", name(answer));
    }
    Ok(())
}

fn size_of_properties() -> Outcome {
    assert_eq!(size_of::<cudaMemPoolProps>(), 88);
    Ok(())
}

fn new_pool_allows_all_reuse_and_keeps_nothing() -> Outcome {
    let pool = Pool::device();
    for policy in REUSE_POLICIES {
        assert_eq!(pool.attribute(policy), 1, "{policy:?}");
    }
    for attribute in [RELEASE_THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH] {
        assert_eq!(pool.attribute(attribute), 0, "{attribute:?}");
    }
    Ok(())
}

fn newer_attributes_are_unknown_to_an_older_driver() -> Outcome {
    if machine::driver_version() >= 13020 {
        return Skip::because("a driver for CUDA 13.2 knows them");
    }
    let pool = Pool::device();
    for attribute in 9..=15 {
        let mut value = 0u64;
        let out = std::ptr::from_mut(&mut value).cast();
        answers!(cudaMemPoolGetAttribute(pool.raw(), cudaMemPoolAttr(attribute), out) => cudaErrorInvalidValue);
    }
    Ok(())
}

fn no_pool_of_an_unknown_kind_or_place() -> Outcome {
    is_refused(&cudaMemPoolProps::new(cudaMemAllocationType(0), cudaMemLocation::device(0), NO_HANDLE));
    is_refused(&cudaMemPoolProps::new(PINNED, cudaMemLocation::none(), NO_HANDLE));
    is_refused(&device(-1, NO_HANDLE));
    is_refused(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host_numa(-1), NO_HANDLE));
    Ok(())
}

fn no_host_pool_with_fabric_handle() -> Outcome {
    is_refused(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host(), FABRIC));
    Ok(())
}

fn host_numa_pool_with_fabric_handle() -> Outcome {
    shares_by_fabric()?;
    Pool::host_numa(FABRIC)?;
    Ok(())
}

fn number_of_the_host_is_ignored() -> Outcome {
    machine::has_host_pools()?;
    let host = cudaMemLocation::new(cudaMemLocation::host().type_, 5);
    Pool::create(&cudaMemPoolProps::new(PINNED, host, NO_HANDLE));
    Ok(())
}

/// With room for two steps, a block that does not fit in what is left does not take it.
fn max_size_is_filled_by_steps() -> Outcome {
    has_max_size()?;
    let stream = Stream::new();
    let pool = Pool::device_up_to(2 * STEP as usize);
    let _first = pool.alloc(32 * MIB, &stream);
    assert_eq!(pool.reserved(), STEP);
    let mut pointer = null_mut();
    for mib in [48, 128] {
        answers!(
            cudaMallocFromPoolAsync(&mut pointer, mib * MIB, pool.raw(), stream.raw()) => cudaErrorMemoryAllocation
        );
        assert_eq!(pool.reserved(), STEP);
    }
    let _second = pool.alloc(16 * MIB, &stream);
    assert_eq!(pool.reserved(), 2 * STEP);
    let _third = pool.alloc(16 * MIB, &stream);
    answers!(cudaMallocFromPoolAsync(&mut pointer, 16 * MIB, pool.raw(), stream.raw()) => cudaErrorMemoryAllocation);
    assert_eq!((pool.reserved(), pool.used()), (2 * STEP, 2 * STEP));
    Ok(())
}

fn null_arguments_are_refused() -> Outcome {
    let (mut pool, mut value) = (null_mut(), 0u64);
    let out: *mut c_void = std::ptr::from_mut(&mut value).cast();
    answers!(cudaMemPoolCreate(&mut pool, null()) => cudaErrorInvalidValue);
    answers!(cudaMemPoolCreate(null_mut(), &device(0, NO_HANDLE)) => cudaErrorInvalidValue);
    answers!(cudaMemPoolDestroy(null_mut()) => cudaErrorInvalidValue);
    answers!(cudaMemPoolTrimTo(null_mut(), 0) => cudaErrorInvalidValue);
    answers!(cudaMemPoolGetAttribute(null_mut(), USED, out) => cudaErrorInvalidValue);
    answers!(cudaMemPoolGetAttribute(Pool::device().raw(), USED, null_mut()) => cudaErrorInvalidValue);
    answers!(cudaDeviceGetDefaultMemPool(null_mut(), 0) => cudaErrorInvalidValue);
    Ok(())
}

fn odd_properties() -> Outcome {
    let host = || cudaMemPoolProps::new(PINNED, cudaMemLocation::host(), NO_HANDLE);
    let managed = |location| cudaMemPoolProps::new(MANAGED, location, NO_HANDLE);
    for (what, props) in [
        ("managed, host", managed(cudaMemLocation::host())),
        ("managed, host-NUMA 0", managed(cudaMemLocation::host_numa(0))),
        ("managed, device 77", managed(cudaMemLocation::device(NO_DEVICE))),
        ("managed, device 0, fd", cudaMemPoolProps::new(MANAGED, cudaMemLocation::device(0), FD)),
        ("managed, device 0, maxSize 1 MiB", managed(cudaMemLocation::device(0)).with_max_size(MIB)),
        ("host, maxSize 1 MiB", host().with_max_size(MIB)),
        ("host, usage 2", host().with_usage(2)),
        ("device 0, handle type 16", device(0, cudaMemAllocationHandleType(16))),
        ("device 0, handle type 4 (Win32Kmt)", device(0, cudaMemAllocationHandleType(4))),
        ("device 0, usage 1", device(0, NO_HANDLE).with_usage(1)),
        ("device 0, usage 2 (decompression)", device(0, NO_HANDLE).with_usage(2)),
        ("device 0, win32 attributes", device(0, NO_HANDLE).with_win32_security_attributes(0x1000 as *mut c_void)),
        ("device 0, maxSize 1 TiB", device(0, NO_HANDLE).with_max_size(1 << 40)),
    ] {
        let mut pool = null_mut();
        say!("{what}: {}", name(ask!(cudaMemPoolCreate(&mut pool, &props))));
    }
    Ok(())
}
