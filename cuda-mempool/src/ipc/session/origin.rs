//! Which pool a pool is, for processes that meet it more than once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::nonce::Nonce;
use crate::ipc::pool::{ImportedPool, WeakPool};
use crate::MemPool;

/// A number for a pool of this process, the same for all sessions that share it, and never used for another pool.
///
/// The raw handle would not do: that of a destroyed pool may be given out again.
#[derive(Debug)]
pub(super) struct PoolNumber {
    number: u64,
    /// Keeps the handle from being given out again.
    pool: MemPool,
}

#[derive(Default)]
struct Numbers {
    last: u64,
    /// By raw handle: the number, and how many sessions have it.
    used: HashMap<usize, (u64, usize)>,
}

fn numbers() -> MutexGuard<'static, Numbers> {
    static NUMBERS: OnceLock<Mutex<Numbers>> = OnceLock::new();
    NUMBERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl PoolNumber {
    pub(super) fn of(pool: &MemPool) -> Self {
        let Numbers { last, used } = &mut *numbers();
        let (number, sessions) = used.entry(pool.as_raw() as usize).or_insert_with(|| {
            *last += 1;
            (*last, 0)
        });
        *sessions += 1;
        Self { number: *number, pool: pool.clone() }
    }

    pub(super) fn get(&self) -> u64 {
        self.number
    }
}

impl Drop for PoolNumber {
    fn drop(&mut self) {
        let used = &mut numbers().used;
        let raw = self.pool.as_raw() as usize;
        if let Some((_, sessions)) = used.get_mut(&raw) {
            *sessions -= 1;
            if *sessions == 0 {
                used.remove(&raw);
            }
        }
    }
}

/// A pool of another process: imported once, whoever sends it.
pub(super) fn imported<E>(
    origin: Nonce,
    number: u64,
    import: impl FnOnce() -> Result<ImportedPool, E>,
) -> Result<ImportedPool, E> {
    static POOLS: OnceLock<Mutex<HashMap<(Nonce, u64), WeakPool>>> = OnceLock::new();
    let mut pools = POOLS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&(origin, number)).and_then(WeakPool::upgrade) {
        return Ok(pool);
    }
    pools.retain(|_, pool| pool.upgrade().is_some());
    let pool = import()?;
    pools.insert((origin, number), pool.downgrade());
    Ok(pool)
}
