//! Making pools.

use std::ops::BitOr;

use cuda_mempool_sys as sys;
use sys::{cudaMemAllocationHandleType, cudaMemPoolProps, cudaMemPool_t};

use super::{access, Access, Location, MemPool, ReusePolicy};
use crate::error::call;
use crate::{Device, Error, ErrorKind, Feature, Result, Support, Version};

/// By which handles a pool can be shared with other processes: a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HandleTypes(u32);

impl HandleTypes {
    /// By none.
    pub const NONE: Self = Self(0);
    /// By POSIX file descriptors.
    pub const POSIX_FD: Self = Self(1);
    /// By Win32 handles.
    pub const WIN32: Self = Self(2);
    /// By Win32 kernel-mode handles.
    pub const WIN32_KMT: Self = Self(4);
    /// By fabric handles. The driver lets such pools be made on systems that are not set up for it, and refuses the
    /// export then.
    pub const FABRIC: Self = Self(8);

    /// Whether all types of `other` are among these.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set as CUDA writes it.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// A set as CUDA writes it. Unknown bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl BitOr for HandleTypes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The description of a new [`MemPool`].
#[derive(Debug, Clone)]
#[must_use]
pub struct MemPoolBuilder {
    location: Location,
    handle_types: HandleTypes,
    max_size: usize,
    hw_decompress: bool,
    release_threshold: Option<u64>,
    reuse: Option<ReusePolicy>,
    grants: Vec<(Device, Access)>,
}

impl MemPoolBuilder {
    pub(super) fn new(location: Location) -> Self {
        Self {
            location,
            handle_types: HandleTypes::NONE,
            max_size: 0,
            hw_decompress: false,
            release_threshold: None,
            reuse: None,
            grants: Vec::new(),
        }
    }

    /// By which handles it can be shared with other processes. By default none, which is faster.
    pub fn handle_types(mut self, types: HandleTypes) -> Self {
        self.handle_types = types;
        self
    }

    /// The most bytes it may hold, which the runtime rounds up (to 32 MiB, as measured). Needs CUDA 12.2. By default,
    /// and for 0, the system decides. For managed memory drivers may refuse one.
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.max_size = bytes;
        self
    }

    /// Whether the decompression engine must be able to read its memory. Needs CUDA 12.8.
    pub fn hw_decompress(mut self, on: bool) -> Self {
        self.hw_decompress = on;
        self
    }

    /// How many bytes it keeps when streams are synchronised. By default none: the next allocation then has to get
    /// memory from the system again.
    pub fn release_threshold(mut self, bytes: u64) -> Self {
        self.release_threshold = Some(bytes);
        self
    }

    /// Under which conditions other streams get freed blocks. By default all.
    pub fn reuse(mut self, policy: ReusePolicy) -> Self {
        self.reuse = Some(policy);
        self
    }

    /// Gives a device access, as [`MemPool::set_access`].
    pub fn grant(mut self, device: Device, access: Access) -> Self {
        self.grants.push((device, access));
        self
    }

    /// Makes the pool.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], naming the device attribute or the version that is missing; as
    /// [`MemPool::set_access`] for what was granted; or what the runtime answers.
    #[doc(alias = "cudaMemPoolCreate")]
    pub fn build(self) -> Result<MemPool> {
        self.require_support()?;
        let mut raw: cudaMemPool_t = std::ptr::null_mut();
        let props = self.props();
        // SAFETY: the pointers are valid.
        unsafe { call!(cudaMemPoolCreate(&mut raw, &props)) }.map_err(|error| self.explain(error))?;
        // From here on, an early return destroys it.
        let pool = MemPool::from_parts(raw, self.location, true);
        access::clear(raw, self.location)?;
        if let Some(bytes) = self.release_threshold {
            pool.set_release_threshold(bytes)?;
        }
        if let Some(policy) = self.reuse {
            pool.set_reuse_policy(policy)?;
        }
        for &(device, access) in &self.grants {
            pool.set_access(device, access)?;
        }
        Ok(pool)
    }

    fn props(&self) -> cudaMemPoolProps {
        let types = cudaMemAllocationHandleType(self.handle_types.bits() as _);
        let usage = if self.hw_decompress { HW_DECOMPRESS } else { 0 };
        cudaMemPoolProps::new(self.location.kind(), self.location.to_raw(), types)
            .with_max_size(self.max_size)
            .with_usage(usage)
    }

