//! Real CUDA runtimes, reached in every link kind. Without a driver nearly every call answers InsufficientDriver.

use std::fs;
use std::path::{Path, PathBuf};

use crate::probe::{clean, printed, value, Build};

/// The unpacked toolkit of a version; nothing where the folder of toolkits is not given.
pub fn toolkit(version: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("CUDA_MEMPOOL_TEST_WHEELS") else {
        println!("skipped: CUDA_MEMPOOL_TEST_WHEELS is not set (cargo xtask test sets it)");
        return None;
    };
    Some(Path::new(&folder).join(format!("cuda-{version}")))
}

/// The calls reached a real runtime of this version, which lies in `file`.
#[track_caller]
fn reached(report: &str, link: &str, version: &str, file: &Path) {
    assert_eq!(value(report, "link"), link);
    assert_eq!(Path::new(value(report, "path")).canonicalize().unwrap(), file.canonicalize().unwrap());
    let has_driver = Path::new("/dev/nvidiactl").exists();
    // A runtime of CUDA 11 asks the driver even for its own version.
    let version = if version.starts_with("11") && !has_driver { "0" } else { version };
    assert_eq!(value(report, "version"), version);
    if !has_driver {
        assert_eq!(value(report, "answer"), "35");
        assert_eq!(value(report, "name"), "cudaErrorInsufficientDriver");
        assert_eq!(value(report, "text"), "CUDA driver version is insufficient for CUDA runtime version");
    }
}

#[test]
fn shared_library_is_linked() {
    for (version, number, name) in [("12.9", "12090", "libcudart.so.12"), ("13.0", "13000", "libcudart.so.13")] {
        let Some(root) = toolkit(version) else { return };
        let program = Build::new("dylib").variable("CUDA_HOME", &root).program();
        let report = printed(clean(program).arg("report").env("LD_LIBRARY_PATH", root.join("lib")));
        reached(&report, "dylib", number, &root.join("lib").join(name));
    }
}

#[test]
fn static_library_is_linked() {
    for (version, number) in [("12.9", "12090"), ("13.0", "13000")] {
        let Some(root) = toolkit(version) else { return };
        let program = Build::new("static").variable("CUDA_HOME", &root).program();
        let report = printed(clean(&program).arg("report"));
        reached(&report, "static", number, &program);
    }
}

#[test]
fn shared_library_is_loaded() {
    for (version, number, name) in [
        ("11.8", "11080", "libcudart.so.11.0"),
        ("12.0", "12000", "libcudart.so.12"),
        ("12.9", "12090", "libcudart.so.12"),
        ("13.0", "13000", "libcudart.so.13"),
        ("13.5", "13050", "libcudart.so.13"),
    ] {
        let Some(root) = toolkit(version) else { return };
        let library = root.join("lib").join(name);
        let program = Build::new("dlopen").program();
        let report = printed(clean(program).arg("report").env("CUDA_MEMPOOL_CUDART", &library));
        reached(&report, "dlopen", number, &library);
    }
}

#[test]
fn toolkit_is_taken_without_being_asked_for() {
    let Some(root) = toolkit("13.0") else { return };
    let program = Build::unsettled().variable("CUDA_HOME", &root).program();
    let told = printed(clean(program).arg("told").env("LD_LIBRARY_PATH", root.join("lib")));
    assert_eq!(value(&told, "link"), "dylib");
    assert_eq!(value(&told, "version"), "13.0");
    assert_eq!(value(&told, "version_number"), "13000");
    assert_eq!(Path::new(value(&told, "root")), root);
    assert_eq!(Path::new(value(&told, "include")), root.join("include"));
    assert_eq!(Path::new(value(&told, "lib_dir")), root.join("lib"));
    assert!(value(&told, "since").ends_with(",13_0"));
}

/// Generated at build time, the bindings are the checked-in ones but for their first lines.
#[test]
fn bindings_made_at_build_time() {
    let Some(root) = toolkit("13.0") else { return };
    let libclang = std::env::var("LIBCLANG_PATH").map(PathBuf::from).unwrap_or(root.with_file_name("libclang"));
    for link in ["dylib", "dlopen"] {
        let build = Build::new(link).feature("bindgen").variable("CUDA_HOME", &root);
        let program = build.variable("LIBCLANG_PATH", &libclang).program();
        let told = printed(clean(program).arg("told").env("LD_LIBRARY_PATH", root.join("lib")));
        let file = value(&told, "bindings");
        assert!(file.contains("/out/"), "{file}");
        let made = fs::read_to_string(file).unwrap();
        let checked_in = include_str!("../../cuda-mempool-sys/src/bindings/cuda_13_0.rs");
        let (_first_line, checked_in) = checked_in.split_once("\n\n").unwrap();
        assert!(made == checked_in, "the bindings differ");
    }
}

#[test]
fn libclang_that_is_missing_is_named() {
    let Some(root) = toolkit("13.0") else { return };
    let build = Build::new("dlopen").feature("bindgen").variable("CUDA_HOME", &root);
    let (built, said) = build.variable("LIBCLANG_PATH", "/nowhere").check();
    if built {
        println!("skipped: the system has a libclang in its usual place");
        return;
    }
    crate::probe::says(&said, &["the feature `bindgen` could not make the bindings", "libclang-dev", "LIBCLANG_PATH"]);
}
