//! `cargo xtask bench`: this crate beside the C calls and its peers, measured on a GPU, written up and drawn.

mod programs;
#[cfg(feature = "generators")]
mod report;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;
#[cfg(not(feature = "generators"))]
use crate::generators::report;

pub use programs::build;

/// Measures, unless the results of an earlier run are given, and makes docs/benchmarks.* of them.
pub fn run(from: &[PathBuf]) -> Result<()> {
    if from.is_empty() {
        report::make(&[measure()?])
    } else {
        report::make(from)
    }
}

fn measure() -> Result<PathBuf> {
    let folder = crate::target().join("bench/programs");
    programs::build(&folder)?;
    let results = crate::target().join("bench/results");
    cargo::run(Command::new(folder.join("bench.sh")).arg(&results)).with_context(|| {
        format!(
            "without a GPU here: copy {} to a machine with one, run its bench.sh there, and give what it writes to \
             `cargo xtask bench --from`",
            folder.display()
        )
    })?;
    Ok(results.join("results.json"))
}
