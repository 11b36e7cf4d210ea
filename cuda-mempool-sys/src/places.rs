//! Where CUDA is usually installed.
//!
//! Compiled into the build script, which looks for headers and a library to link, and into the crate, which looks for
//! a library to load: one list for both.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variables that name the root of a toolkit.
pub const VARIABLES: [&str; 3] = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

/// Where a toolkit keeps its headers and its libraries, below its root. The first that is there counts.
pub fn layouts(os: &str, arch: &str) -> Vec<(PathBuf, PathBuf)> {
    if os == "windows" {
        return vec![("include".into(), "lib/x64".into())];
    }
    // On Arm a server's tree and a Tegra's differ in name alone.
    let targets: &[&str] = match arch {
        "x86_64" => &["x86_64-linux"],
        "aarch64" => &["sbsa-linux", "aarch64-linux"],
        _ => &[],
    };
    let targets = targets.iter().map(|target| Path::new("targets").join(target));
    let own = targets.map(|target| (target.join("include"), target.join("lib")));
    let multiarch = format!("lib/{arch}-linux-gnu");
    own.chain(["lib64", "lib", multiarch.as_str()].map(|lib| ("include".into(), lib.into()))).collect()
}

/// The roots that no variable of [`VARIABLES`] names, first choice first. `filesystem` is `/`, but for tests.
pub fn usual_roots(variable: &dyn Fn(&str) -> Option<OsString>, filesystem: &Path) -> Vec<PathBuf> {
    let conda = variable("CONDA_PREFIX").map(PathBuf::from);
    let virtualenv = variable("VIRTUAL_ENV").map(PathBuf::from);
    let mut roots = vec![filesystem.join("usr/local/cuda")];
    roots.extend(newest_first(&filesystem.join("usr/local"), "cuda-"));
    roots.push(filesystem.join("opt/cuda"));
    roots.extend(conda.clone());
    roots.push(filesystem.join("usr"));
    for python in [virtualenv, conda].into_iter().flatten() {
        roots.extend(wheels(&python));
    }
    roots
}

/// The roots that NVIDIA's PyPI packages make below the prefix of a Python.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for python in newest_first(&prefix.join("lib"), "python3.") {
        let nvidia = python.join("site-packages/nvidia");
        roots.extend(newest_first(&nvidia, "cu"));
        roots.extend(Some(nvidia.join("cuda_runtime")).filter(|root| root.is_dir()));
    }
    roots
}

/// The entries of a folder that are named by a prefix and a version (`cuda-12.4`, `cu13`).
fn newest_first(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let version = |path: &Path| -> Option<Vec<u32>> {
        let version = path.file_name()?.to_str()?.strip_prefix(prefix)?;
        version.split('.').map(|part| part.parse().ok()).collect()
    };
    let entries = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut versioned: Vec<_> = entries.filter_map(|path| Some((version(&path)?, path))).collect();
    versioned.sort();
    versioned.into_iter().rev().map(|(_, path)| path).collect()
}
