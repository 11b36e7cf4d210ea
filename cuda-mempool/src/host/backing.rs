//! The two ways to get pinned memory.

use std::ptr::NonNull;

#[cfg(target_os = "linux")]
use super::mapped_source::MappedSource;
use super::pool_source::PoolSource;
use super::source::Source;
use crate::{Access, Device, Location, MemPool, Result};

/// Where an allocator's memory comes from. There is no way from one to the other.
pub(super) enum Backing {
    Pool(PoolSource),
    #[cfg(target_os = "linux")]
    Mapped(MappedSource),
}

impl Backing {
    pub(super) fn location(&self) -> Location {
        match self {
            Self::Pool(source) => source.pool().location(),
            #[cfg(target_os = "linux")]
            Self::Mapped(source) => source.place(),
        }
    }

    pub(super) fn pool(&self) -> Option<&MemPool> {
        match self {
            Self::Pool(source) => Some(source.pool()),
            #[cfg(target_os = "linux")]
            Self::Mapped(_) => None,
        }
    }

    pub(super) fn access(&self, device: Device) -> Result<Access> {
        match self {
            Self::Pool(source) => source.pool().access(device),
            #[cfg(target_os = "linux")]
            Self::Mapped(_) => MappedSource::access(device),
        }
    }

    /// Bytes that are had from the system.
    pub(super) fn reserved(&self) -> Result<usize> {
        match self {
            Self::Pool(source) => Ok(source.pool().usage()?.reserved as usize),
            #[cfg(target_os = "linux")]
            Self::Mapped(source) => Ok(source.reserved()),
        }
    }

    pub(super) fn prime(&self, bytes: usize) -> Result<()> {
        match self {
            Self::Pool(source) => source.prime(bytes),
            #[cfg(target_os = "linux")]
            Self::Mapped(source) => source.prime(bytes),
        }
    }
}

// SAFETY: each of the two is one.
unsafe impl Source for Backing {
    const ALIGN: usize = PoolSource::ALIGN;

    fn take(&self, len: usize) -> Result<NonNull<u8>> {
        match self {
            Self::Pool(source) => source.take(len),
            #[cfg(target_os = "linux")]
            Self::Mapped(source) => source.take(len),
        }
    }

    unsafe fn give(&self, block: NonNull<[u8]>) -> bool {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Self::Pool(source) => source.give(block),
                #[cfg(target_os = "linux")]
                Self::Mapped(source) => source.give(block),
            }
        }
    }

    fn trim(&self) -> Result<()> {
        match self {
            Self::Pool(source) => source.trim(),
            #[cfg(target_os = "linux")]
            Self::Mapped(source) => source.trim(),
        }
    }
}
