//! Every call that the allocator makes fails once: nothing leaks but what could not be released, and that is told.

use std::sync::atomic::{AtomicUsize, Ordering};

use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::{on_drop_error, Device, Result};
use cudart_sim_control::Control;

use crate::on_simulator;

/// All that an allocator does, in one life. Goes on after a failure, as a program would.
fn life(device: Device) -> Result<()> {
    let pinned = NumaAllocator::builder().near(device).chunk_size(256 << 10).cap(16 << 20).build()?;
    let mut outcome = pinned.prime(4 << 20);
    let mut keep = |answer: Result<PinnedBox<[u8]>>| match answer {
        Ok(boxed) => Some(boxed),
        Err(error) => {
            outcome = Err(error);
            None
        }
    };
    let small = keep(PinnedBox::from_slice(&pinned, &[1; 100]));
    let large = keep(PinnedBox::zeroed(&pinned, 3 << 20));
    // Past the cap, so that it reclaims, unless something failed before.
    drop(keep(PinnedBox::zeroed(&pinned, 15 << 20)));
    drop(large);
    let mut growing = PinnedVec::new_in(pinned.clone());
    for byte in 0..300_000_u32 {
        if growing.try_reserve(1).is_err() {
            outcome = Err(pinned.take_last_error().expect("the reason"));
            break;
        }
        growing.push(byte as u8);
    }
    assert!(growing.iter().enumerate().all(|(index, &byte)| index as u8 == byte), "what is there stays");
    drop(growing);
    let stats = pinned.stats();
    assert_eq!(stats.live_blocks, usize::from(small.is_some()));
    drop(small);
    outcome.and(pinned.trim().map(|_| ()))
}

static TOLD: AtomicUsize = AtomicUsize::new(0);

/// Runs a life in which the nth call answers out of memory. Says whether there was an nth call.
fn life_with_fault(sim: Control, device: Device, nth: u64, error: u32) -> bool {
    sim.reset();
    let before = sim.live();
    TOLD.store(0, Ordering::SeqCst);
    sim.add_faults(&format!("*#{nth}={error}")).expect("a rule");
    // The cap makes one request fail in any case, so the outcome alone does not say whether the fault was met.
    let _ = life(device);
    let met = sim.total_calls() >= nth;
    sim.clear_faults();
    let leaked = sim.live() != before;
    if leaked {
        assert_eq!(TOLD.load(Ordering::SeqCst), 1, "call {nth}: {}", sim.leak_report());
        one_is_left(sim, before);
    }
    met
}

/// What a failed release left behind stays for good: later lives count from there.
fn one_is_left(sim: Control, before: cudart_sim_control::Live) {
    let left = sim.live();
    let more = (left.pools - before.pools)
        + (left.streams - before.streams)
        + (left.pool_allocations - before.pool_allocations)
        + (left.events - before.events);
    // Memory that could not be freed keeps its pool.
    let expected = 1 + (left.pool_allocations - before.pool_allocations).min(1);
    assert_eq!(more, expected, "one failed release leaves one object: {}", sim.leak_report());
}

#[test]
fn each_call_may_fail() {
    on_simulator(|sim, device| {
        on_drop_error(|_| {
            TOLD.fetch_add(1, Ordering::SeqCst);
        });
        for error in [2, 1, 999] {
            let mut nth = 1;
            while life_with_fault(sim, device, nth, error) {
                nth += 1;
            }
            assert!(nth > 40, "a life makes more calls than {nth}");
        }
        on_drop_error(|error| eprintln!("{error}"));
        Ok(())
    });
}
