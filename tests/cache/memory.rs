//! What caches do when memory runs out.

use cuda_mempool::{sys, BlockCache, DeviceBuffer, ErrorKind, Location, MemPool, Stream};

use crate::apart::{anywhere, simulated};
use crate::sim::{self, must};
use crate::suite::Outcome;

const MIB: usize = 1 << 20;

/// A pool that can hold 32 MiB.
fn small_pool() -> MemPool {
    must(MemPool::builder(Location::Device(sim::device(0))).max_size(32 * MIB).release_threshold(u64::MAX).build())
}

pub fn a_cache_gives_back_its_own_blocks_first() -> Outcome {
    anywhere(1, |machine| {
        let pool = small_pool();
        let stream = must(Stream::new(sim::device(0)));
        let [cache, other] = [(); 2].map(|()| BlockCache::new(&pool, &stream));
        drop([(); 2].map(|()| must(cache.alloc::<u8>(10 * MIB))));
        drop(must(other.alloc::<u8>(4 * MIB)));
        machine.count_calls();
        drop(must(cache.alloc::<u8>(20 * MIB)));
        assert_eq!((cache.stats().cached_bytes, other.stats().cached_bytes), (20 * MIB, 4 * MIB));
        machine.assert_calls("cudaMallocFromPoolAsync", 2);
    })
}

pub fn all_caches_of_the_pool_give_back_their_blocks_next() -> Outcome {
    anywhere(1, |_machine| {
        let (pool, foreign_pool) = (small_pool(), small_pool());
        let stream = must(Stream::new(sim::device(0)));
        let cache = BlockCache::new(&pool, &stream);
        let other = BlockCache::new(&pool, &must(Stream::new(sim::device(0))));
        let foreign = BlockCache::new(&foreign_pool, &stream);
        drop(must(other.alloc::<u8>(20 * MIB)));
        drop(must(foreign.alloc::<u8>(20 * MIB)));
        let mut buffer = must(cache.alloc::<u8>(20 * MIB));
        must(buffer.fill(1));
        assert_eq!((other.stats().cached_bytes, foreign.stats().cached_bytes), (0, 20 * MIB));
        assert_eq!(cache.stats().misses, 1);
    })
}

pub fn a_cache_of_another_thread_gives_back_its_blocks_too() -> Outcome {
    anywhere(1, |_machine| {
        let pool = small_pool();
        let cache = BlockCache::new(&pool, &must(Stream::new(sim::device(0))));
        let (ready, wait) = std::sync::mpsc::channel();
        let (done, wait_done) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let pool = &pool;
            let owner = scope.spawn(move || {
                let stream = must(Stream::new(sim::device(0)));
                drop(must(BlockCache::of_thread(pool, &stream).alloc::<u8>(20 * MIB)));
                ready.send(()).unwrap();
                wait_done.recv().unwrap();
            });
            wait.recv().unwrap();
            drop(must(cache.alloc::<u8>(20 * MIB)));
            done.send(()).unwrap();
            // The end of the scope does not wait for the thread's own cache to be gone.
            owner.join().unwrap();
        });
    })
}

/// To free what it has would break the capture, and fail.
pub fn a_cache_whose_stream_is_being_captured_keeps_its_blocks() -> Outcome {
    anywhere(1, |_machine| {
        let pool = small_pool();
        let (stream, captured) = (must(Stream::new(sim::device(0))), must(Stream::new(sim::device(0))));
        let (cache, other) = (BlockCache::new(&pool, &stream), BlockCache::new(&pool, &captured));
        drop(must(other.alloc::<u8>(20 * MIB)));
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        // SAFETY: the stream is alive.
        let begun = unsafe { sys::cudaStreamBeginCapture(captured.as_raw(), mode) };
        assert_eq!(begun, sys::cudaError_t::cudaSuccess);
        assert_eq!(cache.alloc::<u8>(20 * MIB).unwrap_err().kind(), ErrorKind::OutOfMemory);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive and the out pointer valid; the graph is the test's.
        let ended = unsafe { (sys::cudaStreamEndCapture(captured.as_raw(), &mut graph), sys::cudaGraphDestroy(graph)) };
        assert_eq!(ended, (sys::cudaError_t::cudaSuccess, sys::cudaError_t::cudaSuccess));
        assert_eq!(other.stats().cached_bytes, 20 * MIB);
        drop(must(cache.alloc::<u8>(20 * MIB)));
    })
}

pub fn what_is_out_stays_out() -> Outcome {
    anywhere(1, |_machine| {
        let pool = small_pool();
        let cache = BlockCache::new(&pool, &must(Stream::new(sim::device(0))));
        let held = must(cache.from_slice(&vec![5_u8; 20 * MIB]));
        let error = cache.alloc::<u8>(20 * MIB + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(error.out_of_memory().unwrap().requested, 20 * MIB + 1);
        assert!(must(held.to_vec()).iter().all(|&byte| byte == 5));
        drop(held);
        assert!(cache.alloc::<u8>(20 * MIB).is_ok());
    })
}

/// Many threads that ask for absurd amounts would otherwise add up to more than a number holds.
pub fn what_is_only_asked_for_is_no_waste() -> Outcome {
    anywhere(1, |_machine| {
        let pool = small_pool();
        let stream = must(Stream::new(sim::device(0)));
        let cache = BlockCache::new(&pool, &stream);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        // The cache waits for its stream before it gives up.
        must(stream.launch_host_fn(move || wait.recv().unwrap()));
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| cache.alloc::<u8>((1 << 60) + 1).map(drop));
            while cache.stats().misses == 0 {
                std::thread::yield_now();
            }
            let waste = cache.stats().waste;
            go.send(()).unwrap();
            assert_eq!(asking.join().unwrap().unwrap_err().kind(), ErrorKind::OutOfMemory);
            assert_eq!((waste, cache.stats().waste), (0, 0));
        });
        let _out = must(cache.alloc::<u8>(1000));
        assert_eq!(cache.stats().waste, 24);
    })
}

pub fn other_failures_give_back_nothing() -> Outcome {
    simulated(1, |sim| {
        let pool = small_pool();
        let cache = BlockCache::new(&pool, &must(Stream::new(sim::device(0))));
        drop(must(cache.alloc::<u8>(MIB)));
        sim.add_fault("cudaMallocFromPoolAsync#1=999");
        let refused: Result<DeviceBuffer<u8>, _> = cache.alloc(2 * MIB);
        assert_eq!(refused.unwrap_err().raw().0, 999);
        assert_eq!(cache.stats().cached_bytes, MIB);
    })
}
