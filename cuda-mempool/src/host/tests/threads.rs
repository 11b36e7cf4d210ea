//! Threads that allocate, resize, and free what others allocated.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::source::System;
use super::{arena, layout, CHUNK};
use crate::host::arena::Arena;

const THREADS: usize = 4;

/// How long to hammer: a fraction of a second, or `CUDA_MEMPOOL_HAMMER_SECONDS`.
fn duration() -> Duration {
    match std::env::var("CUDA_MEMPOOL_HAMMER_SECONDS") {
        Ok(seconds) => Duration::from_secs(seconds.parse().expect("a number of seconds")),
        Err(_) => Duration::from_millis(300),
    }
}

struct Block {
    start: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

// SAFETY: the block is the sender's alone, and then the receiver's.
unsafe impl Send for Block {}

impl Block {
    fn new(arena: &Arena<System>, layout: Layout, mark: u8) -> Self {
        let start = arena.allocate(layout).expect("the system has memory").cast::<u8>();
        // SAFETY: the block is ours for its whole length.
        unsafe { start.as_ptr().write_bytes(mark, layout.size()) };
        Self { start, layout, mark }
    }

    fn check(&self, len: usize) {
        // SAFETY: the block was filled when it was made.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) };
        assert!(bytes.iter().all(|&byte| byte == self.mark), "{:?} was overwritten", self.layout);
    }

    fn resize(&mut self, arena: &Arena<System>, size: usize) {
        let new = layout(size, self.layout.align());
        let kept = size.min(self.layout.size());
        // SAFETY: the block is live and has this layout.
        self.start = unsafe { arena.resize(self.start, self.layout, new) }.expect("the system has memory").cast();
        self.check(kept);
        self.layout = new;
        // SAFETY: as above.
        unsafe { self.start.as_ptr().write_bytes(self.mark, size) };
    }

    fn free(self, arena: &Arena<System>) {
        self.check(self.layout.size());
        // SAFETY: the block is live and has this layout.
        unsafe { arena.deallocate(self.start, self.layout) };
    }
}

/// One thread's part: keeps some blocks, resizes them, hands others to its neighbour, frees what it is handed.
fn hammer(arena: &Arena<System>, seed: u64, until: Instant, next: &SyncSender<Block>, handed: &Receiver<Block>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kept: Vec<Block> = Vec::new();
    while Instant::now() < until {
        for _ in 0..64 {
            let size = 1 << random.u32(0..18);
            let size = size + random.usize(0..size);
            match random.u32(0..16) {
                0..=6 => kept.push(Block::new(arena, layout(size, 1 << random.u32(0..8)), random.u8(..))),
                7..=8 if !kept.is_empty() => {
                    let which = random.usize(0..kept.len());
                    kept[which].resize(arena, size);
                }
                9..=11 if !kept.is_empty() => {
                    let block = kept.swap_remove(random.usize(0..kept.len()));
                    if let Err(refused) = next.try_send(block) {
                        let (std::sync::mpsc::TrySendError::Full(block)
                        | std::sync::mpsc::TrySendError::Disconnected(block)) = refused;
                        block.free(arena);
                    }
                }
                12 if !kept.is_empty() => kept.swap_remove(random.usize(0..kept.len())).free(arena),
                13 if random.u32(0..64) == 0 => {
                    arena.trim().expect("the source does not fail to trim");
                }
                _ => handed.try_iter().take(4).for_each(|block| block.free(arena)),
            }
            if kept.len() > 100 {
                kept.swap_remove(0).free(arena);
            }
        }
    }
    kept.into_iter().for_each(|block| block.free(arena));
}

#[test]
fn blocks_pass_between_threads() {
    let arena = arena();
    let until = Instant::now() + duration();
    let seed: u64 = fastrand::u64(..);
    println!("seed {seed}");
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(64)).unzip();
    thread::scope(|scope| {
        for (index, handed) in receivers.into_iter().enumerate() {
            let next = senders[(index + 1) % THREADS].clone();
            let arena = &arena;
            scope.spawn(move || {
                hammer(arena, seed.wrapping_add(index as u64), until, &next, &handed);
                // The neighbour may have sent its last after this thread's last look.
                drop(next);
                handed.iter().for_each(|block| block.free(arena));
            });
        }
        drop(senders);
    });
    assert_eq!(arena.stats().live_blocks, 0);
    arena.trim().unwrap();
    assert_eq!(arena.source().out(), 0);
}

#[test]
fn threads_that_need_a_chunk_share_it() {
    let arena = arena();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                Block::new(&arena, layout(100, 8), 1).free(&arena);
            });
        }
    });
    assert_eq!(arena.source().takes(), 1);
}

#[test]
fn what_one_thread_makes_another_can_free_for_ever() {
    let arena = arena();
    let (sender, receiver) = sync_channel(16);
    thread::scope(|scope| {
        scope.spawn(|| {
            for mark in 0..20_000_u32 {
                sender.send(Block::new(&arena, layout(700, 8), mark as u8)).unwrap();
            }
            drop(sender);
        });
        scope.spawn(|| receiver.into_iter().for_each(|block| block.free(&arena)));
    });
    let stats = arena.stats();
    assert_eq!(stats.live_blocks, 0);
    assert!(stats.chunk_bytes <= 4 * CHUNK, "memory must go round, not pile up: {stats:?}");
}
