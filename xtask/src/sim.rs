//! The simulated runtime, built and put where a program finds it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{self, Link};
use crate::wheels::Cuda;

/// Builds the simulated runtime and gives its path.
pub fn build() -> Result<PathBuf> {
    cargo::run(&mut cargo::cargo(&["build", "--quiet", "--release", "--package", "cudart-sim"]))?;
    Ok(crate::target().join("release/libcudart_sim.so"))
}

/// Has what `command` runs load the simulated runtime, and fail where it would skip a test for want of it.
pub fn apply(command: &mut Command) -> Result<()> {
    command.env("CUDA_MEMPOOL_CUDART", build()?);
    command.env("CUDA_MEMPOOL_REQUIRE_DEVICE", "1").env("CUDA_MEMPOOL_REQUIRE_SIM", "1");
    Ok(())
}

/// The simulated runtime as the library of toolkits of every version, shared and static.
pub struct Library {
    folder: PathBuf,
}

impl Library {
    pub fn build() -> Result<Self> {
        let built = build()?;
        let folder = toolkits().join("lib");
        std::fs::create_dir_all(&folder)?;
        for version in ["11.0", "12", "13"] {
            let library = folder.join(format!("libcudart.so.{version}"));
            let _ = std::fs::remove_file(&library);
            // Not a symbolic link: the search reads the major version from the file's own name. Not a copy: a process
            // that meets it under two names has one runtime.
            std::fs::hard_link(&built, &library).with_context(|| library.display().to_string())?;
        }
        make_static(&folder.join("libcudart_static.a"))?;
        Ok(Self { folder })
    }

    /// As [`apply`], and has what `command` builds linked with the library in this link kind, in the C side too, against
    /// NVIDIA's headers of this version.
    pub fn apply(&self, command: &mut Command, cuda: &Cuda, link: Link) -> Result<()> {
        apply(command)?;
        if link == Link::Static {
            // It hides the simulator's controls, so the tests that need them are skipped.
            command.env_remove("CUDA_MEMPOOL_REQUIRE_SIM");
        }
        let toolkit = self.toolkit(cuda)?;
        command.env("CUDA_MEMPOOL_LINK", link.name()).env("LD_LIBRARY_PATH", with_first(&self.folder)?);
        command.env("CUDA_HOME", &toolkit).env("CUDA_MEMPOOL_TEST_SIM", &toolkit);
        Ok(())
    }

    /// A toolkit with NVIDIA's headers of this version.
    fn toolkit(&self, cuda: &Cuda) -> Result<PathBuf> {
        let root = toolkits().join(format!("{}.{}", cuda.major, cuda.minor));
        std::fs::create_dir_all(&root)?;
        link(&cuda.root()?.join("include"), &root.join("include"))?;
        link(&self.folder, &root.join("lib"))?;
        Ok(root)
    }
}

/// Where the toolkits are.
fn toolkits() -> PathBuf {
    crate::target().join("sim-toolkits")
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
