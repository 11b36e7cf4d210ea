//! The GPUs of this machine.

use std::ffi::{c_char, CStr};
use std::fmt;

use cuda_mempool_sys as sys;
use sys::{cudaDeviceAttr, cudaError_t};

use crate::current::CurrentDevice;
use crate::error::call;
use crate::{pool, Error, ErrorKind, Result};

/// One GPU, by its ordinal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device(i32);

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Not in use by anybody. What pools hold in reserve is in use.
    pub free: usize,
    /// All of it.
    pub total: usize,
}

impl Device {
    /// The device with this ordinal.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidDevice`] when there is none, and as [`Device::count`].
    pub fn new(ordinal: usize) -> Result<Self> {
        let count = Self::count()?;
        match i32::try_from(ordinal) {
            Ok(number) if ordinal < count => Ok(Self(number)),
            _ => Err(Error::refused(
                ErrorKind::InvalidDevice,
                "cudaSetDevice",
                format!("there is no device {ordinal}: this machine has {count}"),
            )),
        }
    }

    #[cfg(test)]
    pub(crate) const fn from_ordinal_unchecked(ordinal: i32) -> Self {
        Self(ordinal)
    }

    /// How many devices this process can see.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`] when no runtime library could be loaded, [`ErrorKind::NoDevice`] when there is no
    /// device or no driver for it.
    #[doc(alias = "cudaGetDeviceCount")]
    pub fn count() -> Result<usize> {
        let mut count = 0;
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaGetDeviceCount(&mut count)) }?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// All devices that this process can see.
    ///
    /// # Errors
    /// As [`Device::count`].
    pub fn all() -> Result<impl Iterator<Item = Self>> {
        let count = i32::try_from(Self::count()?).unwrap_or(i32::MAX);
        Ok((0..count).map(Self))
    }

    /// The calling thread's current device.
    ///
    /// # Errors
    /// As [`Device::count`].
    #[doc(alias = "cudaGetDevice")]
    pub fn current() -> Result<Self> {
        let mut ordinal = 0;
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaGetDevice(&mut ordinal)) }?;
        Ok(Self(ordinal))
    }

    /// Runs `work` with this device current, as launching a kernel on one of its streams needs, and puts the previous
    /// one back, also on panic. From CUDA 12 on, the thread then has the device's context, for the driver's functions.
    ///
    /// # Errors
    /// When the device cannot be made current, for instance because its context could not be made.
    #[doc(alias = "cudaSetDevice")]
    pub fn with_current<R>(self, work: impl FnOnce() -> R) -> Result<R> {
        let _current = CurrentDevice::set_with_context(self)?;
        Ok(work())
    }

    /// Its ordinal, as CUDA counts.
    #[must_use]
    pub fn ordinal(self) -> i32 {
        self.0
    }

    /// Reads an attribute. `Ok(None)` when this driver does not know it.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::sys::cudaDeviceAttr;
    /// let processors = device.attribute(cudaDeviceAttr::cudaDevAttrMultiProcessorCount)?;
    /// assert!(processors.is_some());
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`Device::count`].
    #[doc(alias = "cudaDeviceGetAttribute")]
    #[inline]
    pub fn attribute(self, attribute: cudaDeviceAttr) -> Result<Option<i32>> {
        let mut value = 0;
        // SAFETY: the out pointer is valid, and any attribute may be asked for.
        match unsafe { call!(cudaDeviceGetAttribute(&mut value, attribute, self.0)) } {
            Ok(()) => Ok(Some(value)),
            Err(error) => none_if_unknown(error),
        }
    }

    /// The NUMA node of the host nearest to this device; `None` when the driver does not tell or the system has none.
    ///
    /// # Errors
    /// As [`Device::count`].
    pub fn host_numa_node(self) -> Result<Option<u32>> {
        // cudaDevAttrHostNumaId, which the headers name from 12.2 on.
        let node = self.attribute(cudaDeviceAttr(134))?;
        Ok(node.and_then(|node| u32::try_from(node).ok()))
    }

    /// Whether this device can reach the memory of `peer` directly. Of itself it says no, as CUDA does.
    ///
    /// # Errors
    /// As [`Device::count`].
    #[doc(alias = "cudaDeviceCanAccessPeer")]
    pub fn can_access(self, peer: Self) -> Result<bool> {
        let mut can = 0;
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaDeviceCanAccessPeer(&mut can, self.0, peer.0)) }?;
        Ok(can != 0)
    }

    /// Its free and total memory.
    ///
    /// # Errors
    /// When the device cannot be made current, or as [`Device::count`].
    #[doc(alias = "cudaMemGetInfo")]
    pub fn memory(self) -> Result<MemoryInfo> {
        let _current = CurrentDevice::set(self)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the out pointers are valid.
        unsafe { call!(cudaMemGetInfo(&mut free, &mut total)) }?;
        Ok(MemoryInfo { free, total })
    }

    /// Its address on the PCI bus, such as `0000:1b:00.0`: the same in every process of the machine.
    ///
    /// # Errors
    /// As [`Device::count`].
    #[doc(alias = "cudaDeviceGetPCIBusId")]
    pub fn pci_bus_id(self) -> Result<String> {
        const ROOM: i32 = 32;
        let mut text = [0 as c_char; ROOM as usize];
        // SAFETY: the buffer has the length that is given.
        unsafe { call!(cudaDeviceGetPCIBusId(text.as_mut_ptr(), ROOM, self.0)) }?;
        text[ROOM as usize - 1] = 0;
        // SAFETY: the buffer ends in a NUL.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Ok(text.to_string_lossy().into_owned())
    }

    /// The priorities that streams of this device can have, the least urgent first. Smaller numbers are more urgent.
    ///
    /// # Errors
    /// When the device cannot be made current.
    #[doc(alias = "cudaDeviceGetStreamPriorityRange")]
    pub fn stream_priorities(self) -> Result<(i32, i32)> {
        let _current = CurrentDevice::set(self)?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the out pointers are valid.
        unsafe { call!(cudaDeviceGetStreamPriorityRange(&mut least, &mut greatest)) }?;
        Ok((least, greatest))
    }

    /// Waits until all streams of this device have done their work. Pools that were dropped while their memory was in use
    /// are destroyed now, if it is back.
    ///
    /// # Errors
    /// What went wrong on the device before, or [`ErrorKind::Capture`] while a capture is going on.
    #[doc(alias = "cudaDeviceSynchronize")]
    pub fn synchronize(self) -> Result<()> {
        let _current = CurrentDevice::set(self)?;
        // SAFETY: takes nothing.
        unsafe { call!(cudaDeviceSynchronize()) }?;
        pool::sweep();
        Ok(())
    }
}

#[cold]
fn none_if_unknown(error: Error) -> Result<Option<i32>> {
    match error.raw() {
        cudaError_t::cudaErrorInvalidValue => Ok(None),
        _ => Err(error),
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}
