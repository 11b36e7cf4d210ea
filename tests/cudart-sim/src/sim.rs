//! The simulated runtime: everything there is, behind one lock, and how threads wait for it.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::capture::Capture;
use crate::config::{self, Config};
use crate::device::Device;
use crate::event::Event;
use crate::graph::{Exec, Graph, GraphMemory, NodeAt};
use crate::handles::Table;
use crate::ipc::board::Board;
use crate::ipc::pools::Mapped;
use crate::memory::allocation::Place;
use crate::memory::arena::Arena;
use crate::memory::heap::Heap;
use crate::memory::space::Space;
use crate::order::Host;
use crate::pool::{Choice, Pool, Where};
use crate::race::{self};
use crate::random::Random;
use crate::stream::{Stream, StreamId};
use crate::{fault, process};

/// The steps of heaps that belong to no pool.
pub const PLAIN_STEP: usize = 2 << 20;

/// See the module.
pub struct Sim {
    pub config: Config,
    pub devices: Vec<Device>,
    pub streams: Table<Stream>,
    /// Where the next stream in a slot goes on counting.
    pub resume: Vec<u64>,
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
    pub wake: Vec<StreamId>,
    /// Streams that wait for something outside of their order.
    pub outside: Vec<StreamId>,
    pub watching: bool,
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
        for place in sim.config.devices.clone() {
            sim.add_device(place);
        }
        sim
    }

    /// Something has finished: whoever waits looks again.
    pub fn tell_waiting(&self) {
        if self.waiting > 0 {
            PROGRESS.notify_all();
        }
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
