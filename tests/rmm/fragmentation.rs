//! The random-allocation pattern of RMM's benchmark, through a cache and through the bare pool.

use cuda_mempool::{BlockCache, DeviceBuffer, ErrorKind, MemPool, Result, Stream};

use crate::suite::{self, Outcome, Skip};

const MIB: usize = 1 << 20;

/// Blocks are multiples of it.
const SMALLEST: usize = 512;

/// Allocates `count` times sizes up to `largest`, 73 % of the steps, and frees any buffer in the others and whenever
/// more than `usage` bytes would be out. Tells `watch` how many bytes are out, in how many buffers. Answers how many
/// allocations found no memory.
fn pattern(
    count: usize,
    largest: usize,
    usage: usize,
    alloc: impl Fn(usize) -> Result<DeviceBuffer<u8>>,
    watch: impl Fn(usize, usize),
) -> usize {
    let mut random = fastrand::Rng::with_seed(42);
    let mut live: Vec<DeviceBuffer<u8>> = Vec::new();
    let (mut out, mut allocations, mut failed) = (0, 0, 0);
    while allocations < count {
        let bytes = random.usize(1..=largest);
        if live.is_empty() || (random.usize(0..100) < 73 && out + bytes <= usage) {
            allocations += 1;
            match alloc(bytes) {
                Ok(buffer) => {
                    out += bytes;
                    live.push(buffer);
                    watch(out, live.len());
                }
                Err(error) if error.kind() == ErrorKind::OutOfMemory => failed += 1,
                Err(error) => panic!("{error}"),
            }
        } else {
            out -= live.swap_remove(random.usize(0..live.len())).len();
        }
    }
    failed
}

/// The cache never has more than a quarter of what is out as waste, and with so much more room is as good as the bare pool.
fn compare(count: usize, largest: usize, usage: usize) -> Outcome {
    let device = suite::device()?;
    let room = usage + usage / 4;
    let more_room = room + room / 4;
    if device.memory().unwrap().free < more_room {
        return Skip::because(format!("the device has less than {more_room} bytes free"));
    }
    let pool_of = |room| MemPool::builder(device).max_size(room).release_threshold(u64::MAX).build().unwrap();
    let stream = Stream::new(device).unwrap();

    let bare = pool_of(room);
    let without = pattern(count, largest, usage, |bytes| bare.alloc(&stream, bytes), |_, _| {});
    let most = bare.usage().unwrap().used_high;
    // The device is to have room for the other.
    bare.sync_and_trim(&stream, 0).unwrap();

    let behind = pool_of(more_room);
    let cache = BlockCache::new(&behind, &stream);
    cache.set_cap(room);
    let few_wasted = |out, buffers| {
        let waste = cache.stats().waste;
        assert!(waste <= out / 4 + buffers * SMALLEST, "{waste} bytes of waste for {out} in {buffers} buffers");
    };
    let with = pattern(count, largest, usage, |bytes| cache.alloc(bytes), few_wasted);
    let cached = (behind.usage().unwrap().used_high, cache.stats());
    println!("{count} allocations up to {largest}: bare, {without} failed, {most} used; {with} failed, {cached:?}");
    assert!(with <= without, "{with} failed, where {without} do of the bare pool");
    assert_eq!(cache.stats().waste, 0, "nothing is out");
    drop(cache);
    assert_eq!(behind.usage().unwrap().used, 0);
    // As above, for the next test.
    behind.sync_and_trim(&stream, 0).unwrap();
    Ok(())
}

pub fn a_thousand_allocations_of_up_to_4_gib() -> Outcome {
    compare(1_000, 4 << 30, 9 << 30)
}

pub fn ten_thousand_allocations_of_up_to_64_mib() -> Outcome {
    compare(10_000, 64 * MIB, 4 << 30)
}

pub fn a_hundred_thousand_allocations_of_up_to_1_mib() -> Outcome {
    compare(100_000, MIB, 1 << 30)
}
