//! The project's own commands. `cargo xtask help` lists them.

mod bench;
#[cfg(feature = "generators")]
mod bindings;
mod bundle;
mod cargo;
mod counts;
#[cfg(feature = "generators")]
mod debian;
mod docs;
#[cfg(not(feature = "generators"))]
mod generators;
#[cfg(feature = "generators")]
mod header;
mod sim;
mod test;
mod tour;
mod wheels;

use std::path::{Path, PathBuf};

use clap::Parser;
#[cfg(not(feature = "generators"))]
use generators::{bindings, header};

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The project's own commands")]
enum Command {
    /// Show what the crates do, on a GPU if there is one and on the simulated runtime if not.
    Tour,
    /// Run everything that proves the crates on a machine without a GPU.
    Test {
        /// Only these parts.
        parts: Vec<test::Part>,
    },
    /// Make the checked-in bindings of every supported CUDA version again.
    Bindings {
        /// Change nothing; fail when a checked-in file is not what the generator makes.
        #[arg(long)]
        check: bool,
    },
    /// Make docs/from-cuda.md of the guide's samples again.
    Docs {
        /// Change nothing; fail when the document is not what the guide makes.
        #[arg(long)]
        check: bool,
    },
    /// Make the C header of cuda-mempool-c again.
    Header {
        /// Change nothing; fail when the header is not what the source makes.
        #[arg(long)]
        check: bool,
    },
    /// Make the folder target/bundle, whose run.sh tests the crates on a GPU machine without Rust.
    Bundle,
    /// Measure the crate beside the C calls and its peers on a GPU, and draw the result: docs/benchmarks.md.
    Bench {
        /// Measure nothing; draw these results.json of target/bundle/bench/bench.sh.
        #[arg(long)]
        from: Vec<PathBuf>,
        /// Measure nothing; count the instructions of the hot paths anew, which `cargo xtask test counts` keeps to.
        #[arg(long, conflicts_with = "from")]
        counts: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Tour => tour::run(),
        Command::Test { parts } => test::run(&parts),
        Command::Bindings { check } => bindings::run(check),
        Command::Docs { check } => docs::run(check),
        Command::Header { check } => header::run(check),
        Command::Bundle => bundle::run().map(drop),
        Command::Bench { counts: true, .. } => counts::renew(),
        Command::Bench { from, .. } => bench::run(&from),
    }
}

/// The root of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where cargo builds, and where this tool keeps what it fetches.
fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").and_then(|folder| std::path::absolute(folder).ok());
    named.unwrap_or_else(|| root().join("target"))
}
