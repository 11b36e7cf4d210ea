//! Counting.

use std::ffi::c_void;
use std::ptr::NonNull;

use crate::resource::{DeviceMemoryResource, ResourceId};
use crate::spin::Spin;
use crate::{Device, Result, Stream};

/// Counts what goes through to another resource, in bytes and in blocks.
///
/// Blocks of zero bytes count as blocks. A failed call counts nothing.
#[derive(Debug)]
pub struct StatisticsAdaptor<R> {
    upstream: R,
    id: ResourceId,
    counts: Spin<Counts>,
}

/// A quantity that goes up and down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter {
    /// What it is now.
    pub current: u64,
    /// The most it has been.
    pub peak: u64,
    /// All that was ever added.
    pub total: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    bytes: Counter,
    blocks: Counter,
}

impl Counter {
    fn add(&mut self, amount: u64) {
        self.current += amount;
        self.total += amount;
        self.peak = self.peak.max(self.current);
    }

    /// Blocks of an equal resource may come in too, and those were never added here.
    fn subtract(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
    }
}

impl<R> StatisticsAdaptor<R> {
    /// Counts what goes to `upstream`.
    #[must_use]
    pub fn new(upstream: R) -> Self {
        Self { upstream, id: ResourceId::unique(), counts: Spin::new(Counts::default()) }
    }

    /// Bytes, as they were asked for.
    #[must_use]
    pub fn bytes(&self) -> Counter {
        self.counts.lock().bytes
    }

    /// Blocks.
    #[must_use]
    pub fn blocks(&self) -> Counter {
        self.counts.lock().blocks
    }

    /// Lets the peaks start again from what is out now.
    pub fn reset_peaks(&self) {
        let mut counts = self.counts.lock();
        counts.bytes.peak = counts.bytes.current;
        counts.blocks.peak = counts.blocks.current;
    }

    /// The resource behind this one.
    #[must_use]
    pub fn upstream(&self) -> &R {
        &self.upstream
    }
}

// SAFETY: blocks are those of the resource behind, which takes them back; the id is its own.
unsafe impl<R: DeviceMemoryResource> DeviceMemoryResource for StatisticsAdaptor<R> {
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        let pointer = self.upstream.allocate_async_aligned(bytes, alignment, stream)?;
        let mut counts = self.counts.lock();
        counts.bytes.add(bytes as u64);
        counts.blocks.add(1);
        Ok(pointer)
    }

    unsafe fn deallocate_async_aligned(
        &self,
        pointer: NonNull<c_void>,
        bytes: usize,
        alignment: usize,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.upstream.deallocate_async_aligned(pointer, bytes, alignment, stream) }?;
        let mut counts = self.counts.lock();
        counts.bytes.subtract(bytes as u64);
        counts.blocks.subtract(1);
        Ok(())
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn device(&self) -> Device {
        self.upstream.device()
    }

    fn trim(&self) -> Result<()> {
        self.upstream.trim()
    }
}
