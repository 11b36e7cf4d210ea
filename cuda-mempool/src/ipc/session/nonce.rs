//! What tells processes apart: their ids do not, across namespaces.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A random number that one process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// This process's. A forked child has its own.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn of_this_process() -> io::Result<Self> {
        static OWNER: AtomicU32 = AtomicU32::new(0);
        static NONCE: Mutex<Option<Nonce>> = Mutex::new(None);
        let process = std::process::id();
        let mut nonce = NONCE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nonce) = nonce.filter(|_| OWNER.load(Ordering::Relaxed) == process) {
            return Ok(nonce);
        }
        let fresh = Self::random()?;
        OWNER.store(process, Ordering::Relaxed);
        *nonce = Some(fresh);
        Ok(fresh)
    }

    fn random() -> io::Result<Self> {
        let mut bytes = [0_u8; 16];
        loop {
            // SAFETY: the buffer has the length that is given.
            let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
            if filled == bytes.len() as isize {
                return Ok(Self(bytes));
            }
            let error = io::Error::last_os_error();
            if filled < 0 && error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_one() {
        let nonce = Nonce::of_this_process().expect("the system has random numbers");
        assert_eq!(Nonce::of_this_process().ok(), Some(nonce));
        assert_ne!(Nonce::random().ok(), Some(nonce));
    }
}
