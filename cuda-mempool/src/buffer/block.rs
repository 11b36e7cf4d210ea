//! The memory behind a buffer, and who gets it back.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::cache::Store;
use crate::error::call_entered;
use crate::resource::DeviceMemoryResource;
use crate::{teardown, Error, ErrorKind, Result, Stream};

/// Memory with the stream that all work on it is ordered on. To drop it is to leak it: it must be given back.
#[derive(Debug)]
pub(crate) struct Block {
    /// What the allocation answered; null when nothing is allocated.
    pub(crate) base: *mut c_void,
    pub(crate) stream: Stream,
    pub(crate) home: Home,
}

/// Who gets the memory of a [`DeviceBuffer`](crate::DeviceBuffer) back.
#[derive(Clone)]
pub struct Home(Kind);

#[derive(Clone)]
enum Kind {
    Runtime,
    /// A cache, which was asked for this many bytes.
    Cache(Arc<Store>, usize),
    Resource(Box<Lent>),
}

#[derive(Clone)]
struct Lent {
    resource: ManuallyDrop<Arc<dyn DeviceMemoryResource + Send + Sync>>,
    bytes: usize,
    alignment: usize,
}

const FREE: &str = "cudaFreeAsync";

impl Home {
    /// The runtime, by `cudaFreeAsync` on the buffer's stream.
    pub const RUNTIME: Self = Self(Kind::Runtime);

    /// Whether it is the runtime.
    #[must_use]
    pub fn is_runtime(&self) -> bool {
        matches!(self.0, Kind::Runtime)
    }

    #[inline]
    pub(crate) fn cache(store: Arc<Store>, bytes: usize) -> Self {
        Self(Kind::Cache(store, bytes))
    }

    pub(crate) fn resource(
        resource: Arc<dyn DeviceMemoryResource + Send + Sync>,
        bytes: usize,
        alignment: usize,
    ) -> Self {
        Self(Kind::Resource(Box::new(Lent { resource: ManuallyDrop::new(resource), bytes, alignment })))
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::RUNTIME
    }
}

impl Block {
    pub(crate) const fn none(stream: Stream) -> Self {
        Self { base: std::ptr::null_mut(), stream, home: Home::RUNTIME }
    }

    /// Gives the memory back, in the order of the stream.
    ///
    /// # Safety
    /// The memory must come from where the home says, and not be used nor given back again.
    pub(crate) unsafe fn give_back(self) -> Result<(), (Self, Error)> {
        // SAFETY: the caller's promise.
        unsafe { self.try_give_back() }.map_err(|error| (self, error))
    }

    /// Gives the memory back, as Drop does: the hook is told of a failure, and the memory is leaked.
    ///
    /// # Safety
    /// As for [`give_back`](Self::give_back), and the block must not be used nor dropped again.
    #[inline]
    pub(crate) unsafe fn release(block: &mut ManuallyDrop<Self>) {
        // SAFETY: the caller's promise, also below. A cache that took the block back has its handles too.
        if unsafe { block.put_back() } {
            return;
        }
        // SAFETY: as above.
        if let Err(error) = unsafe { block.try_give_back() } {
            teardown::report(&error);
        }
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(block) };
    }

    /// Gives the memory back to a cache, where that is quickly done. When it says so, the block must be forgotten.
    ///
    /// # Safety
    /// As for [`give_back`](Self::give_back).
    #[inline]
    unsafe fn put_back(&self) -> bool {
        let Kind::Cache(store, bytes) = &self.home.0 else { return false };
        // SAFETY: the caller's promise.
        NonNull::new(self.base).is_some_and(|base| unsafe { Store::put(store, &self.stream, base, *bytes) })
    }

    /// # Safety
    /// As for [`give_back`](Self::give_back), if the answer is a success.
    #[inline]
    unsafe fn try_give_back(&self) -> Result<()> {
        let Some(base) = NonNull::new(self.base) else { return Ok(()) };
        match &self.home.0 {
            // SAFETY: the caller's promise, here and below.
            Kind::Runtime => teardown::try_release(FREE, || unsafe { free(base, &self.stream) }),
            // SAFETY: as above.
            Kind::Cache(store, bytes) => unsafe { Store::give_back(store, &self.stream, base, *bytes) },
            // SAFETY: as above.
            Kind::Resource(lent) => teardown::try_release(FREE, || unsafe { lent.give_back(base, &self.stream) }),
        }
    }
}

impl Lent {
    /// A resource may be anybody's code, and Drop does not panic.
    ///
    /// # Safety
    /// `base` must have been lent, and not be used nor given back again.
    unsafe fn give_back(&self, base: NonNull<c_void>, stream: &Stream) -> Result<()> {
        let mut answer = Ok(());
        let contained = teardown::contain(|| {
            // SAFETY: it was asked for with these numbers.
            answer = unsafe { self.resource.deallocate_async_aligned(base, self.bytes, self.alignment, stream) };
        });
        match contained {
            Ok(()) => answer,
            Err(teardown::Panicked) => {
                Err(Error::refused(ErrorKind::Other, FREE, "the memory resource panicked when it got memory back"))
            }
        }
    }
}

/// With the last buffer the resource itself may end, whose Drop may be anybody's code, too.
impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let resource = unsafe { ManuallyDrop::take(&mut self.resource) };
        if teardown::contain(|| drop(resource)).is_err() {
            teardown::report(&Error::refused(ErrorKind::Other, FREE, "the memory resource panicked when it ended"));
        }
    }
}

/// Frees memory of the runtime, in the order of a stream.
///
/// # Safety
/// `base` must be an allocation of the runtime that is not freed again. All work on it must be ordered on `stream`.
#[inline]
pub(crate) unsafe fn free(base: NonNull<c_void>, stream: &Stream) -> Result<()> {
    if stream.is_elsewhere() {
        // SAFETY: the caller's promise.
        return unsafe { free_from_afar(base, stream) };
    }
    let _current = stream.enter(FREE)?;
    // SAFETY: the caller's promise.
    unsafe { call_entered!(cudaFreeAsync(base.as_ptr(), stream.raw())) }
}

/// Another thread's per-thread stream cannot be reached: its work is waited for instead.
///
/// # Safety
/// As for [`free`].
#[cold]
unsafe fn free_from_afar(base: NonNull<c_void>, stream: &Stream) -> Result<()> {
    let device = stream.device();
    device.synchronize()?;
    let own = Stream::per_thread(device);
    let _current = own.enter(FREE)?;
    // SAFETY: the caller's promise; the work is done, so any stream will do.
    unsafe { call_entered!(cudaFreeAsync(base.as_ptr(), own.raw())) }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Runtime => f.write_str("Home::RUNTIME"),
            Kind::Cache(store, bytes) => {
                f.debug_struct("Home").field("cache", &Arc::as_ptr(store)).field("bytes", bytes).finish()
            }
            Kind::Resource(lent) => f
                .debug_struct("Home")
                .field("resource", &lent.resource.id())
                .field("bytes", &lent.bytes)
                .field("alignment", &lent.alignment)
                .finish(),
        }
    }
}
