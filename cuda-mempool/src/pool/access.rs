//! Which devices can reach a pool's memory.

use cuda_mempool_sys::{cudaMemAccessDesc, cudaMemAccessFlags, cudaMemLocation, cudaMemPool_t};

use super::{Location, MemPool};
use crate::error::call;
use crate::{Device, Error, ErrorKind, Result};

/// What a device may do with the memory of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
    /// Something that newer drivers know, by its number.
    Other(u32),
}

impl Access {
    fn from_raw(flags: cudaMemAccessFlags) -> Self {
        match flags {
            cudaMemAccessFlags::cudaMemAccessFlagsProtNone => Self::None,
            cudaMemAccessFlags::cudaMemAccessFlagsProtRead => Self::Read,
            cudaMemAccessFlags::cudaMemAccessFlagsProtReadWrite => Self::ReadWrite,
            #[allow(clippy::unnecessary_cast)] // C enums are signed under MSVC.
            cudaMemAccessFlags(other) => Self::Other(other as u32),
        }
    }

    /// What `device` may do with the memory of any pool.
    pub(crate) fn of_pool(pool: cudaMemPool_t, device: Device) -> Result<Self> {
        access_of(pool, device).map(Self::from_raw)
    }

    /// Sets it, with no other check than the runtime's. Before access is taken away, what the device is doing is waited for.
    pub(crate) fn set_for_pool(self, pool: cudaMemPool_t, device: Device) -> Result<()> {
        if self != Self::ReadWrite && Self::of_pool(pool, device)? != self {
            device.synchronize()?;
        }
        set_access(pool, device, self.to_raw())
    }

    fn to_raw(self) -> cudaMemAccessFlags {
        match self {
            Self::None => cudaMemAccessFlags::cudaMemAccessFlagsProtNone,
            Self::Read => cudaMemAccessFlags::cudaMemAccessFlagsProtRead,
            Self::ReadWrite => cudaMemAccessFlags::cudaMemAccessFlagsProtReadWrite,
            Self::Other(other) => cudaMemAccessFlags(other as _),
        }
    }
}

impl MemPool {
    /// What `device` may do with the memory of this pool. Asked of the runtime each time: others can change it.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolGetAccess")]
    pub fn access(&self, device: Device) -> Result<Access> {
        access_of(self.0.raw, device).map(Access::from_raw)
    }

    /// Sets what `device` may do with all memory of this pool, that allocated before included.
    ///
    /// The owning device always reads and writes. Other devices start with nothing, on pools of the host too, where copies
    /// work all the same but [slowly](crate::guide::access#pools-on-the-host). Before access is taken away, what the
    /// device is doing is waited for.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::{Access, Device, MemPool};
    /// let pool = MemPool::builder(device).build()?;
    /// for peer in Device::all()?.filter(|&peer| peer != device) {
    ///     if peer.can_access(device)? {
    ///         pool.set_access(peer, Access::ReadWrite)?;
    ///         assert_eq!(pool.access(peer)?, Access::ReadWrite);
    ///     }
    /// }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::PeerAccess`], which names both devices, when the device cannot reach the memory of the pool's;
    /// [`ErrorKind::InvalidValue`] when less than everything is asked for the owner; or what the runtime answers.
    #[doc(alias = "cudaMemPoolSetAccess")]
    #[doc(alias = "cudaDeviceCanAccessPeer")]
    pub fn set_access(&self, device: Device, access: Access) -> Result<()> {
        const FUNCTION: &str = "cudaMemPoolSetAccess";
        match self.0.location.owner() {
            Some(owner) if owner == device => {
                return match access {
                    Access::ReadWrite => Ok(()),
                    _ => Err(Error::refused(
                        ErrorKind::InvalidValue,
                        FUNCTION,
                        format!("{device} owns the memory of this pool, so its access cannot be restricted"),
                    )),
                };
            }
            // Taking away needs no check. For giving, the runtime may answer success where no allocation can follow.
            Some(owner) if access != Access::None && !device.can_access(owner)? => {
                return Err(Error::no_peer_access("cudaDeviceCanAccessPeer", device, owner));
            }
            _ => {}
        }
        access.set_for_pool(self.0.raw, device)
    }

    /// Takes a device's access away: [`set_access`](Self::set_access) with [`Access::None`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemPoolSetAccess")]
    pub fn revoke_access(&self, device: Device) -> Result<()> {
        self.set_access(device, Access::None)
    }
}

fn access_of(pool: cudaMemPool_t, device: Device) -> Result<cudaMemAccessFlags> {
    let mut flags = cudaMemAccessFlags::cudaMemAccessFlagsProtNone;
    let mut location = cudaMemLocation::device(device.ordinal());
    // SAFETY: the pool is alive and the pointers are valid.
    unsafe { call!(cudaMemPoolGetAccess(&mut flags, pool, &mut location)) }?;
    Ok(flags)
}

fn set_access(pool: cudaMemPool_t, device: Device, flags: cudaMemAccessFlags) -> Result<()> {
    let access = cudaMemAccessDesc::new(cudaMemLocation::device(device.ordinal()), flags);
    // SAFETY: the pool is alive and the pointer is to one description.
    unsafe { call!(cudaMemPoolSetAccess(pool, &access, 1)) }
}

/// The devices that were granted access.
fn granted(pool: cudaMemPool_t, location: Location) -> Result<Vec<Device>> {
    let mut granted = Vec::new();
    if matches!(location, Location::Managed | Location::ManagedOn(_)) {
        // Nothing is granted there: all devices have access.
        return Ok(granted);
    }
    for device in Device::all()?.filter(|&device| location.owner() != Some(device)) {
        if access_of(pool, device)? != cudaMemAccessFlags::cudaMemAccessFlagsProtNone {
            granted.push(device);
        }
    }
    Ok(granted)
}

/// Takes all granted access away, from a pool of which nothing is in use. Drivers give the handle of a destroyed pool,
/// with the access that it had, to a new one: so before the end, and again for new pools, which other code's may precede.
pub(super) fn clear(pool: cudaMemPool_t, location: Location) -> Result<()> {
    // One call per device: a list is refused as a whole.
    granted(pool, location)?
        .into_iter()
        .try_for_each(|device| set_access(pool, device, cudaMemAccessFlags::cudaMemAccessFlagsProtNone))
}
