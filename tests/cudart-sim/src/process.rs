//! What becomes of the simulator when its process forks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

static FORKED: AtomicBool = AtomicBool::new(false);

/// Whether this process is the forked child of one that had used the runtime before: it cannot use it any more.
pub fn is_forked_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// From now on a forked child is told apart. Its parent's threads are gone and its locks may be held for ever, so
/// nothing but the flag may be touched there.
pub fn watch_for_forks() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is allowed in a forked child.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        assert_eq!(failed, 0, "no memory for a fork handler");
    });
}

/// Ends the process as a real runtime would, but says why.
pub fn segmentation_fault(why: &str) -> ! {
    eprintln!("cudart-sim: segmentation fault: {why}");
    // SAFETY: the default action of the signal is to end the process.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::raise(libc::SIGSEGV);
    }
    std::process::abort()
}
