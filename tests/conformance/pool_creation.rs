//! `cudaMemPoolCreate`: which properties it takes, and what a new pool is like.

use std::mem::size_of;

use crate::support::answer::name;
use crate::support::pool::attribute_of;
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
    ],
    isolated: [
        default_pool_of_the_host,
        default_pool_of_a_numa_node,
        default_managed_pool_of_a_device,
        default_pool_is_the_current_one_at_first,
    ],
    questions: [odd_properties, null_arguments, max_size_and_large_blocks, default_pools],
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

/// The default pool of a location: missing in bindings or runtimes older than 13.0.
#[cfg(cuda_since_13_0)]
fn default_pool(mut location: cudaMemLocation, kind: cudaMemAllocationType) -> Result<cudaMemPool_t, Skip> {
    if machine::runtime_version() < 13000 || machine::driver_version() < 13000 {
        return Skip::because("cudaMemGetDefaultMemPool needs CUDA 13.0");
    }
    let mut pool = null_mut();
    ok!(cudaMemGetDefaultMemPool(&mut pool, &mut location, kind));
    assert!(!pool.is_null());
    Ok(pool)
}

#[cfg(not(cuda_since_13_0))]
fn default_pool(_: cudaMemLocation, _: cudaMemAllocationType) -> Result<cudaMemPool_t, Skip> {
    Skip::because("these bindings lack cudaMemGetDefaultMemPool")
}

fn default_pool_of_the_host() -> Outcome {
    machine::has_host_pools()?;
    let pool = default_pool(cudaMemLocation::host(), PINNED)?;
    assert_eq!(attribute_of(pool, USED), 0);
    Ok(())
}

fn default_pool_of_a_numa_node() -> Outcome {
    let node = machine::host_numa_node()?;
    let pool = default_pool(cudaMemLocation::host_numa(node), PINNED)?;
    assert_eq!(attribute_of(pool, USED), 0);
    Ok(())
}

fn default_managed_pool_of_a_device() -> Outcome {
    machine::has_managed_pools()?;
    let pool = default_pool(cudaMemLocation::device(0), MANAGED)?;
    assert_eq!(attribute_of(pool, USED), 0);
    Ok(())
}

fn default_pool_is_the_current_one_at_first() -> Outcome {
    let (mut default, mut current) = (null_mut(), null_mut());
    ok!(cudaDeviceGetDefaultMemPool(&mut default, 0));
    ok!(cudaDeviceGetMemPool(&mut current, 0));
    assert_eq!(default, current);
    Ok(())
}

fn odd_properties() -> Outcome {
    let invalid = cudaMemAllocationType(0);
    let none = cudaMemLocation::none();
    for (what, props) in [
        ("all zero", cudaMemPoolProps::default()),
        ("allocation type 0 on device 0", cudaMemPoolProps::new(invalid, cudaMemLocation::device(0), NO_HANDLE)),
        ("pinned, no location", cudaMemPoolProps::new(PINNED, none, NO_HANDLE)),
        ("pinned, device -1", device(-1, NO_HANDLE)),
        ("pinned, host-NUMA -1", cudaMemPoolProps::new(PINNED, cudaMemLocation::host_numa(-1), NO_HANDLE)),
        ("pinned, host with id 5", {
            let host = cudaMemLocation::new(cudaMemLocation::host().type_, 5);
            cudaMemPoolProps::new(PINNED, host, NO_HANDLE)
        }),
        ("pinned, host, fabric", cudaMemPoolProps::new(PINNED, cudaMemLocation::host(), FABRIC)),
        ("pinned, host-NUMA 0, fabric", cudaMemPoolProps::new(PINNED, cudaMemLocation::host_numa(0), FABRIC)),
        ("managed, host", cudaMemPoolProps::new(MANAGED, cudaMemLocation::host(), NO_HANDLE)),
        ("managed, host-NUMA 0", cudaMemPoolProps::new(MANAGED, cudaMemLocation::host_numa(0), NO_HANDLE)),
        ("managed, device 0, fd", cudaMemPoolProps::new(MANAGED, cudaMemLocation::device(0), FD)),
        (
            "managed, device 0, maxSize 1 MiB",
            cudaMemPoolProps::new(MANAGED, cudaMemLocation::device(0), NO_HANDLE).with_max_size(MIB),
        ),
        ("host, maxSize 1 MiB", {
            cudaMemPoolProps::new(PINNED, cudaMemLocation::host(), NO_HANDLE).with_max_size(MIB)
        }),
        ("device 0, maxSize usize::MAX", device(0, NO_HANDLE).with_max_size(usize::MAX)),
        ("device 0, maxSize 1 TiB", device(0, NO_HANDLE).with_max_size(1 << 40)),
        ("device 0, handle type 16", device(0, cudaMemAllocationHandleType(16))),
        ("device 0, handle type 4 (Win32Kmt)", device(0, cudaMemAllocationHandleType(4))),
        ("device 0, usage 1", device(0, NO_HANDLE).with_usage(1)),
        ("device 0, usage 2 (decompression)", device(0, NO_HANDLE).with_usage(2)),
        ("device 0, win32 attributes", device(0, NO_HANDLE).with_win32_security_attributes(0x1000 as *mut c_void)),
    ] {
        let mut pool = null_mut();
        say!("{what}: {}", name(ask!(cudaMemPoolCreate(&mut pool, &props))));
    }
    Ok(())
}

