//! Graphs: recorded operations, the memory they own, and how they are launched.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cuda::cudaError;
use crate::handles::Id;
use crate::memory::allocation::{Allocation, Kind, Place};
use crate::memory::arena::Segment;
use crate::pool::STEP;
use crate::race::{Access, Name, Track};
use crate::sim::Sim;
use crate::stream::{Marker, Op, StreamId};
use crate::work::{Condition, Free, Work};
use crate::Outcome;

/// A graph's handle.
pub type GraphId = Id<Graph>;

/// Nodes; each comes after those it depends on.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
}

/// See [`Graph`].
#[derive(Debug, Clone)]
pub struct Node {
    pub after: Vec<usize>,
    pub action: Action,
}

/// What a node does.
#[derive(Debug, Clone)]
pub enum Action {
    /// By the address of the graph's memory.
    Alloc(usize),
    Free(usize),
    Work {
        name: Name,
        accesses: Vec<Access>,
        work: Work,
    },
    Until {
        name: Name,
        condition: Condition,
    },
    Nothing,
}

/// A node, as a handle names it.
#[derive(Debug, Clone, Copy)]
pub struct NodeAt {
    pub graph: GraphId,
    pub index: usize,
}

/// A graph ready to be launched.
#[derive(Debug)]
pub struct Exec {
    graph: Graph,
    auto_free: bool,
    /// The end of its latest launch: one launch follows the other.
    latest: Option<Arc<Marker>>,
}

/// The memory that graphs own.
#[derive(Debug, Default)]
pub struct GraphMemory {
    /// By address.
    allocations: BTreeMap<usize, GraphAllocation>,
    pub usage: BTreeMap<usize, Usage>,
}

/// One allocation node's memory. Its address never changes.
#[derive(Debug)]
struct GraphAllocation {
    allocation: Arc<Allocation>,
    device: usize,
    /// Whether a launch has taken memory of the device for it.
    backed: bool,
    /// Whether a launch has allocated it, and nothing has freed it since.
    live: bool,
    /// How many graphs and executable graphs name it.
    users: usize,
}

/// A device's memory for graphs, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Usage {
    pub used: u64,
    pub used_high: u64,
    pub reserved: u64,
    pub reserved_high: u64,
}

impl Usage {
    fn raise(&mut self) {
        self.used_high = self.used_high.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved);
    }
}

impl Graph {
    /// Adds a node behind others. Returns its index.
    pub fn add(&mut self, after: Vec<usize>, action: Action) -> usize {
        self.nodes.push(Node { after, action });
        self.nodes.len() - 1
    }

    /// Whether every one of `nodes` is, or comes before, one of `ends`.
    pub fn leads_to(&self, nodes: &[usize], ends: &[usize]) -> bool {
        let mut before = vec![false; self.nodes.len()];
        let mut left = ends.to_vec();
        while let Some(node) = left.pop() {
            if !std::mem::replace(&mut before[node], true) {
                left.extend(&self.nodes[node].after);
            }
        }
        nodes.iter().all(|node| before[*node])
    }

    fn memory(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes.iter().filter_map(|node| match node.action {
            Action::Alloc(base) | Action::Free(base) => Some(base),
            _ => None,
        })
    }
}

impl Sim {
    /// Reserves an address for an allocation node.
    pub fn graph_allocation(&mut self, device: usize, size: usize) -> Outcome<usize> {
        let out_of_memory = cudaError::cudaErrorMemoryAllocation;
        let len = size.checked_next_multiple_of(STEP).filter(|len| *len <= self.devices[device].total);
        let segment = Segment::new(&self.arena, len.ok_or(out_of_memory)?, false).map_err(|_| out_of_memory)?;
        let base = segment.user;
        let allocation = Arc::new(Allocation {
            base,
            size,
            kind: Kind::Graph,
            place: Place::Device(device),
            track: Track::in_stream(base, size),
            segment: Some(Arc::new(segment)),
        });
        self.space.insert(Arc::clone(&allocation));
        let of = GraphAllocation { allocation, device, backed: false, live: false, users: 0 };
        self.graph_memory.allocations.insert(base, of);
        Ok(base)
    }

    /// The size and device of an allocation node's memory.
    pub fn graph_allocation_at(&self, base: usize) -> Option<(usize, usize)> {
        self.graph_memory.allocations.get(&base).map(|memory| (memory.allocation.size, memory.device))
    }

    /// Whether memory of a graph is there, allocated by a launch.
    pub fn is_graph_memory_live(&self, base: usize) -> bool {
        self.graph_memory.allocations.get(&base).is_some_and(|memory| memory.live)
    }

    /// A graph that can be launched.
    pub fn instantiate(&mut self, graph: &Graph, auto_free: bool) -> Exec {
        self.use_memory(graph);
        Exec { graph: graph.clone(), auto_free, latest: None }
    }

    /// One more graph names this memory.
    pub fn use_memory(&mut self, graph: &Graph) {
        for base in graph.memory() {
            self.use_memory_at(base);
        }
    }

    /// One more node names this memory.
    pub fn use_memory_at(&mut self, base: usize) {
        if let Some(memory) = self.graph_memory.allocations.get_mut(&base) {
            memory.users += 1;
        }
    }

    /// A graph is no more.
    pub fn drop_graph(&mut self, graph: &Graph) {
        for base in graph.memory() {
            if let Some(memory) = self.graph_memory.allocations.get_mut(&base) {
                memory.users -= 1;
            }
            self.forget_if_unused(base);
        }
    }

    /// An executable graph is no more.
    pub fn drop_exec(&mut self, exec: &Exec) {
        self.drop_graph(&exec.graph);
    }

