fn main() {
    let known = [
        "11_8", "12_0", "12_1", "12_2", "12_3", "12_4", "12_5", "12_6", "12_8", "12_9", "13_0", "13_1", "13_2", "13_3",
        "13_4", "13_5",
    ];
    for k in known {
        println!("cargo:rustc-check-cfg=cfg(cuda_since_{k})");
        println!("cargo:rustc-cfg=cuda_since_{k}");
    }
    println!("cargo:rustc-check-cfg=cfg(cuda_link, values(\"dylib\", \"static\", \"dlopen\"))");
    println!("cargo:rustc-cfg=cuda_link=\"dlopen\"");
    println!(
        "cargo:rustc-env=CUDA_MEMPOOL_BINDINGS={}/src/bindings/cuda_13_5.rs",
        std::env::var("CARGO_MANIFEST_DIR").unwrap()
    );
}
