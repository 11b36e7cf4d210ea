//! A C program that was compiled against NVIDIA's headers runs on the simulator, whichever library it was linked with.

use std::path::{Path, PathBuf};
use std::process::Command;

/// NVIDIA's headers and library of CUDA 13.0.
fn toolkit() -> Option<PathBuf> {
    let wheels = std::env::var_os("CUDA_MEMPOOL_TEST_WHEELS");
    if wheels.is_none() {
        println!("skipped: CUDA_MEMPOOL_TEST_WHEELS is not set (cargo xtask test sets it)");
    }
    Some(Path::new(&wheels?).join("cuda-13.0"))
}

/// A folder in which the simulator has the names of a CUDA runtime.
fn disguised(name: &str) -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libcudart_sim.so");
    assert!(library.exists(), "{} is not built", library.display());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libcudart.so", "libcudart.so.13"] {
        std::os::unix::fs::symlink(&library, folder.join(name)).unwrap();
    }
    folder
}

/// Compiles the program and runs it with the simulator in the place of the runtime. It prints what is expected.
fn run(name: &str, compile: &[&str], library: impl FnOnce(&Path, &Path) -> PathBuf) {
    let Some(toolkit) = toolkit() else { return };
    let simulator = disguised(name);
    let program = simulator.join("program");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .arg(&program)
        .args(compile)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/program.c"))
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-isystem")
        .arg(toolkit.join("include"))
        .arg(library(&toolkit, &simulator))
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success(), "the C compiler failed");
    let output = Command::new(program).env("LD_LIBRARY_PATH", &simulator).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{complained}");
    // The loader remarks that the library does not say which version it is; it is taken for any.
    let remark = |line: &str| line.contains("no version information available");
    assert!(complained.lines().all(remark), "{complained}");
    assert_eq!(said, expected());
}

/// What the program prints: its live objects as the header's struct shows them, and the bytes that came back.
fn expected() -> String {
    let size = std::mem::size_of::<cudart_sim::control::cudartSimLiveObjects>();
    format!(
        "live 4: streams 1 events 1 pools 1 allocations 1 bytes 65536 graphs 0 in {size}\n\
         runtime 13000 bytes 7 9 7 used 0\n"
    )
}

#[test]
fn linked_with_the_real_runtime_and_run_with_the_simulator() {
    run("real", &[], |toolkit, _| toolkit.join("lib/libcudart.so.13"));
}

#[test]
fn linked_with_the_simulator() {
    run("simulated", &[], |_, simulator| simulator.join("libcudart.so"));
}

#[test]
fn with_a_default_stream_per_thread() {
    let per_thread = ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"];
    run("per_thread", &per_thread, |toolkit, _| toolkit.join("lib/libcudart.so.13"));
}
