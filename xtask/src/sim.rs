//! The simulated runtime, built and put where a program finds it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{self, Link};

/// Builds the simulated runtime and gives its path.
pub fn build() -> Result<PathBuf> {
    cargo::run(&mut cargo::cargo(&["build", "--quiet", "--release", "--package", "cudart-sim"]))?;
    Ok(crate::target().join("release/libcudart_sim.so"))
}

/// Has what `command` runs use the simulated runtime, and fail where it would skip a test for want of a device
/// or of the simulator's controls.
///
/// There is no static archive of it, so that link kind stays with NVIDIA's.
pub fn apply(command: &mut Command, link: Link) -> Result<()> {
    match link {
        Link::Dlopen => {
            command.env("CUDA_MEMPOOL_CUDART", build()?);
        }
        Link::Dylib => {
            let folder = crate::target().join("sim-as-libcudart");
            std::fs::create_dir_all(&folder)?;
            let library = folder.join("libcudart.so.13");
            std::fs::copy(build()?, &library).with_context(|| library.display().to_string())?;
            command.env("LD_LIBRARY_PATH", with_first(&folder)?);
        }
        Link::Static => return Ok(()),
    }
    command.env("CUDA_MEMPOOL_REQUIRE_DEVICE", "1").env("CUDA_MEMPOOL_REQUIRE_SIM", "1");
    Ok(())
}

/// `LD_LIBRARY_PATH` with a folder before all others.
fn with_first(folder: &std::path::Path) -> Result<std::ffi::OsString> {
    let rest = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&rest)))?)
}
