//! The ends of caches, buffers, pools, streams, threads and processes, in every order.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use cuda_mempool::{sys, BlockCache, CacheStats, DeviceBuffer, Location, MemPool, Stream};

use crate::apart::anywhere;
use crate::cache;
use crate::sim::{self, must};
use crate::suite::{self, Outcome, Skip};

pub fn buffers_outlive_their_cache() -> Outcome {
    anywhere(1, |_machine| {
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
    })
}

pub fn streams_and_pools_may_go_first() -> Outcome {
    anywhere(1, |_machine| {
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
    })
}

pub fn a_stream_of_a_moved_buffer_may_go_first() -> Outcome {
    anywhere(1, |_machine| {
        let (_pool, stream, cache) = cache();
        let mut buffer = must(cache.alloc::<u32>(1000));
        let other = must(Stream::new(stream.device()));
        must(buffer.set_stream(&other));
        drop(other);
        must(buffer.fill(1));
        drop(buffer);
        let mut again = must(cache.alloc::<u32>(1000));
        must(again.fill(2));
        assert_eq!(must(again.to_vec()), [2; 1000]);
        assert_eq!(cache.stats().hits, 1);
    })
}

/// An event recorded in a capture would not stand for the work before it.
pub fn a_buffer_whose_stream_is_being_captured_does_not_come_back() -> Outcome {
    anywhere(1, |_machine| {
        let (_pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        let mut buffer = must(cache.alloc::<u32>(1000));
        must(buffer.set_stream(&other));
        must(buffer.fill(1));
        let block = buffer.as_mut_ptr();
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        // SAFETY: the stream is alive.
        let begun = unsafe { sys::cudaStreamBeginCapture(other.as_raw(), mode) };
        assert_eq!(begun, sys::cudaError_t::cudaSuccess);
        drop(buffer);
        assert_eq!(cache.stats().cached_blocks, 0);
        assert!(!must(stream.is_capturing()));
        assert_eq!(sim::heard().len(), 1, "the runtime refuses the free, so the block is leaked and told of");
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive and the out pointer valid; the graph is the test's, if it was made, and so is what
        // was leaked.
        unsafe {
            sys::cudaStreamEndCapture(other.as_raw(), &mut graph);
            sys::cudaGraphDestroy(graph);
            sys::cudaGetLastError();
            assert_eq!(sys::cudaFreeAsync(block.cast(), other.as_raw()), sys::cudaError_t::cudaSuccess);
        }
    })
}

/// A handle of other code's stream lives only as long as that code says, and a cache may keep blocks for longer.
pub fn a_borrowed_handle_of_the_stream_is_not_kept() -> Outcome {
    anywhere(1, |_machine| {
        let (pool, stream, cache) = cache();
        // SAFETY: the stream lives on.
        let borrowed = unsafe { Stream::from_raw_borrowed(stream.as_raw(), stream.device()) };
        for _ in 0..3 {
            let mut raw = must(cache.alloc::<u32>(1000)).into_raw();
            raw.stream = borrowed.clone();
            // SAFETY: taken apart above, and the stream is the same.
            drop(unsafe { DeviceBuffer::from_raw(raw) });
        }
        assert_eq!((cache.stats().hits, cache.stats().waste), (2, 0));
        let buffer = must(cache.alloc::<u32>(1000));
        drop(borrowed);
        drop((stream, cache, pool));
        // The last handle of the stream, which is destroyed with it.
        drop(buffer);
    })
}

pub fn buffers_can_be_dropped_on_any_thread() -> Outcome {
    anywhere(1, |_machine| {
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
        assert_eq!(cache.stats().misses, 9);
    })
}

pub fn a_cache_of_a_per_thread_stream() -> Outcome {
    if suite::sanitized() {
        return Skip::because("the order is that of cudaDeviceSynchronize, which compute-sanitizer does not know");
    }
    anywhere(1, |_machine| {
        let pool = must(MemPool::builder(Location::Device(sim::device(0))).build());
        let stream = Stream::per_thread(sim::device(0));
        let cache = BlockCache::new(&pool, &stream);
        let mut buffer = must(cache.alloc::<u32>(1000));
        must(buffer.fill(1));
        // No work can have been enqueued there, so the block is ready for the stream again.
        std::thread::scope(|scope| drop(scope.spawn(move || drop(buffer))));
        must(must(cache.alloc::<u32>(1000)).fill(2));
        assert_eq!(cache.stats().hits, 1);

        let mut last = must(cache.alloc::<u32>(1000));
        must(last.fill(3));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                drop(cache);
                drop(last);
            });
        });
        assert_eq!(must(pool.usage()).used, 0);
    })
}

pub fn a_thread_that_ends_drops_its_caches() -> Outcome {
    anywhere(1, |_machine| {
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
        assert_eq!(must(pool.usage()).used, 0);
    })
}

fn run_child(role: &str) -> Outcome {
    suite::device()?;
    let output = suite::in_child(role);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("reached"));
    Ok(())
}

/// RMM: order at exit. Buffers and caches of the main thread's data, and leaked ones, when the process ends.
pub fn rmm_order_at_exit() -> Outcome {
    run_child("lifetimes::exit")
}

pub fn exit() {
    thread_local! {
        static KEPT: RefCell<Option<(BlockCache, DeviceBuffer<u32>)>> = const { RefCell::new(None) };
    }
    static LEFT: Mutex<Option<DeviceBuffer<u32>>> = Mutex::new(None);
    let (_pool, stream, cache) = cache();
    let mut buffer = must(cache.alloc::<u32>(1000));
    must(buffer.fill(1));
    drop(must(cache.alloc::<u32>(1000)));
    *LEFT.lock().unwrap() = Some(must(cache.alloc(100)));
    drop(must(BlockCache::of_thread(cache.pool(), &stream).alloc::<u32>(10)));
    KEPT.set(Some((cache, buffer)));
    println!("reached");
}

pub fn a_forked_child_drops_what_it_inherited() -> Outcome {
    run_child("lifetimes::fork")
}

pub fn fork() {
    let (_pool, _stream, cache) = cache();
    let mut buffer = must(cache.alloc::<u32>(1000));
    must(buffer.fill(1));
    drop(must(cache.alloc::<u32>(1000)));
    // SAFETY: the child only drops and leaves.
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
    assert_eq!(must(buffer.to_vec()), [2; 1000]);
    println!("reached");
}

pub fn a_child_forked_while_others_use_a_cache_does_not_hang() -> Outcome {
    run_child("lifetimes::fork_in_use")
}

pub fn fork_in_use() {
    let (pool, stream, cache) = cache();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                drop(must(cache.alloc::<u8>(1000)));
                drop(BlockCache::new(&pool, &stream));
            }
        });
        for _ in 0..50 {
            // SAFETY: the child asks the cache alone, and leaves, by a signal if it hangs.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::alarm(5) };
                cache.trim(0);
                cache.set_cap(100);
                let refused = BlockCache::new(&pool, &stream).alloc::<u8>(1).is_err();
                let nothing = cache.stats() == CacheStats::default();
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(i32::from(!(refused && nothing))) };
            }
            let mut status = -1;
            // SAFETY: the child is this process's own, and the out pointer is valid.
            unsafe { libc::waitpid(child, &mut status, 0) };
            if status != 0 {
                done.store(true, Ordering::Relaxed);
            }
            assert_eq!(status, 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("reached");
}
