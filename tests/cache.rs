//! The block cache on GPUs and on the simulated runtime: its policy, its order, its ends; and on the latter alone what
//! happens when calls fail, and whether anything races.
//!
//! `PROPTEST_CASES=1000000 cargo test --test cache random` is the long run of the random programs.

#[path = "cache/apart.rs"]
#[allow(dead_code)] // What caches use of it.
mod apart;
#[path = "support/driver.rs"]
#[allow(dead_code)] // What the kernels use of it.
mod driver;
#[path = "cache/faults.rs"]
mod faults;
#[path = "support/kernel.rs"]
#[allow(dead_code)] // Two of its kernels are used here.
mod kernel;
#[path = "safe/launcher.rs"]
#[allow(dead_code)] // Nothing is only read here.
mod launcher;
#[path = "cache/lifetimes.rs"]
mod lifetimes;
#[path = "cache/memory.rs"]
mod memory;
#[path = "cache/order.rs"]
mod order;
#[path = "cache/policy.rs"]
mod policy;
#[path = "cache/program.rs"]
mod program;
#[path = "cache/random.rs"]
mod random;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

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

suite! {
    tests: [
        faults::every_failure_comes_out_and_nothing_is_left,
        lifetimes::buffers_outlive_their_cache,
        lifetimes::streams_and_pools_may_go_first,
        lifetimes::a_stream_of_a_moved_buffer_may_go_first,
        lifetimes::a_buffer_whose_stream_is_being_captured_does_not_come_back,
        lifetimes::a_borrowed_handle_of_the_stream_is_not_kept,
        lifetimes::buffers_can_be_dropped_on_any_thread,
        lifetimes::a_cache_of_a_per_thread_stream,
        lifetimes::a_thread_that_ends_drops_its_caches,
        lifetimes::rmm_order_at_exit,
        lifetimes::a_forked_child_drops_what_it_inherited,
        lifetimes::a_child_forked_while_others_use_a_cache_does_not_hang,
        memory::a_cache_gives_back_its_own_blocks_first,
        memory::all_caches_of_the_pool_give_back_their_blocks_next,
        memory::a_cache_of_another_thread_gives_back_its_blocks_too,
        memory::a_cache_whose_stream_is_being_captured_keeps_its_blocks,
        memory::what_is_out_stays_out,
        memory::what_is_only_asked_for_is_no_waste,
        memory::other_failures_give_back_nothing,
        order::a_block_is_reused_behind_the_work_before,
        order::a_moved_block_is_not_reused_early,
        order::a_block_lent_to_another_stream_comes_back_in_order,
        order::sixteen_threads_with_a_cache_each,
        policy::a_hit_makes_no_call,
        policy::blocks_are_reused_by_size,
        policy::no_bytes_take_no_block,
        policy::large_alignments_are_met,
        policy::what_is_above_the_cap_goes_oldest_first,
        policy::a_cap_of_nothing_caches_nothing,
        policy::a_buffer_that_moved_comes_back_by_one_event,
        policy::contents_can_be_asked_for,
        policy::as_a_resource_it_orders_other_streams,
        policy::each_thread_has_its_own,
        random::programs_do_as_they_should,
        random::streams_that_pause_change_nothing,
        random::without_an_ordering_rule_they_race,
    ],
    roles: [lifetimes::exit, lifetimes::fork, lifetimes::fork_in_use],
}
