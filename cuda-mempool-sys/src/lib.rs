//! Raw bindings to the part of the CUDA runtime that memory pools need.
//!
//! The functions have the same path and signature however they are reached:
//!
//! | link kind | needs at build time | needs at run time |
//! |---|---|---|
//! | `dylib` | a toolkit with `libcudart.so` | that library |
//! | `static` | a toolkit with `libcudart_static.a` | nothing |
//! | `dlopen` | nothing | any `libcudart.so` of CUDA 11 to 13 |
//!
//! The environment variable `CUDA_MEMPOOL_LINK` chooses, else the features `static` and `dlopen`, else `dylib` is taken
//! when a toolkit is found and `dlopen` when not. [`runtime`] tells what the program ended up with.
//!
//! C enums are transparent structs with associated constants, so a value that a newer driver returns is never undefined
//! behaviour:
//!
//! ```
//! use cuda_mempool_sys::cudaError_t;
//! let unknown = cudaError_t(12345);
//! assert_ne!(unknown, cudaError_t::cudaSuccess);
//! ```
//!
//! What differs between the supported CUDA versions (11.8 to 13.5) is hidden where that is possible:
//! [`cudaMemLocation`], [`cudaMemPoolProps`] and [`cudaMemAccessDesc`] have constructors and accessors that mean the
//! same under every version. Functions and constants that a version lacks are not there under its bindings; the
//! build script's metadata tells dependants which version that is.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

mod drift;
#[cfg(cuda_link = "dlopen")]
mod libraries;
#[cfg(cuda_link = "dlopen")]
mod places;
mod runtime;

#[cfg(cuda_link = "dlopen")]
#[macro_use]
mod dlopen;
#[cfg(not(cuda_link = "dlopen"))]
#[macro_use]
mod linked;

pub use bindings::*;
pub use runtime::{runtime, LinkKind, LoadError, Runtime};

/// The integer behind a C enum: its sign is the C compiler's choice.
#[cfg(windows)]
pub type c_enum = core::ffi::c_int;
/// The integer behind a C enum: its sign is the C compiler's choice.
#[cfg(not(windows))]
pub type c_enum = core::ffi::c_uint;

/// The default stream that synchronises with all blocking streams of its device.
///
/// A macro with a cast in the headers, so not in the generated bindings.
pub const cudaStreamLegacy: cudaStream_t = 1 as cudaStream_t;

/// The calling thread's own default stream: one constant that means a different stream on every thread.
///
/// A macro with a cast in the headers, so not in the generated bindings.
pub const cudaStreamPerThread: cudaStream_t = 2 as cudaStream_t;

/// What bindgen made of the headers, with the functions as the link kind wants them.
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod bindings {
    use super::c_enum;
    #[cfg(cuda_link = "dlopen")]
    use super::dlopen;

    include!(env!("CUDA_MEMPOOL_BINDINGS"));
}

// An explicit item wins over the glob import above.
#[cfg(all(cuda_link = "dlopen", not(cuda_since_13_0)))]
pub use dlopen::cudaPointerGetAttributes;
