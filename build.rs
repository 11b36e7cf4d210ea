//! Compiles the C side of the tests as a C-heavy dependant would: by the metadata of cuda-mempool-sys alone.

use std::env;
use std::path::Path;

#[path = "tests/samples/mod.rs"]
mod samples;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(cuda_headers)");
    println!("cargo:rustc-check-cfg=cfg(raw_c)");

    // The versions that the bindings have reached, under the names that cuda-mempool-sys itself uses.
    for version in list("KNOWN") {
        println!("cargo:rustc-check-cfg=cfg(cuda_since_{version})");
    }
    for version in list("SINCE") {
        println!("cargo:rustc-cfg=cuda_since_{version}");
    }

    // No toolkit around (possible with dlopen): the C side is left out.
    if let (Some(include), Some(library)) = (metadata("INCLUDE"), metadata("LIBRARY")) {
        println!("cargo:rustc-cfg=cuda_headers");
        println!("cargo:rerun-if-changed=wrapper.h");
        println!("cargo:rerun-if-changed=tests/c");
        println!("cargo:rerun-if-changed=tests/samples");
        println!("cargo:rerun-if-changed=tests/support/guide.rs");
        println!("cargo:rerun-if-changed=cuda-mempool/src/guide.rs");
        println!("cargo:rerun-if-changed=cuda-mempool/src/guide");
        println!("cargo:rerun-if-changed=cuda-mempool/src/ipc.rs");
        let out = env::var("OUT_DIR").expect("cargo sets it");
        cc::Build::new()
            .include(".")
            .include(&include)
            .files(["constants", "owner"].map(|name| format!("tests/c/{name}.c")))
            .file(samples::write(Path::new(&out)).expect("the guide can be read"))
            .warnings_into_errors(true)
            // A sample uses some of what stands ready for all, and answers nothing.
            .flag("-Wno-unused")
            .compile("cuda_mempool_tests_c");

        // What calls the runtime needs it at link time.
        if metadata("LINK").is_some_and(|link| link != "dlopen") {
            println!("cargo:rustc-cfg=raw_c");
            println!("cargo:rerun-if-changed=benches/compare");
            cc::Build::new()
                .include(include)
                .file("benches/compare/raw.c")
                .warnings_into_errors(true)
                .compile("cuda_mempool_raw_c");
        }
        link_what_c_calls(Path::new(&library));
    }
}

/// With `dlopen` the Rust side links nothing, so what the C side calls is linked here. The Rust side then uses the
/// library that it finds in the process.
fn link_what_c_calls(library: &Path) {
    if metadata("LINK").as_deref() == Some("dlopen") {
        let part = |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).unwrap_or_default().to_owned();
        println!("cargo:rustc-link-search=native={}", part(library.parent().map(Path::as_os_str)));
        println!("cargo:rustc-link-lib=dylib:+verbatim={}", part(library.file_name()));
    }
}

fn metadata(key: &str) -> Option<String> {
    env::var(format!("DEP_CUDA_MEMPOOL_CUDART_{key}")).ok()
}

fn list(key: &str) -> Vec<String> {
    metadata(key).map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
}
