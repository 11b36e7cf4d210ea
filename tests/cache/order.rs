//! Blocks are reused while the device still works on them, and never before it may.

use std::mem::size_of;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Duration;

use cuda_mempool::resource::DeviceMemoryResource;
use cuda_mempool::{BlockCache, DeviceBuffer, Stream};

use crate::apart::with_kernels;
use crate::cache;
use crate::launcher::Launcher;
use crate::sim::{self, must};
use crate::suite::{assert_unused, Outcome};

const LENGTH: usize = 1 << 18;

/// Holds a stream up until it is opened.
struct Gate(Sender<()>);

impl Gate {
    fn on(stream: &Stream) -> Self {
        let (open, wait) = channel();
        // Dropped, it opens too.
        must(stream.launch_host_fn(move || {
            let _ = wait.recv();
        }));
        Self(open)
    }

    fn open(self) {
        self.0.send(()).expect("the stream waits");
    }
}

/// Has a kernel set every element, in the order of the buffer's stream.
fn fill(launcher: &Launcher<'_>, buffer: &mut DeviceBuffer<u32>, value: u32) {
    let (stream, length) = (buffer.stream().clone(), buffer.len());
    // SAFETY: the buffer has that many elements, on that stream.
    unsafe { launcher.fill(&stream, buffer.as_mut_ptr(), length, value) };
}

fn assert_all(buffer: &DeviceBuffer<u32>, value: u32) {
    let wrong = must(buffer.to_vec()).into_iter().enumerate().find(|&(_, found)| found != value);
    assert_eq!(wrong, None, "an element that is not {value}");
}

pub fn a_block_is_reused_behind_the_work_before() -> Outcome {
    with_kernels(|_machine, launcher| {
        let (pool, stream, cache) = cache();
        let mut copy = must(pool.alloc::<u32>(&stream, LENGTH));
        let gate = Gate::on(&stream);
        let mut first = must(cache.alloc::<u32>(LENGTH));
        let block = first.as_ptr();
        fill(launcher, &mut first, 1);
        must(copy.copy_from(&first));
        drop(first);
        let mut second = must(cache.alloc::<u32>(LENGTH));
        fill(launcher, &mut second, 2);
        assert!(!must(stream.query()), "nothing waits");
        assert_eq!((second.as_ptr(), cache.stats().hits), (block, 1));
        gate.open();
        assert_all(&copy, 1);
        assert_all(&second, 2);
    })
}

pub fn a_moved_block_is_not_reused_early() -> Outcome {
    with_kernels(|_machine, launcher| {
        let (pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        let mut copy = must(pool.alloc::<u32>(&other, LENGTH));
        let mut moved = must(cache.alloc::<u32>(LENGTH));
        let block = moved.as_ptr();
        must(moved.set_stream(&other));
        let gate = Gate::on(&other);
        fill(launcher, &mut moved, 1);
        must(copy.copy_from(&moved));
        drop(moved);
        let mut again = must(cache.alloc::<u32>(LENGTH));
        assert_eq!((again.as_ptr(), again.stream()), (block, &stream));
        fill(launcher, &mut again, 2);
        std::thread::sleep(Duration::from_millis(20));
        assert!(!must(stream.query()), "it waits for the other one");
        gate.open();
        assert_all(&again, 2);
        assert_all(&copy, 1);
    })
}

/// The cache as a resource: its stream and the caller's wait for each other.
pub fn a_block_lent_to_another_stream_comes_back_in_order() -> Outcome {
    with_kernels(|_machine, launcher| {
        let (_pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        let bytes = LENGTH * size_of::<u32>();
        let mut before = must(cache.alloc::<u32>(LENGTH));
        let gate = Gate::on(&stream);
        fill(launcher, &mut before, 1);
        drop(before);

        let block = must(cache.allocate(bytes, &other));
        // SAFETY: the block has those bytes, in the order of the stream.
        unsafe { launcher.fill(&other, block.as_ptr().cast(), LENGTH, 2) };
        std::thread::sleep(Duration::from_millis(20));
        assert!(!must(other.query()), "it waits for the cache's stream");
        gate.open();
        must(other.synchronize());

        let gate = Gate::on(&other);
        // SAFETY: as above.
        unsafe { launcher.fill(&other, block.as_ptr().cast(), LENGTH, 3) };
        // SAFETY: given back as it was handed out, in the order of its last use.
        must(unsafe { cache.deallocate(block, bytes, &other) });
        let mut after = must(cache.alloc::<u32>(LENGTH));
        assert_eq!(after.as_ptr(), block.as_ptr().cast());
        fill(launcher, &mut after, 4);
        gate.open();
        assert_all(&after, 4);
        assert_eq!(cache.stats().misses, 1);
    })
}

/// Each with a stream of its own. Buffers wander to the next thread, where they are moved, checked and dropped.
pub fn sixteen_threads_with_a_cache_each() -> Outcome {
    const THREADS: usize = 16;
    const ROUNDS: usize = 60;
    type Sent = (DeviceBuffer<u32>, u32);
    with_kernels(|_machine, launcher| {
        let (pool, _stream, _cache) = cache();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel::<Sent>()).unzip();
        let hits = std::thread::scope(|threads| {
            let run = |(thread, receiver): (usize, Receiver<Sent>)| {
                let (pool, next) = (&pool, senders[(thread + 1) % THREADS].clone());
                threads.spawn(move || {
                    let stream = must(Stream::new(sim::device(0)));
                    let cache = BlockCache::of_thread(pool, &stream);
                    let mut random = fastrand::Rng::with_seed(thread as u64);
                    for round in 0..ROUNDS {
                        let value = (thread * ROUNDS + round) as u32;
                        let mut buffer = must(cache.alloc::<u32>(random.usize(1..4096)));
                        fill(launcher, &mut buffer, value);
                        if random.bool() {
                            // The last threads to end have nobody to send to.
                            let _ = next.send((buffer, value));
                        } else {
                            assert_all(&buffer, value);
                        }
                        for (mut buffer, value) in receiver.try_iter() {
                            must(buffer.set_stream(&stream));
                            assert_all(&buffer, value);
                        }
                    }
                    cache.stats().hits
                })
            };
            let running: Vec<_> = receivers.into_iter().enumerate().map(run).collect();
            running.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<u64>()
        });
        drop(senders);
        assert!(hits > (THREADS * ROUNDS / 4) as u64, "{hits} hits");
        assert_unused([&pool]);
    })
}
