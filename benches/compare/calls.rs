//! What else is called often: attributes, moving a buffer to another stream, and what a call costs by the link kind.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt::Display;
use std::hint::black_box;
use std::ptr::{addr_of_mut, null_mut, NonNull};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cuda_mempool::resource::{DeviceMemoryResource, ResourceId, StatisticsAdaptor};
use cuda_mempool::sys::*;
use cuda_mempool::{Device, MemPool, Stream};

use crate::raw::{check, Code};
use crate::results::{Cell, Question};
use crate::rounds::{compete, Contestant, Effort};

const RAW: &str = "raw calls from Rust";
const BYTES: usize = 64 << 10;

/// Asks everything; `tell` gets each answer as it comes.
pub fn ask_all(effort: Effort, mut tell: impl FnMut(Cell)) -> Result<()> {
    let device = Device::new(0)?;
    let pool = MemPool::builder(device).release_threshold(u64::MAX).build()?;
    tell(pairs(device, &pool, effort)?);
    tell(pool_attribute(&pool, effort));
    tell(device_attribute(device, effort));
    tell(moves(device, &pool, effort)?);
    tell(statistics(device, effort)?);
    tell(way_to_a_function(effort)?);
    Ok(())
}

/// Of a stream whose raw handle was given out, each allocation asks whether it is being captured.
fn pairs(device: Device, pool: &MemPool, effort: Effort) -> Result<Cell> {
    let (hidden, shown) = (Stream::new(device)?, Stream::new(device)?);
    let (raw_pool, raw_stream) = (pool.as_raw(), shown.as_raw());
    let raw = || {
        let mut block = null_mut();
        // SAFETY: the handles are alive, and the block is freed once.
        unsafe {
            check(cudaMallocFromPoolAsync(&mut block, BYTES, raw_pool, raw_stream))?;
            check(cudaFreeAsync(block, raw_stream))
        }
    };
    let contestants = [
        contestant(RAW, 1, raw),
        contestant("DeviceBuffer", 1, || pool.alloc::<u8>(&hidden, BYTES).map(drop)),
        contestant("DeviceBuffer, raw stream known", 1, || pool.alloc::<u8>(&shown, BYTES).map(drop)),
    ];
    Ok(cell("allocate and free 64 KiB", effort, &contestants))
}

fn pool_attribute(pool: &MemPool, effort: Effort) -> Cell {
    let raw_pool = pool.as_raw();
    let raw = move || {
        let mut value = 0_u64;
        let attribute = cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold;
        // SAFETY: the pool is alive, and the value as wide as the attribute.
        check(unsafe { cudaMemPoolGetAttribute(raw_pool, attribute, addr_of_mut!(value).cast()) }).map(|()| value)
    };
    let contestants = [contestant(RAW, 1, raw), contestant("MemPool", 1, || pool.release_threshold())];
    cell("read a pool's attribute", effort, &contestants)
}

fn device_attribute(device: Device, effort: Effort) -> Cell {
    let attribute = cudaDeviceAttr::cudaDevAttrMultiProcessorCount;
    let raw = move || {
        let mut value = 0;
        // SAFETY: the out pointer is valid.
        check(unsafe { cudaDeviceGetAttribute(&mut value, attribute, device.ordinal()) }).map(|()| value)
    };
    let contestants = [contestant(RAW, 1, raw), contestant("Device", 1, move || device.attribute(attribute))];
    cell("read a device's attribute", effort, &contestants)
}

/// There and back, on the same two streams for both: what a wait costs depends on what else the streams have done.
fn moves(device: Device, pool: &MemPool, effort: Effort) -> Result<Cell> {
    let (first, second) = (Stream::new(device)?, Stream::new(device)?);
    let (raw_first, raw_second) = (first.as_raw(), second.as_raw());
    let mut event = null_mut();
    // SAFETY: the out pointer is valid.
    check(unsafe { cudaEventCreateWithFlags(&mut event, cudaEventDisableTiming) })?;
    let raw = || {
        for (before, after) in [(raw_first, raw_second), (raw_second, raw_first)] {
            // SAFETY: the handles are alive.
            unsafe {
                check(cudaEventRecord(event, before))?;
                check(cudaStreamWaitEvent(after, event, cudaEventWaitDefault))?;
            }
        }
        Ok::<_, Code>(())
    };
    let buffer = RefCell::new(pool.alloc::<u8>(&first, BYTES)?);
    let there_and_back = || {
        let mut buffer = buffer.borrow_mut();
        buffer.set_stream(&second)?;
        buffer.set_stream(&first)
    };
    let contestants = [contestant(RAW, 2, raw), contestant("DeviceBuffer", 2, there_and_back)];
    let cell = cell("move to another stream", effort, &contestants);
    // SAFETY: it is not used again.
    check(unsafe { cudaEventDestroy(event) })?;
    Ok(cell)
}

