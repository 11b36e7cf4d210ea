//! What the program has not given back.

use std::fmt::Write;

use crate::memory::allocation::Kind;
use crate::sim::{self, Sim};
use crate::stream;

/// How many objects of each kind are live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Live {
    pub streams: u64,
    pub events: u64,
    pub pools: u64,
    /// From pools, own and imported.
    pub pool_allocations: u64,
    /// Of `cudaMalloc` and opened memory handles.
    pub plain_allocations: u64,
    /// Of `cudaHostAlloc`.
    pub pinned_allocations: u64,
    /// Ranges of `cudaHostRegister`.
    pub registered_ranges: u64,
    /// Made by a launch of a graph and not freed.
    pub graph_allocations: u64,
    pub graphs: u64,
    pub graph_execs: u64,
    /// In all allocations but the registered ranges.
    pub bytes: u64,
}

impl Live {
    /// How many objects there are of all kinds.
    pub fn objects(&self) -> u64 {
        self.streams
            + self.events
            + self.pools
            + self.pool_allocations
            + self.plain_allocations
            + self.pinned_allocations
            + self.registered_ranges
            + self.graph_allocations
            + self.graphs
            + self.graph_execs
    }
}

impl Sim {
    /// Counts what is live. Default pools and default streams are the runtime's own.
    pub fn live(&self) -> Live {
        let mut live = Live {
            streams: self.leaked_streams().count() as u64,
            events: self.events.iter().count() as u64,
            pools: self.pools.iter().filter(|(_, pool)| !pool.is_default && !pool.destroyed).count() as u64,
            graphs: self.graphs.iter().count() as u64,
            graph_execs: self.execs.iter().count() as u64,
            ..Live::default()
        };
        for allocation in self.space.live() {
            let is_registered = matches!(allocation.kind, Kind::Registered { .. });
            let count = match allocation.kind {
                Kind::Pool(_) | Kind::Imported { .. } => &mut live.pool_allocations,
                Kind::Plain | Kind::Opened { .. } => &mut live.plain_allocations,
                Kind::Host { .. } => &mut live.pinned_allocations,
                Kind::Registered { .. } => &mut live.registered_ranges,
                Kind::Graph if !self.is_graph_memory_live(allocation.base) => continue,
                Kind::Graph => &mut live.graph_allocations,
            };
            *count += 1;
            if !is_registered {
                live.bytes += allocation.size as u64;
            }
        }
        live
    }

    fn leaked_streams(&self) -> impl Iterator<Item = stream::StreamId> + '_ {
        let created = |stream: &stream::Stream| stream.kind == stream::Kind::Created && !stream.destroyed;
        self.streams.iter().filter(move |(_, stream)| created(stream)).map(|(id, _)| id)
    }

    /// Names everything that is live, one a line.
    pub fn leak_report(&self) -> String {
        let mut text = String::new();
        let mut line = |what: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{what}");
        };
        for id in self.leaked_streams() {
            line(format_args!("stream {id:?}"));
        }
        for (id, _) in self.events.iter() {
            line(format_args!("event {id:?}"));
        }
        for (id, pool) in self.pools.iter().filter(|(_, pool)| !pool.is_default && !pool.destroyed) {
            line(format_args!("pool {id:?} ({:?}), {} bytes in use", pool.at, pool.used));
        }
        for (id, _) in self.graphs.iter() {
            line(format_args!("graph {id:?}"));
        }
        for (id, _) in self.execs.iter() {
            line(format_args!("executable graph {id:?}"));
        }
        let is_there = |base| self.graph_allocation_at(base).is_none() || self.is_graph_memory_live(base);
        for allocation in self.space.live().filter(|allocation| is_there(allocation.base)) {
            let (base, size) = (allocation.base, allocation.size);
            line(format_args!("{:?} memory: {size} bytes at {base:#x} ({:?})", allocation.place, allocation.kind));
        }
        text
    }
}

/// Runs when the library is unloaded or the process ends, after the program's own handlers.
extern "C" fn at_end() {
    let Some(sim) = sim::if_started() else { return };
    let objects = sim.live().objects();
    if sim.config.leak_report && objects > 0 {
        eprintln!("cudart-sim: {objects} objects were never given back:\n{}", sim.leak_report());
    }
}

#[used]
#[link_section = ".fini_array"]
static AT_END: extern "C" fn() = at_end;
