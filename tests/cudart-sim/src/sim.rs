//! The simulated runtime: everything there is, behind one lock, and how streams advance.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::capture::Capture;
use crate::config::{self, Config};
use crate::cuda::cudaError;
use crate::device::Device;
use crate::event::Event;
use crate::graph::{Action, Exec, Graph, GraphMemory, NodeAt};
use crate::handles::Table;
use crate::ipc::board::Board;
use crate::ipc::pools::Mapped;
use crate::memory::allocation::{Kind, Place};
use crate::memory::arena::Arena;
use crate::memory::heap::Heap;
use crate::memory::space::Space;
use crate::order::{Epoch, Host, Timeline};
use crate::pool::{Choice, Pool, Where};
use crate::race::{self, Access, Name, Operation, Race};
use crate::random::Random;
use crate::stream::{Item, Op, Stream, StreamId, Worker};
use crate::work::Work;
use crate::workers::{self, Task};
use crate::{call, fault, process, stream};

/// The steps of heaps that belong to no pool.
pub const PLAIN_STEP: usize = 2 << 20;

/// See the module.
pub struct Sim {
    pub config: Config,
    pub devices: Vec<Device>,
    pub streams: Table<Stream>,
    /// Where the next stream in a slot goes on counting.
    resume: Vec<u64>,
    pub events: Table<Event>,
    pub pools: Table<Pool>,
    pub pool_choices: BTreeMap<Where, Choice>,
    pub graphs: Table<Graph>,
    pub nodes: Table<NodeAt>,
    pub execs: Table<Exec>,
    pub captures: Table<Capture>,
    pub graph_memory: GraphMemory,
    pub space: Space,
    /// Where events of several processes are counted.
    pub board: Board,
    pub mapped: Mapped,
    /// Where all memory lies that cannot be exported as a pool's.
    pub arena: Arc<Arena>,
    /// Memory of `cudaHostAlloc`.
    pub pinned: Heap,
    /// Bytes of host memory taken by pools and pinned memory.
    pub host_used: usize,
    /// What the host knows to have finished.
    pub host: Host,
    pub races: Races,
    pub delays: Random,
    /// Threads that wait for progress.
    waiting: usize,
    /// Streams to look at again.
    wake: Vec<StreamId>,
    /// Streams that wait for something outside of their order.
    outside: Vec<StreamId>,
    watching: bool,
}

/// What the detector found.
pub struct Races {
    pub mode: race::Mode,
    pub count: u64,
    pub last: String,
}

static SIM: Mutex<Option<Sim>> = Mutex::new(None);
static PROGRESS: Condvar = Condvar::new();

