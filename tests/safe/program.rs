//! Small programs of safe calls on several threads, devices, pools, streams and buffers, with a model of what each buffer
//! holds.

use std::sync::{Mutex, MutexGuard};

use cuda_mempool::{
    sys, Access, Device, DeviceBuffer, Error, ErrorKind, Event, Feature, Location, MemPool, ReusePolicy, Stream,
    Support,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::launcher::Launcher;
use crate::sim::{self, must};
use crate::suite::{self, assert_unused, Skip};

/// How many devices steps name. On a machine with one, all of them are that one.
pub const DEVICES: usize = 2;
const SLOTS: usize = 4;
const STREAMS: usize = 4;
const POOLS: usize = 3;

/// Which rule the program breaks, for the test of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// `set_stream` does not order.
    SetStream,
    /// A copy does not order the source's stream after itself.
    CopyBack,
    /// A visit to another stream does not order the way back.
    VisitBack,
}

/// One step. Slots, streams, pools and devices are taken modulo how many there are.
#[derive(Debug, Clone)]
enum Step {
    Alloc {
        slot: usize,
        pool: usize,
        stream: usize,
        length: usize,
        start: Start,
    },
    /// Memory of no pool, which the stream's device alone reaches.
    Unpooled {
        slot: usize,
        stream: usize,
        length: usize,
    },
    Drop {
        slot: usize,
    },
    Swap {
        slots: [usize; 2],
    },
    Fill {
        slot: usize,
        from: usize,
        value: u32,
    },
    Copy {
        from: usize,
        to: usize,
    },
    CopyWithin {
        slot: usize,
    },
    SetStream {
        slot: usize,
        stream: usize,
    },
    /// To this thread's own stream, where other threads cannot follow.
    SetPerThread {
        slot: usize,
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
    ReadVisit {
        slot: usize,
        stream: usize,
    },
    Check {
        slot: usize,
    },
    FromHost {
        slot: usize,
        value: u32,
    },
    Scope {
        stream: usize,
        slots: [usize; 2],
        value: u32,
    },
    Event {
        first: usize,
        second: usize,
    },
    Join {
        first: usize,
        second: usize,
    },
    Synchronize {
        stream: usize,
    },
    NewStream {
        stream: usize,
        device: usize,
    },
    NewPool {
        pool: usize,
        device: usize,
    },
    Trim {
        pool: usize,
        stream: usize,
    },
    /// The thread's current device becomes another one.
    Wander {
        device: usize,
    },
}

#[derive(Debug, Clone, Copy)]
enum Start {
    Unspecified,
    Zeroed,
    Copied(u32),
}

/// What several threads do at the same time.
#[derive(Debug, Clone)]
pub struct Program {
    threads: Vec<Vec<Step>>,
}

pub fn programs() -> impl Strategy<Value = Program> {
    vec(vec(steps(), 1..16), 1..=2).prop_map(|threads| Program { threads })
}

fn steps() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    let stream = 0..STREAMS;
    let pool = 0..POOLS;
    let device = 0..DEVICES;
    let value = prop_oneof![Just(0), Just(0x0101_0101), any::<u32>()];
    let start = prop_oneof![Just(Start::Unspecified), Just(Start::Zeroed), any::<u32>().prop_map(Start::Copied)];
    prop_oneof![
        6 => (slot.clone(), pool.clone(), stream.clone(), 0..20_usize, start)
            .prop_map(|(slot, pool, stream, length, start)| Step::Alloc { slot, pool, stream, length, start }),
        2 => (slot.clone(), stream.clone(), 0..20_usize)
            .prop_map(|(slot, stream, length)| Step::Unpooled { slot, stream, length }),
        2 => slot.clone().prop_map(|slot| Step::Drop { slot }),
        1 => [slot.clone(), slot.clone()].prop_map(|slots| Step::Swap { slots }),
        2 => (slot.clone(), 0..20_usize, value.clone()).prop_map(|(slot, from, value)| Step::Fill { slot, from, value }),
        3 => (slot.clone(), slot.clone()).prop_map(|(from, to)| Step::Copy { from, to }),
        1 => slot.clone().prop_map(|slot| Step::CopyWithin { slot }),
        4 => (slot.clone(), stream.clone()).prop_map(|(slot, stream)| Step::SetStream { slot, stream }),
        1 => slot.clone().prop_map(|slot| Step::SetPerThread { slot }),
        2 => (slot.clone(), value.clone()).prop_map(|(slot, value)| Step::Kernel { slot, value }),
        3 => (slot.clone(), stream.clone(), value.clone())
            .prop_map(|(slot, stream, value)| Step::Visit { slot, stream, value }),
        2 => (slot.clone(), stream.clone()).prop_map(|(slot, stream)| Step::ReadVisit { slot, stream }),
        2 => slot.clone().prop_map(|slot| Step::Check { slot }),
        1 => (slot.clone(), value.clone()).prop_map(|(slot, value)| Step::FromHost { slot, value }),
        2 => (stream.clone(), [slot.clone(), slot], value)
            .prop_map(|(stream, slots, value)| Step::Scope { stream, slots, value }),
        1 => (stream.clone(), stream.clone()).prop_map(|(first, second)| Step::Event { first, second }),
        1 => (stream.clone(), stream.clone()).prop_map(|(first, second)| Step::Join { first, second }),
        1 => stream.clone().prop_map(|stream| Step::Synchronize { stream }),
        1 => (stream.clone(), device.clone()).prop_map(|(stream, device)| Step::NewStream { stream, device }),
        1 => (pool.clone(), device.clone()).prop_map(|(pool, device)| Step::NewPool { pool, device }),
        1 => (pool, stream).prop_map(|(pool, stream)| Step::Trim { pool, stream }),
        1 => device.prop_map(|device| Step::Wander { device }),
    ]
}

