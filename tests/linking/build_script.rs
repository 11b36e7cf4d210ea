//! The build script as cargo runs it: the search itself is tested on made-up trees in tests/search.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::probe::{says, Build};

/// A toolkit that can be checked against, not linked: a header, and as much of a library as the search looks at.
fn fake_toolkit(root: &Path, version: u32) {
    let lib = root.join("lib64");
    fs::create_dir_all(root.join("include")).unwrap();
    fs::create_dir_all(&lib).unwrap();
    fs::write(root.join("include/cuda_runtime_api.h"), format!("#define CUDART_VERSION {version}\n")).unwrap();
    let name = format!("libcudart.so.{}", version / 1000);
    // Any library of this machine has the right architecture: the program that runs the test is one.
    fs::copy(std::env::current_exe().unwrap(), lib.join(&name)).unwrap();
    symlink(&name, lib.join("libcudart.so")).unwrap();
}

#[test]
fn a_wrong_link_kind_stops_the_build() {
    let (built, said) = Build::new("shared").check();
    assert!(!built);
    says(&said, &["error: CUDA_MEMPOOL_LINK=shared is no link kind", "dylib", "static", "dlopen"]);
}

#[test]
fn an_unknown_version_stops_the_build() {
    let (built, said) = Build::unsettled().variable("CUDA_MEMPOOL_CUDA_VERSION", "12.7").check();
    assert!(!built);
    says(&said, &["error: CUDA_MEMPOOL_CUDA_VERSION=12.7: there are no bindings of that version", "12.6, 12.8"]);
}

#[test]
fn a_library_that_must_be_linked_and_is_nowhere_stops_the_build() {
    let empty = tempfile::tempdir().unwrap();
    let (built, said) = Build::new("static").variable("CUDA_HOME", empty.path()).check();
    assert!(!built);
    let home = format!("CUDA_HOME={}: the folder is empty", empty.path().display());
    says(&said, &["error: CUDA_MEMPOOL_LINK=static asks for the link kind `static`", &home, "Set CUDA_HOME"]);
}

#[test]
fn a_toolkit_newer_than_known_is_used_with_one_warning() {
    let root = tempfile::tempdir().unwrap();
    fake_toolkit(root.path(), 14070);
    let (built, said) = Build::new("dylib").variable("CUDA_HOME", root.path()).check();
    assert!(built, "{said}");
    says(&said, &["the CUDA 14.7 in", "is newer than this crate knows"]);
    assert_eq!(said.matches("warning:").count(), 1, "{said}");
}

#[test]
fn a_variable_that_names_no_toolkit_is_one_warning() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (built, said) = Build::unsettled().variable("CUDA_HOME", file.path()).check();
    assert!(built, "{said}");
    says(&said, &["warning:", "is passed over: a file, not a folder. Set CUDA_HOME to the root of a CUDA toolkit"]);
    assert_eq!(said.matches("warning:").count(), 1, "{said}");
}

#[test]
fn pkg_config_is_asked() {
    let made = tempfile::tempdir().unwrap();
    let root = made.path().join("cuda-12.4");
    fake_toolkit(&root, 12040);
    let package = format!(
        "libdir={0}/lib64\nincludedir={0}/include\nName: cudart\nDescription: x\nVersion: 12.4\n\
         Libs: -L${{libdir}} -lcudart\nCflags: -I${{includedir}}\n",
        root.display()
    );
    fs::write(made.path().join("cudart-12.4.pc"), package).unwrap();
    let build = Build::unsettled().variable("CUDA_MEMPOOL_CUDA_VERSION", "12.4");
    let (built, said) = build.variable("PKG_CONFIG_PATH", made.path()).argument("-v").check();
    assert!(built, "{said}");
    says(&said, &[&format!("-L native={}/lib64", root.display()), "cuda_link=\"dylib\""]);
}

#[test]
fn nothing_is_built_again_without_a_change() {
    for build in [Build::new("dlopen"), Build::unsettled()] {
        let (built, said) = build.argument("-v").check_again();
        assert!(built, "{said}");
        says(&said, &["Fresh cuda-mempool-sys"]);
    }
}
