//! The pools that are there from the start, by device and by location.

use crate::support::answer::name;
use crate::support::pool::attribute_of;
use crate::support::prelude::*;

area! {
    // The pools are the process's.
    isolated: [
        no_default_or_current_pool_of_a_device_that_is_not_there,
        default_pool_of_the_host,
        default_pool_of_a_numa_node,
        default_managed_pool_of_a_device,
        default_pool_is_the_current_one_at_first,
        default_pool_of_a_location_is_missing_in_an_older_runtime,
        default_pool_of_a_device_by_location_is_the_devices_own,
        default_pool_of_a_location_that_is_not_there_is_refused,
        current_pool_of_a_location_can_be_set_to_the_default_and_not_to_null,
    ],
    questions: [managed_and_set],
}

fn no_default_or_current_pool_of_a_device_that_is_not_there() -> Outcome {
    let mut pool = null_mut();
    answers!(cudaDeviceGetDefaultMemPool(&mut pool, NO_DEVICE) => cudaErrorInvalidDevice);
    answers!(cudaDeviceGetMemPool(&mut pool, NO_DEVICE) => cudaErrorInvalidValue);
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

fn default_pool_of_a_device_by_location_is_the_devices_own() -> Outcome {
    let mut of_device = null_mut();
    ok!(cudaDeviceGetDefaultMemPool(&mut of_device, 0));
    assert_eq!(default_pool(cudaMemLocation::device(0), PINNED)?, of_device);
    Ok(())
}

#[cfg(cuda_since_13_0)]
fn default_pool_of_a_location_that_is_not_there_is_refused() -> Outcome {
    default_pool(cudaMemLocation::device(0), PINNED)?;
    for mut location in [cudaMemLocation::host_numa(NO_NODE), cudaMemLocation::device(NO_DEVICE)] {
        let mut pool = null_mut();
        answers!(cudaMemGetDefaultMemPool(&mut pool, &mut location, PINNED) => cudaErrorInvalidValue);
    }
    Ok(())
}

#[cfg(not(cuda_since_13_0))]
fn default_pool_of_a_location_that_is_not_there_is_refused() -> Outcome {
    default_pool(cudaMemLocation::device(NO_DEVICE), PINNED).map(drop)
}

#[cfg(cuda_since_13_0)]
fn current_pool_of_a_location_can_be_set_to_the_default_and_not_to_null() -> Outcome {
    let node = machine::host_numa_node()?;
    machine::has_host_pools()?;
    for mut location in [cudaMemLocation::host(), cudaMemLocation::host_numa(node)] {
        let (default, mut current) = (default_pool(location, PINNED)?, null_mut());
        ok!(cudaMemGetMemPool(&mut current, &mut location, PINNED));
        assert_eq!(current, default);
        ok!(cudaMemSetMemPool(&mut location, PINNED, default));
        answers!(cudaMemSetMemPool(&mut location, PINNED, null_mut()) => cudaErrorInvalidValue);
        assert_eq!(attribute_of(default, RELEASE_THRESHOLD), 0);
    }
    Ok(())
}

#[cfg(not(cuda_since_13_0))]
fn current_pool_of_a_location_can_be_set_to_the_default_and_not_to_null() -> Outcome {
    default_pool(cudaMemLocation::host(), PINNED).map(drop)
}

/// A runtime that is loaded by the first call need not be as new as the bindings.
#[cfg(cuda_since_13_0)]
fn default_pool_of_a_location_is_missing_in_an_older_runtime() -> Outcome {
    if machine::runtime_version() >= 13000 || LinkKind::CURRENT != LinkKind::Dlopen {
        return Skip::because("the runtime is as new as the bindings");
    }
    let (mut pool, mut location) = (null_mut(), cudaMemLocation::device(0));
    let answer = ask!(cudaMemGetDefaultMemPool(&mut pool, &mut location, PINNED));
    assert_eq!(answer, cudaError_t::cudaErrorSharedObjectSymbolNotFound);
    Ok(())
}

#[cfg(not(cuda_since_13_0))]
fn default_pool_of_a_location_is_missing_in_an_older_runtime() -> Outcome {
    Skip::because("these bindings lack it too")
}

#[cfg(cuda_since_13_0)]
fn managed_and_set() -> Outcome {
    for (what, mut location) in [
        ("device 0", cudaMemLocation::device(0)),
        ("no location", cudaMemLocation::none()),
        ("host", cudaMemLocation::host()),
        ("host-NUMA 0", cudaMemLocation::host_numa(0)),
    ] {
        let (mut default, mut current) = (null_mut(), null_mut());
        let answer = ask!(cudaMemGetDefaultMemPool(&mut default, &mut location, MANAGED));
        let now = ask!(cudaMemGetMemPool(&mut current, &mut location, MANAGED));
        say!("managed, {what}: {}; current {}, the same: {}", name(answer), name(now), default == current);
    }
    let own = Pool::host()?;
    let mut location = cudaMemLocation::host();
    say!("own pool as the host's current: {}", name(ask!(cudaMemSetMemPool(&mut location, PINNED, own.raw()))));
    let (mut default, mut current) = (null_mut(), null_mut());
    let now = ask!(cudaMemGetMemPool(&mut current, &mut location, PINNED));
    say!("    current: {}, own: {}", name(now), current == own.raw());
    drop(own);
    let now = ask!(cudaMemGetMemPool(&mut current, &mut location, PINNED));
    ok!(cudaMemGetDefaultMemPool(&mut default, &mut location, PINNED));
    say!("    destroyed: {}, the default: {}", name(now), current == default);
    let device = Pool::device();
    say!("a device's pool as the host's: {}", name(ask!(cudaMemSetMemPool(&mut location, PINNED, device.raw()))));
    Ok(())
}

#[cfg(not(cuda_since_13_0))]
fn managed_and_set() -> Outcome {
    Skip::because("these bindings lack cudaMemGetDefaultMemPool")
}
