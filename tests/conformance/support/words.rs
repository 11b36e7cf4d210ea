//! Values under short names, also those that older headers do not name.

use std::ffi::c_int;

use cuda_mempool_sys::{
    cudaDeviceAttr, cudaMemAccessFlags, cudaMemAllocationHandleType, cudaMemAllocationType, cudaMemPoolAttr,
};

pub const MIB: usize = 1 << 20;

/// What pools reserve and return at a time.
pub const STEP: u64 = 32 << 20;

pub const PINNED: cudaMemAllocationType = cudaMemAllocationType(1);
pub const MANAGED: cudaMemAllocationType = cudaMemAllocationType(2);

pub const NO_HANDLE: cudaMemAllocationHandleType = cudaMemAllocationHandleType(0);
pub const FD: cudaMemAllocationHandleType = cudaMemAllocationHandleType(1);
pub const WIN32: cudaMemAllocationHandleType = cudaMemAllocationHandleType(2);
pub const FABRIC: cudaMemAllocationHandleType = cudaMemAllocationHandleType(8);

pub const NO_ACCESS: cudaMemAccessFlags = cudaMemAccessFlags(0);
pub const READ: cudaMemAccessFlags = cudaMemAccessFlags(1);
pub const READ_WRITE: cudaMemAccessFlags = cudaMemAccessFlags(3);

pub const FOLLOW_EVENT_DEPENDENCIES: cudaMemPoolAttr = cudaMemPoolAttr(1);
pub const ALLOW_OPPORTUNISTIC: cudaMemPoolAttr = cudaMemPoolAttr(2);
pub const ALLOW_INTERNAL_DEPENDENCIES: cudaMemPoolAttr = cudaMemPoolAttr(3);
pub const REUSE_POLICIES: [cudaMemPoolAttr; 3] =
    [FOLLOW_EVENT_DEPENDENCIES, ALLOW_OPPORTUNISTIC, ALLOW_INTERNAL_DEPENDENCIES];
pub const RELEASE_THRESHOLD: cudaMemPoolAttr = cudaMemPoolAttr(4);
pub const RESERVED: cudaMemPoolAttr = cudaMemPoolAttr(5);
pub const RESERVED_HIGH: cudaMemPoolAttr = cudaMemPoolAttr(6);
pub const USED: cudaMemPoolAttr = cudaMemPoolAttr(7);
pub const USED_HIGH: cudaMemPoolAttr = cudaMemPoolAttr(8);

pub const COMPUTE_CAPABILITY_MAJOR: cudaDeviceAttr = cudaDeviceAttr(75);
pub const PAGEABLE_MEMORY_ACCESS: cudaDeviceAttr = cudaDeviceAttr(88);
pub const CONCURRENT_MANAGED_ACCESS: cudaDeviceAttr = cudaDeviceAttr(89);
pub const MEMORY_POOLS_SUPPORTED: cudaDeviceAttr = cudaDeviceAttr(115);
pub const MEMORY_POOL_SUPPORTED_HANDLE_TYPES: cudaDeviceAttr = cudaDeviceAttr(119);
pub const IPC_EVENT_SUPPORT: cudaDeviceAttr = cudaDeviceAttr(125);
pub const NUMA_ID: cudaDeviceAttr = cudaDeviceAttr(131);
pub const HOST_NUMA_ID: cudaDeviceAttr = cudaDeviceAttr(134);
pub const HOST_NUMA_MEMORY_POOLS_SUPPORTED: cudaDeviceAttr = cudaDeviceAttr(142);
pub const HOST_NUMA_MULTINODE_IPC_SUPPORTED: cudaDeviceAttr = cudaDeviceAttr(143);
pub const HOST_MEMORY_POOLS_SUPPORTED: cudaDeviceAttr = cudaDeviceAttr(144);

/// A device that no machine has.
pub const NO_DEVICE: c_int = 77;
/// A NUMA node that no machine of today has.
pub const NO_NODE: c_int = 999;
