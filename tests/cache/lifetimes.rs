//! The ends of caches, buffers, pools, streams, threads and processes, in every order.

use std::process::Command;

use cuda_mempool::{sys, BlockCache, DeviceBuffer, Location, MemPool, Stream};

use crate::apart::{apart, elsewhere};
use crate::cache;
use crate::sim::{self, must};

#[test]
fn buffers_outlive_their_cache() {
    apart(1, |sim| {
        let before = sim.live();
        elsewhere(|| {
            let (pool, _stream, cache) = cache();
            let other = must(Stream::new(sim::device(0)));
            let mut buffers: Vec<DeviceBuffer<u32>> = (1..5).map(|length| must(cache.alloc(length * 1000))).collect();
            drop(buffers.pop());
            drop(cache);
            assert_eq!(must(pool.usage()).used, 4096 + 8192 + 12288, "what was cached is the pool's");
            must(buffers[0].set_stream(&other));
            for buffer in &mut buffers {
                must(buffer.fill(3));
                assert!(must(buffer.to_vec()).iter().all(|&element| element == 3));
            }
            drop(buffers);
            assert_eq!(must(pool.usage()).used, 0);
        });
        assert_eq!((sim.live(), sim.races(), sim::heard()), (before, 0, vec![]));
    });
}

#[test]
fn streams_and_pools_may_go_first() {
    apart(1, |sim| {
        let before = sim.live();
        let (pool, stream, cache) = cache();
        let mut buffer = must(cache.alloc::<u32>(1000));
        drop((stream, pool));
        must(buffer.fill(1));
        drop(buffer);
        let mut again = must(cache.alloc::<u32>(1000));
        drop(cache);
        must(again.fill(2));
        assert_eq!(must(again.to_vec()), [2; 1000]);
        drop(again);
        assert_eq!((sim.live(), sim.races(), sim::heard()), (before, 0, vec![]));
    });
}

#[test]
fn a_stream_of_a_moved_buffer_may_go_first() {
    apart(1, |sim| {
        let (_pool, stream, cache) = cache();
        let mut buffer = must(cache.alloc::<u32>(1000));
        let other = must(Stream::new(stream.device()));
        must(buffer.set_stream(&other));
        drop(other);
        must(buffer.fill(1));
        drop(buffer);
        must(must(cache.alloc::<u32>(1000)).fill(2));
        assert_eq!((cache.stats().hits, sim.races()), (1, 0), "{}", sim.last_race());
    });
}

/// An event recorded in a capture would not stand for the work before it.
#[test]
fn a_buffer_whose_stream_is_being_captured_does_not_come_back() {
    apart(1, |sim| {
        let (_pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        let mut buffer = must(cache.alloc::<u32>(1000));
        must(buffer.set_stream(&other));
        must(buffer.fill(1));
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        // SAFETY: the stream is alive.
        let begun = unsafe { sys::cudaStreamBeginCapture(other.as_raw(), mode) };
        assert_eq!(begun, sys::cudaError_t::cudaSuccess);
        drop(buffer);
        assert_eq!(cache.stats().cached_blocks, 0);
        assert!(!must(stream.is_capturing()));
        assert_eq!(sim::heard().len(), 1, "the runtime refuses the free, so the block is leaked and told of");
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive and the out pointer valid.
        unsafe { sys::cudaStreamEndCapture(other.as_raw(), &mut graph) };
        // SAFETY: the graph was made above, if it was.
        unsafe { sys::cudaGraphDestroy(graph) };
        assert_eq!(sim.races(), 0, "{}", sim.last_race());
    });
}

#[test]
fn buffers_can_be_dropped_on_any_thread() {
    apart(1, |sim| {
        let (_pool, _stream, cache) = cache();
        for round in 0..20 {
            let mut buffers: Vec<DeviceBuffer<u32>> = (1..10).map(|length| must(cache.alloc(length * 200))).collect();
            std::thread::scope(|scope| {
                while let Some(mut buffer) = buffers.pop() {
                    scope.spawn(move || {
                        must(buffer.fill(round));
                        drop(buffer);
                    });
                }
            });
        }
        assert_eq!((cache.stats().misses, sim.races()), (9, 0), "{}", sim.last_race());
    });
}

#[test]
fn a_cache_of_a_per_thread_stream() {
    apart(1, |sim| {
        let pool = must(MemPool::builder(Location::Device(sim::device(0))).build());
        let stream = Stream::per_thread(sim::device(0));
        let cache = BlockCache::new(&pool, &stream);
        let mut buffer = must(cache.alloc::<u32>(1000));
        must(buffer.fill(1));
        // No work can have been enqueued there, so the block is ready for the stream again.
        std::thread::scope(|scope| drop(scope.spawn(move || drop(buffer))));
        must(must(cache.alloc::<u32>(1000)).fill(2));
        assert_eq!((cache.stats().hits, sim.races()), (1, 0), "{}", sim.last_race());

        let mut last = must(cache.alloc::<u32>(1000));
        must(last.fill(3));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                drop(cache);
                drop(last);
            });
        });
        assert_eq!((must(pool.usage()).used, sim.races(), sim::heard()), (0, 0, vec![]), "{}", sim.last_race());
    });
}

