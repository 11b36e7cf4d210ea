//! `NumaAllocator` beside the system's allocator and the raw C functions, each pair interleaved in one run.
//!
//! Prints medians and their ratio, with the ratio that is aimed at. On the simulated runtime only the comparison with
//! the system's allocator means anything. `CUDA_MEMPOOL_BENCH_MIB` sets how much is primed and copied (4096).

mod copies;
mod measure;
mod priming;
mod raw;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::thread;

use allocator_api2::alloc::Allocator;
use cuda_mempool::host::NumaAllocator;
use cuda_mempool::sys::{cudaFreeAsync, cudaMallocFromPoolAsync, cudaStreamSynchronize};
use cuda_mempool::{Device, Result, Stream};

use measure::{interleave, median, of_pairs, report, Aim};
use raw::{check, HostMemory};

const KIB: usize = 1 << 10;
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
    let stream = Stream::new(device)?;
    let pinned = NumaAllocator::builder().near(device).build()?;
    println!("allocate and free, one thread");
    for (size, limit) in [(64, 3.0), (KIB, 3.0), (4 * KIB, 1.0), (16 * KIB, 1.0), (64 * KIB, 1.0)] {
        let [ours, system] =
            interleave(101, [&|| of_pairs(2000, || pair(&pinned, size)), &|| of_pairs(2000, || system_pair(size))]);
        report(&format!("{size} B beside malloc"), ours, system, Aim::AtMost(limit));
    }
    println!("allocate and free, sixteen threads beside one");
    for size in [64, 4 * KIB, 64 * KIB] {
        let [one, sixteen] = interleave(11, [&|| threads(1, &pinned, size), &|| threads(16, &pinned, size)]);
        report(&format!("{size} B, each thread"), sixteen, one, Aim::AtMost(2.0));
    }
    println!("64 KiB beside the raw functions");
    let [ours, raw, registered] = interleave(
        21,
        [
            &|| of_pairs(1000, || pair(&pinned, 64 * KIB)),
            &|| of_pairs(200, || raw_pair(&pinned, &stream, 64 * KIB)),
            &|| of_pairs(5, || drop(HostMemory::new(64 * KIB))),
        ],
    );
    report("beside the pool with a synchronisation", ours, raw, Aim::Faster(20.0));
    report("beside cudaHostAlloc", ours, registered, Aim::Faster(5000.0));

    let bytes = std::env::var("CUDA_MEMPOOL_BENCH_MIB").map_or(4096, |text| text.parse().expect("a number")) * MIB;
    priming::run(device, bytes)?;
    copies::run(device, bytes / 4)
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a valid layout")
}

fn pair(pinned: &NumaAllocator, size: usize) {
    let block = black_box(pinned.allocate(layout(size)).expect("there is memory"));
    // SAFETY: the block was allocated with this layout.
    unsafe { pinned.deallocate(block.cast(), layout(size)) };
}

fn system_pair(size: usize) {
    // SAFETY: the size is not zero, and the block is freed with its layout.
    unsafe {
        let block = black_box(System.alloc(layout(size)));
        System.dealloc(block, layout(size));
    }
}

fn raw_pair(pinned: &NumaAllocator, stream: &Stream, size: usize) {
    let mut block = null_mut();
    // SAFETY: pool and stream are alive, and the block is freed once.
    unsafe {
        check(cudaMallocFromPoolAsync(&mut block, size, pinned.pool().as_raw(), stream.as_raw()));
        check(cudaStreamSynchronize(stream.as_raw()));
        check(cudaFreeAsync(black_box(block), stream.as_raw()));
    }
}

/// Nanoseconds of a pair on each of `count` threads that run at once.
fn threads(count: usize, pinned: &NumaAllocator, size: usize) -> f64 {
    const PAIRS: usize = 200_000;
    let start = Barrier::new(count);
    thread::scope(|scope| {
        let work = || {
            pair(pinned, size);
            start.wait();
            of_pairs(PAIRS, || pair(pinned, size))
        };
        let running: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let each: Vec<f64> = running.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        median(each)
    })
}
