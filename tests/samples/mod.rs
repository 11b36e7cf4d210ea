//! Makes programs of the guide's samples: of the C, of the C++, and of the Rust beside both. Part of the build script.

mod c;
mod cpp;
mod rust;

use std::path::{Path, PathBuf};
use std::{fs, io};

#[path = "../support/guide.rs"]
#[allow(dead_code)] // `cargo xtask docs` uses the rest
mod guide;

use guide::Sample;

/// Writes `samples.c`, `samples.cpp` and `samples.rs` into `out`, and gives the path of the first.
pub fn write(out: &Path) -> io::Result<PathBuf> {
    let folder = Path::new("cuda-mempool/src");
    let samples = guide::samples(folder)?;
    fs::write(out.join("samples.cpp"), cpp::program(&samples))?;
    fs::write(out.join("samples.rs"), rust::module(&samples, &guide::sessions(folder)?))?;
    let path = out.join("samples.c");
    fs::write(&path, c::functions(&samples))?;
    Ok(path)
}

/// One of two processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Exporter,
    Importer,
}

/// The process that a sample belongs to, if it says so in its first line.
fn role(sample: &Sample) -> Option<Role> {
    match sample.foreign.lines().next()? {
        "/* the exporting process */" => Some(Role::Exporter),
        "/* the importing process */" => Some(Role::Importer),
        _ => None,
    }
}

/// The samples in a language with their numbers, by which each side calls its function.
fn numbered<'a>(samples: &'a [Sample], language: &'a str) -> impl Iterator<Item = (usize, &'a Sample)> {
    samples.iter().filter(move |sample| sample.language == language).enumerate()
}

/// Where a sample stands.
fn place(sample: &Sample) -> String {
    format!("{}.rs, {}", sample.chapter, sample.section.as_deref().unwrap_or("at the start"))
}
