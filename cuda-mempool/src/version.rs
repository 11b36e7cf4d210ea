//! Versions of the runtime and of the driver.

use std::fmt;

use crate::error::call;
use crate::Result;

/// A CUDA version, such as 12.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The part before the dot.
    pub major: u32,
    /// The part after the dot.
    pub minor: u32,
}

impl Version {
    /// The version `major.minor`.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// From the number that CUDA uses, 12040 for 12.4.
    pub(crate) fn from_raw(number: i32) -> Self {
        let number = number.unsigned_abs();
        Self { major: number / 1000, minor: number % 1000 / 10 }
    }

    /// The version of the CUDA runtime that this program uses.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) when none could be loaded.
    #[doc(alias = "cudaRuntimeGetVersion")]
    pub fn of_runtime() -> Result<Self> {
        let mut number = 0;
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaRuntimeGetVersion(&mut number)) }?;
        Ok(Self::from_raw(number))
    }

    /// The newest version that the installed driver supports; `None` when no driver is installed.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) when no runtime could be loaded.
    #[doc(alias = "cudaDriverGetVersion")]
    pub fn of_driver() -> Result<Option<Self>> {
        let mut number = 0;
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaDriverGetVersion(&mut number)) }?;
        Ok((number != 0).then(|| Self::from_raw(number)))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_numbers_of_cuda() {
        assert_eq!(Version::from_raw(11080), Version::new(11, 8));
        assert_eq!(Version::from_raw(13000).to_string(), "13.0");
        assert!(Version::new(12, 9) < Version::new(13, 0));
    }
}
