//! Which runtime library the program uses, and why there is none.

use core::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
#[cfg(not(cuda_link = "dlopen"))]
use std::sync::OnceLock;

/// How the functions of this crate reach the CUDA runtime; chosen when the crate is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// The shared library, resolved by the linker.
    Dylib,
    /// The static library, part of the program.
    Static,
    /// The shared library, loaded by the first call.
    Dlopen,
}

impl LinkKind {
    /// The link kind of this build.
    pub const CURRENT: Self = if cfg!(cuda_link = "dylib") {
        Self::Dylib
    } else if cfg!(cuda_link = "static") {
        Self::Static
    } else {
        Self::Dlopen
    };
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dylib => "dylib",
            Self::Static => "static",
            Self::Dlopen => "dlopen",
        })
    }
}

/// The CUDA runtime that this program uses.
#[derive(Debug)]
pub struct Runtime {
    pub(crate) version: c_int,
    pub(crate) path: Option<PathBuf>,
}

impl Runtime {
    /// How it is reached.
    pub fn link(&self) -> LinkKind {
        LinkKind::CURRENT
    }

    /// Its version as `cudaRuntimeGetVersion` gives it: 1000 × major + 10 × minor, 13000 for 13.0.
    ///
    /// 0 for a runtime of CUDA 11 where there is no driver, as that one cannot tell its version without.
    pub fn version(&self) -> c_int {
        self.version
    }

    /// The file it lies in (the program's own for a static runtime), where the system tells.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// Finds the runtime, loading it if that is the link kind and no call has done so yet.
///
/// # Errors
/// With `dlopen`, when no library of a supported version could be loaded. That is settled by the first call, for the
/// life of the process: from then on every function answers with the same error 303
/// (`cudaErrorSharedObjectInitFailed`). A linked runtime is always there.
pub fn runtime() -> Result<&'static Runtime, &'static LoadError> {
    #[cfg(cuda_link = "dlopen")]
    return crate::dlopen::runtime();
    #[cfg(not(cuda_link = "dlopen"))]
    {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        Ok(RUNTIME.get_or_init(|| {
            let mut version = 0;
            // SAFETY: the out pointer is valid. The answer needs no device, and on failure the version stays 0.
            let _ = unsafe { crate::cudaRuntimeGetVersion(&mut version) };
            Runtime { version, path: file_of(crate::cudaRuntimeGetVersion as *const ()) }
        }))
    }
}

/// No CUDA runtime library could be loaded. Its text names every place tried and what to set.
#[derive(Debug)]
pub struct LoadError {
    pub(crate) tried: Vec<(PathBuf, String)>,
    pub(crate) chosen_by_env: bool,
}

impl LoadError {
    /// Every name or path that was tried, with the reason why it would not do.
    pub fn tried(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.tried.iter().map(|(path, why)| (path.as_path(), why.as_str()))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no CUDA runtime library could be loaded: ")?;
        if self.chosen_by_env {
            f.write_str("correct CUDA_MEMPOOL_CUDART, or unset it to search the usual places. Tried:")?;
        } else {
            f.write_str(
                "install the CUDA runtime (11 to 13), or set CUDA_MEMPOOL_CUDART to the path of its libcudart. Tried:",
            )?;
        }
        for (path, why) in &self.tried {
            write!(f, "\n  {}: {why}", path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// The file that the code at `address` was loaded from.
#[cfg(unix)]
pub(crate) fn file_of(address: *const ()) -> Option<PathBuf> {
    use core::ffi::{c_char, c_void, CStr};
    use std::os::unix::ffi::OsStrExt;

    #[repr(C)]
    struct DlInfo {
        file: *const c_char,
        base: *const c_void,
        symbol: *const c_char,
        symbol_address: *const c_void,
    }
    extern "C" {
        fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
    }

    let mut info = DlInfo {
        file: core::ptr::null(),
        base: core::ptr::null(),
        symbol: core::ptr::null(),
        symbol_address: core::ptr::null(),
    };
    // SAFETY: any address may be asked for, and the out pointer is valid.
    if unsafe { dladdr(address.cast(), &mut info) } == 0 || info.file.is_null() {
        return None;
    }
    // SAFETY: on success the loader names the file with a string that lives as long as the library, which is never
    // closed.
    let file = unsafe { CStr::from_ptr(info.file) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(file.to_bytes())))
}

/// The file that the code at `address` was loaded from.
#[cfg(not(unix))]
pub(crate) fn file_of(_address: *const ()) -> Option<PathBuf> {
    None
}
