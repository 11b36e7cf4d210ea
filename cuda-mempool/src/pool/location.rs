//! Where a pool's memory lies.

use std::fmt;

use cuda_mempool_sys::{cudaMemAllocationType, cudaMemLocation};

use crate::{Device, Feature};

/// Where the memory of a pool lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Location {
    /// On a device.
    Device(Device),
    /// On the host, wherever the system puts it. Needs CUDA 13.0. Devices have no access unless
    /// [granted](crate::MemPoolBuilder::grant), and their copies are slow then.
    Host,
    /// On this NUMA node of the host. Needs CUDA 12.2. As for access, see [`Location::Host`].
    HostNuma(u32),
    /// Managed memory, which moves to where it is used. Needs CUDA 13.0.
    Managed,
    /// Managed memory that stays on a device where it can. Needs CUDA 13.0.
    ManagedOn(Device),
}

impl Location {
    pub(super) fn kind(self) -> cudaMemAllocationType {
        match self {
            // cudaMemAllocationTypeManaged, which the headers name from 13.0 on.
            Self::Managed | Self::ManagedOn(_) => cudaMemAllocationType(2),
            Self::Device(_) | Self::Host | Self::HostNuma(_) => cudaMemAllocationType::cudaMemAllocationTypePinned,
        }
    }

    pub(super) fn to_raw(self) -> cudaMemLocation {
        match self {
            Self::Device(device) | Self::ManagedOn(device) => cudaMemLocation::device(device.ordinal()),
            Self::Host => cudaMemLocation::host(),
            // No such node either way: the runtime refuses.
            Self::HostNuma(node) => cudaMemLocation::host_numa(i32::try_from(node).unwrap_or(i32::MAX)),
            Self::Managed => cudaMemLocation::none(),
        }
    }

    /// The device that owns the memory, which always has access to it.
    pub(super) fn owner(self) -> Option<Device> {
        match self {
            Self::Device(device) => Some(device),
            Self::Host | Self::HostNuma(_) | Self::Managed | Self::ManagedOn(_) => None,
        }
    }

    /// What a pool here takes.
    pub(super) fn feature(self) -> Feature {
        match self {
            Self::Device(_) => Feature::MemoryPools,
            Self::Host => Feature::HostPools,
            Self::HostNuma(_) => Feature::HostNumaPools,
            Self::Managed | Self::ManagedOn(_) => Feature::ManagedPools,
        }
    }

    /// What the device of a stream must support for allocating from a pool on the host. Some devices let one allocate
    /// without it, and fail at the first use.
    #[inline]
    pub(super) fn host_feature(self) -> Option<Feature> {
        match self {
            Self::Host | Self::HostNuma(_) => Some(self.feature()),
            Self::Device(_) | Self::Managed | Self::ManagedOn(_) => None,
        }
    }
}

impl From<Device> for Location {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => device.fmt(f),
            Self::Host => f.write_str("the host"),
            Self::HostNuma(node) => write!(f, "NUMA node {node} of the host"),
            Self::Managed => f.write_str("managed memory"),
            Self::ManagedOn(device) => write!(f, "managed memory on {device}"),
        }
    }
}
