//! Vector clocks: which operation is ordered after which.
//!
//! Every stream counts its operations in its slot. A stream's [`Timeline`] knows, for each other slot, up to which count
//! that stream's operations are ordered before its own next one.

use std::sync::Arc;

/// One count for each slot. A slot beyond the end counts 0.
type Clock = Vec<u64>;

/// One operation: the `count`th of the stream in `slot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch {
    pub slot: usize,
    pub count: u64,
}

/// What was ordered before some point, that point's own stream included.
#[derive(Debug, Clone)]
pub struct Stamp {
    known: Arc<Clock>,
    at: Epoch,
}

impl Stamp {
    /// Whether the operation is ordered before the stamp's point, or is the last before it.
    pub fn covers(&self, epoch: Epoch) -> bool {
        if epoch.slot == self.at.slot {
            epoch.count <= self.at.count
        } else {
            self.known.get(epoch.slot).is_some_and(|count| epoch.count <= *count)
        }
    }

    /// The point itself.
    pub fn epoch(&self) -> Epoch {
        self.at
    }
}

/// What the host knows to have finished. It is one for all threads: whatever one thread learnt, the others may have been
/// told, so nothing is ever reported that a program could have ordered.
#[derive(Debug, Clone, Default)]
pub struct Host {
    known: Arc<Clock>,
}

impl Host {
    /// The host learns that everything before the stamp has finished.
    pub fn join(&mut self, stamp: &Stamp) {
        raise(&mut self.known, &stamp.known);
        raise_slot(&mut self.known, stamp.at);
    }

    /// Knows what the other knows too.
    pub fn merge(&mut self, other: &Host) {
        raise(&mut self.known, &other.known);
    }

    /// Whether the host knows that the operation has finished.
    pub fn covers(&self, epoch: Epoch) -> bool {
        self.known.get(epoch.slot).is_some_and(|count| epoch.count <= *count)
    }
}

/// A stream's place in its own operations, and what it knows of the others'.
#[derive(Debug)]
pub struct Timeline {
    known: Arc<Clock>,
    at: Epoch,
}

impl Timeline {
    /// Goes on counting at `at`, where an earlier stream of the slot stopped, after everything the host knows.
    pub fn new(at: Epoch, host: &Host) -> Self {
        Self { known: Arc::clone(&host.known), at }
    }

    /// The stream's next operation.
    pub fn tick(&mut self) -> Epoch {
        self.at.count += 1;
        self.at
    }

    /// The stream's latest operation.
    pub fn at(&self) -> Epoch {
        self.at
    }

    /// The point after the latest operation.
    pub fn stamp(&self) -> Stamp {
        Stamp { known: Arc::clone(&self.known), at: self.at }
    }

    /// The point after an earlier operation of the stream.
    pub fn stamp_until(&self, count: u64) -> Stamp {
        Stamp { known: Arc::clone(&self.known), at: Epoch { slot: self.at.slot, count } }
    }

    /// What follows is ordered after the stamp's point.
    pub fn join(&mut self, stamp: &Stamp) {
        if stamp.at.slot != self.at.slot {
            raise(&mut self.known, &stamp.known);
            raise_slot(&mut self.known, stamp.at);
        }
    }

    /// What follows is ordered after all that the host knows to have finished.
    pub fn join_host(&mut self, host: &Host) {
        raise(&mut self.known, &host.known);
    }

    /// Whether the operation is ordered before the stream's next one.
    pub fn covers(&self, epoch: Epoch) -> bool {
        epoch.slot == self.at.slot || self.known.get(epoch.slot).is_some_and(|count| epoch.count <= *count)
    }
}

/// Raises each count to the other's, without a copy where that changes nothing.
fn raise(known: &mut Arc<Clock>, other: &Arc<Clock>) {
    if Arc::ptr_eq(known, other) {
        return;
    }
    let behind = |(slot, count): (usize, &u64)| known.get(slot).copied().unwrap_or(0) < *count;
    if !other.iter().enumerate().any(behind) {
        return;
    }
    if known.iter().enumerate().all(|(slot, count)| *count <= other.get(slot).copied().unwrap_or(0)) {
        *known = Arc::clone(other);
        return;
    }
    let known = Arc::make_mut(known);
    if known.len() < other.len() {
        known.resize(other.len(), 0);
    }
    for (mine, theirs) in known.iter_mut().zip(other.iter()) {
        *mine = (*mine).max(*theirs);
    }
}

fn raise_slot(known: &mut Arc<Clock>, at: Epoch) {
    if known.get(at.slot).copied().unwrap_or(0) < at.count {
        let known = Arc::make_mut(known);
        if known.len() <= at.slot {
            known.resize(at.slot + 1, 0);
        }
        known[at.slot] = at.count;
    }
}
