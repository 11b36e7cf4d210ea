//! Small programs of safe calls that mix caches, bare pools, streams, moves and threads, with a model of what each buffer
//! holds.

use std::sync::{Arc, Mutex, RwLock};

use cuda_mempool::{BlockCache, DeviceBuffer, ErrorKind, Location, MemPool, Result, Stream};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::apart::elsewhere;
use crate::launcher::Launcher;
use crate::sim::{self, must};
use crate::suite::{self, assert_unused};

const SLOTS: usize = 5;
const STREAMS: usize = 3;
const CACHES: usize = 3;
const POOLS: usize = 2;
/// Few sizes, so that blocks are reused.
const LENGTHS: [usize; 4] = [0, 10, 100, 200];

/// Which rule the program breaks, for the test of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// A block comes back from another stream without the wait for it.
    Return,
    /// `set_stream` does not order.
    SetStream,
}

#[derive(Debug, Clone)]
enum Step {
    Alloc {
        slot: usize,
        from: From,
        length: usize,
        zeroed: bool,
    },
    Drop {
        slot: usize,
    },
    Close {
        slot: usize,
    },
    Swap {
        slots: [usize; 2],
    },
    Fill {
        slot: usize,
        value: u32,
    },
    Kernel {
        slot: usize,
        value: u32,
    },
    Visit {
        slot: usize,
        stream: usize,
        value: u32,
    },
    Copy {
        from: usize,
        to: usize,
    },
    SetStream {
        slot: usize,
        stream: usize,
    },
    SetPerThread {
        slot: usize,
    },
    Check {
        slot: usize,
    },
    Trim {
        cache: usize,
        bytes: usize,
    },
    SetCap {
        cache: usize,
        bytes: usize,
    },
    /// In place of another cache, whose buffers live on.
    NewCache {
        cache: usize,
        pool: usize,
        stream: usize,
    },
    /// In place of another stream, whose caches and buffers live on.
    NewStream {
        stream: usize,
    },
    Synchronize {
        stream: usize,
    },
}

/// Where a buffer comes from.
#[derive(Debug, Clone, Copy)]
enum From {
    Cache(usize),
    /// The thread's own cache for a pool and a stream.
    Own(usize, usize),
    /// A cache as a memory resource, for buffers of a stream.
    Resource(usize, usize),
    Pool(usize, usize),
}

/// What several threads do at the same time.
#[derive(Debug, Clone)]
pub struct Program {
    threads: Vec<Vec<Step>>,
}

pub fn programs() -> impl Strategy<Value = Program> {
    vec(vec(steps(), 1..30), 1..=3).prop_map(|threads| Program { threads })
}

fn steps() -> impl Strategy<Value = Step> {
    let (slot, stream, cache, pool) = (0..SLOTS, 0..STREAMS, 0..CACHES, 0..POOLS);
    let (value, bytes) = (any::<u32>(), prop_oneof![Just(0), Just(600), Just(1 << 20)]);
    let from = prop_oneof![
        4 => cache.clone().prop_map(From::Cache),
        1 => (pool.clone(), stream.clone()).prop_map(|(pool, stream)| From::Own(pool, stream)),
        1 => (cache.clone(), stream.clone()).prop_map(|(cache, stream)| From::Resource(cache, stream)),
        1 => (pool.clone(), stream.clone()).prop_map(|(pool, stream)| From::Pool(pool, stream)),
    ];
    let length = prop::sample::select(&LENGTHS[..]);
    prop_oneof![
        8 => (slot.clone(), from, length, any::<bool>())
            .prop_map(|(slot, from, length, zeroed)| Step::Alloc { slot, from, length, zeroed }),
        4 => slot.clone().prop_map(|slot| Step::Drop { slot }),
        1 => slot.clone().prop_map(|slot| Step::Close { slot }),
        1 => [slot.clone(), slot.clone()].prop_map(|slots| Step::Swap { slots }),
        2 => (slot.clone(), value).prop_map(|(slot, value)| Step::Fill { slot, value }),
        3 => (slot.clone(), value).prop_map(|(slot, value)| Step::Kernel { slot, value }),
        1 => (slot.clone(), stream.clone(), value)
            .prop_map(|(slot, stream, value)| Step::Visit { slot, stream, value }),
        2 => (slot.clone(), slot.clone()).prop_map(|(from, to)| Step::Copy { from, to }),
        4 => (slot.clone(), stream.clone()).prop_map(|(slot, stream)| Step::SetStream { slot, stream }),
        1 => slot.clone().prop_map(|slot| Step::SetPerThread { slot }),
        2 => slot.prop_map(|slot| Step::Check { slot }),
        1 => (cache.clone(), bytes.clone()).prop_map(|(cache, bytes)| Step::Trim { cache, bytes }),
        1 => (cache.clone(), bytes).prop_map(|(cache, bytes)| Step::SetCap { cache, bytes }),
        1 => (cache, pool, stream.clone()).prop_map(|(cache, pool, stream)| Step::NewCache { cache, pool, stream }),
        1 => stream.clone().prop_map(|stream| Step::NewStream { stream }),
        1 => stream.prop_map(|stream| Step::Synchronize { stream }),
    ]
}

