//! Hands on the version cfgs of cuda-mempool-sys: `cuda_since_X_Y` means that its bindings are of at least CUDA X.Y.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for (list, before, after) in [("KNOWN", "check-cfg=cfg(", ")"), ("SINCE", "cfg=", "")] {
        let versions =
            std::env::var(format!("DEP_CUDA_MEMPOOL_CUDART_{list}")).expect("cuda-mempool-sys always sets it");
        for version in versions.split(',') {
            println!("cargo:rustc-{before}cuda_since_{version}{after}");
        }
    }
}