#[test]
fn a_thread_that_ends_drops_its_caches() {
    apart(1, |sim| {
        let (pool, _stream, _cache) = cache();
        let pool = &pool;
        let left = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                let stream = must(Stream::new(sim::device(0)));
                let cache = BlockCache::of_thread(pool, &stream);
                drop(must(cache.alloc::<u8>(1000)));
                must(cache.alloc::<u8>(5000))
            });
            made.join().unwrap()
        });
        assert_eq!(must(pool.usage()).used, 5120);
        drop(left);
        assert_eq!((must(pool.usage()).used, sim::heard()), (0, vec![]));
        assert_eq!(sim.races(), 0, "{}", sim.last_race());
    });
}

/// Runs one of the programs below in a process of its own.
fn run_child(program: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--nocapture", "lifetimes::child_program"]).env("CACHE_TEST_CHILD", program);
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("reached"), "{program}: {output:?}");
}

/// RMM: order at exit. Buffers and caches of the main thread's data, and leaked ones, when the process ends.
#[test]
fn rmm_order_at_exit() {
    if sim::alone(1).is_some() {
        run_child("exit");
    }
}

#[test]
#[cfg(unix)]
fn a_forked_child_drops_what_it_inherited() {
    if sim::alone(1).is_some() {
        run_child("fork");
    }
}

/// Does nothing, unless it is the child process of a test above.
#[test]
fn child_program() {
    let Some(program) = std::env::var_os("CACHE_TEST_CHILD") else { return };
    let (_pool, stream, cache) = cache();
    let mut buffer = must(cache.alloc::<u32>(1000));
    must(buffer.fill(1));
    drop(must(cache.alloc::<u32>(1000)));
    if program == "exit" {
        thread_local! {
            static KEPT: std::cell::RefCell<Option<(BlockCache, DeviceBuffer<u32>)>> =
                const { std::cell::RefCell::new(None) };
        }
        static LEFT: std::sync::Mutex<Option<DeviceBuffer<u32>>> = std::sync::Mutex::new(None);
        *LEFT.lock().unwrap() = Some(must(cache.alloc(100)));
        drop(must(BlockCache::of_thread(cache.pool(), &stream).alloc::<u32>(10)));
        KEPT.set(Some((cache, buffer)));
        println!("reached");
        return;
    }
    #[cfg(unix)]
    {
        // SAFETY: the child only drops, says so and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(buffer);
            drop(cache);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(7) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's own, and the out pointer is valid.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 7);
        must(buffer.fill(2));
        println!("reached");
    }
}
