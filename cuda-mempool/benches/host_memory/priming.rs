//! Getting memory from the system: `prime` beside `cudaHostAlloc`, and where the time goes.

use std::ptr::null_mut;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use cuda_mempool::host::{NumaAllocator, NumaAllocatorBuilder};
use cuda_mempool::sys::{cudaFreeAsync, cudaMallocFromPoolAsync, cudaStreamSynchronize};
use cuda_mempool::{Access, Device, Location, MemPool, Result, Stream};

use crate::measure::{interleave, report, since, time};
use crate::raw::{check, HostMemory};
use crate::MIB;

pub fn run(device: Device, bytes: usize) -> Result<()> {
    let most = thread::available_parallelism().map_or(1, usize::from);
    println!("getting {} MiB from the system, with {most} CPUs", bytes / MIB);
    let [pool, registered, theirs] = interleave(
        5,
        [
            &|| prime(NumaAllocator::builder().near(device), bytes),
            &|| prime(NumaAllocator::builder().near(device).registered(), bytes),
            &|| host_alloc(bytes),
        ],
    );
    report("prime of registered memory beside cudaHostAlloc", registered, theirs, 5.0);
    report("prime of a pool beside cudaHostAlloc", pool, theirs, 5.0);

    println!("  by raw calls (for each phase: the fastest, the median and the slowest of the threads)");
    let as_prime =
        Way { threads: most.min(16), pools: 1, pieces: 1, streams: Streams::Own, access: true, freed: Freed::Together };
    for (name, way) in [
        ("as prime", as_prime),
        ("without access for the device", Way { access: false, ..as_prime }),
        ("freed at once, so that threads may get what others had", Way { freed: Freed::AtOnce, ..as_prime }),
        ("pieces of an eighth", Way { pieces: 8, ..as_prime }),
        ("one stream for all", Way { streams: Streams::Shared, ..as_prime }),
        ("a pool for each thread", Way { pools: as_prime.threads, ..as_prime }),
        ("four threads", Way { threads: 4, ..as_prime }),
        ("one thread", Way { threads: 1, ..as_prime }),
    ] {
        way.run(name, device, bytes)?;
    }
    Ok(())
}

/// Nanoseconds that a fresh allocator takes to prime. Neither making nor dropping it counts.
fn prime(builder: NumaAllocatorBuilder, bytes: usize) -> f64 {
    let fresh = builder.build().expect("an allocator");
    let start = Instant::now();
    fresh.prime(bytes).expect("there is memory");
    let taken = since(start);
    let reserved = fresh.reserved().expect("the memory is alive");
    assert!(reserved >= bytes, "only {reserved} bytes are there");
    taken
}

/// Nanoseconds that `cudaHostAlloc` takes, without the free.
fn host_alloc(bytes: usize) -> f64 {
    let start = Instant::now();
    let memory = HostMemory::new(bytes);
    let taken = since(start);
    drop(memory);
    taken
}

/// One way to have pools get memory.
#[derive(Clone, Copy)]
struct Way {
    threads: usize,
    pools: usize,
    /// In how many allocations each thread gets its share.
    pieces: usize,
    streams: Streams,
    /// Whether the device has access.
    access: bool,
    freed: Freed,
}

#[derive(Clone, Copy, PartialEq)]
enum Streams {
    Own,
    Shared,
}

#[derive(Clone, Copy, PartialEq)]
enum Freed {
    /// By each thread as soon as it has its share.
    AtOnce,
    /// When all threads have theirs, and have touched it.
    Together,
}

/// Nanoseconds of what a thread does, one after the other; and when it had its share.
#[derive(Default)]
struct Phases {
    stream: f64,
    allocate: f64,
    synchronise: f64,
    touch: f64,
    free: f64,
    had: f64,
}

impl Way {
    fn run(self, name: &str, device: Device, bytes: usize) -> Result<()> {
        let place = Location::HostNuma(device.host_numa_node()?.expect("an allocator was near it"));
        let builder = MemPool::builder(place).release_threshold(u64::MAX);
        let builder = if self.access { builder.grant(device, Access::ReadWrite) } else { builder };
        let pools = (0..self.pools).map(|_| builder.clone().build()).collect::<Result<Vec<_>>>()?;

        let shared = Stream::new(device)?;
        let all_have = Barrier::new(self.threads);
        let start = Instant::now();
        let phases: Vec<Phases> = thread::scope(|scope| {
            let (pools, shared, all_have) = (&pools, &shared, &all_have);
            let spawn = |index| {
                let pool = &pools[index % pools.len()];
                scope.spawn(move || self.share(pool, shared, bytes / self.threads, start, all_have))
            };
            let running: Vec<_> = (0..self.threads).map(spawn).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let had = phases.iter().map(|phases| phases.had).fold(0.0, f64::max);
        let mut reserved = 0;
        for pool in &pools {
            reserved += pool.usage()?.reserved as usize;
        }
        let start = Instant::now();
        drop(pools);
        let destroy = since(start);

        println!("  {name}: {}, and {} MiB are in reserve then", time(had), reserved / MIB);
        let spread = |phase: &str, of: fn(&Phases) -> f64| {
            let mut values: Vec<f64> = phases.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            let [fastest, median, slowest] = [0, values.len() / 2, values.len() - 1].map(|index| time(values[index]));
            println!("    {phase} {fastest}, {median}, {slowest}");
        };
        spread("stream", |phases| phases.stream);
        spread("allocate", |phases| phases.allocate);
        spread("synchronise", |phases| phases.synchronise);
        if self.freed == Freed::Together {
            spread("first touch of each page", |phases| phases.touch);
        }
        spread("free", |phases| phases.free);
        println!("    destroying the pool {}", time(destroy));
        Ok(())
    }

    /// What each thread does.
    fn share(self, pool: &MemPool, shared: &Stream, bytes: usize, start: Instant, all_have: &Barrier) -> Phases {
        let mut phases = Phases::default();
        let stream = timed(&mut phases.stream, || match self.streams {
            Streams::Own => Stream::new(shared.device()).expect("a stream"),
            Streams::Shared => shared.clone(),
        });
        let piece = bytes / self.pieces;
        let pieces: Vec<*mut u8> = timed(&mut phases.allocate, || {
            let allocate = |_| {
                let mut memory = null_mut();
                // SAFETY: pool and stream are alive.
                check(unsafe { cudaMallocFromPoolAsync(&mut memory, piece, pool.as_raw(), stream.as_raw()) });
                memory.cast()
            };
            (0..self.pieces).map(allocate).collect()
        });
        // SAFETY: the stream is alive.
        timed(&mut phases.synchronise, || check(unsafe { cudaStreamSynchronize(stream.as_raw()) }));
        phases.had = since(start);
        if self.freed == Freed::Together {
            all_have.wait();
            timed(&mut phases.touch, || {
                for offset in (0..piece).step_by(4096) {
                    // SAFETY: each piece is this thread's, for so many bytes, and its allocation was waited for.
                    pieces.iter().for_each(|&start| unsafe { start.add(offset).write_volatile(1) });
                }
            });
            all_have.wait();
        }
        timed(&mut phases.free, || {
            for memory in pieces {
                // SAFETY: allocated above, freed once, on its stream.
                check(unsafe { cudaFreeAsync(memory.cast(), stream.as_raw()) });
            }
            drop(stream);
        });
        phases
    }
}

fn timed<R>(nanoseconds: &mut f64, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *nanoseconds = since(start);
    result
}