/// A buffer, and what it should hold. `None`: not specified yet.
struct Held {
    buffer: DeviceBuffer<u32>,
    model: Vec<Option<u32>>,
    /// The one device that reaches it, unless all do.
    only: Option<Device>,
}

impl Held {
    fn is_reached_from(&self, stream: &Stream) -> bool {
        self.only.map_or(true, |device| device == stream.device())
    }

    fn check(&self, found: &[u32]) {
        for (index, (found, expected)) in found.iter().zip(&self.model).enumerate() {
            assert!(
                expected.map_or(true, |expected| expected == *found),
                "element {index}: {expected:?}, found {found}"
            );
        }
    }
}

/// What programs run on: a device, or two that reach each other.
pub struct Machine<'s> {
    devices: Vec<Device>,
    /// Where a third pool lies, beside those of the devices.
    third: Location,
    launcher: Launcher<'s>,
}

impl<'s> Machine<'s> {
    pub fn new(sim: Option<&'s sim::Sim>, devices: Vec<Device>) -> Result<Self, Skip> {
        let launcher = Launcher::new(sim, &devices)?;
        let can = |device: &Device| must(device.supports(Feature::HostNumaPools)) == Support::Yes;
        let third = if devices.iter().all(can) {
            Location::HostNuma(must(devices[0].host_numa_node()).unwrap_or(0))
        } else {
            Location::Device(devices[0])
        };
        Ok(Self { devices, third, launcher })
    }

    fn device(&self, index: usize) -> Device {
        self.devices[index % self.devices.len()]
    }

    /// A pool that all devices can use.
    fn pool(&self, location: Location) -> MemPool {
        let builder = MemPool::builder(location).reuse(ReusePolicy::default()).release_threshold(1 << 30);
        must(self.devices.iter().fold(builder, |builder, &device| builder.grant(device, Access::ReadWrite)).build())
    }
}

struct World<'a> {
    machine: &'a Machine<'a>,
    broken: Broken,
    slots: [Mutex<Option<Held>>; SLOTS],
    streams: [Mutex<Stream>; STREAMS],
    pools: [Mutex<MemPool>; POOLS],
}

