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
//!
//! # Which toolkit a build finds
//!
//! The first of these places counts that has `cuda_runtime_api.h` and, of the same version, the library for the link
//! kind:
//!
//! 1. `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT` with the target before the name (`AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME`),
//! 2. the same without the target,
//! 3. pkg-config's `cudart-MAJOR.MINOR`, the newest known version first,
//! 4. `/usr/local/cuda`, `/usr/local/cuda-MAJOR.MINOR`, `/opt/cuda`,
//! 5. `CONDA_PREFIX`, `/usr` (Debian's packages),
//! 6. NVIDIA's PyPI packages in `VIRTUAL_ENV` or `CONDA_PREFIX`.
//!
//! Below a root the layouts `targets/<arch>-linux` (`sbsa-linux` before Tegra's `aarch64-linux`), `include` with `lib64`
//! or `lib`, and Debian's are known. A library for another architecture and one in a stub directory are never taken, and
//! nothing links `libcuda`. A toolkit newer than the newest bindings is used through those, with a warning. Cargo's `-vv`
//! shows what was chosen and why the places before were not; a build that cannot go on says so for all places. A toolkit
//! that is installed later is noticed when the crate is built anew or one of the variables changes.
//!
//! With `dlopen` the program looks for its library when the first function is called: the one named by
//! `CUDA_MEMPOOL_CUDART`; else one that the process has already; else the names `libcudart.so.13`, `.12` and `.11.0` as
//! the system resolves them; else the places above, except pkg-config. A set-uid program heeds none of the variables.
//!
//! | variable | when | what it does |
//! |---|---|---|
//! | `CUDA_MEMPOOL_LINK` | build | the link kind: `dylib`, `static` or `dlopen` |
//! | `CUDA_MEMPOOL_CUDA_VERSION` | build | the version of the bindings, such as `12.4`; only a toolkit of that version is then linked |
//! | `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT` | build, run | the root of a toolkit |
//! | `CUDA_MEMPOOL_CUDART` | run | the library to load, and no other |
//!
//! # Features
//!
//! - `static`, `dlopen`: the link kind, where `CUDA_MEMPOOL_LINK` is not set. If both are on, `dlopen` is taken: features
//!   add up over a whole program, and adding one must not make a build fail that worked.
//! - `bindgen`: make the bindings from the headers of the toolkit found, which takes libclang. With `dlopen` too.
//!
//! # For build scripts of dependants
//!
//! Cargo hands these to the build script of a package that depends on this one directly, as
//! `DEP_CUDA_MEMPOOL_CUDART_<KEY>`:
//!
//! | key | value |
//! |---|---|
//! | `LINK` | the link kind |
//! | `VERSION`, `VERSION_NUMBER` | the version of the bindings: `13.0`, `13000` |
//! | `KNOWN`, `SINCE` | all versions that have bindings, and those that `VERSION` has reached: `11_8,12_0,…` |
//! | `BINDINGS` | the file with the bindings |
//! | `ROOT`, `INCLUDE`, `LIB_DIR`, `LIBRARY`, `TOOLKIT_VERSION` | the toolkit found and the file of its library, for C code; with `dlopen` each may be absent, and the version need not be that of the bindings |
//!
//! This makes cfgs `cuda_since_13_0` ("at least 13.0") of them:
//!
//! ```no_run
//! for (list, before, after) in [("KNOWN", "check-cfg=cfg(", ")"), ("SINCE", "cfg=", "")] {
//!     let versions = std::env::var(format!("DEP_CUDA_MEMPOOL_CUDART_{list}")).unwrap();
//!     for version in versions.split(',') {
//!         println!("cargo:rustc-{before}cuda_since_{version}{after}");
//!     }
//! }
//! ```
//!
//! A program of link kind `dylib` finds its library as any other does, by the loader's path; its own build script may
//! add `LIB_DIR` to the run path.
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
