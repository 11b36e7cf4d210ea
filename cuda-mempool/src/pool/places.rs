//! The pools that a place has: its default one, and its current one.

use cuda_mempool_sys as sys;
use sys::cudaMemPool_t;

use super::registry::{self, Found};
use super::{Location, MemPool};
use crate::error::call;
use crate::{Error, ErrorKind, Result};

impl MemPool {
    /// The default pool of a place, which is there without being made and is never destroyed.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the device has no memory pools, or where the place is not a device and the
    /// bindings or the runtime are older than 13.0; or what the runtime answers.
    #[doc(alias = "cudaDeviceGetDefaultMemPool")]
    #[doc(alias = "cudaMemGetDefaultMemPool")]
    pub fn default_for(location: impl Into<Location>) -> Result<Self> {
        let location = location.into();
        default_raw(location).map(|raw| Self::from_parts(raw, location, false))
    }

    /// The pool that plain `cudaMallocAsync` allocates from in this place: its default one, unless another was
    /// [set](Self::set_current_for).
    ///
    /// # Errors
    /// [`ErrorKind::Foreign`] when other code has set a pool that this crate did not make: how long that lives is not
    /// known. Its owner can lend it through [`from_raw_borrowed`](Self::from_raw_borrowed). Else as
    /// [`default_for`](Self::default_for).
    #[doc(alias = "cudaDeviceGetMemPool")]
    #[doc(alias = "cudaMemGetMemPool")]
    pub fn current_for(location: impl Into<Location>) -> Result<Self> {
        let location = location.into();
        let default = Self::default_for(location)?;
        match registry::find(|| current_raw(location))? {
            Found::Ours(pool) => Ok(Self(pool)),
            // When it is destroyed, the default pool takes its place.
            Found::Dying => Ok(default),
            Found::NotOurs(raw) if raw == default.0.raw => Ok(default),
            Found::NotOurs(_) => Err(Error::refused(
                ErrorKind::Foreign,
                "cudaDeviceGetMemPool",
                format!("the current pool of {location} belongs to other code, which may destroy it at any time"),
            )),
        }
    }

    /// Has plain `cudaMallocAsync`, of all code in this process, allocate from `pool` in this place.
    ///
    /// This does not keep the pool: when it is destroyed, the default pool takes its place.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] when the pool's memory is not in this place, or as [`default_for`](Self::default_for).
    #[doc(alias = "cudaDeviceSetMemPool")]
    #[doc(alias = "cudaMemSetMemPool")]
    pub fn set_current_for(location: impl Into<Location>, pool: &Self) -> Result<()> {
        set_current_raw(location.into(), pool.0.raw)
    }
}

/// Has the default pool take the place of one that is about to end, as destroying it would.
pub(super) fn leave(raw: cudaMemPool_t, location: Location) -> Result<()> {
    match current_raw(location) {
        Ok(current) if current == raw => set_current_raw(location, default_raw(location)?),
        // Where there are no current pools, it is none.
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
        _ => Ok(()),
    }
}

fn default_raw(location: Location) -> Result<cudaMemPool_t> {
    let Location::Device(device) = location else { return default_elsewhere(location) };
    device.require(location.feature(), "cudaDeviceGetDefaultMemPool")?;
    let mut raw = std::ptr::null_mut();
    // SAFETY: the out pointer is valid.
    unsafe { call!(cudaDeviceGetDefaultMemPool(&mut raw, device.ordinal())) }?;
    Ok(raw)
}

fn current_raw(location: Location) -> Result<cudaMemPool_t> {
    let Location::Device(device) = location else { return current_elsewhere(location) };
    let mut raw = std::ptr::null_mut();
    // SAFETY: the out pointer is valid.
    unsafe { call!(cudaDeviceGetMemPool(&mut raw, device.ordinal())) }?;
    Ok(raw)
}

fn set_current_raw(location: Location, pool: cudaMemPool_t) -> Result<()> {
    let Location::Device(device) = location else { return set_current_elsewhere(location, pool) };
    // SAFETY: the pool is alive.
    unsafe { call!(cudaDeviceSetMemPool(device.ordinal(), pool)) }
}

#[cfg(cuda_since_13_0)]
fn default_elsewhere(location: Location) -> Result<cudaMemPool_t> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointers are valid.
    unsafe { call!(cudaMemGetDefaultMemPool(&mut raw, &mut location.to_raw(), location.kind())) }?;
    Ok(raw)
}

#[cfg(cuda_since_13_0)]
fn current_elsewhere(location: Location) -> Result<cudaMemPool_t> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the pointers are valid.
    unsafe { call!(cudaMemGetMemPool(&mut raw, &mut location.to_raw(), location.kind())) }?;
    Ok(raw)
}

#[cfg(cuda_since_13_0)]
fn set_current_elsewhere(location: Location, pool: cudaMemPool_t) -> Result<()> {
    // SAFETY: the location is valid and the pool alive.
    unsafe { call!(cudaMemSetMemPool(&mut location.to_raw(), location.kind(), pool)) }
}

#[cfg(not(cuda_since_13_0))]
fn default_elsewhere(_location: Location) -> Result<cudaMemPool_t> {
    Err(Error::not_bound("cudaMemGetDefaultMemPool"))
}

#[cfg(not(cuda_since_13_0))]
fn current_elsewhere(_location: Location) -> Result<cudaMemPool_t> {
    Err(Error::not_bound("cudaMemGetMemPool"))
}

#[cfg(not(cuda_since_13_0))]
fn set_current_elsewhere(_location: Location, _pool: cudaMemPool_t) -> Result<()> {
    Err(Error::not_bound("cudaMemSetMemPool"))
}
