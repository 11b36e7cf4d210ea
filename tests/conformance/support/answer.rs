//! Raw calls, and assertions on what they answer.

use std::ffi::CStr;

use cuda_mempool_sys::cudaError_t;

/// Makes a raw call.
///
/// One place for the `unsafe` of all tests: they pass valid out pointers, and as memory what the runtime handed out
/// or an address that it must refuse without using it.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: what this macro's documentation demands of the tests.
        unsafe { cuda_mempool_sys::$function($($argument),*) }
    }};
}

/// Makes a raw call and asserts its answer, one of those listed, and that a failure is the thread's last error.
/// The last error is clear afterwards.
///
/// `answers!(cudaFreeAsync(interior, stream.raw()) => cudaErrorInvalidValue);`
macro_rules! answers {
    ($function:ident($($argument:expr),* $(,)?) => $($expected:ident)|+) => {
        $crate::support::answer::check(
            concat!(stringify!($function), "(", stringify!($($argument),*), ")"),
            cu!($function($($argument),*)),
            &[$(cuda_mempool_sys::cudaError_t::$expected),+],
        )
    };
}

/// Makes a raw call that must succeed.
macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {
        answers!($function($($argument),*) => cudaSuccess)
    };
}

/// Makes a raw call, clears the last error and gives what was answered: for questions and for clean-up.
macro_rules! ask {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let answer = cu!($function($($argument),*));
        $crate::support::answer::clear_last_error();
        answer
    }};
}

#[track_caller]
pub fn check(call: &str, answer: cudaError_t, expected: &[cudaError_t]) {
    let last = cu!(cudaPeekAtLastError());
    clear_last_error();
    if !expected.contains(&answer) {
        let expected: Vec<_> = expected.iter().map(|e| name(*e)).collect();
        panic!("{call}\n  answered {}\n  expected {}", name(answer), expected.join(" or "));
    }
    if answer != cudaError_t::cudaSuccess {
        assert!(last == answer, "{call}\n  answered {}\n  but left as last error {}", name(answer), name(last));
    }
}

pub fn clear_last_error() {
    cu!(cudaGetLastError());
}

/// The runtime's name for an error, with its number.
pub fn name(error: cudaError_t) -> String {
    let name = cu!(cudaGetErrorName(error));
    // SAFETY: the runtime answers with a C string that lives as long as itself.
    let name = unsafe { CStr::from_ptr(name) };
    format!("{} ({})", name.to_string_lossy(), error.0)
}

/// The runtime's description of an error.
pub fn text(error: cudaError_t) -> String {
    let text = cu!(cudaGetErrorString(error));
    // SAFETY: the runtime answers with a C string that lives as long as itself.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
