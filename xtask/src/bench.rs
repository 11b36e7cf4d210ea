//! `cargo xtask bench`: this crate beside the C calls and its peers, measured on a GPU and drawn.

mod programs;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo;

pub use programs::build;

/// Measures, unless the results of an earlier run are given, and makes docs/benchmarks.* of them.
pub fn run(from: &[PathBuf]) -> Result<()> {
    let measured = if from.is_empty() { measure()? } else { from.to_vec() };
    println!("{measured:?}");
    Ok(())
}

fn measure() -> Result<Vec<PathBuf>> {
    let folder = crate::target().join("bench");
    programs::build(&folder)?;
    let results = folder.join("results");
    std::fs::create_dir_all(&results)?;
    cargo::run(Command::new(folder.join("bench.sh")).arg(&results)).with_context(|| {
        format!(
            "without a GPU here: copy {} to a machine with one, run its bench.sh there, and give what it writes to \
             `cargo xtask bench --from`",
            folder.display()
        )
    })?;
    let files = std::fs::read_dir(&results).with_context(|| results.display().to_string())?;
    Ok(files.flatten().map(|file| file.path()).collect())
}
