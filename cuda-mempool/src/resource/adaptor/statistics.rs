//! Counting.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use spin::mutex::SpinMutex;
use spin::relax::Yield;

use crate::resource::{DeviceMemoryResource, ResourceId};
use crate::stream::thread_number;
use crate::{Device, Result, Stream};

/// Counts what goes through to another resource, in bytes and in blocks.
///
/// Blocks of zero bytes count as blocks. A failed call counts nothing. A peak is exact for one thread; with several it may
/// be off by what others hand out or give back in the same nanoseconds.
#[derive(Debug)]
pub struct StatisticsAdaptor<R> {
    upstream: R,
    id: ResourceId,
    /// The first thread that allocates, by number, and 0 before. It counts without atomic read-modify-writes, each of
    /// which would take as long as all the rest: nobody else writes to its part.
    first: AtomicU64,
    /// Held by the other threads, which share a part.
    others: SpinMutex<(), Yield>,
    bytes: Quantity,
    blocks: Quantity,
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

#[derive(Debug, Default)]
struct Quantity {
    /// What the first thread did, and what the others did. One thread at a time writes to each.
    parts: [Part; 2],
    peak: AtomicI64,
}

/// Below 0 where more was given back than handed out, because the other part handed it out.
#[derive(Debug, Default)]
struct Part {
    current: AtomicI64,
    total: AtomicU64,
}

impl Quantity {
    /// The caller must be the one that may write to the part.
    fn add(&self, part: usize, amount: u64) {
        let (own, other) = (&self.parts[part], &self.parts[1 - part]);
        let current = own.current.load(Relaxed) + amount as i64;
        own.current.store(current, Relaxed);
        own.total.store(own.total.load(Relaxed) + amount, Relaxed);
        let whole = current + other.current.load(Relaxed);
        if whole > self.peak.load(Relaxed) {
            self.peak.fetch_max(whole, Relaxed);
        }
    }

    /// As for [`add`](Self::add).
    fn subtract(&self, part: usize, amount: u64) {
        let current = &self.parts[part].current;
        current.store(current.load(Relaxed) - amount as i64, Relaxed);
    }

    fn current(&self) -> i64 {
        self.parts.iter().map(|part| part.current.load(Relaxed)).sum::<i64>().max(0)
    }

    fn read(&self) -> Counter {
        let current = self.current();
        Counter {
            current: current as u64,
            peak: self.peak.load(Relaxed).max(current) as u64,
            total: self.parts.iter().map(|part| part.total.load(Relaxed)).sum(),
        }
    }
}

impl<R> StatisticsAdaptor<R> {
    /// Counts what goes to `upstream`.
    #[must_use]
    pub fn new(upstream: R) -> Self {
        Self {
            upstream,
            id: ResourceId::unique(),
            first: AtomicU64::new(0),
            others: SpinMutex::new(()),
            bytes: Quantity::default(),
            blocks: Quantity::default(),
        }
    }

    /// Bytes, as they were asked for.
    #[must_use]
    pub fn bytes(&self) -> Counter {
        self.bytes.read()
    }

    /// Blocks.
    #[must_use]
    pub fn blocks(&self) -> Counter {
        self.blocks.read()
    }

    /// Lets the peaks start again from what is out now.
    pub fn reset_peaks(&self) {
        for quantity in [&self.bytes, &self.blocks] {
            quantity.peak.store(quantity.current(), Relaxed);
        }
    }

    /// The resource behind this one.
    #[must_use]
    pub fn upstream(&self) -> &R {
        &self.upstream
    }

    /// Counts something in the part that is this thread's, or this thread's for now.
    #[inline]
    fn count(&self, count: impl FnOnce(usize)) {
        let thread = thread_number();
        if self.first.load(Relaxed) == thread || self.is_first(thread) {
            return count(0);
        }
        let _turn = self.others.lock();
        count(1);
    }

    /// Whether this thread becomes the first one now.
    #[cold]
    fn is_first(&self, thread: u64) -> bool {
        self.first.load(Relaxed) == 0 && self.first.compare_exchange(0, thread, Relaxed, Relaxed).is_ok()
    }
}

// SAFETY: blocks are those of the resource behind, which takes them back; the id is its own.
unsafe impl<R: DeviceMemoryResource> DeviceMemoryResource for StatisticsAdaptor<R> {
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        let pointer = self.upstream.allocate_async_aligned(bytes, alignment, stream)?;
        self.count(|part| {
            self.bytes.add(part, bytes as u64);
            self.blocks.add(part, 1);
        });
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
        self.count(|part| {
            self.bytes.subtract(part, bytes as u64);
            self.blocks.subtract(part, 1);
        });
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
