//! A stream kept busy for as long as a fact needs it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::guards::Stream;

/// Holds up a stream until it is opened or dropped.
///
/// Made of a host function. A runtime may run those of all streams on one thread, so only one gate at a time is sure
/// to be a gate of its own.
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// The stream runs nothing that comes after this until the gate opens.
    #[track_caller]
    pub fn close(stream: &Stream) -> Self {
        let open = Arc::new(AtomicBool::new(false));
        let theirs = Arc::into_raw(Arc::clone(&open)).cast_mut().cast();
        ok!(cudaLaunchHostFunc(stream.raw(), Some(hold), theirs));
        Self(open)
    }

    pub fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Opens the gate later, from another thread: for calls that might wait for it.
    pub fn open_after(&self, delay: Duration) {
        let open = Arc::clone(&self.0);
        thread::spawn(move || {
            thread::sleep(delay);
            open.store(true, Ordering::Release);
        });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

unsafe extern "C" fn hold(open: *mut c_void) {
    // SAFETY: the pointer is a count of the gate's flag, given to this one call.
    let open = unsafe { Arc::from_raw(open.cast_const().cast::<AtomicBool>()) };
    while !open.load(Ordering::Acquire) {
        thread::sleep(Duration::from_micros(50));
    }
}
