//! Events: marks in a stream.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use cuda_mempool_sys as sys;
use sys::cudaEvent_t;

use crate::current::CurrentDevice;
use crate::error::call;
use crate::stream::ready;
use crate::{teardown, Device, Error, Result, Stream};

/// A mark that a stream passes when all that was enqueued before it is done.
///
/// A handle: clones are the same event. To record it again moves the mark; a wait that is already enqueued keeps the
/// old one. Buffers order themselves without events of the user's: see [`DeviceBuffer`](crate::DeviceBuffer).
///
/// ```
/// # cuda_mempool::example::run(|device| {
/// use cuda_mempool::{Event, Stream};
/// let (first, second) = (Stream::new(device)?, Stream::new(device)?);
/// let event = Event::new(device)?;
/// event.record(&first)?;
/// second.wait(&event)?;
/// event.synchronize()?;
/// assert!(event.query()?);
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Event(Arc<Inner>);

struct Inner {
    raw: cudaEvent_t,
    device: Device,
    owned: bool,
    /// Whether what it recorded may be part of a capture, which a stream that waits for it joins.
    captured: AtomicBool,
}

impl Event {
    /// A new event without timing, the cheapest kind.
    ///
    /// # Errors
    /// When the device cannot be made current, or what `cudaEventCreateWithFlags` answers.
    #[doc(alias = "cudaEventCreateWithFlags")]
    pub fn new(device: Device) -> Result<Self> {
        Self::builder(device).build()
    }

    /// A new event with choices.
    pub fn builder(device: Device) -> EventBuilder {
        EventBuilder { device, flags: sys::cudaEventDisableTiming }
    }

    fn from_parts(raw: cudaEvent_t, device: Device, owned: bool, captured: bool) -> Self {
        teardown::watch_forks();
        Self(Arc::new(Inner { raw, device, owned, captured: AtomicBool::new(captured) }))
    }

    /// Takes over an event: it is destroyed with the last clone of the result.
    ///
    /// # Safety
    /// `raw` must be a live event of `device`, and nobody else may destroy it.
    #[must_use]
    pub unsafe fn from_raw(raw: cudaEvent_t, device: Device) -> Self {
        Self::from_parts(raw, device, true, true)
    }

    /// Uses an event that belongs to other code.
    ///
    /// # Safety
    /// `raw` must be an event of `device`, and stay alive as long as any clone of the result.
    #[must_use]
    pub unsafe fn from_raw_borrowed(raw: cudaEvent_t, device: Device) -> Self {
        Self::from_parts(raw, device, false, true)
    }

    /// The raw handle. It stays valid as long as any clone of this event.
    #[must_use]
    pub fn as_raw(&self) -> cudaEvent_t {
        self.0.captured.store(true, Ordering::Relaxed);
        self.0.raw
    }

    /// Gives the raw handle away: the caller destroys the event, if this crate would have.
    ///
    /// # Errors
    /// Gives the event back when other clones of it exist.
    pub fn into_raw(self) -> Result<cudaEvent_t, Self> {
        let inner = Arc::try_unwrap(self.0).map_err(Self)?;
        Ok(ManuallyDrop::new(inner).raw)
    }

