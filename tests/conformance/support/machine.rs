//! What this machine has: facts that need more than it has are skipped.

use std::ffi::c_int;
use std::path::Path;
use std::ptr::null_mut;

use cuda_mempool_sys::{cudaDeviceAttr, cudaError_t, cudaMemAllocationHandleType};

use super::fact::Skip;
use super::words::*;
use crate::kernel::Kernels;

/// Whether there is a runtime with a device.
pub fn has_a_device() -> Result<(), Skip> {
    if let Err(error) = cuda_mempool_sys::runtime() {
        // The first line says what is missing, the others list the places that were tried.
        return Skip::because(format!("{error}").lines().next().unwrap_or_default());
    }
    let mut count = 0;
    let answer = ask!(cudaGetDeviceCount(&mut count));
    if answer != cudaError_t::cudaSuccess {
        return Skip::because(format!("no CUDA device: {}", super::answer::text(answer)));
    }
    if count == 0 {
        return Skip::because("no CUDA device");
    }
    Ok(())
}

/// Whether the device still works for this process: an asynchronous failure spoils it for good.
pub fn is_usable() -> bool {
    matches!(ask!(cudaStreamQuery(null_mut())), cudaError_t::cudaSuccess | cudaError_t::cudaErrorNotReady)
}

#[track_caller]
pub fn devices() -> c_int {
    let mut count = 0;
    ok!(cudaGetDeviceCount(&mut count));
    count
}

/// The runtime's version, 13000 for 13.0.
#[track_caller]
pub fn runtime_version() -> c_int {
    let mut version = 0;
    ok!(cudaRuntimeGetVersion(&mut version));
    version
}

/// The newest CUDA version that the driver knows.
#[track_caller]
pub fn driver_version() -> c_int {
    let mut version = 0;
    ok!(cudaDriverGetVersion(&mut version));
    version
}

/// An attribute of device 0; none where the driver does not know it.
pub fn attribute(attribute: cudaDeviceAttr) -> Option<c_int> {
    let mut value = 0;
    (ask!(cudaDeviceGetAttribute(&mut value, attribute, 0)) == cudaError_t::cudaSuccess).then_some(value)
}

pub fn pools_have(handle: cudaMemAllocationHandleType) -> bool {
    attribute(MEMORY_POOL_SUPPORTED_HANDLE_TYPES).is_some_and(|types| types as u32 & handle.0 != 0)
}

pub fn shares_by_fd() -> Result<(), Skip> {
    if pools_have(FD) {
        Ok(())
    } else {
        Skip::because("device 0 has no pools with file descriptors")
    }
}

pub fn has_host_pools() -> Result<(), Skip> {
    if attribute(HOST_MEMORY_POOLS_SUPPORTED) == Some(1) {
        Ok(())
    } else {
        Skip::because("device 0 is not known to support host pools")
    }
}

/// The NUMA node nearest to device 0, where that can have pools.
pub fn host_numa_node() -> Result<c_int, Skip> {
    match (attribute(HOST_NUMA_MEMORY_POOLS_SUPPORTED), attribute(HOST_NUMA_ID)) {
        (Some(1), Some(node)) if node >= 0 => Ok(node),
        _ => Skip::because("device 0 is not known to support host-NUMA pools"),
    }
}

pub fn has_node(node: c_int) -> bool {
    Path::new(&format!("/sys/devices/system/node/node{node}")).exists()
}

pub fn has_managed_pools() -> Result<(), Skip> {
    if driver_version() >= 13000 && attribute(CONCURRENT_MANAGED_ACCESS) == Some(1) {
        Ok(())
    } else {
        Skip::because("managed pools need a driver for CUDA 13.0 and concurrent managed access")
    }
}

/// The kernels, for the current device.
pub fn kernels() -> Result<Kernels, Skip> {
    Ok(Kernels::load()?)
}

/// Devices 0 and 1, where they can reach each other's memory.
pub fn two_peers() -> Result<[c_int; 2], Skip> {
    let count = devices();
    if count < 2 {
        return Skip::because(format!("needs two devices, has {count}"));
    }
    for (device, peer) in [(0, 1), (1, 0)] {
        let mut can = 0;
        ok!(cudaDeviceCanAccessPeer(&mut can, device, peer));
        if can == 0 {
            return Skip::because(format!("device {device} cannot reach the memory of device {peer}"));
        }
    }
    Ok([0, 1])
}

/// Free and total memory of the current device.
#[track_caller]
pub fn memory() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok!(cudaMemGetInfo(&mut free, &mut total));
    (free, total)
}
