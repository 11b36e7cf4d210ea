//! One stream after another, and the end of everything on a stream.

use std::cell::RefCell;

use cuda_mempool_sys as sys;
use sys::{cudaEvent_t, cudaStreamCaptureMode};

use crate::current::CurrentDevice;
use crate::error::call;
use crate::{teardown, Device, Error, ErrorKind, Result, Stream};

thread_local! {
    /// One event per device and thread. A wait keeps what the event recorded at the time of the call, so the event can
    /// record anew at once, and nothing is ever made or destroyed to order two streams.
    static EVENTS: RefCell<Vec<Option<OrderingEvent>>> = const { RefCell::new(Vec::new()) };
}

/// Orders all that is enqueued on `after` from now on after all that was enqueued on `before` so far.
#[inline]
pub(crate) fn order(before: &Stream, after: &Stream) -> Result<()> {
    if before == after {
        return Ok(());
    }
    order_distinct(before, after)
}

fn order_distinct(before: &Stream, after: &Stream) -> Result<()> {
    let _usable = after.enter("cudaStreamWaitEvent")?;
    if before.is_elsewhere() {
        return before.device().synchronize();
    }
    let event = OrderingEvent::take(before.device())?;
    if before.may_be_capturing() {
        after.mark_capturable();
    }
    let answer = event.record(before).and_then(|()| event.wait(after));
    event.put_back();
    answer
}

struct OrderingEvent {
    raw: cudaEvent_t,
    device: Device,
}

impl OrderingEvent {
    /// Out of the cache, so that whatever runs meanwhile on this thread (a hook) cannot record it.
    fn take(device: Device) -> Result<Self> {
        let cached = EVENTS
            .try_with(|events| events.borrow_mut().get_mut(device.ordinal() as usize).and_then(Option::take))
            .ok()
            .flatten();
        match cached {
            Some(event) => Ok(event),
            None => Self::create(device),
        }
    }

    #[cold]
    fn create(device: Device) -> Result<Self> {
        let _current = CurrentDevice::set(device)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaEventCreateWithFlags(&mut raw, sys::cudaEventDisableTiming)) }?;
        Ok(Self { raw, device })
    }

    /// Into the cache, or destroyed where that cannot be.
    fn put_back(self) {
        let index = self.device.ordinal() as usize;
        let mut event = Some(self);
        let _ = EVENTS.try_with(|events| {
            let mut events = events.borrow_mut();
            if events.len() <= index {
                events.resize_with(index + 1, || None);
            }
            std::mem::swap(&mut events[index], &mut event);
        });
    }

    fn record(&self, stream: &Stream) -> Result<()> {
        let _current = stream.enter("cudaEventRecord")?;
        // SAFETY: both handles are alive.
        unsafe { call!(cudaEventRecord(self.raw, stream.raw())) }
    }

    fn wait(&self, stream: &Stream) -> Result<()> {
        let _current = stream.enter("cudaStreamWaitEvent")?;
        // SAFETY: both handles are alive.
        unsafe { call!(cudaStreamWaitEvent(stream.raw(), self.raw, sys::cudaEventWaitDefault)) }
    }
}

impl Drop for OrderingEvent {
    fn drop(&mut self) {
        // SAFETY: the event is owned, and this is its last use.
        teardown::release("cudaEventDestroy", || unsafe { call!(cudaEventDestroy(self.raw)) });
    }
}

/// Returns only when nothing that was enqueued on `stream` can run any more: borrowed memory is free after it. Not to be
/// called where nothing was enqueued: then there is nothing to wait for, at any price.
///
/// An error says that something went wrong, not that something may still run. When the end cannot be had at all, the
/// process is aborted: to return would be to let the device write to memory that is used again.
pub(crate) fn settle(stream: &Stream) -> Result<()> {
    if teardown::forked() {
        return Ok(());
    }
    match stream.synchronize() {
        Ok(()) => Ok(()),
        Err(error) => settle_after(stream, error),
    }
}

#[cold]
fn settle_after(stream: &Stream, error: Error) -> Result<()> {
    // A capture in global mode on another thread forbids waiting, unless this thread is in relaxed mode.
    let _relaxed = RelaxedCapture::enter();
    let last = match stream.synchronize().or_else(|_| stream.device().synchronize()) {
        Ok(()) => return Err(error),
        Err(last) => last,
    };
    match last.kind() {
        // The driver stops a broken context's work before it reports the fault, and reports it for ever.
        ErrorKind::DeviceFault => Err(error),
        // The process is ending, on another thread: the one that ends it does not come back to a frame that has work
        // enqueued. Whether that work is done cannot be asked any more, so the memory it uses must stay borrowed.
        ErrorKind::Unloading => loop {
            std::thread::park();
        },
        _ => {
            eprintln!("cuda-mempool: cannot wait for work that uses borrowed memory, so the process must end: {last}");
            std::process::abort();
        }
    }
}

/// This thread's capture mode set to relaxed, until it is dropped.
pub(crate) struct RelaxedCapture {
    previous: cudaStreamCaptureMode,
}

impl RelaxedCapture {
    pub(crate) fn enter() -> Option<Self> {
        let mut mode = cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        // SAFETY: the pointer is valid for reading and writing.
        unsafe { call!(cudaThreadExchangeStreamCaptureMode(&mut mode)) }.ok()?;
        Some(Self { previous: mode })
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        // SAFETY: the pointer is valid for reading and writing.
        if let Err(error) = unsafe { call!(cudaThreadExchangeStreamCaptureMode(&mut self.previous)) } {
            teardown::report(&error);
        }
    }
}
