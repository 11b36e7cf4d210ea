//! Memory of a host-NUMA pool beside that of `cudaHostAlloc`: getting it from the system, with where the time goes, and
//! copying it, with and without access for the device.
//!
//! Prints medians and their ratio, with the ratio that is aimed at. On the simulated runtime the figures mean nothing.
//! `CUDA_MEMPOOL_BENCH_MIB` sets how much is got from the system (4096); a quarter of it is copied.

mod copies;
mod measure;
mod priming;
mod raw;

use cuda_mempool::{Device, Result};

const MIB: usize = 1 << 20;

fn main() {
    // A thread that only panicked would leave others at a barrier for ever.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::exit(1);
    }));
    match Device::new(0).map(run) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            eprintln!("the bench ends here: {error}");
            std::process::exit(1);
        }
        Err(why) => eprintln!("skipped, as there is no device: {why}"),
    }
}

fn run(device: Device) -> Result<()> {
    let bytes = std::env::var("CUDA_MEMPOOL_BENCH_MIB").map_or(4096, |text| text.parse().expect("a number")) * MIB;
    priming::run(device, bytes)?;
    copies::run(device, bytes / 4)
}
