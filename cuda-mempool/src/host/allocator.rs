//! The handle that collections hold.

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::arena::Arena;
use super::backing::Backing;
use super::{NumaAllocatorBuilder, Stats};
use crate::{teardown, Access, Device, Error, ErrorKind, Location, MemPool, Result};

/// An allocator of pinned memory on a NUMA node of the host.
///
/// A handle: clones are one allocator, and equal. Every collection holds one, so the memory outlives what is in it: it
/// goes when the last handle goes, and then nothing can be left in it. Only blocks allocated through the trait by hand
/// can be forgotten; a build with debug assertions logs a warning then. (A collection that is leaked leaks its handle as
/// well, and the memory stays.)
///
/// Handles can be used from all threads. A forked child can neither allocate nor touch the memory, and dropping a
/// collection there frees nothing. (Collections other than [`PinnedBox`](super::PinnedBox) touch it to drop elements that
/// have a `Drop`: forget those.)
///
/// A thread-local capture on another thread is not disturbed. One in global mode can be: on an H200 with driver 580.159
/// it was, by each call of an allocator that reaches the driver. [Prime](Self::prime) before such a capture begins.
///
/// See the [module](crate::host) for how it works.
#[derive(Clone)]
pub struct NumaAllocator(Arc<Inner>);

struct Inner {
    arena: Arena<Backing>,
    last_error: Mutex<Option<Error>>,
}

impl NumaAllocator {
    /// Starts to describe a new allocator.
    pub fn builder() -> NumaAllocatorBuilder {
        NumaAllocatorBuilder::new()
    }

    pub(super) fn over(arena: Arena<Backing>) -> Self {
        Self(Arc::new(Inner { arena, last_error: Mutex::default() }))
    }

    /// Where the memory lies.
    #[must_use]
    pub fn location(&self) -> Location {
        self.0.arena.source().location()
    }

    /// The pool that the memory comes from; `None` for [registered](NumaAllocatorBuilder::registered) memory. It is this
    /// allocator's alone; access can be granted and taken away here.
    #[must_use]
    pub fn pool(&self) -> Option<&MemPool> {
        self.0.arena.source().pool()
    }

    /// What kernels of a device may do with the memory.
    ///
    /// # Errors
    /// As [`MemPool::access`], or as [`Device::attribute`] for registered memory.
    #[doc(alias = "cudaMemPoolGetAccess")]
    pub fn access(&self, device: Device) -> Result<Access> {
        self.0.arena.source().access(device)
    }

    /// Bytes that it has from the system, in use or kept.
    ///
    /// # Errors
    /// As [`MemPool::usage`], and [`ErrorKind::NotPermitted`] in a forked child.
    pub fn reserved(&self) -> Result<usize> {
        refuse_in_child()?;
        self.0.arena.source().reserved()
    }

    /// How many bytes a chunk has.
    #[must_use]
    pub fn chunk_size(&self) -> usize {
        self.0.arena.limits().chunk
    }

    /// How many bytes are taken from the pool at most.
    #[must_use]
    pub fn cap(&self) -> usize {
        self.0.arena.limits().cap
    }

