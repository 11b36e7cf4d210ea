//! What an allocation and its free cost: raw calls, buffers of a pool, hits and misses of a cache, memory resources.
//!
//! All in one run, in interleaved batches, because only ratios travel between machines. On threads, each has a stream of
//! its own. Run it with `cargo bench -p cuda-mempool --bench cache`; further arguments are the counts of threads.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::{null_mut, NonNull};
use std::sync::Barrier;
use std::time::Instant;

use cuda_mempool::resource::{CudaAsyncMemoryResource, DeviceMemoryResource, ResourceId, StatisticsAdaptor};
use cuda_mempool::{sys, BlockCache, Device, MemPool, Result, Stream};

const BYTES: usize = 64 << 10;

fn main() -> Result<()> {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("skipped: {why}");
            return Ok(());
        }
    };
    let pool = MemPool::builder(device).release_threshold(u64::MAX).build()?;
    println!("{BYTES} bytes, alloc + free, nanoseconds a pair");
    one_thread(device, &pool)?;
    println!();
    let counts: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    threads(device, &pool, if counts.is_empty() { &[1, 2, 4, 8, 16] } else { &counts })
}

/// One way to allocate and free, timed.
struct Row<'a> {
    name: &'static str,
    pair: Box<dyn Fn() + 'a>,
    times: Vec<f64>,
}

fn one_thread(device: Device, pool: &MemPool) -> Result<()> {
    const BATCHES: usize = 101;
    const PAIRS: u32 = 2_000;
    let raw = RawStream::new();
    let stream = Stream::new(device)?;
    let cache = BlockCache::new(pool, &stream);
    let emptied = BlockCache::new(pool, &stream);
    emptied.set_cap(0);
    let resource = CudaAsyncMemoryResource::new(Some(1 << 20), None, None)?;
    let (nothing, counted) = (Nothing, StatisticsAdaptor::new(Nothing));

    let raw_pool = pool.as_raw();
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut row = |name, pair| rows.push(Row { name, pair, times: Vec::new() });
    row("raw calls", Box::new(|| raw.pair(raw_pool)));
    row("DeviceBuffer of a pool", Box::new(|| drop(black_box(pool.alloc::<u8>(&stream, BYTES)))));
    row("DeviceBuffer of a cache, hit", Box::new(|| drop(black_box(cache.alloc::<u8>(BYTES)))));
    row("DeviceBuffer of a cache, miss", Box::new(|| drop(black_box(emptied.alloc::<u8>(BYTES)))));
    row("CudaAsyncMemoryResource", Box::new(|| resource_pair(&resource, &stream)));
    row("BlockCache as a resource, hit", Box::new(|| resource_pair(&cache, &stream)));
    row("resource that does nothing", Box::new(|| resource_pair(&nothing, &stream)));
    row("StatisticsAdaptor on that", Box::new(|| resource_pair(&counted, &stream)));

    for _ in 0..BATCHES {
        for row in &mut rows {
            let start = Instant::now();
            (0..PAIRS).for_each(|_| (row.pair)());
            row.times.push(start.elapsed().as_nanos() as f64 / f64::from(PAIRS));
        }
    }
    let medians: Vec<_> = rows.into_iter().map(|row| (row.name, median(row.times))).collect();
    println!("{:<32}{:>10}{:>12}{:>14}", "one thread", "ns", "of raw", "raw / it");
    for (name, time) in &medians {
        let raw = medians[0].1;
        println!("{name:<32}{time:>10.1}{:>12.3}{:>14.1}", time / raw, raw / time);
    }
    Ok(())
}

