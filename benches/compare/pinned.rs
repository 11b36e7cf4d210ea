//! Pinned memory: how fast it is copied, and how long it takes to get it from the system for the first time.

use std::alloc::Layout;
use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::time::{Duration, Instant};

use allocator_api2::alloc::Allocator;
use anyhow::{anyhow, Result};
use cuda_mempool::host::{NumaAllocator, NumaAllocatorBuilder};
use cuda_mempool::sys::*;
use cuda_mempool::{Device, MemPool, Stream};

use crate::raw::check;
use crate::results::{Cell, Question};
use crate::rounds::{compete, Contestant, Effort};

const HOST_ALLOC: &str = "cudaHostAlloc";
const REGISTERED: &str = "NumaAllocator, registered";
const MIB: usize = 1 << 20;

/// Asks everything, with sizes divided by `divisor`; `tell` gets each answer as it comes.
pub fn ask_all(effort: Effort, divisor: usize, mut tell: impl FnMut(Cell)) -> Result<()> {
    let device = Device::new(0)?;
    copies(device, 256 * MIB / divisor, effort, &mut tell)?;
    let first = effort.of_slow();
    tell(cell("first allocation", 1024 * MIB / divisor, first, &first_allocation(device, 1024 * MIB / divisor)));
    tell(cell("ahead of time", 4096 * MIB / divisor, first, &ahead_of_time(device, 4096 * MIB / divisor)));
    Ok(())
}

fn cell(workload: &str, bytes: usize, effort: Effort, contestants: &[Contestant<'_>]) -> Cell {
    let question = Question { memory: "host".into(), workload: workload.into(), bytes: Some(bytes as u64), threads: 1 };
    Cell { question, baseline: HOST_ALLOC.into(), results: compete(contestants, effort) }
}

fn contestant<'a>(name: &str, run: impl Fn() -> Result<Duration> + 'a) -> Contestant<'a> {
    let run = move |count: usize| {
        let times: Result<Vec<Duration>> = (0..count).map(|_| run()).collect();
        times.map_err(|why| eprintln!("{why:#}")).ok().map(|times| times.iter().sum())
    };
    Contestant { name: name.into(), run: Box::new(run), per_time: 1 }
}

/// Both ways, from and to memory of each kind.
fn copies(device: Device, bytes: usize, effort: Effort, tell: &mut impl FnMut(Cell)) -> Result<()> {
    let stream = Stream::new(device)?;
    let mut on_device = MemPool::default_for(device)?.alloc::<u8>(&stream, bytes)?;
    let (raw_stream, on_device) = (stream.as_raw(), on_device.as_mut_ptr().cast::<c_void>());
    let ordinary = vec![1_u8; bytes];
    let pinned = HostAlloc::new(bytes)?;
    let allocator = NumaAllocator::builder().near(device).build()?;
    let numa = Taken::new(&allocator, bytes)?;
    let of_kernel = NumaAllocator::builder().near(device).registered().build()?;
    let registered = Taken::new(&of_kernel, bytes)?;
    let places = [
        (HOST_ALLOC, pinned.0),
        ("NumaAllocator", numa.block.as_ptr().cast()),
        (REGISTERED, registered.block.as_ptr().cast()),
        ("malloc", ordinary.as_ptr().cast_mut().cast()),
    ];
    for (workload, up) in [("copied to the device", true), ("copied from the device", false)] {
        let contestants = places.map(|(name, place)| {
            contestant(name, move || {
                let (to, from, kind) = if up {
                    (on_device, place, cudaMemcpyKind::cudaMemcpyHostToDevice)
                } else {
                    (place, on_device, cudaMemcpyKind::cudaMemcpyDeviceToHost)
                };
                let begun = Instant::now();
                // SAFETY: both have this length, nothing else uses them, and the copy is waited for.
                unsafe {
                    check(cudaMemcpyAsync(to, from, bytes, kind, raw_stream))?;
                    check(cudaStreamSynchronize(raw_stream))?;
                }
                Ok(begun.elapsed())
            })
        });
        tell(cell(workload, bytes, effort, &contestants));
    }
    Ok(())
}

/// A large block, from an allocator that has nothing yet and from one that was primed.
fn first_allocation<'a>(device: Device, bytes: usize) -> [Contestant<'a>; 4] {
    let numa = move |builder: NumaAllocatorBuilder, primed: bool| {
        let allocator = builder.near(device).build()?;
        if primed {
            allocator.prime(bytes)?;
        }
        let begun = Instant::now();
        let _block = Taken::new(&allocator, bytes)?;
        Ok(begun.elapsed())
    };
    [
        host_alloc(bytes),
        contestant("NumaAllocator", move || numa(NumaAllocator::builder(), false)),
        contestant("NumaAllocator, primed", move || numa(NumaAllocator::builder(), true)),
        contestant(REGISTERED, move || numa(NumaAllocator::builder().registered(), false)),
    ]
}

/// Getting it from the system, on as many threads as that takes.
fn ahead_of_time<'a>(device: Device, bytes: usize) -> [Contestant<'a>; 3] {
    let prime = move |builder: NumaAllocatorBuilder| {
        let allocator = builder.near(device).build()?;
        let begun = Instant::now();
        allocator.prime(bytes)?;
        Ok(begun.elapsed())
    };
    [
        host_alloc(bytes),
        contestant("NumaAllocator::prime", move || prime(NumaAllocator::builder())),
        contestant("NumaAllocator::prime, registered", move || prime(NumaAllocator::builder().registered())),
    ]
}

fn host_alloc<'a>(bytes: usize) -> Contestant<'a> {
    contestant(HOST_ALLOC, move || {
        let begun = Instant::now();
        let _block = HostAlloc::new(bytes)?;
        Ok(begun.elapsed())
    })
}

/// Memory of `cudaHostAlloc`.
struct HostAlloc(*mut c_void);

impl HostAlloc {
    fn new(bytes: usize) -> Result<Self> {
        let mut block = null_mut();
        // SAFETY: the out pointer is valid.
        check(unsafe { cudaHostAlloc(&mut block, bytes, cudaHostAllocDefault) })?;
        Ok(Self(block))
    }
}

impl Drop for HostAlloc {
    fn drop(&mut self) {
        // SAFETY: it is freed once, and no copy is under way.
        unsafe { cudaFreeHost(self.0) };
    }
}

/// A block of an allocator.
struct Taken<'a> {
    allocator: &'a NumaAllocator,
    block: NonNull<u8>,
    layout: Layout,
}

impl<'a> Taken<'a> {
    fn new(allocator: &'a NumaAllocator, bytes: usize) -> Result<Self> {
        let layout = Layout::from_size_align(bytes, 4096)?;
        let block = allocator.allocate(layout).map_err(|_| anyhow!("no memory"))?;
        Ok(Self { allocator, block: block.cast(), layout })
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // SAFETY: the block came from this allocator with this layout, and no copy is under way.
        unsafe { self.allocator.deallocate(self.block, self.layout) };
    }
}
