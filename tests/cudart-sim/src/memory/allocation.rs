//! One allocation: what it is, where its bytes are, and what the race detector knows of it.

use std::sync::Arc;

use super::arena::Segment;
use crate::handles::Id;
use crate::pool::Pool;
use crate::race::Track;

/// How an allocation was made, which decides who may free it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From a pool, in the order of a stream.
    Pool(Id<Pool>),
    /// Another process's pool memory; `at` is its pool and place.
    Imported { pool: Id<Pool>, at: (u64, u64) },
    /// By `cudaMalloc`.
    Plain,
    /// Another process's `cudaMalloc` memory.
    Opened { at: (u64, u64) },
    /// By `cudaHostAlloc`.
    Host { flags: u32 },
    /// By a node of a graph.
    Graph,
    /// The program's own pages, by `cudaHostRegister`.
    Registered { flags: u32 },
}

/// Where the memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Device(usize),
    Host,
    Managed,
}

/// See the module.
#[derive(Debug)]
pub struct Allocation {
    pub base: usize,
    /// Exactly what was asked for.
    pub size: usize,
    pub kind: Kind,
    pub place: Place,
    pub track: Arc<Track>,
    /// None for the program's own pages.
    pub segment: Option<Arc<Segment>>,
}

impl Allocation {
    /// The first address behind it.
    pub fn end(&self) -> usize {
        self.base + self.size
    }

    /// Where the simulator reads and writes what the user calls `address`.
    pub fn internal(&self, address: usize) -> *mut u8 {
        match &self.segment {
            Some(segment) => segment.internal(address),
            None => address as *mut u8,
        }
    }
}