fn threads(device: Device, pool: &MemPool, counts: &[usize]) -> Result<()> {
    const ROUNDS: usize = 7;
    type Run = fn(Device, &MemPool, &Barrier) -> Result<f64>;
    let runs: [(&str, Run); 4] = [
        ("raw calls", |_, pool, start| {
            let raw = RawStream::new();
            let pool = pool.as_raw();
            Ok(time(start, 2_000, || raw.pair(pool)))
        }),
        ("pool", |device, pool, start| {
            let stream = Stream::new(device)?;
            Ok(time(start, 2_000, || drop(black_box(pool.alloc::<u8>(&stream, BYTES)))))
        }),
        ("cache miss", |device, pool, start| {
            let cache = BlockCache::new(pool, &Stream::new(device)?);
            cache.set_cap(0);
            Ok(time(start, 2_000, || drop(black_box(cache.alloc::<u8>(BYTES)))))
        }),
        ("cache hit", |device, pool, start| {
            let cache = BlockCache::new(pool, &Stream::new(device)?);
            Ok(time(start, 200_000, || drop(black_box(cache.alloc::<u8>(BYTES)))))
        }),
    ];
    print!("{:<10}", "threads");
    runs.iter().for_each(|(name, _)| print!("{name:>14}"));
    println!("{:>18}{:>18}", "raw / miss", "raw / hit");
    for &count in counts {
        let mut times = vec![Vec::new(); runs.len()];
        for _ in 0..ROUNDS {
            for ((_, run), times) in runs.iter().zip(&mut times) {
                let start = Barrier::new(count);
                let each: Result<Vec<f64>> = std::thread::scope(|scope| {
                    let all: Vec<_> = (0..count).map(|_| scope.spawn(|| run(device, pool, &start))).collect();
                    all.into_iter().map(|thread| thread.join().expect("no panic")).collect()
                });
                times.push(median(each?));
            }
        }
        let medians: Vec<f64> = times.into_iter().map(median).collect();
        print!("{count:<10}");
        medians.iter().for_each(|time| print!("{time:>14.1}"));
        println!("{:>18.2}{:>18.1}", medians[0] / medians[2], medians[0] / medians[3]);
    }
    Ok(())
}

fn time(start: &Barrier, pairs: u32, pair: impl Fn()) -> f64 {
    (0..100).for_each(|_| pair());
    start.wait();
    let start = Instant::now();
    (0..pairs).for_each(|_| pair());
    start.elapsed().as_nanos() as f64 / f64::from(pairs)
}

/// A stream of raw calls alone: allocating on a `Stream` whose handle was given away takes another call.
struct RawStream(sys::cudaStream_t);

impl RawStream {
    fn new() -> Self {
        let mut raw = null_mut();
        // SAFETY: the out pointer is valid.
        let answer = unsafe { sys::cudaStreamCreateWithFlags(&mut raw, sys::cudaStreamNonBlocking) };
        assert_eq!(answer, sys::cudaError_t::cudaSuccess);
        Self(raw)
    }

    fn pair(&self, pool: sys::cudaMemPool_t) {
        let mut pointer = null_mut();
        // SAFETY: pool and stream are alive, and the memory is freed once.
        let answers = unsafe {
            let allocated = sys::cudaMallocFromPoolAsync(&mut pointer, BYTES, pool, self.0);
            (allocated, sys::cudaFreeAsync(black_box(pointer), self.0))
        };
        assert_eq!(answers, (sys::cudaError_t::cudaSuccess, sys::cudaError_t::cudaSuccess));
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        // SAFETY: this is the stream's last use.
        unsafe { sys::cudaStreamDestroy(self.0) };
    }
}

fn resource_pair(resource: &impl DeviceMemoryResource, stream: &Stream) {
    let pointer = resource.allocate(BYTES, stream).expect("memory");
    // SAFETY: given back once, as it was handed out.
    unsafe { resource.deallocate(black_box(pointer), BYTES, stream) }.expect("the block is known");
}

/// A resource to measure what an adaptor adds.
struct Nothing;

// SAFETY: nobody uses what it hands out.
unsafe impl DeviceMemoryResource for Nothing {
    fn allocate_async_aligned(&self, _: usize, _: usize, _: &Stream) -> Result<NonNull<c_void>> {
        Ok(black_box(NonNull::dangling()))
    }

    unsafe fn deallocate_async_aligned(&self, _: NonNull<c_void>, _: usize, _: usize, _: &Stream) -> Result<()> {
        Ok(())
    }

    fn id(&self) -> ResourceId {
        ResourceId::unique()
    }

    fn device(&self) -> Device {
        unreachable!("no synchronous form is used")
    }

    fn trim(&self) -> Result<()> {
        Ok(())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
