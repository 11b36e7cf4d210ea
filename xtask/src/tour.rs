//! `cargo xtask tour`: the main job, on a GPU if there is one and on the simulated runtime if not.

use anyhow::{bail, Result};

use crate::cargo;

/// The tour's answer when there is no runtime library or no device.
const NO_DEVICE: i32 = 2;

pub fn run() -> Result<()> {
    let status = cargo::cargo(&["run", "--quiet", "--package", "cuda-mempool", "--example", "tour"]).status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(NO_DEVICE) => bail!("the tour needs a CUDA device"),
        _ => bail!("the tour failed ({status})"),
    }
}
