//! The guide's samples in C++, compiled with RMM's headers and run with its library, over the simulated runtime.

use std::path::PathBuf;
use std::process::Command;

fn folder(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: {variable} is not set (cargo xtask test sets it)");
    }
    folder
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&said));
}

#[test]
fn every_sample_in_cpp_runs() {
    let (Some(wheels), Some(sim)) = (folder("CUDA_MEMPOOL_TEST_WHEELS"), folder("CUDA_MEMPOOL_TEST_SIM")) else {
        return;
    };
    let (rmm, sim) = (wheels.join("rmm-25.8.0"), sim.join("lib"));
    let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/samples-of-rmm");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-o", program]);
    compiler.args(["-I", env!("CARGO_MANIFEST_DIR")]).arg("-I").arg(wheels.join("cuda-12.9/include"));
    compiler.arg("-I").arg(rmm.join("include")).arg(concat!(env!("OUT_DIR"), "/samples.cpp"));
    compiler.arg("-L").arg(&sim).arg("-l:libcudart.so.13").arg("-L").arg(rmm.join("lib64"));
    run(compiler.args(["-lrmm", "-lrapids_logger"]));

    let libraries = std::env::join_paths([sim, rmm.join("lib64")]).unwrap();
    run(Command::new(program).env("LD_LIBRARY_PATH", libraries).env("CUDART_SIM_RACES", "abort"));
}
