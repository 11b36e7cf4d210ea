//! `cargo xtask test`: everything that proves the crates on a machine without a GPU.

mod memory;
mod versions;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::cargo::{self, Link};
use crate::{bindings, counts, docs, header, sim, wheels};

/// The parts of the test run, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// rustfmt, clippy and rustdoc, with warnings denied; documents made from sources are as these make them.
    Style,
    /// The checked-in bindings are what the generator makes, for x86-64 and for 64-bit Arm.
    Bindings,
    /// Against the bindings of every supported CUDA version, in every link kind, the crates compile without a warning and
    /// the safe layer's tests pass.
    Versions,
    /// The test suites, in every link kind, and those of this tool.
    Suites,
    /// What needs a nightly compiler: the standard library's own collections in pinned memory.
    Nightly,
    /// The pinned-memory allocator under AddressSanitizer and valgrind.
    Memory,
    /// The hot paths take no more instructions than they did.
    Counts,
    /// What `cargo package` packs builds alone.
    Packages,
}

/// Runs these parts, or all if none is named.
pub fn run(parts: &[Part]) -> Result<()> {
    let chosen = |part: &&Part| parts.is_empty() || parts.contains(part);
    for part in Part::value_variants().iter().filter(chosen) {
        println!("== {part:?}");
        let start = Instant::now();
        part.run().with_context(|| format!("{part:?}"))?;
        println!("== {part:?} passed in {} s", start.elapsed().as_secs());
    }
    Ok(())
}

impl Part {
    fn run(self) -> Result<()> {
        match self {
            Self::Style => style(),
            Self::Bindings => bindings::run(true),
            Self::Versions => versions::run(),
            Self::Suites => suites(),
            Self::Nightly => nightly(),
            Self::Memory => memory::run(),
            Self::Counts => counts::check(),
            Self::Packages => packages(),
        }
    }
}

fn style() -> Result<()> {
    docs::run(true)?;
    header::run(true)?;
    cargo::run(&mut cargo::cargo(&["fmt", "--all", "--check"]))?;
    cargo::run(&mut cargo::cargo(&["fmt", "--manifest-path", "bench-peers/Cargo.toml", "--check"]))?;
    let mut clippy = cargo::cargo(&["clippy", "--workspace", "--all-targets", "--features", "xtask/generators"]);
    cargo::run(clippy.args(["--", "--deny", "warnings"]))?;
    cargo::run(cargo::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn suites() -> Result<()> {
    cargo::run(&mut cargo::cargo(&["test", "--package", "xtask", "--features", "generators"]))?;
    for cuda in wheels::SUPPORTED {
        cuda.root()?;
    }
    wheels::libclang()?;
    wheels::nvcc()?;
    wheels::rmm()?;
    if !counts::has_valgrind() {
        println!("left out: the allocator for C is not looked at by valgrind (install it)");
    }
    let library = sim::Library::build()?;
    for link in Link::ALL {
        let mut test = cargo::cargo(&["test", "--workspace"]);
        library.apply(&mut test, wheels::cuda(13, 0), link)?;
        test.env("CUDA_MEMPOOL_TEST_WHEELS", wheels::folder());
        cargo::run(&mut test).with_context(|| format!("link kind {}", link.name()))?;
    }
    Ok(())
}

/// With the nightly toolchain if rustup has it, else with this one, made to pass for nightly. Documents the safe layer as
/// docs.rs does, too.
fn nightly() -> Result<()> {
    let asked = Command::new("rustup").args(["run", "nightly", "rustc", "--version"]).output();
    let version = asked.ok().filter(|output| output.status.success());
    match &version {
        Some(output) => print!("by the nightly toolchain: {}", String::from_utf8_lossy(&output.stdout)),
        None => println!("by this toolchain with RUSTC_BOOTSTRAP=1, as rustup has no nightly one"),
    }
    let cargo = |args: &[&str]| -> Result<Command> {
        let mut command = match version {
            Some(_) => cargo::of_toolchain("nightly", args),
            None => cargo::cargo(args),
        };
        // A nightly compiler takes no notice of it.
        command.env("RUSTC_BOOTSTRAP", "1");
        // So that the two toolchains do not build everything anew after each other.
        command.env("CARGO_TARGET_DIR", crate::target().join("nightly"));
        Link::Dlopen.apply(&mut command)?;
        Ok(command)
    };
    let mut host = cargo(&["test", "--package", "cuda-mempool-tests", "--features", "nightly", "--test", "host"])?;
    sim::apply(&mut host)?;
    cargo::run(&mut host)?;
    let mut doc = cargo(&["doc", "--package", "cuda-mempool", "--no-deps", "--features", "nightly,allocator-api2"])?;
    // Not all warnings: any nightly compiler may have new ones.
    cargo::run(doc.env("RUSTDOCFLAGS", "--deny rustdoc::broken-intra-doc-links"))
}

/// Builds what `cargo package` packs in a workspace of its own, where nothing else of this one is in reach.
///
/// Cargo's own verification would do the same, but keeps what it unpacked of a version for ever, and so may build a
/// dependency as it was the first time.
fn packages() -> Result<()> {
    const PUBLISHED: [&str; 2] = ["cuda-mempool-sys", "cuda-mempool"];
    let mut package = cargo::cargo(&["package", "--quiet", "--no-verify", "--allow-dirty"]);
    for name in PUBLISHED {
        package.args(["--package", name]);
    }
    cargo::run(&mut package)?;

    let folder = crate::target().join("packed");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let (mut members, mut patches) = (String::new(), String::new());
    for name in PUBLISHED {
        let packed = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let archive = crate::target().join("package").join(format!("{packed}.crate"));
        cargo::run(Command::new("tar").arg("--extract").arg("--file").arg(archive).arg("--directory").arg(&folder))?;
        members += &format!("{packed:?}, ");
        patches += &format!("{name} = {{ path = {packed:?} }}\n");
    }
    let manifest = format!("[workspace]\nmembers = [{members}]\nresolver = \"2\"\n\n[patch.crates-io]\n{patches}");
    std::fs::write(folder.join("Cargo.toml"), manifest)?;
    let mut build = cargo::cargo(&["build", "--quiet", "--workspace"]);
    cargo::run(build.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target")))
}

#[cfg(test)]
mod tests {
    /// Those who build `cuda-mempool-c` or the simulated runtime here may have the oldest compiler. Before 1.78, cargo
    /// reads no lock file of version 4; a newer cargo leaves the version as it is.
    #[test]
    fn the_oldest_compiler_reads_the_lock_file() {
        let read = |name| std::fs::read_to_string(crate::root().join(name)).expect("a file of the workspace");
        assert!(read("Cargo.toml").contains("rust-version = \"1.77\""), "is this still needed?");
        assert!(read("Cargo.lock").contains("\nversion = 3\n"));
    }
}
