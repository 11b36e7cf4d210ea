//! `cargo xtask bundle`: a folder that proves and measures the crates on a GPU machine without Rust.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::bench;
use crate::cargo::{self, Link};

/// The tests that ask a CUDA runtime something. The others need the sources, and no GPU.
const TESTS: &[&str] = &[
    "conformance",
    "safe_ends",
    "safe_faults",
    "safe_lacks",
    "safe_random",
    "safe_surface",
    "host",
    "cache",
    "resource",
    "rmm",
    "ipc",
];

/// What the target machine runs.
const SCRIPTS: &[(&str, &str)] =
    &[("run.sh", include_str!("bundle/run.sh")), ("sanitize.sh", include_str!("bundle/sanitize.sh"))];

/// Builds the tests, examples and benches in all three link kinds into `target/bundle`.
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
        let mut benches = cargo::cargo(&[
            "bench",
            "--no-run",
            "--package",
            "cuda-mempool-tests",
            "--package",
            "cuda-mempool",
            "--benches",
        ]);
        for command in [&mut examples, &mut benches] {
            command.args(["--features", "cuda-mempool/allocator-api2"]);
        }
        for command in [&mut tests, &mut examples, &mut benches] {
            link.apply(command)?;
            // A build of its own for each kind: the next one then finds what it needs.
            command.env("CARGO_TARGET_DIR", crate::target().join("bundle-build").join(link.name()));
            command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols").env("CARGO_PROFILE_BENCH_STRIP", "symbols");
            for program in cargo::executables(command)?.into_iter().filter(|program| program.kind != "lib") {
                copy(&program.path, &folder.join(link.name()).join(&program.kind).join(&program.name))?;
            }
        }
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
