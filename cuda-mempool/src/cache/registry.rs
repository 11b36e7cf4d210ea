//! All caches, by pool.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::store::Store;
use crate::MemPool;

static STORES: Mutex<Vec<Weak<Store>>> = Mutex::new(Vec::new());

pub(super) fn add(store: &Arc<Store>) {
    stores().push(Arc::downgrade(store));
}

pub(super) fn remove(store: &Arc<Store>) {
    stores().retain(|other| other.as_ptr() != Arc::as_ptr(store));
}

/// Has all caches of a pool give back what they have, and the pool give back what it does not use. In a capture of a cache's
/// stream a free would fail, and break the capture.
pub(super) fn flush(pool: &MemPool) {
    // Outside the lock: a cache may be dropped here, if its owner does so meanwhile.
    let of_pool: Vec<_> = stores().iter().filter_map(Weak::upgrade).filter(|store| store.pool() == pool).collect();
    for store in of_pool.iter().filter(|store| !store.is_captured()) {
        Store::flush(store);
    }
    let _ = pool.trim_to(0);
}

fn stores() -> MutexGuard<'static, Vec<Weak<Store>>> {
    STORES.lock().unwrap_or_else(PoisonError::into_inner)
}
