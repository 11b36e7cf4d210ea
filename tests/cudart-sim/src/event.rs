//! Events: points in a stream's order that other streams and the host can wait for.

use std::sync::Arc;

use crate::handles::Id;
use crate::order::Stamp;
use crate::stream::Marker;

/// An event's handle.
pub type EventId = Id<Event>;

/// See the module.
#[derive(Debug)]
pub struct Event {
    pub device: usize,
    pub flags: u32,
    /// The latest record, and the order it stands for as it was submitted.
    pub record: Option<Record>,
}

/// One record of an event. A later one does not change what waits for this one.
#[derive(Debug, Clone)]
pub struct Record {
    pub marker: Arc<Marker>,
    pub submitted: Stamp,
}
