//! Streams: queues of work on a device.

mod host_fn;
mod order;
mod running;
mod scope;

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use cuda_mempool_sys as sys;
use sys::{cudaError_t, cudaStreamCaptureStatus, cudaStream_t};

use crate::current::CurrentDevice;
use crate::error::call;
use crate::{teardown, Device, Error, ErrorKind, Event, Result};

pub(crate) use order::{order, settle, RelaxedCapture};
pub use scope::Scope;

/// A queue of work on one device, which runs in order.
///
/// A handle: clones are the same stream, and the stream is destroyed with the last of them. Work that was enqueued still
/// runs then. A [`DeviceBuffer`](crate::DeviceBuffer) keeps its stream.
///
/// Handles can be used from several threads at once. What one thread enqueues keeps its order; between threads the order
/// is that of the calls, as for any queue.
///
/// ```
/// # cuda_mempool::example::run(|device| {
/// use cuda_mempool::Stream;
/// let stream = Stream::new(device)?;
/// stream.synchronize()?;
/// assert!(stream.query()?);
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

/// The devices that ever had a stream here, as bits: the last is for all from the 63rd on.
static DEVICES: AtomicU64 = AtomicU64::new(0);

fn bit(device: Device) -> u64 {
    1 << device.ordinal().clamp(0, 63)
}

/// The devices that ever had a stream here, where alone memory can have been used and freed.
pub(crate) fn devices() -> Vec<Device> {
    let had = DEVICES.load(Ordering::Relaxed);
    Device::all().into_iter().flatten().filter(|&device| had & bit(device) != 0).collect()
}

struct Inner {
    raw: cudaStream_t,
    device: Device,
    kind: Kind,
    owned: bool,
    /// Known to have no ties to the legacy default stream.
    independent: bool,
    /// Whether a capture of this stream may have begun: that takes its raw handle, or a wait for an event of a stream
    /// of which that is true.
    capturable: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The handle says all: calls with it need no current device.
    Explicit,
    /// The current device's default stream, whichever that is at the call.
    Legacy,
    /// The default stream of the current device and the calling thread. The number is that of the thread meant.
    PerThread(u64),
}

impl Stream {
    /// A new stream that does not synchronise with the legacy default stream.
    ///
    /// # Errors
    /// When the device cannot be made current, or what `cudaStreamCreateWithFlags` answers.
    #[doc(alias = "cudaStreamCreateWithFlags")]
    pub fn new(device: Device) -> Result<Self> {
        Self::builder(device).build()
    }

    /// A new stream with choices.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::Stream;
    /// let (_least, greatest) = device.stream_priorities()?;
    /// let urgent = Stream::builder(device).priority(greatest).build()?;
    /// # Ok(()) });
    /// ```
    pub fn builder(device: Device) -> StreamBuilder {
        StreamBuilder { device, flags: sys::cudaStreamNonBlocking, priority: None }
    }

    /// The legacy default stream of `device`, which synchronises with all of its blocking streams.
    ///
    /// What it means depends on the current device, so each call with it sets that and puts it back: prefer a stream of
    /// your own.
    #[must_use]
    #[doc(alias = "cudaStreamLegacy")]
    pub fn legacy(device: Device) -> Self {
        Self::from_parts(sys::cudaStreamLegacy, device, Kind::Legacy, false)
    }

    /// The default stream that `device` has for the calling thread alone.
    ///
    /// The raw handle means another stream on each thread. So this one, and what belongs to it, can be sent to other
    /// threads but not be used there: operations answer [`ErrorKind::WrongThread`]. Two things do work elsewhere, both
    /// by waiting until the device is idle: dropping a buffer, and moving it to another stream with
    /// [`set_stream`](crate::DeviceBuffer::set_stream).
    #[must_use]
    #[doc(alias = "cudaStreamPerThread")]
    pub fn per_thread(device: Device) -> Self {
        Self::from_parts(sys::cudaStreamPerThread, device, Kind::PerThread(thread_number()), false)
    }

    fn from_parts(raw: cudaStream_t, device: Device, kind: Kind, owned: bool) -> Self {
        teardown::watch_forks();
        DEVICES.fetch_or(bit(device), Ordering::Relaxed);
        // Only a stream made here has a handle that nobody else knows.
        let capturable = AtomicBool::new(!owned);
        Self(Arc::new(Inner { raw, device, kind, owned, independent: false, capturable }))
    }

    /// Takes over a stream: it is destroyed with the last clone of the result.
    ///
    /// # Safety
    /// `raw` must be a live stream of `device`, made by `cudaStreamCreate` or one of its variants, and nobody else may
    /// destroy it.
    #[must_use]
    pub unsafe fn from_raw(raw: cudaStream_t, device: Device) -> Self {
        let stream = Self::from_parts(raw, device, Kind::Explicit, true);
        stream.0.capturable.store(true, Ordering::Relaxed);
        stream
    }

