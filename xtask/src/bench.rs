//! `cargo xtask bench`: this crate beside the C calls and its peers, measured on a GPU, written up and drawn.

mod document;
mod figures;
mod merge;
mod plot;
mod programs;
#[path = "../../benches/report/results.rs"]
mod results;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};

use crate::cargo;
use results::Report;

pub use programs::build;

/// Measures, unless the results of an earlier run are given, and makes docs/benchmarks.* of them.
pub fn run(from: &[PathBuf]) -> Result<()> {
    let files = if from.is_empty() { measure()? } else { from.to_vec() };
    let reports: Result<Vec<Report>> = files.iter().map(|file| read(file)).collect();
    let report = merge::merge(reports?)?;

    let simulated = report.machine.get("simulated").is_some_and(|simulated| simulated == "true");
    // What was measured on the simulated runtime shows the form, and is no result.
    let folder = if simulated { crate::target().join("bench/simulated") } else { crate::root().join("docs") };
    fs::create_dir_all(&folder)?;
    let plots = plot::draw(&report, &folder.join("benchmarks"))?;
    let document = folder.join("benchmarks.md");
    fs::write(&document, document::write(&report, &plots))?;
    fs::write(folder.join("benchmarks.json"), serde_json::to_string_pretty(&report)? + "\n")?;
    println!("{}", document.display());
    Ok(())
}

fn read(file: &Path) -> Result<Report> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

fn measure() -> Result<Vec<PathBuf>> {
    let folder = crate::target().join("bench/programs");
    programs::build(&folder)?;
    let results = crate::target().join("bench/results");
    if results.exists() {
        fs::remove_dir_all(&results)?;
    }
    cargo::run(Command::new(folder.join("bench.sh")).arg(&results)).with_context(|| {
        format!(
            "without a GPU here: copy {} to a machine with one, run its bench.sh there, and give what it writes to \
             `cargo xtask bench --from`",
            folder.display()
        )
    })?;
    let entries = fs::read_dir(&results).with_context(|| results.display().to_string())?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    ensure!(!files.is_empty(), "bench.sh wrote nothing");
    Ok(files)
}
