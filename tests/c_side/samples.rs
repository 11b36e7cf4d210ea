//! The guide's samples in C, compiled from its source and run. The Rust beside each runs as a documentation test.

use cuda_mempool::example::run;
use cuda_mempool::Device;
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