/// A buffer, and what it should hold. `None`: not specified.
struct Held {
    buffer: DeviceBuffer<u32>,
    model: Option<u32>,
    /// The stream on which its block would be reused.
    home: Stream,
}

struct World<'a> {
    launcher: &'a Launcher<'a>,
    broken: Broken,
    slots: [Mutex<Option<Held>>; SLOTS],
    streams: [RwLock<Stream>; STREAMS],
    caches: [RwLock<Arc<BlockCache>>; CACHES],
    pools: [MemPool; POOLS],
}

/// Runs a program on threads of its own, so that nothing of a thread outlives it.
pub fn run(launcher: &Launcher<'_>, program: &Program, broken: Broken) {
    let world = elsewhere(|| World::new(launcher, broken));
    std::thread::scope(|threads| {
        let running: Vec<_> = program.threads.iter().map(|steps| threads.spawn(|| world.run_steps(steps))).collect();
        // To join waits for a thread's own caches to be gone; the end of the scope does not.
        for thread in running {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    elsewhere(|| world.check_all());
}

fn new_stream() -> Stream {
    must(Stream::new(sim::device(0)))
}

impl<'a> World<'a> {
    fn new(launcher: &'a Launcher<'a>, broken: Broken) -> Self {
        let pools = [(); POOLS].map(|()| must(MemPool::builder(Location::Device(sim::device(0))).build()));
        // A driver was seen to crash in random programs with the legacy stream: see `Stream::legacy`.
        let third = match launcher {
            Launcher::Simulated(_) => Stream::legacy(sim::device(0)),
            Launcher::Real(_) => new_stream(),
        };
        let streams = [new_stream(), new_stream(), third];
        // Two caches for one stream, and one for another.
        let caches = [(0, 0), (1, 0), (0, 1)].map(|(pool, stream)| BlockCache::new(&pools[pool], &streams[stream]));
        Self {
            launcher,
            broken,
            slots: Default::default(),
            streams: streams.map(RwLock::new),
            caches: caches.map(|cache| RwLock::new(Arc::new(cache))),
            pools,
        }
    }

    fn stream(&self, index: usize) -> Stream {
        self.streams[index].read().unwrap().clone()
    }

    fn cache(&self, index: usize) -> Arc<BlockCache> {
        self.caches[index].read().unwrap().clone()
    }

    fn run_steps(&self, steps: &[Step]) {
        for step in steps {
            match self.step(step) {
                Err(error) if error.kind() != ErrorKind::WrongThread => panic!("{step:?}: {error}"),
                _ => {}
            }
        }
    }

    fn step(&self, step: &Step) -> Result<()> {
        match *step {
            Step::Alloc { slot, from, length, zeroed } => {
                let (mut buffer, home) = self.alloc(from, length)?;
                if zeroed {
                    buffer.zero()?;
                }
                let new = Held { buffer, model: zeroed.then_some(0), home };
                let old = self.slots[slot].lock().unwrap().replace(new);
                self.give_back(old);
            }
            Step::Drop { slot } => {
                let old = self.slots[slot].lock().unwrap().take();
                self.give_back(old);
            }
            Step::Close { slot } => {
                if let Some(held) = self.slots[slot].lock().unwrap().take() {
                    held.buffer.close().map_err(|(_, error)| error)?;
                }
            }
            Step::Swap { slots: [first, second] } => {
                let taken = self.slots[first].lock().unwrap().take();
                let other = std::mem::replace(&mut *self.slots[second].lock().unwrap(), taken);
                let dropped = std::mem::replace(&mut *self.slots[first].lock().unwrap(), other);
                self.give_back(dropped);
            }
            Step::Copy { from, to } => return self.copy(from, to),
            Step::Trim { cache, bytes } => self.cache(cache).trim(bytes),
            Step::SetCap { cache, bytes } => self.cache(cache).set_cap(bytes),
            Step::NewCache { cache, pool, stream } => {
                let new = Arc::new(BlockCache::new(&self.pools[pool], &self.stream(stream)));
                let old = std::mem::replace(&mut *self.caches[cache].write().unwrap(), new);
                drop(old);
            }
            Step::NewStream { stream } => *self.streams[stream].write().unwrap() = new_stream(),
            Step::Synchronize { stream } => self.stream(stream).synchronize()?,
            Step::Fill { slot, .. }
            | Step::Kernel { slot, .. }
            | Step::Visit { slot, .. }
            | Step::SetStream { slot, .. }
            | Step::SetPerThread { slot }
            | Step::Check { slot } => {
                let mut slot = self.slots[slot].lock().unwrap();
                if let Some(held) = slot.take() {
                    let (held, result) = self.step_with(step, held);
                    *slot = Some(held);
                    return result;
                }
            }
        }
        Ok(())
    }

    fn alloc(&self, from: From, length: usize) -> Result<(DeviceBuffer<u32>, Stream)> {
        match from {
            From::Cache(cache) => {
                let cache = self.cache(cache);
                Ok((cache.alloc(length)?, cache.stream().clone()))
            }
            From::Own(pool, stream) => {
                let cache = BlockCache::of_thread(&self.pools[pool], &self.stream(stream));
                Ok((cache.alloc(length)?, cache.stream().clone()))
            }
            From::Resource(cache, stream) => {
                let (cache, stream) = (self.cache(cache), self.stream(stream));
                Ok((DeviceBuffer::from_resource(cache, &stream, length)?, stream))
            }
            From::Pool(pool, stream) => {
                let stream = self.stream(stream);
                Ok((self.pools[pool].alloc(&stream, length)?, stream))
            }
        }
    }

    fn give_back(&self, held: Option<Held>) {
        let Some(Held { mut buffer, home, .. }) = held else { return };
        if self.broken == Broken::Return {
            buffer = sim::set_stream_unordered(buffer, &home);
        }
        drop(buffer);
    }

    fn step_with(&self, step: &Step, mut held: Held) -> (Held, Result<()>) {
        let result = match *step {
            Step::SetStream { stream, .. } if self.broken == Broken::SetStream => {
                held.buffer = sim::set_stream_unordered(held.buffer, &self.stream(stream));
                Ok(())
            }
            Step::SetStream { stream, .. } => held.buffer.set_stream(&self.stream(stream)),
            // From there it comes back by cudaDeviceSynchronize.
            Step::SetPerThread { .. } if suite::sanitized() => Ok(()),
            Step::SetPerThread { .. } => held.buffer.set_stream(&Stream::per_thread(held.buffer.device())),
            _ => self.use_buffer(step, &mut held),
        };
        (held, result)
    }

    fn use_buffer(&self, step: &Step, held: &mut Held) -> Result<()> {
        let length = held.buffer.len();
        match *step {
            Step::Fill { value, .. } => {
                held.buffer.fill(value)?;
                held.model = Some(value);
            }
            Step::Kernel { value, .. } => {
                let stream = held.buffer.stream().clone();
                self.visit(held, &stream, length, value)?;
            }
            Step::Visit { stream, value, .. } => {
                let stream = self.stream(stream);
                self.visit(held, &stream, length, value)?;
            }
            _ => self.check(held)?,
        }
        Ok(())
    }

    fn visit(&self, held: &mut Held, stream: &Stream, length: usize, value: u32) -> Result<()> {
        if length > 0 {
            held.buffer.with_stream(stream, |pointer| {
                // SAFETY: the buffer has this many elements, and is brought to the stream.
                unsafe { self.launcher.fill(stream, pointer, length, value) }
            })?;
            held.model = Some(value);
        }
        Ok(())
    }

    fn copy(&self, from: usize, to: usize) -> Result<()> {
        if from == to {
            return Ok(());
        }
        // Both locks in one order by all threads.
        let mut low = self.slots[from.min(to)].lock().unwrap();
        let mut high = self.slots[from.max(to)].lock().unwrap();
        let (source, target) = if from < to { (&mut low, &mut high) } else { (&mut high, &mut low) };
        if let (Some(source), Some(target)) = (&**source, &mut **target) {
            if source.buffer.len() == target.buffer.len() {
                target.buffer.copy_from(&source.buffer)?;
                target.model = source.model;
            }
        }
        Ok(())
    }

    fn check(&self, held: &Held) -> Result<()> {
        let found = held.buffer.to_vec()?;
        if let (Broken::Nothing, Some(expected)) = (self.broken, held.model) {
            assert!(found.iter().all(|&element| element == expected), "expected {expected}, found {found:?}");
        }
        Ok(())
    }

    /// On a thread of its own: buffers of per-thread streams are brought home first.
    fn check_all(&self) {
        for slot in &self.slots {
            let mut held = slot.lock().unwrap().take();
            if let Some(held) = &mut held {
                must(held.buffer.set_stream(&new_stream()));
                must(self.check(held));
            }
        }
        for cache in &self.caches {
            cache.read().unwrap().trim(0);
        }
        assert_unused(&self.pools);
    }
}
