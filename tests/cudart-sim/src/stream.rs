//! Streams: queues of operations, and what is known of their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::capture::CaptureId;
use crate::cuda::cudaStreamNonBlocking;
use crate::handles::Id;
use crate::ipc::board::Shared;
use crate::order::{Host, Stamp, Timeline};
use crate::race::{Access, Name};
use crate::work::{Condition, Free, Work};

/// A stream's handle.
pub type StreamId = Id<Stream>;

/// How a stream came to be, which decides its implicit order and who ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A device's legacy default stream.
    Legacy,
    /// One thread's default stream.
    PerThread,
    Created,
}

/// What a worker's thread does for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker {
    Nothing,
    Pause,
    Operation,
}

/// A queue of operations that run one after the other.
#[derive(Debug)]
pub struct Stream {
    pub device: usize,
    pub kind: Kind,
    pub flags: u32,
    pub priority: i32,
    pub queue: VecDeque<Item>,
    pub worker: Worker,
    /// Whether the random delay of the next operation is over.
    pub rested: bool,
    /// The order as it is promised when operations are submitted: pools decide by it.
    pub submitted: Timeline,
    /// The order as it came about: races are found by it.
    pub executed: Timeline,
    /// Up to which count operations have finished.
    pub finished: u64,
    /// Streams whose next operation waits for this one's.
    pub waiters: Vec<StreamId>,
    /// How many submitted operations of other streams still look at this one.
    pub awaited: usize,
    /// The program has destroyed it; it goes when its queue is empty.
    pub destroyed: bool,
    /// The capture it takes part in.
    pub capture: Option<CaptureId>,
}

impl Stream {
    /// Whether it takes part in the legacy stream's implicit order.
    pub fn is_blocking(&self) -> bool {
        self.flags & cudaStreamNonBlocking == 0
    }

    /// Whether everything submitted has finished.
    pub fn is_idle(&self) -> bool {
        self.finished == self.submitted.at().count
    }
}

/// A submitted operation.
#[derive(Debug)]
pub struct Item {
    pub name: Name,
    /// What the host knew when it submitted this.
    pub host: Host,
    /// Implicit order: the operations of other streams that must have finished.
    pub after: Vec<(StreamId, u64)>,
    pub accesses: Vec<Access>,
    pub op: Op,
}

/// What an operation does.
#[derive(Debug)]
pub enum Op {
    /// An allocation comes to be, ordered after the stamps.
    Alloc(Arc<crate::memory::allocation::Allocation>, Vec<Stamp>),
    Free(Free),
    /// A marker is reached.
    Mark(Arc<Marker>),
    /// A record gets there that other processes see.
    Post(Shared, u64),
    /// Goes on when the marker is reached.
    Await(Arc<Marker>),
    /// Goes on when something outside the streams' order has come about.
    Until(Condition),
    /// Runs on a worker's thread.
    Work(Work),
    /// Only the detector takes notice.
    Nothing,
}

/// A point in a stream's order that others can wait for: an event's record, or a free.
#[derive(Debug, Default)]
pub struct Marker(Mutex<MarkerState>);

#[derive(Debug, Default)]
struct MarkerState {
    reached: Option<(Stamp, Option<Instant>)>,
    waiters: Vec<StreamId>,
}

impl Marker {
    /// The stream has come here, at a time if anybody will ask. Returns the streams that were waiting for it.
    pub fn reach(&self, stamp: Stamp, time: Option<Instant>) -> Vec<StreamId> {
        let state = &mut *self.0.lock();
        state.reached = Some((stamp, time));
        std::mem::take(&mut state.waiters)
    }

    /// Whether the stream has come here.
    pub fn is_done(&self) -> bool {
        self.0.lock().reached.is_some()
    }

    /// What was ordered before it, once reached.
    pub fn stamp(&self) -> Option<Stamp> {
        self.0.lock().reached.as_ref().map(|(stamp, _)| stamp.clone())
    }

    /// When it was reached.
    pub fn time(&self) -> Option<Instant> {
        self.0.lock().reached.as_ref().and_then(|(_, time)| *time)
    }

    /// The stream shall be woken when the marker is reached.
    pub fn wake(&self, stream: StreamId) {
        self.0.lock().waiters.push(stream);
    }
}
