//! Where CUDA is usually installed.

use std::ffi::OsString;
use std::path::PathBuf;

/// The runtime's file names, newest first.
#[cfg(not(windows))]
pub const SONAMES: &[&str] = &["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"];
/// The runtime's file names, newest first.
#[cfg(windows)]
pub const SONAMES: &[&str] = &["cudart64_13.dll", "cudart64_12.dll", "cudart64_110.dll"];

/// What to load, in order.
pub fn libraries(_variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    SONAMES.iter().map(PathBuf::from).collect()
}
