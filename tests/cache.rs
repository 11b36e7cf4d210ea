//! The block cache on the simulated runtime: its policy, its order, its ends, and what happens when calls fail.
//!
//! `PROPTEST_CASES=1000000 cargo test --test cache random` is the long run of the random programs.

#[path = "cache/apart.rs"]
mod apart;
#[path = "cache/faults.rs"]
mod faults;
#[path = "cache/lifetimes.rs"]
mod lifetimes;
#[path = "cache/memory.rs"]
mod memory;
#[path = "cache/policy.rs"]
mod policy;
#[path = "cache/program.rs"]
mod program;
#[path = "cache/random.rs"]
mod random;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;

use cuda_mempool::{BlockCache, Location, MemPool, Stream};
use sim::must;

/// A pool on the first device that keeps what it has, a stream, and a cache for it.
fn cache() -> (MemPool, Stream, BlockCache) {
    let device = sim::device(0);
    let pool = must(MemPool::builder(Location::Device(device)).release_threshold(u64::MAX).build());
    let stream = must(Stream::new(device));
    let cache = BlockCache::new(&pool, &stream);
    (pool, stream, cache)
}
