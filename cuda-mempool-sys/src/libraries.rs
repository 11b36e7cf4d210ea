//! Which libraries to load, in order (link kind `dlopen`).

use std::env::consts::{ARCH, OS};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::places;

/// The runtime's file names, newest first.
#[cfg(not(windows))]
pub const NAMES: &[&str] = &["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"];
/// The runtime's file names, newest first.
#[cfg(windows)]
pub const NAMES: &[&str] = &["cudart64_13.dll", "cudart64_12.dll", "cudart64_110.dll"];

/// Something to load, or a place where there is nothing, with the reason.
pub type Candidate = Result<PathBuf, (PathBuf, String)>;

/// Everything that is worth a try: bare names, which the system's loader looks up, then the folders of toolkits.
/// `filesystem` is `/`, but for tests.
pub fn candidates(variable: &dyn Fn(&str) -> Option<OsString>, filesystem: &Path) -> Vec<Candidate> {
    let names = NAMES.iter().map(|name| Ok(PathBuf::from(name)));
    let named = places::VARIABLES.iter().filter_map(|name| variable(name)).map(PathBuf::from);
    let mut roots: Vec<PathBuf> = Vec::new();
    for root in named.chain(places::usual_roots(variable, filesystem)) {
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    names.chain(roots.iter().flat_map(|root| below(root))).collect()
}

fn below(root: &Path) -> Vec<Candidate> {
    if !root.is_dir() {
        return vec![Err((root.to_owned(), "no such folder".into()))];
    }
    let folders = folders();
    let paths = folders.iter().flat_map(|folder| NAMES.iter().map(move |name| root.join(folder).join(name)));
    let found: Vec<_> = paths.filter(|path| path.is_file()).map(Ok).collect();
    if found.is_empty() {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        let why = format!("none of {} in {}", NAMES.join(", "), folders.join(", "));
        return vec![Err((root.to_owned(), why))];
    }
    found
}

/// Where a toolkit keeps what programs load, below its root.
fn folders() -> Vec<PathBuf> {
    if cfg!(windows) {
        return vec!["bin/x64".into(), "bin".into()];
    }
    places::layouts(OS, ARCH).into_iter().map(|(_, lib)| lib).collect()
}
