//! Each call fails once, wherever a cache makes it.

use cuda_mempool::{BlockCache, Device, DeviceBuffer, ErrorKind, Location, MemPool, Result, Stream};

use crate::apart::{elsewhere, simulated};
use crate::sim::{self, Sim};
use crate::suite::Outcome;

/// A life of a cache in which it makes each of its calls: misses, hits, a buffer that comes back from another stream, a
/// trim, an allocation that finds no room at first, a close.
fn life() -> Result<()> {
    let device = Device::new(0)?;
    let pool = MemPool::builder(Location::Device(device)).max_size(32 << 20).build()?;
    let (stream, other) = (Stream::new(device)?, Stream::new(device)?);
    let cache = BlockCache::new(&pool, &stream);
    let neighbour = BlockCache::new(&pool, &other);
    drop(touched(&neighbour, 10 << 20)?);
    drop(touched(&cache, 10 << 20)?);
    let mut moved = touched(&cache, 10 << 20)?;
    moved.set_stream(&other)?;
    moved.slice_mut(..100).fill(1)?;
    drop(moved);
    drop(touched(&cache, 20 << 20)?);
    drop(touched(&cache, 30 << 20)?);
    cache.trim(0);
    let left = touched(&cache, 100)?;
    drop(cache);
    left.close().map_err(|(_, error)| error)
}

/// A buffer with work on it, which takes no longer than it must.
fn touched(cache: &BlockCache, bytes: usize) -> Result<DeviceBuffer<u8>> {
    let mut buffer = cache.alloc(bytes)?;
    buffer.slice_mut(..100).zero()?;
    Ok(buffer)
}

/// What such a life and the wait for its end call, but for what reads why a call failed.
const FUNCTIONS: &[&str] = &[
    "cudaDeviceGetAttribute",
    "cudaDeviceGetMemPool",
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventRecord",
    "cudaFreeAsync",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaMallocFromPoolAsync",
    "cudaMemGetInfo",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolGetAttribute",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolTrimTo",
    "cudaMemsetAsync",
    "cudaStreamCreateWithFlags",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
];

/// What came of the failures.
#[derive(Debug, Default)]
struct Outcomes {
    /// Errors that the caller got.
    came_out: usize,
    told: usize,
    /// A failure to make room, or to wait for another stream, where the next thing that is tried succeeds.
    made_up_for: usize,
}

pub fn every_failure_comes_out_and_nothing_is_left() -> Outcome {
    simulated(1, |sim| {
        elsewhere(life).expect("a life without failures");
        sim.settled();
        sim.reset();
        elsewhere(life).and_then(|()| sim::device(0).synchronize()).expect("a life without failures");
        let errors = ["cudaGetLastError", "cudaGetErrorName", "cudaGetErrorString"];
        let known: u64 = FUNCTIONS.iter().chain(&errors).map(|function| sim.calls(function)).sum();
        assert_eq!(sim.all_calls(), known, "a function is called that is in no list");

        let mut outcomes = Outcomes::default();
        for function in FUNCTIONS {
            let met = (1..).take_while(|&call| life_with_fault(sim, function, call, &mut outcomes)).count();
            assert!(met > 0, "{function} is never called");
        }
        let Outcomes { came_out, told, made_up_for } = outcomes;
        assert!(came_out > 20 && told > 0 && made_up_for > 0, "{outcomes:?}");
    })
}

/// Fails one call of a life. Says whether there was such a call.
fn life_with_fault(sim: &Sim, function: &str, call: u64, outcomes: &mut Outcomes) -> bool {
    let device = sim::device(0);
    let what = format!("after a failure of call {call} of {function}");
    let before = sim.settled();
    sim.reset();
    sim.add_fault(&format!("{function}#{call}=999"));
    let answer = elsewhere(life).and_then(|()| device.synchronize());
    let met = sim.calls(function) >= call;
    sim.clear_faults();
    if !met {
        return false;
    }
    let heard = sim::heard();
    match (&answer, heard.is_empty()) {
        (Err(error), _) => {
            // What could not be freed, or waited for, is missing when memory runs out.
            let expected = error.raw().0 == 999 || error.kind() == ErrorKind::OutOfMemory;
            assert!(expected, "{what}: {error}");
            outcomes.came_out += 1;
        }
        (Ok(()), false) => outcomes.told += 1,
        (Ok(()), true) => outcomes.made_up_for += 1,
    }
    assert!(heard.iter().all(|&(_, code, _)| code == 999), "{what}: {heard:?}");
    // What a drop could not free is leaked, and told.
    if heard.is_empty() {
        assert_eq!(sim.settled(), before, "{what}");
    }
    assert_eq!(sim.races(), 0, "{what}: {}", sim.last_race());
    elsewhere(life).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(sim::heard(), [], "{what}");
    true
}
