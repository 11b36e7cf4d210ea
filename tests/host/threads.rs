//! Threads that grow, shrink and drop vectors that other threads made.

use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::NumaAllocator;

use crate::with_each_kind;

type Bytes = PinnedVec<u8, NumaAllocator>;

const THREADS: usize = 4;

/// How long to hammer: a fraction of a second, or `CUDA_MEMPOOL_HAMMER_SECONDS`.
fn duration() -> Duration {
    match std::env::var("CUDA_MEMPOOL_HAMMER_SECONDS") {
        Ok(seconds) => Duration::from_secs(seconds.parse().expect("a number of seconds")),
        Err(_) => Duration::from_millis(300),
    }
}

/// Every byte of a vector is the remainder of its first.
fn check(bytes: &Bytes) {
    let value = bytes.first().copied().unwrap_or_default();
    assert!(bytes.iter().all(|&byte| byte == value), "{} bytes of {value} were overwritten", bytes.len());
}

/// Resizes what it makes and what it is handed, passes it on, or drops it.
fn hammer(pinned: &NumaAllocator, seed: u64, until: Instant, next: &SyncSender<Bytes>, handed: &Receiver<Bytes>) {
    let mut random = fastrand::Rng::with_seed(seed);
    while Instant::now() < until {
        let mut bytes = handed.try_recv().unwrap_or_else(|_| PinnedVec::new_in(pinned.clone()));
        check(&bytes);
        let longest = 1 << random.u32(1..20);
        let length = 1 + random.usize(..longest);
        let value = bytes.first().copied().unwrap_or_else(|| random.u8(..));
        bytes.resize(length, value);
        if random.bool() {
            bytes.shrink_to_fit();
        }
        check(&bytes);
        if random.u8(..) < 200 {
            // Full or gone: it is dropped here.
            let _ = next.try_send(bytes);
        }
    }
}

pub fn vectors_pass_between_threads() {
    with_each_kind(|_, pinned| {
        let until = Instant::now() + duration();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(64)).unzip();
        thread::scope(|scope| {
            for (index, handed) in receivers.into_iter().enumerate() {
                let next = senders[(index + 1) % THREADS].clone();
                let pinned = &pinned;
                scope.spawn(move || hammer(pinned, seed.wrapping_add(index as u64), until, &next, &handed));
            }
        });
        drop(senders);
        assert_eq!(pinned.stats().live_blocks, 0);
        pinned.trim()?;
        assert_eq!(pinned.stats().taken_bytes, 0);
        Ok(())
    });
}