    /// Memory that no graph names and that is not live is given up; the device keeps what backed it until it is trimmed.
    fn forget_if_unused(&mut self, base: usize) {
        if self.graph_memory.allocations.get(&base).is_some_and(|memory| memory.users == 0 && !memory.live) {
            self.graph_memory.allocations.remove(&base);
            self.space.remove(base);
        }
    }

    /// Launches on a stream.
    ///
    /// # Errors
    /// Invalid value when memory that the graph allocates is still live from an earlier launch, or memory that it frees is
    /// not live; memory allocation when the device has too little.
    pub fn launch(&mut self, id: Id<Exec>, stream: StreamId) -> Outcome {
        const NAME: &str = "cudaGraphLaunch";
        let exec = self.execs.get(id).ok_or(cudaError::cudaErrorInvalidValue)?;
        let (graph, auto_free, latest) = (exec.graph.clone(), exec.auto_free, exec.latest.clone());
        self.check_memory(&graph, auto_free)?;
        if let Some(latest) = latest {
            self.submit(stream, NAME, Vec::new(), Op::Await(latest));
        }
        for node in &graph.nodes {
            match &node.action {
                Action::Alloc(base) => {
                    if self.is_graph_memory_live(*base) {
                        self.free_graph_memory(NAME, *base, stream);
                    }
                    self.allocate_graph_memory(*base, stream);
                }
                Action::Free(base) => self.free_graph_memory(NAME, *base, stream),
                Action::Work { name, accesses, work } => {
                    self.submit(stream, name.clone(), accesses.clone(), Op::Work(work.clone()));
                }
                Action::Until { name, condition } => {
                    self.submit(stream, name.clone(), Vec::new(), Op::Until(condition.clone()));
                }
                Action::Nothing => {}
            }
        }
        let end = Arc::<Marker>::default();
        self.submit(stream, NAME, Vec::new(), Op::Mark(Arc::clone(&end)));
        self.execs.get_mut(id).expect("found above").latest = Some(end);
        Ok(())
    }

    /// Sees to it that a launch will have its memory.
    fn check_memory(&mut self, graph: &Graph, auto_free: bool) -> Outcome {
        let mut live: BTreeMap<usize, bool> = BTreeMap::new();
        for node in &graph.nodes {
            let (base, is_alloc) = match node.action {
                Action::Alloc(base) => (base, true),
                Action::Free(base) => (base, false),
                _ => continue,
            };
            let is_live = *live.entry(base).or_insert(self.is_graph_memory_live(base));
            if is_live == is_alloc && !(is_alloc && auto_free) {
                return Err(cudaError::cudaErrorInvalidValue);
            }
            live.insert(base, is_alloc);
        }
        for base in live.into_keys() {
            self.back(base)?;
        }
        Ok(())
    }

    /// Takes memory of the device for an allocation node.
    fn back(&mut self, base: usize) -> Outcome {
        let Some(memory) = self.graph_memory.allocations.get(&base).filter(|memory| !memory.backed) else {
            return Ok(());
        };
        let (device, len) = (memory.device, memory.allocation.size.next_multiple_of(STEP));
        // What other graphs have left is taken first.
        let idle = self.idle_graph_memory(device);
        if idle < len as u64 {
            if !self.charge(Place::Device(device), len) {
                return Err(cudaError::cudaErrorMemoryAllocation);
            }
            let usage = self.graph_memory.usage.entry(device).or_default();
            usage.reserved += len as u64;
            usage.raise();
        }
        self.graph_memory.allocations.get_mut(&base).expect("found above").backed = true;
        Ok(())
    }

    /// What a device holds for graphs that are no more.
    fn idle_graph_memory(&self, device: usize) -> u64 {
        let backed = self.graph_memory.allocations.values().filter(|memory| memory.backed && memory.device == device);
        let backed: u64 = backed.map(|memory| memory.allocation.size.next_multiple_of(STEP) as u64).sum();
        self.graph_memory.usage.get(&device).map_or(0, |usage| usage.reserved) - backed
    }

    fn allocate_graph_memory(&mut self, base: usize, stream: StreamId) {
        let memory = self.graph_memory.allocations.get_mut(&base).expect("checked before the launch");
        memory.live = true;
        let usage = self.graph_memory.usage.entry(memory.device).or_default();
        usage.used += memory.allocation.size as u64;
        usage.raise();
        let op = Op::Alloc(Arc::clone(&memory.allocation), Vec::new());
        self.submit(stream, "cudaGraphLaunch", Vec::new(), op);
    }

    /// Frees live memory of a graph in the order of a stream.
    pub fn free_graph_memory(&mut self, name: &'static str, base: usize, stream: StreamId) {
        let memory = self.graph_memory.allocations.get_mut(&base).expect("the caller looked it up");
        memory.live = false;
        let usage = self.graph_memory.usage.entry(memory.device).or_default();
        usage.used -= memory.allocation.size as u64;
        let free = Free { allocation: Arc::clone(&memory.allocation), done: Arc::default() };
        self.submit(stream, name, Vec::new(), Op::Free(free));
        self.forget_if_unused(base);
    }

    /// Gives back what backs no live memory.
    pub fn trim_graph_memory(&mut self, device: usize) {
        let idle = self.idle_graph_memory(device);
        let mut released = idle as usize;
        for memory in self.graph_memory.allocations.values_mut() {
            if memory.device == device && memory.backed && !memory.live {
                memory.backed = false;
                released += memory.allocation.size.next_multiple_of(STEP);
            }
        }
        self.graph_memory.usage.entry(device).or_default().reserved -= released as u64;
        self.refund(Place::Device(device), released);
    }
}