fn null_arguments() -> Outcome {
    let props = device(0, NO_HANDLE);
    let mut pool = null_mut();
    say!("null properties: {}", name(ask!(cudaMemPoolCreate(&mut pool, null()))));
    say!("null out pointer: {}", name(ask!(cudaMemPoolCreate(null_mut(), &props))));
    say!("destroy null: {}", name(ask!(cudaMemPoolDestroy(null_mut()))));
    say!("trim null: {}", name(ask!(cudaMemPoolTrimTo(null_mut(), 0))));
    let mut value = 0u64;
    let out = std::ptr::from_mut(&mut value).cast();
    say!("attribute of null: {}", name(ask!(cudaMemPoolGetAttribute(null_mut(), USED, out))));
    let pool = Pool::device();
    say!("attribute to null: {}", name(ask!(cudaMemPoolGetAttribute(pool.raw(), USED, null_mut()))));
    say!("default pool to null: {}", name(ask!(cudaDeviceGetDefaultMemPool(null_mut(), 0))));
    let mut current = null_mut();
    say!("default pool of device 77: {}", name(ask!(cudaDeviceGetDefaultMemPool(&mut current, NO_DEVICE))));
    say!("current pool of device 77: {}", name(ask!(cudaDeviceGetMemPool(&mut current, NO_DEVICE))));
    Ok(())
}

/// With room for 64 MiB: 32, 48 and 128 MiB in turn.
fn max_size_and_large_blocks() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_up_to(64 * MIB);
    for mib in [32, 48, 128, 16, 16, 16] {
        let mut block = null_mut();
        let answer = ask!(cudaMallocFromPoolAsync(&mut block, mib * MIB, pool.raw(), stream.raw()));
        say!("{mib} MiB: {}, reserved {}, used {}", name(answer), pool.reserved(), pool.used());
    }
    Ok(())
}

#[cfg(cuda_since_13_0)]
fn default_pools() -> Outcome {
    let mut of_device = null_mut();
    ok!(cudaDeviceGetDefaultMemPool(&mut of_device, 0));
    for (what, mut location, kind) in [
        ("device 0, pinned", cudaMemLocation::device(0), PINNED),
        ("host, pinned", cudaMemLocation::host(), PINNED),
        ("host-NUMA 0, pinned", cudaMemLocation::host_numa(0), PINNED),
        ("host-NUMA 999, pinned", cudaMemLocation::host_numa(NO_NODE), PINNED),
        ("device 0, managed", cudaMemLocation::device(0), MANAGED),
        ("none, managed", cudaMemLocation::none(), MANAGED),
        ("host, managed", cudaMemLocation::host(), MANAGED),
        ("device 77, pinned", cudaMemLocation::device(NO_DEVICE), PINNED),
    ] {
        let (mut default, mut current) = (null_mut(), null_mut());
        let answer = ask!(cudaMemGetDefaultMemPool(&mut default, &mut location, kind));
        let now = ask!(cudaMemGetMemPool(&mut current, &mut location, kind));
        say!(
            "{what}: default {}, the device's own: {}; current {}, the same: {}",
            name(answer),
            default == of_device,
            name(now),
            default == current
        );
        if answer == cudaError_t::cudaSuccess {
            say!("    set to itself: {}", name(ask!(cudaMemSetMemPool(&mut location, kind, default))));
            say!("    set to null: {}", name(ask!(cudaMemSetMemPool(&mut location, kind, null_mut()))));
            let mut threshold = 7u64;
            let out = std::ptr::from_mut(&mut threshold).cast();
            let answer = ask!(cudaMemPoolGetAttribute(default, RELEASE_THRESHOLD, out));
            say!("    release threshold: {}, {threshold}", name(answer));
        }
    }
    Ok(())
}

#[cfg(not(cuda_since_13_0))]
fn default_pools() -> Outcome {
    Skip::because("these bindings lack cudaMemGetDefaultMemPool")
}