/// What the adaptor adds, seen where nothing else takes time.
fn statistics(device: Device, effort: Effort) -> Result<Cell> {
    let stream = Stream::new(device)?;
    let counted = StatisticsAdaptor::new(Nothing);
    let contestants = [
        contestant("a resource that does nothing", 1, || pair_of(&Nothing, &stream)),
        contestant("StatisticsAdaptor on it", 1, || pair_of(&counted, &stream)),
    ];
    Ok(cell("allocate and deallocate", effort, &contestants))
}

fn pair_of(resource: &impl DeviceMemoryResource, stream: &Stream) -> cuda_mempool::Result<()> {
    let block = resource.allocate(BYTES, stream)?;
    // SAFETY: given back once, as it was handed out.
    unsafe { resource.deallocate(black_box(block), BYTES, stream) }
}

/// A resource whose blocks nobody may use.
struct Nothing;

// SAFETY: nobody uses what it hands out.
unsafe impl DeviceMemoryResource for Nothing {
    fn allocate_async_aligned(&self, _: usize, _: usize, _: &Stream) -> cuda_mempool::Result<NonNull<c_void>> {
        Ok(black_box(NonNull::dangling()))
    }

    unsafe fn deallocate_async_aligned(
        &self,
        _: NonNull<c_void>,
        _: usize,
        _: usize,
        _: &Stream,
    ) -> cuda_mempool::Result<()> {
        Ok(())
    }

    fn id(&self) -> ResourceId {
        ResourceId::unique()
    }

    fn device(&self) -> Device {
        unreachable!("no synchronous form is used")
    }

    fn trim(&self) -> cuda_mempool::Result<()> {
        Ok(())
    }
}

/// `cudaGetLastError` does next to nothing, so nearly all of its time is the way to it. A linked call goes through a
/// pointer that the loader filled in.
fn way_to_a_function(effort: Effort) -> Result<Cell> {
    let runtime = runtime()?;
    let pointer = if runtime.link() == LinkKind::Dlopen {
        // SAFETY: the library is in use already, so nothing runs.
        let library = unsafe { libloading::Library::new(runtime.path().context("the library's file is not told")?) }?;
        // SAFETY: the signature is the bound one, and the crate that loaded the library never closes it.
        *unsafe { library.get::<unsafe extern "C" fn() -> cudaError_t>(b"cudaGetLastError\0") }?
    } else {
        cudaGetLastError
    };
    // SAFETY: the function has no requirement.
    let through_pointer = move || check(unsafe { black_box(pointer)() });
    // SAFETY: as above.
    let through_crate = || check(unsafe { cudaGetLastError() });
    let contestants =
        [contestant("through a pointer", 1, through_pointer), contestant("through the crate", 1, through_crate)];
    Ok(cell("cudaGetLastError", effort, &contestants))
}

fn cell(workload: &str, effort: Effort, contestants: &[Contestant<'_>]) -> Cell {
    let question = Question { memory: "calls".into(), workload: workload.into(), bytes: None, threads: 1 };
    Cell { question, baseline: contestants[0].name.clone(), results: compete(contestants, effort) }
}

fn contestant<'a, T, E: Display>(name: &str, per_time: usize, call: impl Fn() -> Result<T, E> + 'a) -> Contestant<'a> {
    let run = move |count: usize| -> Option<Duration> {
        let begun = Instant::now();
        for _ in 0..count {
            match call() {
                Ok(value) => drop(black_box(value)),
                Err(why) => {
                    eprintln!("{why}");
                    return None;
                }
            }
        }
        Some(begun.elapsed())
    };
    Contestant { name: name.into(), run: Box::new(run), per_time }
}
