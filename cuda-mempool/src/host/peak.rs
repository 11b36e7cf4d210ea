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

    /// Adds unless that would pass `limit`: then says what the count is.
    pub(super) fn add_within(&self, amount: usize, limit: usize) -> Result<(), usize> {
        let within = |now: usize| now.checked_add(amount).filter(|&sum| sum <= limit);
        self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)?;
        self.highest.fetch_max(self.now(), Ordering::Relaxed);
        Ok(())
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
