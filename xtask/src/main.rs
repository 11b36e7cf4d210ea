//! The project's own commands. `cargo xtask help` lists them.

mod bindings;
mod wheels;

use clap::Parser;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The project's own commands")]
enum Command {
    /// Make the checked-in bindings of every supported CUDA version again.
    Bindings {
        /// Change nothing; fail when a checked-in file is not what the generator makes.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Bindings { check } => bindings::run(check),
    }
}

/// The root of the workspace.
fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where cargo builds, and where this tool keeps what it fetches.
fn target() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into)
}
