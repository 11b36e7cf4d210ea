//! One stream after another, and the end of everything on a stream.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, Instant};

use cuda_mempool_sys as sys;
use sys::{cudaEvent_t, cudaStreamCaptureMode};

use crate::current::CurrentDevice;
use crate::error::{call, call_entered};
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
    if before.is_elsewhere() {
        let _usable = after.enter("cudaStreamWaitEvent")?;
        return before.device().synchronize();
    }
    with_event(before.device(), |event| {
        let _recording = before.enter("cudaEventRecord")?;
        let mark = || {
            if before.may_be_capturing() {
                after.mark_capturable();
            }
        };
        mark();
        // SAFETY: both handles are alive.
        unsafe { call_entered!(cudaEventRecord(event, before.raw())) }?;
        let _waiting = after.enter("cudaStreamWaitEvent")?;
        // SAFETY: both handles are alive.
        let answer = unsafe { call_entered!(cudaStreamWaitEvent(after.raw(), event, sys::cudaEventWaitDefault)) };
        // Other code may have begun to capture just before the event was recorded.
        mark();
        answer
    })
}

/// Lends this thread's event of `device` to `work`, which must not run code of the user's between recording it and
/// waiting for it: that may do the same.
#[inline]
fn with_event(device: Device, work: impl FnOnce(cudaEvent_t) -> Result<()>) -> Result<()> {
    let index = device.ordinal() as usize;
    let kept = EVENTS.try_with(|events| events.borrow().get(index).and_then(|event| event.as_ref().map(|it| it.raw)));
    if let Ok(Some(raw)) = kept {
        return work(raw);
    }
    let event = OrderingEvent::create(device)?;
    let raw = event.raw;
    // Where the thread ends and its events are gone, this one goes after its use.
    let mut kept_for_now = Some(event);
    let _ = EVENTS.try_with(|events| {
        let mut events = events.borrow_mut();
        if events.len() <= index {
            events.resize_with(index + 1, || None);
        }
        std::mem::swap(&mut events[index], &mut kept_for_now);
    });
    work(raw)
}

struct OrderingEvent {
    raw: cudaEvent_t,
}

impl OrderingEvent {
    #[cold]
    fn create(device: Device) -> Result<Self> {
        let _current = CurrentDevice::set(device)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaEventCreateWithFlags(&mut raw, sys::cudaEventDisableTiming)) }?;
        Ok(Self { raw })
    }
}

impl Drop for OrderingEvent {
    fn drop(&mut self) {
        // SAFETY: the event is owned, and this is its last use.
        teardown::release("cudaEventDestroy", || unsafe { call!(cudaEventDestroy(self.raw)) });
    }
}

/// Returns only when no copy that was enqueued on `stream` can run any more: the memory it borrows is free after it. (Of
/// a host function that is only so when no error is returned.) Not to be called where nothing was enqueued: then there is
/// nothing to wait for, at any price.
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
    let last = match past_captures(|| stream.synchronize()).or_else(|_| stream.device().synchronize()) {
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
            // Not `eprintln!`: it panics where nobody reads, and a panic would end the borrow.
            let _ = writeln!(
                std::io::stderr(),
                "cuda-mempool: cannot wait for work that uses borrowed memory, so the process must end: {last}"
            );
            std::process::abort();
        }
    }
}

/// Tries again for as long as a capture that other code has begun may stand in the way: the legacy stream cannot be
/// waited for while a stream is captured that synchronises with it.
fn past_captures(wait: impl Fn() -> Result<()>) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let start = Instant::now();
    loop {
        match wait() {
            Err(error) if error.kind() == ErrorKind::Capture && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer => return answer,
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
