//! The commands that generate something take bindgen, cbindgen and plotters, which are long to build. Built without them, this tool has
//! itself built again, with them, when such a command is called.

use std::ffi::OsStr;

use anyhow::Result;

use crate::cargo;

fn built_again(command: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
    let mut again = cargo::cargo(&["run", "--quiet", "--package", "xtask", "--features", "generators", "--", command]);
    cargo::run(again.args(arguments))
}

pub mod bindings {
    pub fn run(check: bool) -> anyhow::Result<()> {
        super::built_again("bindings", check.then_some("--check"))
    }
}

pub mod header {
    pub fn run(check: bool) -> anyhow::Result<()> {
        super::built_again("header", check.then_some("--check"))
    }
}

pub mod report {
    use std::ffi::OsStr;
    use std::path::PathBuf;

    pub fn make(files: &[PathBuf]) -> anyhow::Result<()> {
        super::built_again("bench", files.iter().flat_map(|file| [OsStr::new("--from"), file.as_os_str()]))
    }
}
