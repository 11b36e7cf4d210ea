//! The guide's samples in C, and the Rust beside those in C and C++, made into functions from its source and run.

use std::process::Command;

use cuda_mempool::example::run;
use cuda_mempool::{Device, Feature, Stream, Support};
use cuda_mempool_sys::cudaError_t;

use crate::in_two_processes::{self, Part};

include!(concat!(env!("OUT_DIR"), "/samples.rs"));

/// In turn, as some set what is the device's.
#[test]
fn every_sample_runs_in_c_and_in_rust() {
    run(|device| {
        let last = Device::all()?.last().map_or(0, Device::ordinal);
        let node = device.host_numa_node()?.unwrap_or(0);
        for (place, in_c, in_rust) in SAMPLES {
            println!("{place}");
            // SAFETY: the samples take an existing device twice and a NUMA node.
            let answer = unsafe { in_c(device.ordinal(), last, i32::try_from(node).unwrap()) };
            assert_eq!(answer, cudaError_t::cudaSuccess);
            in_rust();
        }
        for (place, in_rust) in FROM_RMM {
            println!("{place}");
            in_rust();
        }
        Ok(())
    });
}

/// Runs what needs pools that can be shared, or says why not.
fn run_with_shared_pools(test: impl FnOnce(Device)) {
    run(|device| {
        if device.supports(Feature::PosixFdPools)? == Support::No {
            println!("skipped: {device} has no pools that can be shared");
        } else {
            test(device);
        }
        Ok(())
    });
}

#[test]
fn every_sample_between_processes_runs_in_c() {
    run_with_shared_pools(|_| {
        // CUDA does not survive a fork, so it is called before CUDA is.
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "samples::in_a_process_without_cuda", "--ignored", "--nocapture"]);
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    });
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn in_a_process_without_cuda() {
    // SAFETY: nothing of CUDA was called in this process, and no other test runs in it.
    assert_eq!(unsafe { samples_between_processes() }, 0);
}

#[test]
fn every_sample_between_processes_runs_in_rust() {
    run_with_shared_pools(|device| {
        let exporter: Part = |socket, device| rust::exporter(device, &Stream::new(device)?, socket);
        let importer: Part = |socket, device| rust::importer(device, &Stream::new(device)?, socket);
        let name = "samples::every_sample_between_processes_runs_in_rust";
        in_two_processes::run(name, device, exporter, importer);
    });
}

#[test]
fn the_session_of_the_guide_runs() {
    session("samples::the_session_of_the_guide_runs", |socket, device| {
        Ok(rust::session_of_the_guide::exporter(socket, device)?)
    });
}

#[test]
fn the_session_of_the_module_runs() {
    session("samples::the_session_of_the_module_runs", |socket, device| {
        Ok(rust::session_exporter::exporter(socket, device)?)
    });
}

fn session(name: &str, exporter: Part) {
    let importer: Part = |socket, device| Ok(rust::session_importer::importer(socket, device)?);
    run_with_shared_pools(|device| in_two_processes::run(name, device, exporter, importer));
}
