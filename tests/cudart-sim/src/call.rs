//! What every call of an exported function goes through: its counter, the forked child's refusal, a sticky error,
//! injected faults, and the thread's last error.

use std::cell::Cell;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cuda::{cudaError, Function};
use crate::{fault, process, Outcome};

const SUCCESS: u32 = cudaError::cudaSuccess.0;

/// How often each function was called.
static CALLS: [AtomicU64; Function::NAMES.len()] = [NO_CALL; Function::NAMES.len()];
#[allow(clippy::declare_interior_mutable_const)] // what each counter starts as
const NO_CALL: AtomicU64 = AtomicU64::new(0);

/// The error that ended the device's usefulness: every call answers it from then on.
static STICKY: AtomicU32 = AtomicU32::new(SUCCESS);

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(SUCCESS) };
}

/// Runs the implementation of an exported function with the bookkeeping of a call around it.
pub fn exported<R: Reply>(function: Function, body: impl FnOnce() -> R) -> R::Answer {
    CALLS[function as usize].fetch_add(1, Ordering::Relaxed);
    R::answer(function, body)
}

/// What an implementation gives back, and what the C caller gets for it.
pub trait Reply: Sized {
    /// The C function's return type.
    type Answer;
    /// Runs the body, or not, and makes the C answer.
    fn answer(function: Function, body: impl FnOnce() -> Self) -> Self::Answer;
}

/// An ordinary call: may be refused before it is run, and its failure becomes the thread's last error.
impl Reply for Outcome {
    type Answer = cudaError;

    fn answer(function: Function, body: impl FnOnce() -> Self) -> cudaError {
        if process::is_forked_child() {
            return in_forked_child(function);
        }
        finish(refusal(function).map_or_else(body, Err))
    }
}

/// Runs a call of a function that is not CUDA's, with the same answer to errors.
pub fn unlisted(body: impl FnOnce() -> Outcome) -> cudaError {
    if process::is_forked_child() {
        return cudaError::cudaErrorInitializationError;
    }
    finish(healthy().and_then(|()| body()))
}

fn finish(outcome: Outcome) -> cudaError {
    let Err(error) = outcome else { return cudaError::cudaSuccess };
    LAST_ERROR.set(error.0);
    error
}

/// A call that only reads what is always there: never refused, leaves the last error alone.
impl Reply for cudaError {
    type Answer = cudaError;

    fn answer(_: Function, body: impl FnOnce() -> Self) -> cudaError {
        body()
    }
}

/// As for an error: a text is always there.
impl Reply for *const c_char {
    type Answer = *const c_char;

    fn answer(_: Function, body: impl FnOnce() -> Self) -> *const c_char {
        body()
    }
}

/// A forked child has no device. Measured on an H200: its stream-ordered free answers success and does nothing.
fn in_forked_child(function: Function) -> cudaError {
    if function == Function::cudaFreeAsync {
        cudaError::cudaSuccess
    } else {
        cudaError::cudaErrorInitializationError
    }
}

/// Why a call is not run at all.
fn refusal(function: Function) -> Option<cudaError> {
    let sticky = STICKY.load(Ordering::Relaxed);
    if sticky != SUCCESS && !needs_no_device(function) {
        return Some(cudaError(sticky));
    }
    fault::injected(function)
}

/// Functions that still work after a sticky error.
fn needs_no_device(function: Function) -> bool {
    matches!(
        function,
        Function::cudaRuntimeGetVersion
            | Function::cudaDriverGetVersion
            | Function::cudaGetDeviceCount
            | Function::cudaGetDevice
            | Function::cudaGetDriverEntryPointByVersion
    )
}

/// Makes every later call answer this error.
pub fn set_sticky(error: cudaError) {
    // The first one stays, as the first cause of all that follows.
    let _ = STICKY.compare_exchange(SUCCESS, error.0, Ordering::Relaxed, Ordering::Relaxed);
}

/// The sticky error, if there is one.
pub fn healthy() -> Outcome {
    match STICKY.load(Ordering::Relaxed) {
        SUCCESS => Ok(()),
        sticky => Err(cudaError(sticky)),
    }
}

/// The thread's last error, which stays.
pub fn peek_last_error() -> cudaError {
    match STICKY.load(Ordering::Relaxed) {
        SUCCESS => cudaError(LAST_ERROR.get()),
        sticky => cudaError(sticky),
    }
}

/// The thread's last error, which is read away unless it is sticky.
pub fn take_last_error() -> cudaError {
    let error = peek_last_error();
    LAST_ERROR.set(SUCCESS);
    error
}

/// How often the function was called since the last reset.
pub fn count(function: usize) -> u64 {
    CALLS[function].load(Ordering::Relaxed)
}

/// How often any function was called since the last reset.
pub fn total() -> u64 {
    CALLS.iter().map(|calls| calls.load(Ordering::Relaxed)).sum()
}

/// Forgets the counters, the sticky error and this thread's last error.
pub fn reset() {
    for calls in &CALLS {
        calls.store(0, Ordering::Relaxed);
    }
    STICKY.store(SUCCESS, Ordering::Relaxed);
    LAST_ERROR.set(SUCCESS);
}