    /// Drops this handle; when it is the last one, destroys the event and says whether that succeeded.
    ///
    /// # Errors
    /// What `cudaEventDestroy` answers, with the event.
    #[doc(alias = "cudaEventDestroy")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::into_inner(self.0) else { return Ok(()) };
        let inner = ManuallyDrop::new(inner);
        teardown::try_release("cudaEventDestroy", || inner.destroy())
            .map_err(|error| (Self(Arc::new(ManuallyDrop::into_inner(inner))), error))
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Marks what has been enqueued on `stream` so far. The stream must be of the event's device.
    ///
    /// # Errors
    /// What `cudaEventRecord` answers: [`ErrorKind::InvalidHandle`](crate::ErrorKind::InvalidHandle) for a stream of
    /// another device; or [`ErrorKind::WrongThread`](crate::ErrorKind::WrongThread).
    #[doc(alias = "cudaEventRecord")]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _current = stream.enter("cudaEventRecord")?;
        if stream.may_be_capturing() {
            self.0.captured.store(true, Ordering::Relaxed);
        }
        // SAFETY: both handles are alive.
        unsafe { call!(cudaEventRecord(self.0.raw, stream.raw())) }.map_err(|error| {
            if self.0.device == stream.device() {
                return error;
            }
            error.about(format!("the event is of {} and the stream of {}", self.0.device, stream.device()))
        })
    }

    /// Whether what it recorded last is done. An event never recorded is.
    ///
    /// # Errors
    /// What went wrong on the device before, [`ErrorKind::Capture`](crate::ErrorKind::Capture), or
    /// [`ErrorKind::NotPermitted`](crate::ErrorKind::NotPermitted) in a host function or a forked child.
    #[doc(alias = "cudaEventQuery")]
    pub fn query(&self) -> Result<bool> {
        teardown::reachable("cudaEventQuery")?;
        // SAFETY: the event is alive.
        ready(unsafe { call!(cudaEventQuery(self.0.raw)) })
    }

    /// Waits until what it recorded last is done.
    ///
    /// # Errors
    /// As [`Event::query`].
    #[doc(alias = "cudaEventSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        teardown::reachable("cudaEventSynchronize")?;
        // SAFETY: the event is alive.
        unsafe { call!(cudaEventSynchronize(self.0.raw)) }
    }

    /// The time from what `start` recorded to what this event recorded, to about half a microsecond. `None` when one of
    /// them is not done.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidHandle`](crate::ErrorKind::InvalidHandle) when one of them was made without
    /// [`timing`](EventBuilder::timing) or never recorded.
    #[doc(alias = "cudaEventElapsedTime")]
    pub fn elapsed_since(&self, start: &Self) -> Result<Option<Duration>> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and the out pointer is valid.
        let answer = unsafe { call!(cudaEventElapsedTime(&mut milliseconds, start.0.raw, self.0.raw)) };
        Ok(ready(answer)?.then(|| Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3)))
    }

    pub(crate) fn raw(&self) -> cudaEvent_t {
        self.0.raw
    }

    pub(crate) fn may_be_captured(&self) -> bool {
        self.0.captured.load(Ordering::Relaxed)
    }
}

/// Handles of one event are equal.
impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw
    }
}

impl Eq for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("raw", &self.0.raw).field("device", &self.0.device).finish_non_exhaustive()
    }
}

// SAFETY: the runtime's functions may be called with one event from several threads at once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Inner {
    fn destroy(&self) -> Result<()> {
        if !self.owned {
            return Ok(());
        }
        // SAFETY: the event is owned, and this is its last use.
        unsafe { call!(cudaEventDestroy(self.raw)) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            teardown::release("cudaEventDestroy", || self.destroy());
        }
    }
}

/// Choices for a new [`Event`].
#[derive(Debug, Clone)]
#[must_use]
pub struct EventBuilder {
    device: Device,
    flags: u32,
}

impl EventBuilder {
    fn flag(mut self, flag: u32, on: bool) -> Self {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
        self
    }

    /// Whether it keeps the time, for [`Event::elapsed_since`].
    pub fn timing(self, on: bool) -> Self {
        self.flag(sys::cudaEventDisableTiming, !on)
    }

    /// Whether [`Event::synchronize`] sleeps instead of spinning.
    pub fn blocking_sync(self, on: bool) -> Self {
        self.flag(sys::cudaEventBlockingSync, on)
    }

    /// Whether it can be shared with other processes. Excludes timing.
    ///
    /// A stream that waits for another process's event never runs again if that process dies before the event is
    /// complete. See the runtime's `cudaIpcGetEventHandle`.
    pub fn interprocess(self, on: bool) -> Self {
        self.flag(sys::cudaEventInterprocess, on)
    }

    /// Makes the event.
    ///
    /// # Errors
    /// When the device cannot be made current, or what `cudaEventCreateWithFlags` answers:
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) for an interprocess event with timing.
    #[doc(alias = "cudaEventCreateWithFlags")]
    pub fn build(self) -> Result<Event> {
        let _current = CurrentDevice::set(self.device)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaEventCreateWithFlags(&mut raw, self.flags)) }?;
        Ok(Event::from_parts(raw, self.device, true, false))
    }
}