    /// Gets memory from the system ahead of time, on several threads at once, and keeps it until [`trim`](Self::trim): the
    /// next allocations, up to so many bytes that are free in all, then find it there.
    ///
    /// That is worth some tenths of a second a GiB, and most with [registered](NumaAllocatorBuilder::registered) memory: see
    /// [there](crate::host#registered-memory).
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] when the cap leaves less, or the system has less; else as
    /// [`MemPool::alloc`]. Some may be there then.
    pub fn prime(&self, bytes: usize) -> Result<()> {
        refuse_in_child()?;
        // No machine has more than that, and what is rounded up from there does not overflow.
        let most = self.cap().min(isize::MAX as usize);
        let left = most.saturating_sub(self.stats().taken_bytes);
        if bytes > left {
            let why = format!("{bytes} bytes are more than the cap leaves: {left} of {most}");
            return Err(Error::refused(ErrorKind::OutOfMemory, "cudaMallocFromPoolAsync", why));
        }
        self.0.arena.source().prime(bytes)
    }

    /// Gives everything that is free back to the system: what the threads have in stock, the chunks that are empty then,
    /// and what the pool keeps. Says how many bytes of chunks that were.
    ///
    /// # Errors
    /// What synchronising and trimming answer. What was free is back in the pool then.
    #[doc(alias = "cudaMemPoolTrimTo")]
    pub fn trim(&self) -> Result<usize> {
        refuse_in_child()?;
        self.0.arena.trim()
    }

    /// What it holds and has handed out. Visits all threads' stocks, so not for every call. In a forked child, which has
    /// nothing of that, all is zero.
    #[must_use]
    pub fn stats(&self) -> Stats {
        // In a forked child, locks that others held stay held.
        if teardown::forked() {
            return Stats::default();
        }
        self.0.arena.stats()
    }

    /// Whether an address is in memory that this allocator has taken from its pool, free or not. In a forked child none is.
    #[must_use]
    pub fn contains<T: ?Sized>(&self, address: *const T) -> bool {
        // As above.
        !teardown::forked() && self.0.arena.contains(address.cast::<u8>() as usize)
    }

    /// The NUMA node that an address is on. `None` when it is not [in](Self::contains) this allocator, or when the
    /// allocator is on [`Location::Host`].
    #[must_use]
    pub fn node_of<T: ?Sized>(&self, address: *const T) -> Option<u32> {
        match self.location() {
            Location::HostNuma(node) if self.contains(address) => Some(node),
            _ => None,
        }
    }

    /// Whether this is a forked child, which has inherited the handle but not the memory.
    #[must_use]
    #[inline]
    pub fn is_inherited(&self) -> bool {
        teardown::forked()
    }

    /// Hands out a block of at least the layout's size, with its true length, as the traits do. Its contents are unspecified.
    /// Zero bytes take no memory.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], of the system or by the cap, [`ErrorKind::NotPermitted`] in a forked child, or what the
    /// runtime answers.
    #[inline]
    pub fn try_allocate(&self, layout: Layout) -> Result<NonNull<[u8]>> {
        refuse_in_child()?;
        self.0.arena.allocate(layout)
    }

    /// Makes a block longer or shorter, or aligns it otherwise, in place where that can be. As much of its contents as fits
    /// stays. On failure the old block is as it was.
    ///
    /// # Errors
    /// As [`try_allocate`](Self::try_allocate).
    ///
    /// # Safety
    /// The block must be one of this allocator's, by whatever way it was had, and fit the old layout. On success it is gone.
    pub unsafe fn try_resize(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>> {
        refuse_in_child()?;
        // SAFETY: passed on to the caller.
        unsafe { self.0.arena.resize(block, old, new) }
    }

    /// Takes a block back. In a forked child it does nothing.
    ///
    /// # Safety
    /// The block must be one of this allocator's, by whatever way it was had, and fit the layout, and not be used any more.
    #[inline]
    pub unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        if !teardown::forked() {
            // SAFETY: passed on to the caller.
            unsafe { self.0.arena.deallocate(block, layout) };
        }
    }

    /// Why an allocation through a trait failed last, on any thread; the traits' own error does not say, and
    /// [`try_allocate`](Self::try_allocate) does. Asking again answers `None`, as it does in a forked child.
    pub fn take_last_error(&self) -> Option<Error> {
        // A lock that another thread held at the fork stays held.
        if teardown::forked() {
            return None;
        }
        self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The address of `data` for kernels on `device`. A kernel without access breaks the device's context for good, so
    /// this refuses instead.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] when `data` is not in this allocator, [`ErrorKind::NotPermitted`] when `device` may
    /// not access it (it was not [granted](NumaAllocatorBuilder::grant)), or what asking for its access answers.
    #[doc(alias = "cudaMemPoolGetAccess")]
    pub fn device_ptr<T>(&self, device: Device, data: &[T]) -> Result<*const T> {
        self.require_access(device, data, |access| matches!(access, Access::Read | Access::ReadWrite))?;
        Ok(data.as_ptr())
    }

    /// As [`device_ptr`](Self::device_ptr), for kernels that write.
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "cudaMemPoolGetAccess")]
    pub fn device_mut_ptr<T>(&self, device: Device, data: &mut [T]) -> Result<*mut T> {
        self.require_access(device, data, |access| access == Access::ReadWrite)?;
        Ok(data.as_mut_ptr())
    }

    fn require_access<T>(&self, device: Device, data: &[T], enough: impl Fn(Access) -> bool) -> Result<()> {
        const FUNCTION: &str = "cudaMemPoolGetAccess";
        if std::mem::size_of_val(data) > 0 && !self.contains(data.as_ptr()) {
            let why = "the data is not in this allocator's memory";
            return Err(Error::refused(ErrorKind::InvalidValue, FUNCTION, why));
        }
        match self.access(device)? {
            access if enough(access) => Ok(()),
            access => {
                let why = format!("kernels of {device} have no such access (it is {access:?}): grant it");
                Err(Error::refused(ErrorKind::NotPermitted, FUNCTION, why))
            }
        }
    }

    #[cfg(any(feature = "nightly", feature = "allocator-api2"))]
    pub(super) fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>> {
        let block = self.try_allocate(layout)?;
        // SAFETY: a fresh block is the caller's for its whole length.
        unsafe { block.cast::<u8>().as_ptr().write_bytes(0, block.len()) };
        Ok(block)
    }

    /// Remembers why a trait's method fails.
    #[cfg(any(feature = "nightly", feature = "allocator-api2"))]
    #[cold]
    pub(super) fn note(&self, error: Error) {
        // A lock that another thread held at the fork stays held.
        if teardown::forked() {
            return;
        }
        let before = self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
        drop(before);
    }
}

/// A forked child does not have the memory, through which free blocks are linked.
#[inline]
fn refuse_in_child() -> Result<()> {
    if teardown::forked() {
        teardown::reachable("cudaMallocFromPoolAsync")?;
    }
    Ok(())
}

/// Clones are equal, and nothing else is.
impl PartialEq for NumaAllocator {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for NumaAllocator {}

impl fmt::Debug for NumaAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NumaAllocator").field("location", &self.location()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !teardown::forked() {
            let stats = self.arena.stats();
            if stats.live_blocks > 0 {
                // The logger may be anybody's code.
                let _ = teardown::contain(|| {
                    log::warn!(
                        "{} blocks of {} bytes were never freed, and are lost with the last handle of their allocator",
                        stats.live_blocks,
                        stats.live_bytes
                    );
                });
            }
        }
    }
}
