//! A first walk through memory pools: what the device supports, a pool, a buffer filled, copied out and checked, and
//! the pool's statistics.
//!
//! Ends with status 2 where there is no device, and says how to go on.

use std::process::ExitCode;

use cuda_mempool::{sys, Device, Error, ErrorKind, Feature, Location, MemPool, ReusePolicy, Stream, Support, Version};

fn main() -> ExitCode {
    match sys::runtime() {
        Ok(runtime) => {
            let path = runtime.path().map(|path| path.display().to_string()).unwrap_or_default();
            if is_simulated(runtime) {
                println!("This runs on the simulated runtime ({path}): nothing here is an answer of a GPU.");
            }
            println!("CUDA runtime {}, link kind {}: {path}", version(Version::of_runtime()), runtime.link());
        }
        Err(why) => {
            eprintln!("There is no CUDA runtime to run on.\n{why}\n\n{GO_ON}");
            return ExitCode::from(NO_DEVICE);
        }
    }
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("There is no GPU to run on.\n{why}\n\n{GO_ON}");
            return ExitCode::from(NO_DEVICE);
        }
    };
    match tour(device) {
        Ok(()) => {
            println!("All well.");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("The tour ends here: {error}");
            if error.kind() == ErrorKind::Unsupported {
                eprintln!("{device} cannot do what the tour shows. Try another device with CUDA_VISIBLE_DEVICES.");
            }
            ExitCode::FAILURE
        }
    }
}

/// The exit status when the tour cannot begin.
const NO_DEVICE: u8 = 2;

const GO_ON: &str = "\
What it takes: an NVIDIA GPU, its driver, and the CUDA runtime 11 to 13 (libcudart).
- With a GPU: check that nvidia-smi lists it, and that CUDA_VISIBLE_DEVICES does not hide it.
- With the runtime in an unusual place: set CUDA_MEMPOOL_CUDART to the path of its libcudart.
- Without a GPU: build the simulated runtime (cargo build -p cudart-sim) and set CUDA_MEMPOOL_CUDART to its libcudart_sim.so.";

fn is_simulated(runtime: &sys::Runtime) -> bool {
    let name = runtime.path().and_then(|path| path.file_name());
    name.is_some_and(|name| name.to_string_lossy().starts_with("libcudart_sim"))
}

fn version(version: Result<Version, Error>) -> String {
    version.map_or_else(|error| error.to_string(), |version| version.to_string())
}

fn tour(device: Device) -> Result<(), Error> {
    let driver = Version::of_driver()?.map_or("none".into(), |version| version.to_string());
    println!("Driver for CUDA {driver}; {} device(s)", Device::count()?);
    let memory = device.memory()?;
    println!("{device} ({}): {} of {} bytes free", device.pci_bus_id()?, memory.free, memory.total);
    for &feature in Feature::ALL {
        println!("  {feature:?}: {}", device.supports(feature)?);
    }
    if let Some(node) = device.host_numa_node()? {
        println!("  nearest NUMA node of the host: {node}");
    }

    let stream = Stream::new(device)?;
    let pool = MemPool::builder(Location::Device(device))
        .release_threshold(256 << 20)
        .reuse(ReusePolicy { allow_opportunistic: false, ..ReusePolicy::default() })
        .build()?;

    println!("One million numbers: from the host, doubled by a copy, and back");
    let numbers: Vec<u32> = (0..1_000_000).collect();
    let first = pool.from_slice(&stream, &numbers)?;
    let mut second = pool.alloc_zeroed::<u32>(&stream, 2 * numbers.len())?;
    second.slice_mut(..numbers.len()).copy_from(&first)?;
    second.slice_mut(numbers.len()..).copy_from(&first)?;
    drop(first); // in the order of the stream: after the copies, and nothing waits

    let other = Stream::new(device)?;
    second.set_stream(&other)?; // what follows comes after the copies too
    second.slice_mut(..1).fill(42)?;

    let mut back = vec![0; second.len()];
    other.scope(|s| s.copy_to_host(&second, &mut back))?;
    let expected: Vec<u32> = [42].into_iter().chain(1..1_000_000).chain(0..1_000_000).collect();
    assert_eq!(back, expected, "the numbers that came back");
    println!("  the data is right");

    print_usage(&pool, "with one buffer alive")?;
    drop(second);
    pool.sync_and_trim(&other, 0)?;
    print_usage(&pool, "when all is freed and trimmed")?;

    tour_of_host_pools(device)
}

fn tour_of_host_pools(device: Device) -> Result<(), Error> {
    let Some(node) = device.host_numa_node()? else { return Ok(()) };
    if device.supports(Feature::HostNumaPools)? == Support::No {
        return Ok(());
    }
    let stream = Stream::new(device)?;
    let pool = match MemPool::builder(Location::HostNuma(node)).build() {
        Ok(pool) => pool,
        Err(error) => {
            println!("No pool of pinned host memory here: {error}");
            return Ok(());
        }
    };
    let buffer = pool.from_slice(&stream, &[1_u8, 2, 3])?;
    assert_eq!(buffer.to_vec()?, [1, 2, 3], "what came back from the host's pool");
    print_usage(&pool, "on the host's NUMA node")
}

fn print_usage(pool: &MemPool, when: &str) -> Result<(), Error> {
    let usage = pool.usage()?;
    println!(
        "The pool {when}: {} bytes used (at most {}), {} reserved (at most {})",
        usage.used, usage.used_high, usage.reserved, usage.reserved_high
    );
    Ok(())
}