/// The simulator, locked.
pub struct Locked(MutexGuard<'static, Option<Sim>>);

/// The one simulator, made by the first call.
pub fn lock() -> Locked {
    let mut sim = SIM.lock();
    if sim.is_none() {
        *sim = Some(Sim::new());
    }
    Locked(sim)
}

/// The simulator, if any call has made it and it can still be used.
pub fn if_started() -> Option<Locked> {
    if process::is_forked_child() {
        return None;
    }
    let sim = SIM.lock();
    sim.is_some().then_some(Locked(sim))
}

impl Deref for Locked {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        self.0.as_ref().expect("made before it was locked")
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Sim {
        self.0.as_mut().expect("made before it was locked")
    }
}

/// Waits until `done`.
pub fn wait_until(mut sim: Locked, mut done: impl FnMut(&Sim) -> bool) -> Locked {
    while !done(&sim) {
        sim.waiting += 1;
        PROGRESS.wait(&mut sim.0);
        sim.waiting -= 1;
    }
    sim
}

/// Waits until the stream has finished what was submitted so far; then the host knows it.
pub fn wait_for_stream(sim: Locked, id: StreamId) -> Locked {
    let Some(count) = sim.streams.get(id).map(|stream| stream.submitted.at().count) else { return sim };
    let mut sim = wait_until(sim, |sim| sim.streams.get(id).map_or(true, |stream| stream.finished >= count));
    sim.host_learns(id);
    sim
}

/// Waits until every stream of a device has finished what was submitted so far; then the host knows it.
pub fn wait_for_device(sim: Locked, device: usize) -> Locked {
    let ids: Vec<_> = sim.streams.iter().filter(|(_, stream)| stream.device == device).map(|(id, _)| id).collect();
    let mut sim = ids.into_iter().fold(sim, wait_for_stream);
    let departed = sim.devices[device].departed.clone();
    sim.host.merge(&departed);
    sim
}

impl Sim {
    fn new() -> Self {
        process::watch_for_forks();
        let config = Config::from_environment();
        let (arena, board) = match Arena::new().and_then(|arena| Ok((Arc::new(arena), Board::new()?))) {
            Ok(files) => files,
            Err(error) => config::fatal(&format!("cannot make a file in memory: {error}")),
        };
        if let Err(part) = fault::add(&config.faults, config.seed) {
            config::fatal(&format!("CUDART_SIM_FAULTS: cannot read {part:?}"));
        }
        let mut sim = Self {
            devices: Vec::new(),
            streams: Table::new(8),
            resume: Vec::new(),
            events: Table::new(9),
            pools: Table::new(10),
            pool_choices: BTreeMap::new(),
            graphs: Table::new(11),
            nodes: Table::new(12),
            execs: Table::new(13),
            captures: Table::new(14),
            graph_memory: GraphMemory::default(),
            space: Space::default(),
            board,
            mapped: Mapped::default(),
            pinned: Heap::new(Arc::clone(&arena), true, PLAIN_STEP),
            arena,
            host_used: 0,
            host: Host::default(),
            races: Races { mode: config.races, count: 0, last: String::new() },
            delays: Random::new(config.seed),
            waiting: 0,
            wake: Vec::new(),
            outside: Vec::new(),
            watching: false,
            config,
        };
        for _ in 0..sim.config.devices {
            sim.add_device();
        }
        sim
    }

    /// A new stream.
    pub fn add_stream(&mut self, device: usize, kind: stream::Kind, flags: u32, priority: i32) -> StreamId {
        let (host, resume) = (&self.host, &self.resume);
        self.streams.insert_with(|id| {
            let at = Epoch { slot: id.slot(), count: resume.get(id.slot()).copied().unwrap_or(0) };
            Stream {
                device,
                kind,
                flags,
                priority,
                queue: Default::default(),
                worker: Worker::Nothing,
                rested: false,
                submitted: Timeline::new(at, host),
                executed: Timeline::new(at, host),
                finished: at.count,
                waiters: Vec::new(),
                awaited: 0,
                destroyed: false,
                capture: None,
            }
        })
    }

    /// The program gives a stream up: it goes when its work is done.
    pub fn destroy_stream(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.destroyed = true;
            if let Some(capture) = stream.capture {
                self.invalidate(capture);
            }
            self.remove_if_over(id);
        }
    }

    fn remove_if_over(&mut self, id: StreamId) {
        if self.streams.get(id).is_some_and(|stream| stream.destroyed && stream.is_idle() && stream.awaited == 0) {
            let stream = self.streams.remove(id).expect("looked up above");
            if self.resume.len() <= id.slot() {
                self.resume.resize(id.slot() + 1, 0);
            }
            self.resume[id.slot()] = stream.finished;
            let stamp = stream.executed.stamp();
            self.devices[stream.device].departed.join(&stamp);
            let legacy = self.devices[stream.device].legacy;
            if let Some(legacy) = self.streams.get_mut(legacy).filter(|_| stream.is_blocking()) {
                legacy.submitted.join(&stamp);
                legacy.executed.join(&stamp);
            }
        }
    }

    /// Puts an operation at the end of a stream, or of its capture. Returns its count in the stream.
    pub fn submit(&mut self, id: StreamId, name: impl Into<Name>, accesses: Vec<Access>, op: Op) -> u64 {
        if let Some(capture) = self.capture_of(id) {
            let name = name.into();
            let action = match op {
                Op::Work(work) => Action::Work { name, accesses, work },
                Op::Until(condition) => Action::Until { name, condition },
                _ => Action::Nothing,
            };
            self.capture(capture, id, action);
            return 0;
        }
        let after = self.implicit_order(id);
        let host = self.host.clone();
        let stream = self.streams.get_mut(id).expect("the caller looked the stream up");
        let count = stream.submitted.tick().count;
        stream.queue.push_back(Item { name: name.into(), host, after, accesses, op });
        self.advance(id);
        count
    }

    /// What the legacy stream and the blocking streams of one device wait for without being told.
    fn implicit_order(&mut self, id: StreamId) -> Vec<(StreamId, u64)> {
        let stream = self.streams.get(id).expect("the caller looked the stream up");
        let device = stream.device;
        let others: Vec<StreamId> = if stream.kind == stream::Kind::Legacy {
            let blocking = |other: &Stream| other.device == device && other.is_blocking();
            self.streams.iter().filter(|(other, stream)| *other != id && blocking(stream)).map(|(id, _)| id).collect()
        } else if stream.is_blocking() {
            vec![self.devices[device].legacy]
        } else {
            return Vec::new();
        };
        let mut after = Vec::new();
        for other_id in others {
            let other = self.streams.get_mut(other_id).expect("listed above");
            let (last, stamp) = (other.submitted.at(), other.submitted.stamp());
            let stream = self.streams.get_mut(id).expect("as above");
            stream.submitted.join(&stamp);
            if !stream.executed.covers(last) {
                after.push((other_id, last.count));
                self.streams.get_mut(other_id).expect("as above").awaited += 1;
            }
        }
        after
    }

    /// Lets a stream, and whichever it wakes, go as far as they can.
    fn advance(&mut self, id: StreamId) {
        self.wake.push(id);
        while let Some(id) = self.wake.pop() {
            while self.step(id) {}
        }
    }

    /// Starts a stream's next operation if it is ready. Whether there may be more to do.
    fn step(&mut self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get(id) else { return false };
        if stream.worker != Worker::Nothing || stream.queue.is_empty() || self.is_held_up(id) || self.pauses(id) {
            return false;
        }
        let stream = self.streams.get_mut(id).expect("looked up above");
        let item = stream.queue.pop_front().expect("not empty");
        stream.rested = false;
        stream.executed.join_host(&item.host);
        for (other, _) in item.after {
            let other_stream = self.streams.get_mut(other).expect("awaited streams stay");
            let stamp = other_stream.executed.stamp();
            other_stream.awaited -= 1;
            self.remove_if_over(other);
            self.streams.get_mut(id).expect("as above").executed.join(&stamp);
        }
        self.join_of(id, &item.op);
        let executed = &mut self.streams.get_mut(id).expect("as above").executed;
        let epoch = executed.tick();
        let now = Operation { name: item.name, stream: Some(id), epoch };
        let may_run = self.check(id, &now, &item.accesses);
        if let Op::Work(work) = item.op {
            if may_run {
                return self.start(id, work);
            }
        } else {
            self.happen(id, now, item.op);
        }
        self.finish(id);
        true
    }

    /// Whether the next operation has to wait; then something will wake the stream.
    fn is_held_up(&mut self, id: StreamId) -> bool {
        let item = self.streams.get(id).and_then(|stream| stream.queue.front()).expect("looked up by the caller");
        let behind = |(other, count): &&(StreamId, u64)| self.streams.get(*other).is_some_and(|s| s.finished < *count);
        if let Some(&(other, _)) = item.after.iter().find(behind) {
            self.streams.get_mut(other).expect("found above").waiters.push(id);
            return true;
        }
        match &item.op {
            Op::Await(marker) if !marker.is_done() => {
                marker.wake(id);
                true
            }
            Op::Until(condition) if !condition.holds() => {
                self.outside.push(id);
                if !std::mem::replace(&mut self.watching, true) {
                    workers::watch();
                }
                true
            }
            _ => false,
        }
    }

    /// Whether the stream takes its random delay now.
    fn pauses(&mut self, id: StreamId) -> bool {
        let stream = self.streams.get_mut(id).expect("looked up by the caller");
        if self.config.delay.is_zero() || stream.rested {
            return false;
        }
        stream.worker = Worker::Pause;
        let pause = self.config.delay.mul_f64(self.delays.fraction());
        workers::run(Task { stream: id, work: Work::Pause(pause) });
        true
    }

    /// The order that an operation brings into its stream.
    fn join_of(&mut self, id: StreamId, op: &Op) {
        let stamps = match op {
            Op::Await(marker) => marker.stamp().into_iter().collect(),
            Op::Alloc(_, after) => after.clone(),
            Op::Until(_) => {
                // Another process, or the host, has made it come about, and may have known all that has happened.
                self.streams.iter().map(|(_, stream)| stream.executed.stamp()).collect()
            }
            _ => Vec::new(),
        };
        let stream = self.streams.get_mut(id).expect("looked up by the caller");
        if matches!(op, Op::Until(_)) {
            stream.executed.join_host(&self.host);
        }
        for stamp in stamps {
            stream.executed.join(&stamp);
        }
    }

    /// Looks for races. Whether the operation may still be run.
    fn check(&mut self, id: StreamId, now: &Operation, accesses: &[Access]) -> bool {
        if self.races.mode == race::Mode::Off {
            return true;
        }
        let order = &self.streams.get(id).expect("looked up by the caller").executed;
        let races: Vec<_> = accesses.iter().filter_map(|access| access.track.used(access, order, now)).collect();
        let none = races.is_empty();
        for race in races {
            self.found(&race);
        }
        none || self.races.mode == race::Mode::Count
    }

    /// Deals with a race.
    pub fn found(&mut self, race: &Race) {
        if self.races.mode == race::Mode::Off {
            return;
        }
        self.races.count += 1;
        self.races.last = race.to_string();
        match self.races.mode {
            race::Mode::Count | race::Mode::Off => {}
            race::Mode::Error => {
                eprintln!("cudart-sim: race: {race}");
                call::set_sticky(cudaError::cudaErrorIllegalAddress);
            }
            race::Mode::Abort => config::fatal(&format!("race: {race}")),
        }
    }

    /// Runs an operation here or on a worker. Whether it is over.
    fn start(&mut self, id: StreamId, work: Work) -> bool {
        let stream = self.streams.get_mut(id).expect("looked up by the caller");
        let stamp = stream.executed.stamp();
        match work {
            Work::Write { .. } => {
                // The host may be looking at the value.
                self.host.join(&stamp);
                work.run();
                self.finish(id);
                true
            }
            work => {
                if matches!(work, Work::Call { host: true, .. }) {
                    // A host function knows where its stream is, and may tell.
                    self.host.join(&stamp);
                }
                stream.worker = Worker::Operation;
                workers::run(Task { stream: id, work });
                false
            }
        }
    }

    /// An operation that takes no time.
    fn happen(&mut self, id: StreamId, now: Operation, op: Op) {
        let order = &self.streams.get(id).expect("looked up by the caller").executed;
        match op {
            Op::Alloc(allocation, _) => allocation.track.born(now),
            Op::Mark(marker) => self.wake.extend(marker.reach(order.stamp(), Some(Instant::now()))),
            Op::Post(event, number) => event.post(number),
            Op::Free(free) => {
                let race = free.allocation.track.freed(order, now);
                self.wake.extend(free.done.reach(order.stamp(), None));
                if let Some(race) = race {
                    self.found(&race);
                }
                if free.allocation.kind == Kind::Plain {
                    self.free_plain(&free.allocation);
                }
            }
            Op::Await(_) | Op::Until(_) | Op::Work(_) | Op::Nothing => {}
        }
    }

    /// An operation is over.
    fn finish(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(id).expect("it has work");
        stream.finished = stream.executed.at().count;
        self.wake.append(&mut stream.waiters);
        self.remove_if_over(id);
        if self.waiting > 0 {
            PROGRESS.notify_all();
        }
    }

    /// A worker has done what it was given for a stream.
    pub fn finished(&mut self, id: StreamId) {
        let stream = self.streams.get_mut(id).expect("it has work");
        match std::mem::replace(&mut stream.worker, Worker::Nothing) {
            Worker::Pause => stream.rested = true,
            _ => self.finish(id),
        }
        self.advance(id);
    }

    /// Looks at what streams wait for outside of their order. Whether one went on; none when none waits any more.
    pub fn look_outside(&mut self) -> Option<bool> {
        let waiting = std::mem::take(&mut self.outside);
        let before = waiting.len();
        for id in waiting {
            self.advance(id);
        }
        if self.outside.is_empty() {
            self.watching = false;
            return None;
        }
        Some(self.outside.len() < before)
    }

    /// The host learns that what has run on a stream has finished.
    pub fn host_learns(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(id) {
            self.host.join(&stream.executed.stamp_until(stream.finished));
        }
    }

    /// The host has synchronised: freed memory becomes available to all, and what is above the thresholds goes back.
    pub fn synchronised(&mut self) {
        let pools: Vec<_> = self.pools.iter().map(|(id, _)| id).collect();
        for id in pools {
            let pool = self.pools.get_mut(id).expect("listed above");
            pool.heap.settle(&self.host);
            let keep = usize::try_from(pool.threshold).unwrap_or(usize::MAX);
            let (released, place) = (pool.heap.release(keep), pool.at.place());
            self.refund(place, released);
        }
    }

    /// Takes bytes of a device or of the host. Whether there are so many.
    pub fn charge(&mut self, place: Place, bytes: usize) -> bool {
        let (used, total) = match place {
            Place::Device(device) => {
                let device = &mut self.devices[device];
                (&mut device.used, device.total)
            }
            Place::Host | Place::Managed => (&mut self.host_used, self.config.host_memory),
        };
        let fits = used.checked_add(bytes).is_some_and(|sum| sum <= total);
        if fits {
            *used += bytes;
        }
        fits
    }

    /// Gives bytes back.
    pub fn refund(&mut self, place: Place, bytes: usize) {
        match place {
            Place::Device(device) => self.devices[device].used -= bytes,
            Place::Host | Place::Managed => self.host_used -= bytes,
        }
    }
}
