//! The system's memory as a source that counts, and fails on demand.

use std::alloc::{alloc, dealloc, Layout};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use crate::host::source::Source;
use crate::{Error, ErrorKind, Result};

#[derive(Default)]
pub(super) struct System {
    /// Length of every block that is out, by address.
    out: Mutex<BTreeMap<usize, usize>>,
    /// How many takes succeed before all fail; 0 is no limit.
    fail_after: AtomicUsize,
    takes: AtomicUsize,
}

impl System {
    pub(super) fn out(&self) -> usize {
        self.out.lock().unwrap().values().sum()
    }

    /// How many blocks have been taken.
    pub(super) fn takes(&self) -> usize {
        self.takes.load(Ordering::SeqCst)
    }

    /// Lets no further take succeed.
    pub(super) fn run_dry(&self) {
        self.fail_after.store(self.takes().max(1), Ordering::SeqCst);
    }

    pub(super) fn recover(&self) {
        self.fail_after.store(0, Ordering::SeqCst);
    }
}

// SAFETY: the system's memory is valid and aligned as asked.
unsafe impl Source for System {
    /// As weak as a source may be, so that over-aligned large blocks are put to the test.
    const ALIGN: usize = 32;

    fn take(&self, len: usize) -> Result<NonNull<u8>> {
        let refused = || Error::refused(ErrorKind::OutOfMemory, "take", "the test's source is dry");
        let fail_after = self.fail_after.load(Ordering::SeqCst);
        // Sanitizers do not let the system refuse what no machine has.
        if len > 1 << 40 || (fail_after != 0 && self.takes() >= fail_after) {
            return Err(refused());
        }
        let layout = Layout::from_size_align(len, Self::ALIGN).map_err(|_| refused())?;
        // SAFETY: the arena takes whole steps, never nothing.
        let block = NonNull::new(unsafe { alloc(layout) }).ok_or_else(refused)?;
        self.takes.fetch_add(1, Ordering::SeqCst);
        self.out.lock().unwrap().insert(block.as_ptr() as usize, len);
        Ok(block)
    }

    unsafe fn give(&self, block: NonNull<[u8]>) -> bool {
        let start = block.cast::<u8>().as_ptr();
        let len = self.out.lock().unwrap().remove(&(start as usize));
        assert_eq!(len, Some(block.len()), "only what was taken can be given back, and once");
        // SAFETY: the block is out with this layout.
        unsafe { dealloc(start, Layout::from_size_align_unchecked(block.len(), Self::ALIGN)) };
        true
    }

    fn trim(&self) -> Result<()> {
        Ok(())
    }
}

impl Drop for System {
    fn drop(&mut self) {
        assert_eq!(self.out(), 0, "an arena gives everything back when it is dropped");
    }
}
