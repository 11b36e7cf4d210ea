//! What the safe layer costs beside the raw C calls it makes, through the same link kind.
//!
//! Prints medians of interleaved batches, in nanoseconds for each operation, and their ratio. Only the ratios of one run
//! on a GPU mean anything; on the simulated runtime they tell nothing about CUDA.

use std::hint::black_box;
use std::ptr::{addr_of_mut, null_mut};
use std::time::Instant;

use cuda_mempool::sys::{self, cudaError_t, cudaMemPoolAttr};
use cuda_mempool::{Device, Error, MemPool, Stream};

const BATCHES: usize = 201;
const CALLS: u32 = 500;
const BYTES: usize = 64 << 10;

fn main() -> Result<(), Error> {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("skipped: {why}");
            return Ok(());
        }
    };
    let runtime = sys::runtime().expect("there is a device");
    println!("link kind {}, runtime {}, {}", runtime.link(), runtime.version(), device);

    let pool = MemPool::builder(device).release_threshold(u64::MAX).build()?;
    let hidden = Stream::new(device)?;
    // Of a stream whose raw handle was given out, each allocation asks whether it is being captured.
    let shown = Stream::new(device)?;
    let raw_stream = shown.as_raw();
    let raw_pool = pool.as_raw();
    let idle = || {
        hidden.synchronize()?;
        shown.synchronize()
    };

    let raw_pair = || {
        let mut memory = null_mut();
        // SAFETY: the pool and the stream are alive, and the memory is freed once.
        unsafe {
            check(sys::cudaMallocFromPoolAsync(&mut memory, BYTES, raw_pool, raw_stream));
            check(sys::cudaFreeAsync(black_box(memory), raw_stream));
        }
    };
    let pair_on = |stream: &Stream| drop(black_box(pool.alloc::<u8>(stream, BYTES).expect("allocated")));
    compare("alloc + drop, 64 KiB", raw_pair, || pair_on(&hidden), idle)?;
    compare("alloc + drop, 64 KiB, raw handle given out", raw_pair, || pair_on(&shown), idle)?;

    let raw_attribute = || {
        let mut word = 0_u64;
        let attribute = cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold;
        // SAFETY: the pool is alive and the out pointer as wide as the attribute.
        check(unsafe { sys::cudaMemPoolGetAttribute(raw_pool, attribute, addr_of_mut!(word).cast()) });
        black_box(word);
    };
    let attribute = || _ = black_box(pool.release_threshold().expect("read"));
    compare("attribute read", raw_attribute, attribute, idle)?;

    let raw_event = raw_event(device)?;
    let (first, second) = (Stream::new(device)?, Stream::new(device)?);
    // The same streams for both: what a wait costs depends on what else the streams have done.
    let (raw_first, raw_second) = (first.as_raw(), second.as_raw());
    let raw_order = || {
        for (before, after) in [(raw_first, raw_second), (raw_second, raw_first)] {
            // SAFETY: the event and the streams are alive.
            unsafe {
                check(sys::cudaEventRecord(raw_event, before));
                check(sys::cudaStreamWaitEvent(after, raw_event, 0));
            }
        }
    };
    let mut buffer = pool.alloc::<u8>(&first, BYTES)?;
    let order = || {
        for stream in [&second, &first] {
            buffer.set_stream(stream).expect("moved");
        }
    };
    let idle = || [&first, &second].into_iter().try_for_each(Stream::synchronize);
    compare("set_stream there and back", raw_order, order, idle)?;
    // SAFETY: the event is ours, and this is its last use.
    check(unsafe { sys::cudaEventDestroy(raw_event) });
    Ok(())
}

fn compare(
    what: &str,
    mut raw: impl FnMut(),
    mut safe: impl FnMut(),
    idle: impl Fn() -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut raw_times, mut safe_times) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        raw_times.push(nanoseconds(&mut raw));
        idle()?;
        safe_times.push(nanoseconds(&mut safe));
        idle()?;
    }
    let (raw, safe) = (median(raw_times), median(safe_times));
    println!("{what}: raw {raw:.1} ns, safe {safe:.1} ns, ratio {:.3}", safe / raw);
    Ok(())
}

fn raw_event(device: Device) -> Result<sys::cudaEvent_t, Error> {
    device.with_current(|| {
        let mut event = null_mut();
        // SAFETY: the out pointer is valid.
        check(unsafe { sys::cudaEventCreateWithFlags(&mut event, sys::cudaEventDisableTiming) });
        event
    })
}

fn check(answer: cudaError_t) {
    assert_eq!(answer, cudaError_t::cudaSuccess);
}

fn nanoseconds(call: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
