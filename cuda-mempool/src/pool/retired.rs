//! The end of pools: at once when all of their memory is back, and later when it is not.
//!
//! CUDA allows a pool to be destroyed at any time. But a driver (580.159, on an H200) crashed or hung, then or in later
//! calls, when buffers of the pool were alive or their frees had not been synchronised, on the default streams above all.
//! So such a pool waits here, without handles and keeping nothing, until it has no memory from the system any more: it
//! gives that back when the host waits for the frees, not when their streams get to them (as measured there).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_mempool_sys as sys;
use sys::{cudaError_t, cudaMemPoolAttr, cudaMemPool_t};

use super::attributes::{set_word_of, word_of};
use super::{access, places, Location};
use crate::error::call;
use crate::stream::{self, RelaxedCapture};
use crate::{teardown, Device, Error, ErrorKind, Result};

/// What pools take from the system at a time (as measured): with less beside what is allocated, nothing comes back.
const STEP: u64 = 32 << 20;

struct Retired {
    raw: cudaMemPool_t,
    location: Location,
    /// Whether it could not be asked the last time, which the hook was told.
    told: bool,
    /// How much of it was allocated when devices were last waited for on its account.
    used_at_wait: u64,
}

// SAFETY: the runtime's functions may be called with one pool from any thread.
unsafe impl Send for Retired {}

static RETIRED: Mutex<Vec<Retired>> = Mutex::new(Vec::new());
/// How many there are, to be asked without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Destroys a pool, or has it wait for its memory. What fails beside that is added to `asides`. An error says that neither
/// was done.
///
/// # Safety
/// The pool must be owned, and this its last use.
pub(super) unsafe fn end(raw: cudaMemPool_t, location: Location, asides: &mut Vec<Error>) -> Result<()> {
    let mut pool = Retired { raw, location, told: false, used_at_wait: u64::MAX };
    // First of all: until then, plain `cudaMallocAsync` on any thread may allocate from it.
    let left = places::leave(raw, location);
    match pool.is_empty() {
        Ok(true) => {
            asides.extend(left.err());
            return pool.destroy(asides);
        }
        Ok(false) => {}
        Err(error) if error.kind() == ErrorKind::DeviceFault => return Err(error),
        Err(error) => {
            asides.push(error);
            pool.told = true;
        }
    }
    asides.extend(pool.keep_nothing().err());
    asides.extend(left.err());
    let mut retired = list();
    retired.push(pool);
    COUNT.store(retired.len(), Ordering::Relaxed);
    Ok(())
}

/// Destroys those whose memory is back by now, and gives up those whose context is broken.
pub(crate) fn sweep() {
    if COUNT.load(Ordering::Relaxed) == 0 || teardown::reachable("cudaMemPoolDestroy").is_err() {
        return;
    }
    let mut failures = Vec::new();
    {
        let mut retired = list();
        retired.retain_mut(|pool| match pool.is_empty() {
            Ok(true) => {
                let destroyed = pool.destroy(&mut failures);
                failures.extend(destroyed.err());
                false
            }
            Ok(false) => {
                pool.told = false;
                true
            }
            Err(error) => {
                let lost = error.kind() == ErrorKind::DeviceFault;
                if !std::mem::replace(&mut pool.told, true) {
                    failures.push(error);
                }
                !lost
            }
        });
        COUNT.store(retired.len(), Ordering::Relaxed);
    }
    // Outside the lock: the hook may be anybody's code.
    failures.iter().for_each(teardown::report);
}

/// Tries an allocation again, which was refused with `error` at `location` for a stream of `device`, if waiting may get
/// memory of ended pools back: memory that is free, but not synchronised. Waits for those two devices, and for others only
/// when all of an ended pool's memory is free and still not back.
pub(crate) fn reclaim<R>(
    location: Location,
    device: Device,
    mut error: Error,
    take: impl Fn() -> Result<R>,
) -> Result<R> {
    let freed = freed_since_waited();
    if freed.is_empty() {
        return Err(error);
    }
    let _relaxed = RelaxedCapture::enter();
    let mut waited = true;
    let mut take_after = |device: Device| {
        if device.synchronize().is_err() {
            waited = false;
            return None;
        }
        match take() {
            Err(again) if again.raw() == cudaError_t::cudaErrorMemoryAllocation => {
                error = again;
                None
            }
            answer => Some(answer),
        }
    };
    let near = [Some(device), location.owner().filter(|&owner| owner != device)];
    if let Some(answer) = near.into_iter().flatten().find_map(&mut take_after) {
        return answer;
    }
    if anything_is_free_at(location) {
        let mut others = stream::devices().into_iter().filter(|&other| !near.contains(&Some(other)));
        if let Some(answer) = others.find_map(take_after) {
            return answer;
        }
    }
    if waited {
        for pool in list().iter_mut() {
            if let Some(&(_, used)) = freed.iter().find(|(raw, _)| *raw == pool.raw) {
                pool.used_at_wait = used;
            }
        }
    }
    Err(error)
}

/// The pools of which something was freed since devices were waited for, with what is allocated of them. One whose other
/// buffers live on is waited for once, not whenever memory is short.
fn freed_since_waited() -> Vec<(cudaMemPool_t, u64)> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    let freed = |pool: &Retired| {
        let used = pool.used().ok().filter(|&used| used < pool.used_at_wait)?;
        (used == 0 || pool.reserved().ok()?.saturating_sub(used) >= STEP).then_some((pool.raw, used))
    };
    list().iter().filter_map(freed).collect()
}

/// Whether a pool whose memory is of the same kind has nothing allocated.
fn anything_is_free_at(location: Location) -> bool {
    list().iter().any(|pool| pool.location.owner() == location.owner() && matches!(pool.used(), Ok(0)))
}

fn list() -> MutexGuard<'static, Vec<Retired>> {
    RETIRED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Retired {
    /// Whether nothing of it is allocated, and every free has been waited for.
    fn is_empty(&self) -> Result<bool> {
        if self.used()? > 0 {
            return Ok(false);
        }
        self.trim()?;
        Ok(self.reserved()? == 0)
    }

    fn reserved(&self) -> Result<u64> {
        word_of(self.raw, cudaMemPoolAttr::cudaMemPoolAttrReservedMemCurrent)
    }

    fn used(&self) -> Result<u64> {
        word_of(self.raw, cudaMemPoolAttr::cudaMemPoolAttrUsedMemCurrent)
    }

    /// Gives back what can be given back now, and has what is freed later go back when it is waited for.
    fn keep_nothing(&self) -> Result<()> {
        let lowered = set_word_of(self.raw, cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold, 0);
        lowered.and(self.trim())
    }

    fn trim(&self) -> Result<()> {
        // SAFETY: the pool is alive. Only memory that nobody uses is given back.
        unsafe { call!(cudaMemPoolTrimTo(self.raw, 0)) }
    }

    fn destroy(&self, asides: &mut Vec<Error>) -> Result<()> {
        asides.extend(access::clear(self.raw, self.location).err());
        // SAFETY: the pool is owned, and nothing of it is in use.
        unsafe { call!(cudaMemPoolDestroy(self.raw)) }
    }
}
