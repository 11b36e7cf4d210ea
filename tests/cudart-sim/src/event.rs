//! Events: points in a stream's order that other streams and the host can wait for.

use std::sync::Arc;

use crate::capture::CaptureId;
use crate::ipc::board::Shared;
use crate::order::Stamp;
use crate::stream::Marker;

/// See the module.
#[derive(Debug)]
pub struct Event {
    pub device: usize,
    pub flags: u32,
    /// The latest record, and the order it stands for as it was submitted.
    pub record: Option<Record>,
    /// What other processes see of it.
    pub shared: Option<Shared>,
    /// The capture it was recorded in, and the nodes it stands for.
    pub captured: Option<(CaptureId, Vec<usize>)>,
}

/// One record of an event. A later one does not change what waits for this one.
#[derive(Debug, Clone)]
pub struct Record {
    pub marker: Arc<Marker>,
    pub submitted: Stamp,
    /// The record's number, when other processes see it.
    pub number: u64,
}

impl Event {
    /// The number of another process's record, when that is the latest.
    pub fn foreign_record(&self) -> Option<(&Shared, u64)> {
        let shared = self.shared.as_ref()?;
        let latest = shared.latest();
        let own = self.record.as_ref().map_or(0, |record| record.number);
        (latest != own).then_some((shared, latest))
    }
}
