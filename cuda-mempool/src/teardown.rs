//! How things end: what Drop may do, and where its failures go.

use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::{Error, ErrorKind, Result};

/// Set in a forked child, where the handles of the parent mean nothing and no call may be made.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Set while a host function runs: CUDA must not be called from there.
    static IN_HOST_FN: Cell<bool> = const { Cell::new(false) };
    /// Set while a failure is told: what is dropped by whom it is told may fail, too, and so on without end.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Has the forked children of this process marked. Everything that later needs releasing calls this when it is made.
pub(crate) fn watch_forks() {
    #[cfg(unix)]
    {
        static WATCH: Once = Once::new();
        extern "C" fn in_child() {
            FORKED.store(true, Ordering::Relaxed);
        }
        WATCH.call_once(|| {
            // SAFETY: the handler only stores to an atomic, which is allowed in a forked child.
            let answer = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            if answer != 0 {
                log::warn!("forked children cannot be told from their parent: pthread_atfork answers {answer}");
            }
        });
    }
}

#[inline]
pub(crate) fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Set when the process has begun to exit.
static EXITING: AtomicBool = AtomicBool::new(false);
/// How many threads of this crate's own are doing something that may call CUDA.
static IN_BACKGROUND: AtomicUsize = AtomicUsize::new(0);

/// Has the exit of this process wait for what runs [in the background](in_background). Whoever starts a thread that outlives
/// its caller calls this first, when CUDA has been called: exit handlers run in the reverse of their order.
pub(crate) fn watch_exit() {
    static WATCH: Once = Once::new();
    extern "C" fn at_exit() {
        /// What takes longer waits for the device, and is left to its fate.
        const PATIENCE: Duration = Duration::from_secs(1);
        EXITING.store(true, Ordering::SeqCst);
        let started = Instant::now();
        // A forked child has none of its parent's threads.
        while !forked() && IN_BACKGROUND.load(Ordering::SeqCst) > 0 && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    WATCH.call_once(|| {
        // SAFETY: the handler may run at any time: it touches atomics alone.
        if unsafe { libc::atexit(at_exit) } != 0 {
            log::warn!("the exit of the process will not wait for sessions that are being closed");
        }
    });
}

/// Whether the process has begun to exit: threads of this crate's own do nothing any more.
pub(crate) fn exiting() -> bool {
    EXITING.load(Ordering::SeqCst)
}

/// Runs a piece of work of a thread of this crate's own. When the process exits it is waited for, and none begins any more:
/// the driver takes itself apart then, and crashes when it is called meanwhile.
pub(crate) fn in_background<R>(work: impl FnOnce() -> R) -> R {
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            IN_BACKGROUND.fetch_sub(1, Ordering::SeqCst);
        }
    }
    IN_BACKGROUND.fetch_add(1, Ordering::SeqCst);
    let running = Running;
    if exiting() {
        drop(running);
        loop {
            std::thread::park();
        }
    }
    work()
}

/// Runs a host function: CUDA is out of reach meanwhile, and its panics end here.
pub(crate) fn in_host_fn(run: impl FnOnce()) {
    IN_HOST_FN.set(true);
    if contain(run).is_err() {
        let _ = contain(|| log::error!("a host function panicked"));
    }
    IN_HOST_FN.set(false);
}

/// Where a panic ends.
pub(crate) struct Panicked;

/// Runs code of the user's where no panic may get out.
pub(crate) fn contain(run: impl FnOnce()) -> Result<(), Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        // It may panic in its own Drop.
        std::mem::forget(payload);
        Panicked
    })
}

/// Refuses what a forked child or a host function must not call.
#[inline]
pub(crate) fn reachable(function: &'static str) -> Result<()> {
    if forked() || IN_HOST_FN.get() {
        return Err(out_of_reach(function));
    }
    Ok(())
}

#[cold]
fn out_of_reach(function: &'static str) -> Error {
    let why = if forked() {
        "this is a forked child, in which the handles of its parent mean nothing"
    } else {
        "a host function must not call CUDA"
    };
    Error::refused(ErrorKind::NotPermitted, function, why)
}

/// Releases what a value holds, as `close` does. In a forked child and at the end of the process there is nothing to do.
///
/// `function` is the C function that would be called.
#[inline]
pub(crate) fn try_release(function: &'static str, release: impl FnOnce() -> Result<()>) -> Result<()> {
    if forked() {
        return Ok(());
    }
    match reachable(function).and_then(|()| release()) {
        Err(error) if error.kind() == ErrorKind::Unloading => Ok(()),
        answer => answer,
    }
}

/// Releases what a value holds, as Drop does: the hook is told of a failure, and what is held is leaked.
#[inline]
pub(crate) fn release(function: &'static str, release: impl FnOnce() -> Result<()>) {
    if let Err(error) = try_release(function, release) {
        report(&error);
    }
}

type Hook = dyn Fn(&Error) + Send + Sync;

static HOOK: RwLock<Option<Arc<Hook>>> = RwLock::new(None);

/// Sets what is told of failures that a `Drop` cannot return. The default logs them as errors through the `log` crate.
///
/// Drop never panics: neither do panics of the hook get out. After such a failure, what the value held is leaked. That
/// the process is ending (`cudaErrorCudartUnloading`) is no failure and not told. Where the outcome matters, use the
/// type's `close`.
///
/// The hook runs on the dropping thread, and must not assume that CUDA can be called. It is not told of failures of what it
/// drops itself.
pub fn on_drop_error(hook: impl Fn(&Error) + Send + Sync + 'static) {
    let hook: Arc<Hook> = Arc::new(hook);
    let before = HOOK.write().unwrap_or_else(PoisonError::into_inner).replace(hook);
    // Outside the lock: its Drop may be anybody's code.
    drop(before);
}

/// Tells the hook of a failure that nothing can return. That the process is ending is none.
#[cold]
pub(crate) fn report(error: &Error) {
    if error.kind() == ErrorKind::Unloading {
        return;
    }
    if TELLING.replace(true) {
        return;
    }
    let hook = HOOK.read().unwrap_or_else(PoisonError::into_inner).clone();
    let _ = contain(|| match hook {
        Some(hook) => hook(error),
        None => log::error!("while dropping: {error}"),
    });
    TELLING.set(false);
}
