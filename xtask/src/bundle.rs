//! `cargo xtask bundle`: a folder that proves and measures the crates on a GPU machine without Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench;
use crate::cargo::{self, Link};
use crate::wheels;

/// The tests that ask a CUDA runtime something. The others need the sources, and no GPU.
const TESTS: &[&str] = &[
    "conformance",
    "c_side",
    "safe_ends",
    "safe_faults",
    "safe_lacks",
    "safe_random",
    "safe_surface",
    "safe_waits",
    "host",
    "cache",
    "resource",
    "rmm",
    "ipc",
];

/// A program with a kernel of its own.
const C_DEPENDANT: &str = "tests/fixtures/c-dependant/Cargo.toml";

/// A test of Rust and C that have a runtime each.
const TWO_RUNTIMES: &str = "tests/fixtures/two-runtimes/Cargo.toml";

/// What the target machine runs.
const SCRIPTS: &[(&str, &str)] =
    &[("run.sh", include_str!("bundle/run.sh")), ("sanitize.sh", include_str!("bundle/sanitize.sh"))];

/// Builds the tests and examples in all three link kinds, and what measures, into `target/bundle`.
pub fn run() -> Result<PathBuf> {
    let folder = crate::target().join("bundle");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    for link in Link::ALL {
        let mut tests = cargo::cargo(&["test", "--release", "--no-run", "--package", "cuda-mempool-tests"]);
        for name in TESTS {
            tests.args(["--test", name]);
        }
        let mut examples = cargo::cargo(&["build", "--release", "--examples"]);
        examples.args(["--package", "cuda-mempool-tests", "--package", "cuda-mempool"]);
        examples.args(["--features", "cuda-mempool/allocator-api2"]);
        let with_kernel = cargo::cargo(&["build", "--release", "--manifest-path", C_DEPENDANT]);
        let mut two_runtimes = cargo::cargo(&["test", "--release", "--no-run", "--manifest-path", TWO_RUNTIMES]);
        two_runtimes.env("THEIR_CUDA_HOME", wheels::cuda(12, 9).root()?);
        let mut commands = vec![tests, examples, with_kernel];
        if link == Link::Dlopen {
            commands.push(two_runtimes);
        }
        for command in &mut commands {
            link.apply(command)?;
            // The C side wants headers where Rust does not, and a device compiler for its kernel.
            command.env("CUDA_HOME", wheels::nvcc()?);
            // A build of its own for each kind: the next one then finds what it needs.
            command.env("CARGO_TARGET_DIR", crate::target().join("bundle-build").join(link.name()));
            command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
            for program in cargo::executables(command)?.into_iter().filter(|program| program.kind != "lib") {
                copy(&program.path, &folder.join(link.name()).join(&program.kind).join(&program.name))?;
            }
        }
        c_allocator(link, &folder.join(link.name()).join("c/allocator"))?;
    }
    bench::build(&folder.join("bench"))?;
    for (name, text) in SCRIPTS {
        let script = folder.join(name);
        fs::write(&script, text)?;
        make_executable(&script)?;
    }
    println!("{}", folder.display());
    Ok(folder)
}

/// Builds the library for C as its users do, and the C program that tests it, with the library inside.
fn c_allocator(link: Link, program: &Path) -> Result<()> {
    let toolkit = wheels::nvcc()?;
    let prefix = crate::target().join("bundle-build").join(link.name()).join("c");
    let mut make = Command::new("make");
    make.args(["--silent", "--directory"]).arg(crate::root().join("cuda-mempool-c")).arg("install");
    make.arg(format!("PREFIX={}", prefix.display())).arg(format!("TARGET_DIR={}/target", prefix.display()));
    link.apply(&mut make)?;
    cargo::run(make.env("CUDA_HOME", &toolkit))?;

    let needed = std::fs::read_to_string(prefix.join("target/private"))?;
    fs::create_dir_all(program.parent().context("a file lies in a folder")?)?;
    let mut cc = Command::new("cc");
    cc.arg("-pthread").arg("-I").arg(prefix.join("include")).arg("-o").arg(program);
    cc.arg(crate::root().join("tests/c/allocator.c")).arg(prefix.join("lib/libcuda_mempool_c.a"));
    cargo::run(cc.arg("-L").arg(toolkit.join("lib")).args(needed.split_whitespace()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(())
}

#[cfg(unix)]
pub fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
pub fn make_executable(_path: &Path) -> Result<()> {
    Ok(())
}
