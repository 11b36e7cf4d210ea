//! What else is called often: attributes, and moving a buffer to another stream.

use std::time::{Duration, Instant};

use cuda_mempool::sys::*;
use cuda_mempool::{Device, MemPool, Stream};

use crate::raw::{check, Code};
use crate::results::{Cell, Question};
use crate::rounds::{compete, Contestant, Effort};

const RAW: &str = "raw calls from Rust";

/// Asks everything; `tell` gets each answer as it comes.
pub fn ask_all(effort: Effort, mut tell: impl FnMut(Cell)) -> cuda_mempool::Result<()> {
    let device = Device::new(0)?;
    let pool = MemPool::builder(device).build()?;
    let (one, other) = (Stream::new(device)?, Stream::new(device)?);

    let raw_pool = pool.as_raw();
    tell(cell(
        "read a pool's attribute",
        effort,
        &[
            contestant(RAW, 1, move || {
                let mut value = 0_u64;
                let attribute = cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold;
                // SAFETY: the pool is alive, and the value as wide as the attribute.
                check(unsafe { cudaMemPoolGetAttribute(raw_pool, attribute, std::ptr::addr_of_mut!(value).cast()) })?;
                Ok::<_, Code>(value)
            }),
            contestant("MemPool", 1, || pool.release_threshold()),
        ],
    ));

    let attribute = cudaDeviceAttr::cudaDevAttrMultiProcessorCount;
    tell(cell(
        "read a device's attribute",
        effort,
        &[
            contestant(RAW, 1, move || {
                let mut value = 0;
                // SAFETY: the out pointer is valid.
                check(unsafe { cudaDeviceGetAttribute(&mut value, attribute, 0) })?;
                Ok::<_, Code>(value)
            }),
            contestant("Device", 1, || device.attribute(attribute)),
        ],
    ));

    let buffer = std::cell::RefCell::new(pool.alloc::<u8>(&one, 1000)?);
    let raw = RawOrder::new();
    tell(cell(
        "move to another stream",
        effort,
        &[
            contestant(RAW, 2, || {
                raw.order(0, 1)?;
                raw.order(1, 0)
            }),
            contestant("DeviceBuffer", 2, || {
                let mut buffer = buffer.borrow_mut();
                buffer.set_stream(&other)?;
                buffer.set_stream(&one)
            }),
        ],
    ));
    Ok(())
}

fn cell(workload: &str, effort: Effort, contestants: &[Contestant<'_>]) -> Cell {
    let question = Question { memory: "calls".into(), workload: workload.into(), bytes: None, threads: 1 };
    Cell { question, baseline: RAW.into(), results: compete(contestants, effort) }
}

fn contestant<'a, T, E: std::fmt::Display>(
    name: &str,
    per_time: usize,
    call: impl Fn() -> Result<T, E> + 'a,
) -> Contestant<'a> {
    let run = move |count: usize| -> Option<Duration> {
        let begun = Instant::now();
        for _ in 0..count {
            match call() {
                Ok(value) => drop(std::hint::black_box(value)),
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

/// Two streams, and the event that orders them.
struct RawOrder {
    streams: [cudaStream_t; 2],
    event: cudaEvent_t,
}

impl RawOrder {
    fn new() -> Self {
        let mut new = Self { streams: [std::ptr::null_mut(); 2], event: std::ptr::null_mut() };
        // SAFETY: the out pointers are valid. What fails here fails again where it is used.
        unsafe {
            for stream in &mut new.streams {
                cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
            }
            cudaEventCreateWithFlags(&mut new.event, cudaEventDisableTiming);
        }
        new
    }

    #[inline]
    fn order(&self, before: usize, after: usize) -> Result<(), Code> {
        // SAFETY: the handles are alive.
        unsafe {
            check(cudaEventRecord(self.event, self.streams[before]))?;
            check(cudaStreamWaitEvent(self.streams[after], self.event, cudaEventWaitDefault))
        }
    }
}

impl Drop for RawOrder {
    fn drop(&mut self) {
        // SAFETY: the handles are not used again.
        unsafe {
            cudaEventDestroy(self.event);
            self.streams.map(|stream| cudaStreamDestroy(stream));
        }
    }
}
