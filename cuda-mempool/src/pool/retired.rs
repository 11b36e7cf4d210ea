//! The end of pools: at once when all of their memory is back, and later when it is not.
//!
//! CUDA allows a pool to be destroyed at any time. But a driver (580.159, on an H200) crashed or hung, then or in later
//! calls, when buffers of the pool were alive or their frees had not been synchronised, on the default streams above all.
//! So such a pool waits here, without handles and keeping nothing, until it has no memory from the system any more: it
//! gives that back when the host waits for the frees, not when their streams get to them (as measured there).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_mempool_sys as sys;
use sys::{cudaMemPoolAttr, cudaMemPool_t};

use super::attributes::{set_word_of, word_of};
use super::{access, places, Location};
use crate::error::call;
use crate::stream::RelaxedCapture;
use crate::{teardown, Device, Error, ErrorKind, Result};

struct Retired {
    raw: cudaMemPool_t,
    location: Location,
    /// Whether it could not be asked the last time, which the hook was told.
    told: bool,
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
    let mut pool = Retired { raw, location, told: false };
    match pool.is_empty() {
        Ok(true) => return pool.destroy(asides),
        Ok(false) => {}
        Err(error) if error.kind() == ErrorKind::DeviceFault => return Err(error),
        Err(error) => {
            asides.push(error);
            pool.told = true;
        }
    }
    asides.extend(pool.keep_nothing().err());
    asides.extend(places::leave(raw, location).err());
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

/// Waits for a device, if that may get memory of ended pools back: memory that is free, but not synchronised. Says whether
/// it has waited.
pub(super) fn reclaim(device: Device) -> bool {
    if COUNT.load(Ordering::Relaxed) == 0 || !list().iter().any(|pool| matches!(pool.used(), Ok(0))) {
        return false;
    }
    let _relaxed = RelaxedCapture::enter();
    device.synchronize().is_ok()
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
        Ok(word_of(self.raw, cudaMemPoolAttr::cudaMemPoolAttrReservedMemCurrent)? == 0)
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
