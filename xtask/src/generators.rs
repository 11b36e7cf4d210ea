//! The commands that generate code take bindgen and cbindgen, which are long to build. Built without them, this tool has
//! itself built again, with them, when such a command is called.

use anyhow::Result;

use crate::cargo;

fn built_again(command: &str, check: bool) -> Result<()> {
    let mut again = cargo::cargo(&["run", "--quiet", "--package", "xtask", "--features", "generators", "--", command]);
    cargo::run(again.args(check.then_some("--check")))
}

pub mod bindings {
    pub fn run(check: bool) -> anyhow::Result<()> {
        super::built_again("bindings", check)
    }
}

pub mod header {
    pub fn run(check: bool) -> anyhow::Result<()> {
        super::built_again("header", check)
    }
}
