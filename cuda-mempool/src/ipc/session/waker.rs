//! What gets a session's keeper out of its sleep.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A descriptor that becomes readable on request.
#[derive(Debug)]
pub(super) struct Waker {
    fd: OwnedFd,
    /// The keeper will not look of its own accord.
    asleep: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just made for us.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, asleep: AtomicBool::new(false) })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn wake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        // SAFETY: writes eight bytes to an open descriptor. A counter that is full wakes as well.
        unsafe { libc::write(self.fd.as_raw_fd(), std::ptr::from_ref(&1_u64).cast(), 8) };
    }

    /// Costs a system call only when the keeper is asleep. To be called under the session's lock.
    #[inline]
    pub(super) fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Under the session's lock: says whether the keeper goes to sleep.
    pub(super) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    /// Takes the requests so far.
    pub(super) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: reads eight bytes from an open descriptor, or nothing.
        unsafe { libc::read(self.fd.as_raw_fd(), std::ptr::from_mut(&mut count).cast(), 8) };
    }
}
