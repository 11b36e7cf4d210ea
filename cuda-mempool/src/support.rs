//! What a device supports: yes, no, or unknown.

use std::fmt;

use cuda_mempool_sys::cudaDeviceAttr;

use crate::{Device, Error, Result, Version};

/// The answer to whether a device supports a [`Feature`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Support {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// The driver does not know the question. The way to find out is to try.
    Unknown,
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown (try it)",
        })
    }
}

/// Something that a device may or may not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Stream-ordered allocation, and pools on the device.
    MemoryPools,
    /// Pools that are shared with other processes as file descriptors.
    PosixFdPools,
    /// Pools that are shared as Win32 handles.
    Win32Pools,
    /// Pools that are shared as Win32 kernel-mode handles.
    Win32KmtPools,
    /// Pools that are shared as fabric handles. The device's yes does not say that the system is set up for it.
    FabricPools,
    /// Pools on a NUMA node of the host.
    HostNumaPools,
    /// Pools on the host.
    HostPools,
    /// Pools of managed memory.
    ManagedPools,
    /// Events that are shared with other processes.
    IpcEvents,
}

/// How to ask for a feature: the driver version before which it cannot be there, the attribute, and the bits of its
/// value that mean yes.
struct Question {
    since: Version,
    attribute: cudaDeviceAttr,
    name: &'static str,
    bits: i32,
}

impl Feature {
    /// Every feature that can be asked for.
    pub const ALL: &'static [Self] = &[
        Self::MemoryPools,
        Self::PosixFdPools,
        Self::Win32Pools,
        Self::Win32KmtPools,
        Self::FabricPools,
        Self::HostNumaPools,
        Self::HostPools,
        Self::ManagedPools,
        Self::IpcEvents,
    ];

    /// Attributes are named by number where headers before 13.0 lack them: the driver decides whether it knows one.
    fn question(self) -> Question {
        const ANY: i32 = -1;
        let (major, minor, attribute, name, bits) = match self {
            Self::MemoryPools => (11, 2, 115, "cudaDevAttrMemoryPoolsSupported", ANY),
            Self::PosixFdPools => (11, 3, 119, "cudaDevAttrMemoryPoolSupportedHandleTypes", 1),
            Self::Win32Pools => (11, 3, 119, "cudaDevAttrMemoryPoolSupportedHandleTypes", 2),
            Self::Win32KmtPools => (11, 3, 119, "cudaDevAttrMemoryPoolSupportedHandleTypes", 4),
            Self::FabricPools => (12, 4, 119, "cudaDevAttrMemoryPoolSupportedHandleTypes", 8),
            Self::HostNumaPools => (12, 2, 142, "cudaDevAttrHostNumaMemoryPoolsSupported", ANY),
            Self::HostPools => (13, 0, 144, "cudaDevAttrHostMemoryPoolsSupported", ANY),
            Self::ManagedPools => (13, 0, 89, "cudaDevAttrConcurrentManagedAccess", ANY),
            Self::IpcEvents => (11, 0, 125, "cudaDevAttrIpcEventSupport", ANY),
        };
        Question { since: Version::new(major, minor), attribute: cudaDeviceAttr(attribute), name, bits }
    }
}

impl Device {
    /// Whether this device, with the installed driver, supports `feature`. Asked anew each time.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::{Feature, Support};
    /// if device.supports(Feature::MemoryPools)? == Support::No {
    ///     println!("{device} has no memory pools");
    /// }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [`Device::count`].
    #[doc(alias = "cudaDeviceGetAttribute")]
    pub fn supports(self, feature: Feature) -> Result<Support> {
        Ok(match self.lack_of(feature)? {
            Lack::Nothing => Support::Yes,
            Lack::Unknown => Support::Unknown,
            Lack::Missing(_) => Support::No,
        })
    }

    /// An error that names what is missing when the answer is no. Unknown means try.
    pub(crate) fn require(self, feature: Feature, function: &'static str) -> Result<()> {
        match self.lack_of(feature)? {
            Lack::Nothing | Lack::Unknown => Ok(()),
            Lack::Missing(what) => Err(Error::unsupported(function, what)),
        }
    }

    fn lack_of(self, feature: Feature) -> Result<Lack> {
        let question = feature.question();
        match Version::of_driver()? {
            Some(driver) if driver < question.since => {
                return Ok(Lack::Missing(format!(
                    "{feature:?} needs a driver for CUDA {} or newer, and this one is for {driver}",
                    question.since
                )));
            }
            _ => {}
        }
        Ok(match self.attribute(question.attribute)? {
            Some(value) if value & question.bits != 0 => Lack::Nothing,
            Some(value) => Lack::Missing(format!("{feature:?}: attribute {} of {self} is {value}", question.name)),
            None => Lack::Unknown,
        })
    }
}

enum Lack {
    Nothing,
    Unknown,
    Missing(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers above are those of the headers that name them.
    #[test]
    fn attributes_have_the_numbers_of_the_headers() {
        let number = |feature: Feature| feature.question().attribute;
        assert_eq!(number(Feature::MemoryPools), cudaDeviceAttr::cudaDevAttrMemoryPoolsSupported);
        assert_eq!(number(Feature::PosixFdPools), cudaDeviceAttr::cudaDevAttrMemoryPoolSupportedHandleTypes);
        assert_eq!(number(Feature::ManagedPools), cudaDeviceAttr::cudaDevAttrConcurrentManagedAccess);
        #[cfg(cuda_since_12_0)]
        assert_eq!(number(Feature::IpcEvents), cudaDeviceAttr::cudaDevAttrIpcEventSupport);
        #[cfg(cuda_since_12_2)]
        assert_eq!(cudaDeviceAttr(134), cudaDeviceAttr::cudaDevAttrHostNumaId);
        #[cfg(cuda_since_12_9)]
        assert_eq!(number(Feature::HostNumaPools), cudaDeviceAttr::cudaDevAttrHostNumaMemoryPoolsSupported);
        #[cfg(cuda_since_13_0)]
        assert_eq!(number(Feature::HostPools), cudaDeviceAttr::cudaDevAttrHostMemoryPoolsSupported);
    }
}
