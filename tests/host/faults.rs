//! Every call that the allocator makes fails once, and many fail in one life: nothing leaks but what could not be released,
//! and that is told.

use std::sync::atomic::{AtomicUsize, Ordering};

use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::{NumaAllocator, NumaAllocatorBuilder, PinnedBox};
use cuda_mempool::{on_drop_error, Device, ErrorKind, Location, Result};
use cudart_sim_control::Control;

use crate::on_simulator;

/// Every kind of place, with and without grants, and of memory.
const PLACES: [fn(Device) -> NumaAllocatorBuilder; 4] = [
    |device| NumaAllocator::builder().near(device).registered(),
    |device| NumaAllocator::builder().near(device),
    |device| NumaAllocator::builder().node(0).grant([device]),
    |_| NumaAllocator::builder().location(Location::Host),
];

/// Stronger than a pool's own alignment.
#[repr(align(4096))]
struct Page([u8; 100_000]);

/// All that an allocator does, in one life. Goes on after a failure, as a program would.
fn life(device: Device, place: fn(Device) -> NumaAllocatorBuilder) -> Result<()> {
    let pinned = place(device).chunk_size(256 << 10).cap(16 << 20).build()?;
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
    if let Ok(page) = PinnedBox::new(&pinned, Page([3; 100_000])) {
        assert_eq!((std::ptr::from_ref(&*page) as usize % 4096, page.0[99_999]), (0, 3));
    }
    if let Some(small) = &small {
        let _ = pinned.device_ptr(device, small);
    }
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

/// Runs a life with these faults. Says how many calls it made, how many objects it left behind, which stay for good, and
/// how many failures of a `Drop` were told.
fn life_with_faults(sim: Control, device: Device, place: usize, faults: &str) -> (u64, u64, u64) {
    sim.reset();
    let before = sim.live();
    TOLD.store(0, Ordering::SeqCst);
    sim.add_faults(faults).expect("a rule");
    // The cap makes one request fail in any case, so the outcome does not say whether a fault was met.
    let _ = life(device, PLACES[place]);
    let calls = sim.total_calls();
    sim.clear_faults();
    let live = sim.live();
    // Memory that could not be freed keeps its pool.
    let kept = (live.pools - before.pools).min(live.pool_allocations - before.pool_allocations);
    (calls, live.objects() - before.objects() - kept, TOLD.load(Ordering::SeqCst) as u64)
}

/// Has the failures counted that a `Drop` cannot return.
fn counting(test: impl FnOnce()) {
    on_drop_error(|_| {
        TOLD.fetch_add(1, Ordering::SeqCst);
    });
    test();
    on_drop_error(|error| eprintln!("{error}"));
}

pub fn each_call_may_fail() {
    on_simulator(|sim, device| {
        counting(|| {
            for (place, error) in [(0, 2), (0, 999), (1, 2), (1, 1), (1, 999), (2, 2), (3, 2)] {
                let mut nth = 1;
                loop {
                    let (calls, left, told) = life_with_faults(sim, device, place, &format!("*#{nth}={error}"));
                    assert!(left <= 1, "one failed release leaves one object: {}", sim.leak_report());
                    assert!(left <= told, "call {nth} of place {place}, untold: {}", sim.leak_report());
                    if calls < nth {
                        break;
                    }
                    nth += 1;
                }
                // Registered memory takes few calls.
                assert!(nth > if place == 0 { 8 } else { 40 }, "a life makes more calls than {nth}");
            }
        });
        Ok(())
    });
}

pub fn many_calls_may_fail() {
    on_simulator(|sim, device| {
        counting(|| {
            let mut told_in_all = 0;
            for round in 0..60 {
                let rate = [0.05, 0.2, 0.5][round % 3];
                let (_, left, told) = life_with_faults(sim, device, round / 3 % 4, &format!("*%{rate}=2"));
                assert!(left <= told, "{left} left, {told} told: {}", sim.leak_report());
                told_in_all += told;
            }
            assert!(told_in_all > 0, "some release has failed");
        });
        Ok(())
    });
}

pub fn what_could_not_be_freed_counts_against_the_cap() {
    on_simulator(|sim, device| {
        counting(|| {
            TOLD.store(0, Ordering::SeqCst);
            let pinned = NumaAllocator::builder().near(device).cap(64 << 20).build().expect("an allocator");
            let large = || PinnedBox::<[u8]>::zeroed(&pinned, 40 << 20);
            let first = large();
            sim.add_faults("cudaFreeAsync#1=999").expect("a rule");
            drop(first);
            assert_eq!((TOLD.load(Ordering::SeqCst), pinned.stats().taken_bytes), (1, 40 << 20));
            assert_eq!(large().unwrap_err().kind(), ErrorKind::OutOfMemory);
            drop(PinnedBox::new(&pinned, 1).expect("a block of what the cap leaves"));
            sim.add_faults("cudaFreeAsync#1=999").expect("a rule");
            assert_eq!(pinned.trim().expect("all that can be"), 0, "the chunk is lost too");
            assert!(pinned.stats().taken_bytes > 40 << 20 && pinned.stats().peak_taken_bytes <= 64 << 20);
        });
        Ok(())
    });
}
