//! Running cargo, and asking it what it built.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};

use crate::wheels;

/// How a build of the crates reaches the CUDA runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Link {
    Dlopen,
    Dylib,
    Static,
}

impl Link {
    pub const ALL: [Self; 3] = [Self::Dlopen, Self::Dylib, Self::Static];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dlopen => "dlopen",
            Self::Dylib => "dylib",
            Self::Static => "static",
        }
    }

    /// Makes `command` build this kind; the linked kinds against the toolkit unpacked for this tool.
    pub fn apply(self, command: &mut Command) -> Result<()> {
        command.env("CUDA_MEMPOOL_LINK", self.name());
        if self != Self::Dlopen {
            command.env("CUDA_HOME", wheels::cuda(13, 0).root()?);
        }
        Ok(())
    }
}

/// `cargo` with these arguments, in the workspace.
pub fn cargo(args: &[&str]) -> Command {
    // What cargo sets for this very program would otherwise reach the builds it starts.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(args).current_dir(crate::root()).env_remove("CARGO_MANIFEST_DIR");
    cargo
}

/// As [`cargo`], of another toolchain that rustup has.
pub fn of_toolchain(name: &str, args: &[&str]) -> Command {
    let mut cargo = Command::new("rustup");
    cargo.args(["run", name, "cargo"]).args(args).current_dir(crate::root()).env_remove("CARGO_MANIFEST_DIR");
    // The variables that name this toolchain's programs.
    cargo.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
    cargo
}

/// Runs to the end and fails with the command when it does.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "failed ({status}): {command:?}");
    Ok(())
}

/// One program that cargo built.
pub struct Executable {
    /// The target's name in its manifest.
    pub name: String,
    /// `test`, `example`, `bench`…
    pub kind: String,
    pub path: PathBuf,
}

/// Builds with these arguments and lists the programs.
pub fn executables(command: &mut Command) -> Result<Vec<Executable>> {
    command.args(["--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
    let output = command.spawn()?.wait_with_output()?;
    ensure!(output.status.success(), "failed ({}): {command:?}", output.status);
    let mut found = Vec::new();
    for line in output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(line)?;
        if let Some(path) = message["executable"].as_str() {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            found.push(Executable {
                name: text(&message["target"]["name"]),
                kind: text(&message["target"]["kind"][0]),
                path: path.into(),
            });
        }
    }
    Ok(found)
}
