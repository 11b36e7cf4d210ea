//! A count that remembers its highest value.

use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct Peak {
    now: AtomicUsize,
    highest: AtomicUsize,
}

impl Peak {
    pub(super) fn add(&self, amount: usize) {
        let now = self.now.fetch_add(amount, Ordering::Relaxed) + amount;
        self.highest.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, amount: usize) {
        self.now.fetch_sub(amount, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    pub(super) fn highest(&self) -> usize {
        self.highest.load(Ordering::Relaxed)
    }
}