    /// Refuses what some part of the machine says no to. What it does not know is tried.
    fn require_support(&self) -> Result<()> {
        let feature = self.location.feature();
        match self.location {
            Location::Device(device) | Location::ManagedOn(device) => device.require(feature, FUNCTION)?,
            Location::Host | Location::HostNuma(_) | Location::Managed => some_device_has(feature)?,
        }
        if let Location::Device(device) = self.location {
            let wanted = [
                (HandleTypes::POSIX_FD, Feature::PosixFdPools),
                (HandleTypes::WIN32, Feature::Win32Pools),
                (HandleTypes::WIN32_KMT, Feature::Win32KmtPools),
                (HandleTypes::FABRIC, Feature::FabricPools),
            ];
            for (types, feature) in wanted {
                if self.handle_types.contains(types) {
                    device.require(feature, FUNCTION)?;
                }
            }
        }
        Ok(())
    }

    /// The runtime's "invalid value" as what it most likely means.
    #[cold]
    fn explain(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::InvalidValue {
            return error.about(format!("making a pool at {}", self.location));
        }
        let driver = Version::of_driver().ok().flatten();
        let needs = |what: &str, since: Version| match driver {
            Some(driver) if driver < since => {
                Some(format!("{what} needs a driver for CUDA {since} or newer, and this one is for {driver}"))
            }
            _ => None,
        };
        let too_old = (self.max_size > 0)
            .then(|| needs("a maximal size", Version::new(12, 2)))
            .or_else(|| self.hw_decompress.then(|| needs("hardware decompression", Version::new(12, 8))))
            .flatten();
        match (too_old, self.location) {
            (Some(missing), _) => Error::unsupported(FUNCTION, missing),
            (None, Location::Host) if self.handle_types != HandleTypes::NONE => {
                Error::unsupported(FUNCTION, "pools on the host as a whole cannot be shared; those on a NUMA node can")
            }
            (None, Location::HostNuma(node)) => {
                error.about(format!("making a pool on NUMA node {node} of the host, which may not exist"))
            }
            (None, location @ (Location::Managed | Location::ManagedOn(_))) if self.max_size > 0 => {
                error.about(format!("making a pool of {location}, which may not have a maximal size"))
            }
            (None, location) => error.about(format!("making a pool at {location}")),
        }
    }
}

const FUNCTION: &str = "cudaMemPoolCreate";

/// Refuses when all devices say no. One that allocates is asked again at each allocation.
fn some_device_has(feature: Feature) -> Result<()> {
    let mut refusal = Ok(());
    for device in Device::all()? {
        if device.supports(feature)? != Support::No {
            return Ok(());
        }
        refusal = device.require(feature, FUNCTION);
    }
    refusal
}

/// `cudaMemPoolCreateUsageHwDecompress`, which the headers name from 12.8 on.
const HW_DECOMPRESS: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_of_the_headers() {
        let raw = |types: HandleTypes| cudaMemAllocationHandleType(types.bits() as _);
        assert_eq!(raw(HandleTypes::NONE), cudaMemAllocationHandleType::cudaMemHandleTypeNone);
        assert_eq!(raw(HandleTypes::POSIX_FD), cudaMemAllocationHandleType::cudaMemHandleTypePosixFileDescriptor);
        assert_eq!(raw(HandleTypes::WIN32), cudaMemAllocationHandleType::cudaMemHandleTypeWin32);
        assert_eq!(raw(HandleTypes::WIN32_KMT), cudaMemAllocationHandleType::cudaMemHandleTypeWin32Kmt);
        #[cfg(cuda_since_12_4)]
        assert_eq!(raw(HandleTypes::FABRIC), cudaMemAllocationHandleType::cudaMemHandleTypeFabric);
        #[cfg(cuda_since_12_8)]
        assert_eq!(u32::from(HW_DECOMPRESS), sys::cudaMemPoolCreateUsageHwDecompress);
        #[cfg(cuda_since_13_0)]
        assert_eq!(Location::Managed.kind(), sys::cudaMemAllocationType::cudaMemAllocationTypeManaged);
    }

    #[test]
    fn handle_types_are_a_set() {
        let both = HandleTypes::POSIX_FD | HandleTypes::FABRIC;
        assert_eq!(both.bits(), 9);
        assert!(both.contains(HandleTypes::FABRIC) && !both.contains(HandleTypes::WIN32));
    }
}
