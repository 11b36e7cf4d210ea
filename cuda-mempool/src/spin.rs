//! A lock for critical sections of a few nanoseconds.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A test-and-set lock: one atomic exchange to take it, a plain store to give it back, which is half of what a mutex
/// that can put threads to sleep takes. A waiter spins for a while and then yields, so that a holder which lost its
/// core gets on.
pub(crate) struct RawSpin(AtomicBool);

/// A value behind a [`RawSpin`].
pub(crate) type Spin<T> = lock_api::Mutex<RawSpin, T>;

impl RawSpin {
    #[cold]
    fn lock_contended(&self) {
        /// About as many as a short section takes whose holder keeps its core.
        const SPINS: u32 = 200;
        let mut waited = 0;
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                if waited < SPINS {
                    waited += 1;
                    hint::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
        }
    }
}

// SAFETY: the exchange in `lock` and `try_lock` lets one caller at a time see `false`, and only `unlock`, which the
// holder alone calls, stores `false` again.
unsafe impl lock_api::RawMutex for RawSpin {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicBool::new(false));

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if self.0.swap(true, Ordering::Acquire) {
            self.lock_contended();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        const THREADS: usize = 8;
        const TURNS: usize = 10_000;
        let lock = Spin::new((0_usize, 0_usize));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TURNS {
                        let mut pair = lock.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        hint::black_box(&mut *pair);
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (THREADS * TURNS, THREADS * TURNS));
    }
}