/// Runs a program on threads of its own, so that nothing of a thread outlives it.
pub fn run<'p>(machine: &Machine<'_>, program: &'p Program, broken: Broken) {
    let world = elsewhere(|| World::new(machine, broken));
    std::thread::scope(|threads| {
        let world = &world;
        let start = |steps: &'p Vec<Step>| threads.spawn(move || world.run_steps(steps));
        let running: Vec<_> = program.threads.iter().map(start).collect();
        // To join waits for a thread's own data to be gone; the end of the scope does not.
        for thread in running {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    elsewhere(|| world.check_all());
}

fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|threads| threads.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

impl<'a> World<'a> {
    fn new(machine: &'a Machine<'a>, broken: Broken) -> Self {
        let [first, second] = [0, 1].map(|index| machine.device(index));
        let streams = [
            must(Stream::new(first)),
            must(Stream::new(second)),
            must(Stream::builder(first).blocking(true).build()),
            Stream::legacy(first),
        ];
        let pools = [first.into(), second.into(), machine.third].map(|location| machine.pool(location));
        Self {
            machine,
            broken,
            slots: Default::default(),
            streams: streams.map(Mutex::new),
            pools: pools.map(Mutex::new),
        }
    }

    fn stream(&self, index: usize) -> Stream {
        self.streams[index].lock().unwrap().clone()
    }

    fn pool(&self, index: usize) -> MemPool {
        self.pools[index].lock().unwrap().clone()
    }

    /// Two slots, locked in one order by all threads; `None` for the second when it is the first.
    fn two(&self, slots: [usize; 2]) -> (MutexGuard<'_, Option<Held>>, Option<MutexGuard<'_, Option<Held>>>) {
        let [a, b] = slots;
        if a == b {
            return (self.slots[a].lock().unwrap(), None);
        }
        let low = self.slots[a.min(b)].lock().unwrap();
        let high = self.slots[a.max(b)].lock().unwrap();
        if a < b {
            (low, Some(high))
        } else {
            (high, Some(low))
        }
    }

    fn run_steps(&self, steps: &[Step]) {
        let mut current = must(Device::current());
        for step in steps {
            if let Step::Wander { device } = step {
                current = self.machine.device(*device);
                // SAFETY: any ordinal may be given.
                unsafe { sys::cudaSetDevice(current.ordinal()) };
            }
            match self.step(step) {
                Err(error) if error.kind() != ErrorKind::WrongThread => panic!("{step:?}: {error}"),
                _ => {}
            }
            assert_eq!(must(Device::current()), current, "{step:?} changed the current device");
        }
    }

    fn step(&self, step: &Step) -> Result<(), Error> {
        match *step {
            Step::Alloc { slot, pool, stream, length, start } => {
                let (pool, stream) = (self.pool(pool), self.stream(stream));
                let (buffer, each) = match start {
                    Start::Unspecified => (pool.alloc(&stream, length)?, None),
                    Start::Zeroed => (pool.alloc_zeroed(&stream, length)?, Some(0)),
                    Start::Copied(value) => (pool.from_slice(&stream, &vec![value; length])?, Some(value)),
                };
                let held = Held { buffer, model: vec![each; length], only: None };
                *self.slots[slot].lock().unwrap() = Some(held);
            }
            Step::Unpooled { slot, stream, length } => {
                let stream = self.stream(stream);
                let buffer = DeviceBuffer::unpooled(&stream, length)?;
                let held = Held { buffer, model: vec![None; length], only: Some(stream.device()) };
                *self.slots[slot].lock().unwrap() = Some(held);
            }
            Step::Drop { slot } => drop(self.slots[slot].lock().unwrap().take()),
            Step::Swap { slots } => {
                if let (mut first, Some(mut second)) = self.two(slots) {
                    std::mem::swap(&mut *first, &mut *second);
                }
            }
            Step::Copy { from, to } => return self.copy(from, to),
            Step::Scope { stream, slots, value } => return self.scope(&self.stream(stream), slots, value),
            Step::Event { first, second } => {
                let (first, second) = (self.stream(first), self.stream(second));
                let event = Event::new(first.device())?;
                event.record(&first)?;
                second.wait(&event)?;
            }
            Step::Join { first, second } => self.stream(second).join(&self.stream(first))?,
            Step::Synchronize { stream } => self.stream(stream).synchronize()?,
            Step::NewStream { stream, device } => {
                let new = Stream::new(self.machine.device(device))?;
                *self.streams[stream].lock().unwrap() = new;
            }
            Step::NewPool { pool, device } => {
                let new = self.machine.pool(self.machine.device(device).into());
                *self.pools[pool].lock().unwrap() = new;
            }
            Step::Trim { pool, stream } => self.pool(pool).sync_and_trim(&self.stream(stream), 0)?,
            Step::Wander { .. } => {}
            Step::Fill { slot, .. }
            | Step::CopyWithin { slot }
            | Step::SetStream { slot, .. }
            | Step::SetPerThread { slot }
            | Step::Kernel { slot, .. }
            | Step::Visit { slot, .. }
            | Step::ReadVisit { slot, .. }
            | Step::Check { slot }
            | Step::FromHost { slot, .. } => {
                let mut held = self.slots[slot].lock().unwrap();
                if let Some(taken) = held.take() {
                    let (back, result) = self.step_with(step, taken);
                    *held = Some(back);
                    return result;
                }
            }
        }
        Ok(())
    }

    /// The steps with one buffer.
    fn step_with(&self, step: &Step, mut held: Held) -> (Held, Result<(), Error>) {
        let result = match *step {
            Step::SetStream { stream, .. } => {
                let stream = self.stream(stream);
                match self.broken {
                    _ if !held.is_reached_from(&stream) => Ok(()),
                    Broken::SetStream => {
                        held.buffer = sim::set_stream_unordered(held.buffer, &stream);
                        Ok(())
                    }
                    _ => held.buffer.set_stream(&stream),
                }
            }
            // From there it comes back by cudaDeviceSynchronize.
            Step::SetPerThread { .. } if suite::sanitized() => Ok(()),
            Step::SetPerThread { .. } => held.buffer.set_stream(&Stream::per_thread(held.buffer.device())),
            _ => self.use_buffer(step, &mut held),
        };
        (held, result)
    }

    fn use_buffer(&self, step: &Step, held: &mut Held) -> Result<(), Error> {
        let length = held.buffer.len();
        match *step {
            Step::Fill { from, value, .. } => {
                let from = from.min(length);
                held.buffer.slice_mut(from..).fill(value)?;
                held.model[from..].fill(Some(value));
            }
            Step::CopyWithin { .. } => {
                let half = length / 2;
                let (mut left, right) = held.buffer.as_slice_mut().split_at_mut(half);
                left.copy_from(right.as_slice().slice(..half))?;
                held.model.copy_within(half..2 * half, 0);
            }
            Step::Kernel { value, .. } if length > 0 => {
                let stream = held.buffer.stream().clone();
                // The way of foreign code to use the buffer's stream: nothing to order, but the thread is checked.
                held.buffer.with_stream(&stream, |pointer| {
                    // SAFETY: the buffer has this many elements, on its stream.
                    unsafe { self.machine.launcher.fill(&stream, pointer, length, value) }
                })?;
                held.model.fill(Some(value));
            }
            Step::Visit { stream, value, .. } if length > 0 => {
                let stream = self.stream(stream);
                if !held.is_reached_from(&stream) {
                    return Ok(());
                }
                let pointer = held.buffer.as_mut_ptr();
                // SAFETY: the buffer has this many elements, and was brought to the stream.
                let launch = |pointer| unsafe { self.machine.launcher.fill(&stream, pointer, length, value) };
                if self.broken == Broken::VisitBack {
                    stream.join(held.buffer.stream())?;
                    launch(pointer);
                } else {
                    held.buffer.with_stream(&stream, launch)?;
                }
                held.model.fill(Some(value));
            }
            Step::ReadVisit { stream, .. } if length > 0 => {
                let stream = self.stream(stream);
                if !held.is_reached_from(&stream) {
                    return Ok(());
                }
                held.buffer.read_with_stream(&stream, |pointer| {
                    // SAFETY: the buffer has this many elements, and was brought to the stream.
                    unsafe { self.machine.launcher.read(&stream, pointer, length) }
                })?;
            }
            Step::Check { .. } => self.check(held)?,
            Step::FromHost { value, .. } => {
                held.buffer.copy_from_host(&vec![value; length])?;
                held.model.fill(Some(value));
            }
            _ => {}
        }
        Ok(())
    }

    fn check(&self, held: &Held) -> Result<(), Error> {
        let found = held.buffer.to_vec()?;
        if self.broken == Broken::Nothing {
            held.check(&found);
        }
        Ok(())
    }

    fn copy(&self, from: usize, to: usize) -> Result<(), Error> {
        let (source, Some(mut target)) = self.two([from, to]) else { return Ok(()) };
        let (Some(source), Some(target)) = (&*source, &mut *target) else { return Ok(()) };
        let length = source.buffer.len().min(target.buffer.len());
        if self.broken == Broken::CopyBack && length > 0 {
            let stream = target.buffer.stream().clone();
            stream.join(source.buffer.stream())?;
            let pointers = (target.buffer.as_mut_ptr().cast(), source.buffer.as_ptr().cast());
            let kind = sys::cudaMemcpyKind::cudaMemcpyDefault;
            // SAFETY: both buffers are that long. The order afterwards is missing, which the simulator shall report.
            unsafe { sys::cudaMemcpyAsync(pointers.0, pointers.1, length * 4, kind, stream.as_raw()) };
        } else {
            target.buffer.slice_mut(..length).copy_from(source.buffer.slice(..length))?;
        }
        target.model[..length].copy_from_slice(&source.model[..length]);
        Ok(())
    }

    /// Lends host memory to copies of two buffers, and a host function borrows a counter.
    fn scope(&self, stream: &Stream, slots: [usize; 2], value: u32) -> Result<(), Error> {
        let (mut first, mut second) = self.two(slots);
        let first = first.as_mut();
        let second = second.as_mut().and_then(|second| second.as_mut());
        let length_of = |held: &Option<&mut Held>| held.as_ref().map_or(0, |held| held.buffer.len());
        let input = vec![value; length_of(&first)];
        let mut output = [vec![0; length_of(&first)], vec![0; length_of(&second)]];
        let mut ran = 0;
        let [output_of_first, output_of_second] = &mut output;
        let result = stream.scope(|s| {
            if let Some(held) = &second {
                s.copy_to_host(&held.buffer, output_of_second)?;
            }
            if let Some(held) = first {
                s.copy_from_host(&mut held.buffer, &input)?;
                held.model.fill(Some(value));
                s.copy_to_host(&held.buffer, output_of_first)?;
            }
            s.launch_host_fn(|| ran += 1)
        });
        result?;
        assert_eq!(ran, 1);
        if self.broken == Broken::Nothing {
            assert_eq!(output[0], input);
            if let Some(held) = second {
                held.check(&output[1]);
            }
        }
        Ok(())
    }

    /// On a thread of its own: buffers of per-thread streams are brought home first.
    fn check_all(&self) {
        for slot in &self.slots {
            let mut held = slot.lock().unwrap();
            if let Some(held) = held.as_mut() {
                let home = must(Stream::new(held.buffer.device()));
                must(held.buffer.set_stream(&home));
                must(self.check(held));
            }
            *held = None;
        }
        // What was freed elsewhere, and what replaced pools held, is not of these.
        assert_unused(self.pools.iter().map(|pool| pool.lock().unwrap().clone()).collect::<Vec<_>>().iter());
    }
}
