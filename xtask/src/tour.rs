//! `cargo xtask tour`: the main job, on a GPU if there is one and on the simulated runtime if not.

use std::io::Write;
use std::process::Command;

use anyhow::{ensure, Result};

use crate::cargo::{self, Link};
use crate::sim;

/// The tour's answer when there is no runtime library or no device.
const NO_DEVICE: i32 = 2;

pub fn run() -> Result<()> {
    let output = tour().output()?;
    if output.status.code() != Some(NO_DEVICE) {
        std::io::stdout().write_all(&output.stdout)?;
        std::io::stderr().write_all(&output.stderr)?;
        ensure!(output.status.success(), "the tour failed ({})", output.status);
        return Ok(());
    }
    let mut simulated = tour();
    Link::Dlopen.apply(&mut simulated)?;
    sim::apply(&mut simulated)?;
    cargo::run(&mut simulated)?;
    println!("\nWhy not on a GPU: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(())
}

fn tour() -> Command {
    cargo::cargo(&["run", "--quiet", "--package", "cuda-mempool", "--example", "tour"])
}