    /// Uses a stream that belongs to other code. Null means the legacy default stream, as in the C functions without
    /// the suffix `_ptsz`; the special handles are recognised.
    ///
    /// # Safety
    /// `raw` must be a stream of `device`, and stay alive as long as any clone of the result, any buffer that belongs
    /// to it included.
    #[must_use]
    pub unsafe fn from_raw_borrowed(raw: cudaStream_t, device: Device) -> Self {
        match raw {
            sys::cudaStreamPerThread => Self::per_thread(device),
            _ if raw.is_null() || raw == sys::cudaStreamLegacy => Self::legacy(device),
            _ => Self::from_parts(raw, device, Kind::Explicit, false),
        }
    }

    /// The raw handle. It stays valid as long as any clone of this stream.
    ///
    /// From then on, allocation on this stream asks each time whether it is being captured. Code that begins a capture by
    /// this handle must see to it that no other thread uses the stream at that moment, as that may look just before.
    #[must_use]
    pub fn as_raw(&self) -> cudaStream_t {
        self.0.capturable.store(true, Ordering::Relaxed);
        self.0.raw
    }

    /// Gives the raw handle away: the caller destroys the stream, if this crate would have.
    ///
    /// # Errors
    /// Gives the stream back when other clones of it exist, such as those that buffers hold.
    pub fn into_raw(self) -> Result<cudaStream_t, Self> {
        let inner = Arc::try_unwrap(self.0).map_err(Self)?;
        Ok(ManuallyDrop::new(inner).raw)
    }

    /// Drops this handle; when it is the last one, destroys the stream and says whether that succeeded.
    ///
    /// # Errors
    /// What `cudaStreamDestroy` answers, with the stream.
    #[doc(alias = "cudaStreamDestroy")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::into_inner(self.0) else { return Ok(()) };
        let inner = ManuallyDrop::new(inner);
        teardown::try_release("cudaStreamDestroy", || inner.destroy())
            .map_err(|error| (Self(Arc::new(ManuallyDrop::into_inner(inner))), error))
    }

    /// The device that it belongs to.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Waits until all that was enqueued so far is done.
    ///
    /// # Errors
    /// What went wrong on the device before, [`ErrorKind::Capture`] when the stream is being captured, or
    /// [`ErrorKind::WrongThread`].
    #[doc(alias = "cudaStreamSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.enter("cudaStreamSynchronize")?;
        // SAFETY: the stream is alive.
        unsafe { call!(cudaStreamSynchronize(self.raw())) }
    }

    /// Whether all that was enqueued so far is done.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    #[doc(alias = "cudaStreamQuery")]
    pub fn query(&self) -> Result<bool> {
        let _current = self.enter("cudaStreamQuery")?;
        // SAFETY: the stream is alive.
        ready(unsafe { call!(cudaStreamQuery(self.raw())) })
    }

    /// Whether nothing is left that work enqueued now would have to wait for. Never yes for a stream that the legacy default
    /// stream may hold up: a query does not tell of that. The stream must not be in a capture.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_surely_idle(&self) -> bool {
        // While another thread captures in global mode, only a relaxed thread may ask.
        self.0.independent && RelaxedCapture::enter().is_some_and(|_relaxed| self.query().unwrap_or(false))
    }

    /// Has what is enqueued from now on wait for what `event` recorded last. For an event that never recorded there
    /// is no wait.
    ///
    /// # Errors
    /// What `cudaStreamWaitEvent` answers, or [`ErrorKind::WrongThread`].
    #[doc(alias = "cudaStreamWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _current = self.enter("cudaStreamWaitEvent")?;
        let mark = || {
            if event.may_be_captured() {
                self.mark_capturable();
            }
        };
        mark();
        // SAFETY: both handles are alive.
        let answer = unsafe { call!(cudaStreamWaitEvent(self.raw(), event.raw(), sys::cudaEventWaitDefault)) };
        // Another thread may have recorded it in a capture just before the wait.
        mark();
        answer
    }

    /// Has what is enqueued from now on wait for all that was enqueued on `other` so far.
    ///
    /// # Errors
    /// What recording and waiting answer, or [`ErrorKind::WrongThread`].
    #[doc(alias = "cudaEventRecord")]
    #[doc(alias = "cudaStreamWaitEvent")]
    pub fn join(&self, other: &Self) -> Result<()> {
        order(other, self)
    }

    /// Whether it is being captured into a graph.
    ///
    /// # Errors
    /// What `cudaStreamIsCapturing` answers, or [`ErrorKind::WrongThread`].
    #[doc(alias = "cudaStreamIsCapturing")]
    pub fn is_capturing(&self) -> Result<bool> {
        let _current = self.enter("cudaStreamIsCapturing")?;
        let mut status = cudaStreamCaptureStatus::cudaStreamCaptureStatusNone;
        // SAFETY: the stream is alive and the out pointer valid.
        unsafe { call!(cudaStreamIsCapturing(self.raw(), &mut status)) }?;
        Ok(status != cudaStreamCaptureStatus::cudaStreamCaptureStatusNone)
    }

    #[inline]
    pub(crate) fn raw(&self) -> cudaStream_t {
        self.0.raw
    }

    /// Whether both are clones of one handle. Quicker to tell than whether they are equal.
    #[inline]
    pub(crate) fn is_handle_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Goes before every call on the stream: refuses where it must not be made (a per-thread stream of another thread, a
    /// host function, a forked child), and makes the device current for the handles that need it.
    #[inline]
    pub(crate) fn enter(&self, function: &'static str) -> Result<Option<CurrentDevice>> {
        teardown::reachable(function)?;
        match self.0.kind {
            Kind::Explicit => Ok(None),
            Kind::Legacy | Kind::PerThread(_) => self.enter_default(function).map(Some),
        }
    }

    /// Out of line, as calls on streams with a handle of their own need none of it.
    #[inline(never)]
    fn enter_default(&self, function: &'static str) -> Result<CurrentDevice> {
        if self.is_elsewhere() {
            return Err(Error::refused(
                ErrorKind::WrongThread,
                function,
                "a per-thread stream can only be used on the thread that asked for it",
            ));
        }
        CurrentDevice::set(self.0.device)
    }

    /// Whether this is a per-thread stream of another thread, which cannot be reached from here.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.0.kind, Kind::PerThread(thread) if thread != thread_number())
    }

    pub(crate) fn may_be_capturing(&self) -> bool {
        self.0.capturable.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_capturable(&self) {
        self.0.capturable.store(true, Ordering::Relaxed);
    }

    /// Refuses what must not get into a graph. The stream must have been entered.
    #[inline]
    pub(crate) fn refuse_capture(&self, function: &'static str, why: &'static str) -> Result<()> {
        if self.may_be_capturing() && self.is_capturing()? {
            return Err(Error::refused(ErrorKind::Capture, function, why));
        }
        Ok(())
    }
}

