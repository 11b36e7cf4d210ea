//! What C gets of a failure: a code, and a text that the thread can ask for.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_int, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

use cuda_mempool::sys::cudaError_t;

/// Why a function failed.
pub struct Failure {
    pub code: cudaError_t,
    pub text: String,
}

impl Failure {
    pub fn invalid(why: impl Into<String>) -> Self {
        Self { code: cudaError_t::cudaErrorInvalidValue, text: why.into() }
    }
}

impl From<cuda_mempool::Error> for Failure {
    fn from(error: cuda_mempool::Error) -> Self {
        Self { code: error.raw(), text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the last failure on this thread, empty if there was none. It stays until the thread's next failure.
#[no_mangle]
pub extern "C" fn cuda_mempool_last_error() -> *const c_char {
    catch_unwind(|| LAST.with_borrow(|text| text.as_ptr())).unwrap_or(c"".as_ptr())
}

/// Runs a function of the library. A failure, or a panic, is remembered for the thread.
pub fn run<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, c_int> {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { code: cudaError_t::cudaErrorUnknown, text: panicked(panic) },
    };
    Err(remember(failure))
}

fn panicked(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    // A payload may panic in its own Drop.
    std::mem::forget(panic);
    format!("this is a mistake in cuda-mempool: {text}")
}

#[cold]
fn remember(failure: Failure) -> c_int {
    let text = CString::new(failure.text.replace('\0', " ")).unwrap_or_default();
    // Where the thread is ending and has no such place any more, the text is lost.
    let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
    c_int::try_from(failure.code.0).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the text stays until the thread's next failure.
        unsafe { CStr::from_ptr(cuda_mempool_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_ends_here_as_a_failure() {
        struct Loud;
        impl Drop for Loud {
            fn drop(&mut self) {
                panic!("in the drop of a payload");
            }
        }
        let unknown = Err(cudaError_t::cudaErrorUnknown.0 as c_int);
        assert_eq!(run::<()>(|| panic!("on {}", "purpose")), unknown);
        assert_eq!(last(), "this is a mistake in cuda-mempool: on purpose");
        assert_eq!(run::<()>(|| std::panic::panic_any(Loud)), unknown);
        assert_eq!(last(), "this is a mistake in cuda-mempool: ");
    }

    #[test]
    fn each_thread_has_its_own_text() {
        assert_eq!(run::<()>(|| Err(Failure::invalid("a\0b"))), Err(1));
        assert_eq!(last(), "a b");
        assert_eq!(std::thread::spawn(last).join().unwrap(), "");
        assert_eq!(run(|| Ok(3)), Ok(3));
        assert_eq!(last(), "a b");
    }
}
