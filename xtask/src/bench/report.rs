//! The results of the comparison, written up and drawn.

mod document;
mod figures;
mod merge;
mod plot;
#[path = "../../../benches/report/results.rs"]
mod results;
#[cfg(test)]
#[path = "../../../benches/report/statistics.rs"]
mod statistics;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use results::Report;

/// Makes docs/benchmarks.* of the results of one machine.
pub fn make(files: &[PathBuf]) -> Result<()> {
    let mut reports = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        reports.extend(read(&text).with_context(|| file.display().to_string())?);
    }
    let report = merge::merge(reports)?;

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

/// The reports of the programs that bench.sh ran, which stand in its file one after the other.
fn read(text: &str) -> Result<Vec<Report>> {
    Ok(serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>()?)
}
