//! A limit.

use std::ffi::c_void;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::resource::{DeviceMemoryResource, ResourceId};
use crate::{Device, Error, ErrorKind, Result, Stream};

/// Refuses what would bring the bytes that are out above a limit, as out of memory.
#[derive(Debug)]
pub struct LimitAdaptor<R> {
    upstream: R,
    id: ResourceId,
    limit: usize,
    used: AtomicUsize,
}

impl<R> LimitAdaptor<R> {
    /// Lets at most `limit` bytes of `upstream` be out at a time, counted as they were asked for.
    #[must_use]
    pub fn new(upstream: R, limit: usize) -> Self {
        Self { upstream, id: ResourceId::unique(), limit, used: AtomicUsize::new(0) }
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are out.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The resource behind this one.
    #[must_use]
    pub fn upstream(&self) -> &R {
        &self.upstream
    }

    fn reserve(&self, bytes: usize) -> Result<Reserved<'_>> {
        let within = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(Reserved { used: &self.used, bytes }),
            Err(used) => {
                let why =
                    format!("{bytes} bytes asked, {used} in use, and the limit of the resource is {}", self.limit);
                Err(Error::refused(ErrorKind::OutOfMemory, "cudaMallocFromPoolAsync", why))
            }
        }
    }
}

/// Bytes that count as used. Not any more when it is dropped: the resource behind, or what it calls to make room, may fail
/// or panic.
struct Reserved<'a> {
    used: &'a AtomicUsize,
    bytes: usize,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// SAFETY: blocks are those of the resource behind, which takes them back; the id is its own.
unsafe impl<R: DeviceMemoryResource> DeviceMemoryResource for LimitAdaptor<R> {
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        let reserved = self.reserve(bytes)?;
        let pointer = self.upstream.allocate_async_aligned(bytes, alignment, stream)?;
        mem::forget(reserved);
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
        drop(Reserved { used: &self.used, bytes });
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
