//! `cargo xtask test`: everything that proves the crates on a machine without a GPU.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::cargo::{self, Link};
use crate::{bindings, docs, header, sim, wheels};

/// The parts of the test run, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// rustfmt, clippy and rustdoc, with warnings denied; documents made from sources are as these make them.
    Style,
    /// The checked-in bindings are what the generator makes, for x86-64 and for 64-bit Arm.
    Bindings,
    /// Against the bindings of every supported CUDA version the crates compile without a warning, and what hides the
    /// differences between the versions does so.
    Versions,
    /// The test suites, in every link kind.
    Suites,
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
            Self::Versions => versions(),
            Self::Suites => suites(),
            Self::Packages => packages(),
        }
    }
}

fn style() -> Result<()> {
    docs::run(true)?;
    header::run(true)?;
    cargo::run(&mut cargo::cargo(&["fmt", "--all", "--check"]))?;
    cargo::run(&mut cargo::cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    cargo::run(cargo::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn versions() -> Result<()> {
    for cuda in wheels::SUPPORTED {
        let mut check = cargo::cargo(&["clippy", "--package", "cuda-mempool-sys", "--package", "cuda-mempool"]);
        check.args(["--", "--deny", "warnings"]);
        let mut test = cargo::cargo(&["test", "--package", "cuda-mempool-sys", "--lib"]);
        for command in [&mut check, &mut test] {
            Link::Dlopen.apply(command)?;
            cargo::run(command.env("CUDA_MEMPOOL_CUDA_VERSION", format!("{}.{}", cuda.major, cuda.minor)))?;
        }
    }
    Ok(())
}

fn suites() -> Result<()> {
    for cuda in wheels::SUPPORTED {
        cuda.root()?;
    }
    wheels::nvcc()?;
    for link in Link::ALL {
        let mut test = cargo::cargo(&["test", "--workspace"]);
        link.apply(&mut test)?;
        sim::apply_to_build(&mut test, link)?;
        test.env("CUDA_MEMPOOL_TEST_WHEELS", wheels::folder());
        cargo::run(&mut test).with_context(|| format!("link kind {}", link.name()))?;
    }
    Ok(())
}

fn packages() -> Result<()> {
    // Verifying builds each package from what was packed, away from the workspace.
    cargo::run(&mut cargo::cargo(&["package", "--package", "cuda-mempool-sys", "--package", "cuda-mempool"]))
}
