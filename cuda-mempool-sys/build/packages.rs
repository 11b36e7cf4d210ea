//! CUDA as pkg-config knows it.

use pkg_config::{Config, Error};

use crate::search::Package;
use crate::version::Version;

/// The package of one version. `announces`: whether to tell Cargo the variables that pkg-config heeds, which are the
/// same for every version.
pub fn of(version: Version, announces: bool) -> Result<Option<Package>, String> {
    match Config::new().cargo_metadata(false).env_metadata(announces).probe(&format!("cudart-{version}")) {
        Ok(found) => {
            let folders = found.include_paths.into_iter().zip(found.link_paths).next();
            Ok(folders.map(|(include, lib)| Package { include, lib }))
        }
        Err(Error::ProbeFailure { .. }) => Ok(None),
        Err(why) => Err(why.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}
