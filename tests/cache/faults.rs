//! Each call fails once, wherever a cache makes it.

use cuda_mempool::{BlockCache, Device, DeviceBuffer, ErrorKind, Location, MemPool, Result, Stream};

use crate::apart::{elsewhere, simulated};
use crate::sim;
use crate::suite::Outcome;

/// A life of a cache in which it makes each of its calls: misses, hits, a buffer that comes back from another stream, a
/// trim, an allocation that finds no room at first, a close.
fn life() -> Result<()> {
    let device = Device::new(0)?;
    let pool = MemPool::builder(Location::Device(device)).max_size(32 << 20).build()?;
    let (stream, other) = (Stream::new(device)?, Stream::new(device)?);
    let cache = BlockCache::new(&pool, &stream);
    let neighbour = BlockCache::new(&pool, &other);
    drop(neighbour.alloc_zeroed::<u8>(10 << 20)?);
    drop(cache.alloc_zeroed::<u8>(10 << 20)?);
    let mut moved: DeviceBuffer<u8> = cache.alloc_zeroed(10 << 20)?;
    moved.set_stream(&other)?;
    moved.fill(1)?;
    drop(moved);
    drop(cache.alloc_zeroed::<u8>(20 << 20)?);
    drop(cache.alloc_zeroed::<u8>(30 << 20)?);
    cache.trim(0);
    let left = cache.alloc_zeroed::<u8>(100)?;
    drop(cache);
    left.close().map_err(|(_, error)| error)
}

pub fn every_failure_comes_out_and_nothing_is_left() -> Outcome {
    simulated(1, |sim| {
        elsewhere(life).expect("a life without failures");
        let mut before = sim.live();
        let (mut failed, mut told, mut hidden) = (0, 0, 0);
        for call in 1.. {
            sim.reset();
            sim.add_fault(&format!("*#{call}=999"));
            let answer = elsewhere(life);
            if sim.all_calls() < call {
                break;
            }
            sim.clear_faults();
            let heard = sim::heard();
            match (&answer, heard.is_empty()) {
                (Err(error), _) => {
                    // What could not be freed, or waited for, is missing when memory runs out.
                    let expected = error.raw().0 == 999 || error.kind() == ErrorKind::OutOfMemory;
                    assert!(expected, "call {call}: {error}");
                    failed += 1;
                }
                (Ok(()), false) => told += 1,
                (Ok(()), true) => hidden += 1,
            }
            assert!(heard.iter().all(|&(_, code, _)| code == 999), "call {call}: {heard:?}");
            // Frees that no stream was waited for are done then. What a drop could not free is leaked, and told.
            sim::must(sim::device(0).synchronize());
            if heard.is_empty() {
                assert_eq!(sim.live(), before, "after a failure of call {call}");
            }
            before = sim.live();
            assert_eq!(sim.races(), 0, "call {call}: {}", sim.last_race());
            elsewhere(life).unwrap_or_else(|error| panic!("after a failure of call {call}: {error}"));
            assert_eq!(sim::heard(), [], "after a failure of call {call}");
            sim.reset();
        }
        // Hidden: a failure to make room, or to wait for another stream, where the next thing that is tried succeeds.
        assert!(
            failed > 20 && told > 0 && hidden > 0,
            "{failed} came out, {told} were told, {hidden} were made up for"
        );
    })
}
