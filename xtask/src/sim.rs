//! The simulated runtime, built and put where a program finds it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{self, Link};
use crate::wheels;

/// Builds the simulated runtime and gives its path.
pub fn build() -> Result<PathBuf> {
    cargo::run(&mut cargo::cargo(&["build", "--quiet", "--release", "--package", "cudart-sim"]))?;
    Ok(crate::target().join("release/libcudart_sim.so"))
}

/// Has what `command` runs load the simulated runtime, and fail where it would skip a test for want of a device.
pub fn apply(command: &mut Command) -> Result<()> {
    command.env("CUDA_MEMPOOL_CUDART", build()?).env("CUDA_MEMPOOL_REQUIRE_DEVICE", "1");
    Ok(())
}

/// As [`apply`], and has what it builds linked with the simulated runtime, in every link kind and in the C side too.
///
/// In the shared kinds the tests that need the simulator's controls must find them; in a static one they are hidden.
pub fn apply_to_build(command: &mut Command, link: Link) -> Result<()> {
    let toolkit = toolkit()?;
    if link != Link::Static {
        command.env("CUDA_MEMPOOL_REQUIRE_SIM", "1");
    }
    command.env("LD_LIBRARY_PATH", with_first(&toolkit.join("lib"))?);
    command.env("CUDA_HOME", &toolkit).env("CUDA_MEMPOOL_TEST_SIM", &toolkit);
    apply(command)
}

/// A toolkit with NVIDIA's headers and the simulated runtime as its library, shared and static.
fn toolkit() -> Result<PathBuf> {
    let root = crate::target().join("sim-toolkit");
    let lib = root.join("lib");
    std::fs::create_dir_all(&lib)?;
    link(&wheels::cuda(13, 0).root()?.join("include"), &root.join("include"))?;
    // A link: under both names it is one file, so a process that meets both has one runtime.
    link(&build()?, &lib.join("libcudart.so.13"))?;
    make_static(&lib.join("libcudart_static.a"))?;
    Ok(root)
}

/// Makes one object of the simulated runtime and all that it uses, of which only the CUDA functions can be seen: it then
/// goes into a Rust program without meeting that program's own standard library.
fn make_static(archive: &Path) -> Result<()> {
    let whole = crate::target().join("cudart_sim.a");
    let mut rustc = cargo::cargo(&["rustc", "--quiet", "--release", "--package", "cudart-sim"]);
    rustc.args(["--lib", "--crate-type", "staticlib", "--", "--emit"]);
    cargo::run(rustc.arg(format!("link={}", whole.display())))?;

    let (joined, object) = (whole.with_extension("joined.o"), whole.with_extension("o"));
    let mut join = Command::new("ld");
    join.args(["-r", "--force-group-allocation", "--strip-debug", "--whole-archive"]);
    cargo::run(join.arg(&whole).arg("-o").arg(&joined))?;
    let mut hide = Command::new("objcopy");
    hide.args(["--wildcard", "--keep-global-symbol=cuda*"]);
    // Bitcode of the standard library, which `ar` would try to read.
    hide.args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
    cargo::run(hide.args([&joined, &object]))?;
    let _ = std::fs::remove_file(archive);
    cargo::run(Command::new("ar").arg("rcs").args([archive, &object]))
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> Result<()> {
    let _ = std::fs::remove_file(to);
    std::os::unix::fs::symlink(from, to).with_context(|| to.display().to_string())
}

#[cfg(not(unix))]
fn link(from: &Path, to: &Path) -> Result<()> {
    anyhow::bail!("{} is to be a link to {}: the simulated runtime is for Unix", to.display(), from.display())
}

/// `LD_LIBRARY_PATH` with a folder before all others.
fn with_first(folder: &Path) -> Result<std::ffi::OsString> {
    let rest = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&rest)))?)
}
