//! Functions that the linker resolves (link kinds `dylib` and `static`).

/// The bound functions as one foreign block. Which library they come from is the build script's word.
macro_rules! functions {
    ($($function:tt)*) => {
        extern "C" {
            $($function)*
        }
    };
}
