//! The guide's samples in C, compiled from its source and run. The Rust beside each runs as a documentation test.

use std::path::PathBuf;
use std::process::Command;

use cuda_mempool::example::run;
use cuda_mempool::{Device, Feature, Support};
use cuda_mempool_sys::cudaError_t;

include!(concat!(env!("OUT_DIR"), "/samples.rs"));

#[test]
fn every_sample_in_c_runs() {
    run(|device| {
        let last = Device::all()?.last().map_or(0, Device::ordinal);
        let node = device.host_numa_node()?.unwrap_or(0);
        for (name, sample) in SAMPLES {
            // SAFETY: the samples take an existing device twice and a NUMA node.
            let answer = unsafe { sample(device.ordinal(), last, i32::try_from(node).unwrap()) };
            assert_eq!(answer, cudaError_t::cudaSuccess, "{name}");
            println!("{name}");
        }
        Ok(())
    });
}

#[test]
fn every_sample_between_processes_runs() {
    run(|device| {
        if device.supports(Feature::PosixFdPools)? == Support::No {
            println!("skipped: {device} has no pools that can be shared");
            return Ok(());
        }
        // CUDA does not survive a fork, so it is called before CUDA is.
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "samples::in_a_process_without_cuda", "--ignored", "--nocapture"]);
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        Ok(())
    });
}

/// That they run is RMM's to prove; that they are C++ for RMM, its headers say.
#[test]
fn every_sample_in_cpp_compiles() {
    let Some(wheels) = std::env::var_os("CUDA_MEMPOOL_TEST_WHEELS").map(PathBuf::from) else {
        println!("skipped: CUDA_MEMPOOL_TEST_WHEELS is not set (cargo xtask test sets it)");
        return;
    };
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-fsyntax-only", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]);
    compiler.arg("-I").arg(env!("CARGO_MANIFEST_DIR")).arg("-I").arg(wheels.join("cuda-12.9/include"));
    compiler.arg("-I").arg(wheels.join("rmm/include")).arg(concat!(env!("OUT_DIR"), "/samples.cpp"));
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn in_a_process_without_cuda() {
    // SAFETY: nothing of CUDA was called in this process, and no other test runs in it.
    assert_eq!(unsafe { samples_between_processes() }, 0);
}
