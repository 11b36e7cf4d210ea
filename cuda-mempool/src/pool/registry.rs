//! The pools that this crate will destroy, by raw handle.
//!
//! When the runtime names a pool (as a device's current one), this tells whether it is one of ours, and keeps it from
//! being destroyed between the runtime's answer and the new handle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cuda_mempool_sys::cudaMemPool_t;

use super::Inner;

type Pools = HashMap<usize, Weak<Inner>>;

fn pools() -> MutexGuard<'static, Option<Pools>> {
    static POOLS: Mutex<Option<Pools>> = Mutex::new(None);
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add(raw: cudaMemPool_t, pool: &Arc<Inner>) {
    pools().get_or_insert_with(HashMap::new).insert(raw as usize, Arc::downgrade(pool));
}

pub(super) fn remove(raw: cudaMemPool_t) {
    if let Some(pools) = pools().as_mut() {
        pools.remove(&(raw as usize));
    }
}

/// Runs `destroy` with nobody able to find the pool, which is out of the registry afterwards.
pub(super) fn while_removing<R>(raw: cudaMemPool_t, destroy: impl FnOnce() -> R) -> R {
    let mut pools = pools();
    let result = destroy();
    if let Some(pools) = pools.as_mut() {
        pools.remove(&(raw as usize));
    }
    result
}

/// What the runtime's answer is to this crate.
pub(super) enum Found {
    Ours(Arc<Inner>),
    /// Ours, about to be destroyed by another thread.
    Dying,
    NotOurs(cudaMemPool_t),
}

/// Looks the pool up that `ask` gets from the runtime, while none of ours can be destroyed.
pub(super) fn find<E>(ask: impl FnOnce() -> Result<cudaMemPool_t, E>) -> Result<Found, E> {
    let pools = pools();
    let raw = ask()?;
    Ok(match pools.as_ref().and_then(|pools| pools.get(&(raw as usize))) {
        None => Found::NotOurs(raw),
        Some(pool) => pool.upgrade().map_or(Found::Dying, Found::Ours),
    })
}
