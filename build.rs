//! Compiles the C side of the tests as a C-heavy dependant would: by the metadata of cuda-mempool-sys alone.

use std::env;

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
    if let Some(include) = metadata("INCLUDE") {
        println!("cargo:rustc-cfg=cuda_headers");
        println!("cargo:rerun-if-changed=wrapper.h");
        println!("cargo:rerun-if-changed=tests/c");
        cc::Build::new()
            .include(".")
            .include(&include)
            .file("tests/c/constants.c")
            .warnings_into_errors(true)
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
    }
}

fn metadata(key: &str) -> Option<String> {
    env::var(format!("DEP_CUDA_MEMPOOL_CUDART_{key}")).ok()
}

fn list(key: &str) -> Vec<String> {
    metadata(key).map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
}
