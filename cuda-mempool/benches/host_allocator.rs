//! `NumaAllocator` beside the system's allocator and the raw C functions, each pair interleaved in one run.
//!
//! Prints medians and their ratio, with the ratio that is aimed at. On the simulated runtime only the comparison with
//! the system's allocator means anything. `CUDA_MEMPOOL_BENCH_MIB` sets how much is primed and copied (4096).

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::NumaAllocator;
use cuda_mempool::sys::{
    cudaDeviceSynchronize, cudaError_t, cudaFree, cudaFreeAsync, cudaFreeHost, cudaHostAlloc, cudaHostAllocDefault,
    cudaMalloc, cudaMallocFromPoolAsync, cudaMemcpyAsync, cudaMemcpyKind, cudaStreamSynchronize,
};
use cuda_mempool::{Device, Result, Stream};

const MIB: usize = 1 << 20;

fn main() {
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
    println!("getting {} MiB from the system", bytes / MIB);
    let [ours, registered] = interleave(3, [&|| prime(device, bytes), &|| host_alloc(bytes)]);
    report("prime beside cudaHostAlloc", ours, registered, Aim::Faster(5.0));
    copies(&stream, &pinned, bytes / 4)
}

const KIB: usize = 1 << 10;

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

/// Nanoseconds that a fresh allocator takes to prime.
fn prime(device: Device, bytes: usize) -> f64 {
    let fresh = NumaAllocator::builder().near(device).build().expect("an allocator");
    of_pairs(1, || fresh.prime(bytes).expect("there is memory"))
}

/// Nanoseconds that `cudaHostAlloc` takes, without the free.
fn host_alloc(bytes: usize) -> f64 {
    let start = Instant::now();
    let memory = HostMemory::new(bytes);
    let taken = start.elapsed().as_nanos() as f64;
    drop(memory);
    taken
}

fn copies(stream: &Stream, pinned: &NumaAllocator, bytes: usize) -> Result<()> {
    println!("copying {} MiB", bytes / MIB);
    let mut ours = PinnedVec::new_in(pinned.clone());
    ours.resize(bytes, 1_u8);
    let mut ordinary = vec![1_u8; bytes];
    let registered = HostMemory::new(bytes);
    let target = DeviceMemory::new(bytes);
    for (name, kind) in
        [("to the device", cudaMemcpyKind::cudaMemcpyHostToDevice), ("from it", cudaMemcpyKind::cudaMemcpyDeviceToHost)]
    {
        let copy = |host: *mut c_void| {
            let (to, from) = match kind {
                cudaMemcpyKind::cudaMemcpyHostToDevice => (target.0, host),
                _ => (host, target.0),
            };
            of_pairs(1, || {
                // SAFETY: both are `bytes` long, and the copy is waited for.
                unsafe {
                    check(cudaMemcpyAsync(to, from, bytes, kind, stream.as_raw()));
                    check(cudaStreamSynchronize(stream.as_raw()));
                }
            })
        };
        let (ours, ordinary) = (ours.as_mut_ptr().cast(), ordinary.as_mut_ptr().cast());
        let [ours, registered, ordinary] = interleave(15, [&|| copy(ours), &|| copy(registered.0), &|| copy(ordinary)]);
        report(&format!("{name} beside cudaHostAlloc's memory"), ours, registered, Aim::Faster(0.99));
        report(&format!("{name} beside ordinary memory"), ours, ordinary, Aim::Faster(5.0));
        println!("    {:.1} GB/s", bytes as f64 / ours);
    }
    Ok(())
}

/// Memory of `cudaHostAlloc`.
struct HostMemory(*mut c_void);

impl HostMemory {
    fn new(bytes: usize) -> Self {
        let mut memory = null_mut();
        // SAFETY: the out pointer is valid.
        check(unsafe { cudaHostAlloc(&mut memory, bytes, cudaHostAllocDefault) });
        Self(black_box(memory))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated above and freed once.
        check(unsafe { cudaFreeHost(self.0) });
    }
}

/// Memory of `cudaMalloc`.
struct DeviceMemory(*mut c_void);

impl DeviceMemory {
    fn new(bytes: usize) -> Self {
        let mut memory = null_mut();
        // SAFETY: the out pointer is valid.
        check(unsafe { cudaMalloc(&mut memory, bytes) });
        Self(memory)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated above, freed once, and nothing uses it any more.
        unsafe {
            check(cudaDeviceSynchronize());
            check(cudaFree(self.0));
        }
    }
}

fn check(answer: cudaError_t) {
    assert_eq!(answer, cudaError_t::cudaSuccess);
}

/// Nanoseconds of one `work` among `count`.
fn of_pairs(count: usize, work: impl Fn()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        work();
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The medians of several measurements, taken by turns.
fn interleave<const N: usize>(rounds: usize, measure: [&dyn Fn() -> f64; N]) -> [f64; N] {
    let mut samples = [(); N].map(|()| Vec::new());
    for _ in 0..rounds {
        for (samples, measure) in samples.iter_mut().zip(measure) {
            samples.push(measure());
        }
    }
    samples.map(median)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

enum Aim {
    /// Our time is at most so many times theirs.
    AtMost(f64),
    /// Theirs is at least so many times ours.
    Faster(f64),
}

fn report(what: &str, ours: f64, theirs: f64, aim: Aim) {
    let (ratio, met, aim) = match aim {
        Aim::AtMost(limit) => (ours / theirs, ours / theirs <= limit, format!("<= {limit}")),
        Aim::Faster(limit) => (theirs / ours, theirs / ours >= limit, format!(">= {limit}")),
    };
    let mark = if met { "met" } else { "MISSED" };
    println!("  {what}: {}, {}, ratio {ratio:.2} (aim {aim}: {mark})", time(ours), time(theirs));
}

fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e4 => format!("{short:.1} ns"),
        long if long < 1e6 => format!("{:.1} us", long / 1e3),
        longer => format!("{:.1} ms", longer / 1e6),
    }
}
