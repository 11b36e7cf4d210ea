//! Which version's bindings serve the build.

use crate::environment::Environment;
use crate::version::{list, Version};

/// The version that the user asks for by `CUDA_MEMPOOL_CUDA_VERSION`.
pub fn asked(environment: &Environment<'_>, known: &[Version]) -> Result<Option<Version>, String> {
    let Some(text) = environment.text("CUDA_MEMPOOL_CUDA_VERSION") else { return Ok(None) };
    match text.parse().ok().filter(|version| known.contains(version)) {
        Some(version) => Ok(Some(version)),
        None => Err(format!(
            "CUDA_MEMPOOL_CUDA_VERSION={text}: there are no bindings of that version. Unset it, or set it to one of {}",
            list(known)
        )),
    }
}

/// The checked-in bindings for a toolkit: its own, else the next lower ones. Newer headers only add to older ones
/// within a major version.
pub fn for_toolkit(toolkit: Version, known: &[Version]) -> Version {
    *known.iter().rev().find(|&&version| version <= toolkit).unwrap_or(&known[0])
}