/// Handles of one stream are equal.
impl PartialEq for Stream {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw && self.0.kind == other.0.kind && self.0.device == other.0.device
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("raw", &self.0.raw).field("device", &self.0.device).finish_non_exhaustive()
    }
}

// SAFETY: the runtime's functions may be called with one stream from several threads at once. The handles that mean
// another stream on another thread carry the number of theirs, which `enter` checks.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Inner {
    fn destroy(&self) -> Result<()> {
        if !self.owned {
            return Ok(());
        }
        // SAFETY: the stream is owned, and this is its last use.
        unsafe { call!(cudaStreamDestroy(self.raw)) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            teardown::release("cudaStreamDestroy", || self.destroy());
        }
    }
}

/// Choices for a new [`Stream`].
#[derive(Debug, Clone)]
#[must_use]
pub struct StreamBuilder {
    device: Device,
    flags: u32,
    priority: Option<i32>,
}

impl StreamBuilder {
    /// Its priority: smaller is more urgent. Values outside [`Device::stream_priorities`] are clamped by the runtime.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Whether it synchronises with the legacy default stream. By default it does not.
    pub fn blocking(mut self, blocking: bool) -> Self {
        self.flags = if blocking { sys::cudaStreamDefault } else { sys::cudaStreamNonBlocking };
        self
    }

    /// Makes the stream.
    ///
    /// # Errors
    /// When the device cannot be made current, or what the runtime answers.
    #[doc(alias = "cudaStreamCreateWithPriority")]
    pub fn build(self) -> Result<Stream> {
        let _current = CurrentDevice::set(self.device)?;
        let mut raw = std::ptr::null_mut();
        match self.priority {
            // SAFETY: the out pointer is valid, and any priority may be asked for.
            Some(priority) => unsafe { call!(cudaStreamCreateWithPriority(&mut raw, self.flags, priority)) },
            // SAFETY: the out pointer is valid.
            None => unsafe { call!(cudaStreamCreateWithFlags(&mut raw, self.flags)) },
        }?;
        let mut stream = Stream::from_parts(raw, self.device, Kind::Explicit, true);
        if let Some(inner) = Arc::get_mut(&mut stream.0) {
            inner.independent = self.flags == sys::cudaStreamNonBlocking;
        }
        Ok(stream)
    }
}

/// Reads the answer of a query.
pub(crate) fn ready(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.raw() == cudaError_t::cudaErrorNotReady => Ok(false),
        Err(error) => Err(error),
    }
}

/// A number that no other thread of this process ever had. Works in destructors of thread-locals too.
#[inline]
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
