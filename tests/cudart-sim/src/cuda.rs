//! The types of the CUDA runtime and its exported functions, both from the generated bindings.
//!
//! Each bound function is exported once under its own name. Because the exports are made from the very list that
//! `cuda-mempool-sys` binds, none can be missing and none can have another signature.

#![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]

use crate::{call, exports};

/// The integer behind a C enum.
pub type c_enum = core::ffi::c_uint;

/// The bound functions as exports that do a call's bookkeeping around the implementation of the same name.
macro_rules! functions {
    ($(pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty;)*) => {
        /// Every exported function, for counters and faults.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Function { $($name),* }

        impl Function {
            /// The names, in the order of the enum.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
        }

        $(
            #[no_mangle]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $answer {
                // SAFETY: the caller keeps the contract of the C function, which is that of the implementation.
                call::exported(Function::$name, || unsafe { exports::$name($($arg),*) })
            }
        )*
    };
}

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../cuda-mempool-sys/src/bindings/cuda_13_5.rs"));

/// The default stream that synchronises with the blocking streams of its device.
pub const cudaStreamLegacy: cudaStream_t = 1 as cudaStream_t;
/// The calling thread's own default stream.
pub const cudaStreamPerThread: cudaStream_t = 2 as cudaStream_t;

impl Function {
    /// Its name in C.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The function of this name.
    pub fn named(name: &str) -> Option<usize> {
        Self::NAMES.iter().position(|known| *known == name)
    }
}
