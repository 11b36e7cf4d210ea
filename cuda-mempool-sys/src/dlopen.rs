//! Functions that are found in a library loaded by the first call (link kind `dlopen`).

use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

use crate::cudaError_t;
use crate::libraries::{self, Candidate};
use crate::runtime::{file_of, LoadError, Runtime};

/// The bound functions as ones that look their symbol up the first time they are called.
macro_rules! functions {
    ($(pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $answer:ty;)*) => {
        $(
            #[inline]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $answer {
                static SYMBOL: dlopen::Symbol = dlopen::Symbol::new(concat!(stringify!($name), "\0"));
                match SYMBOL.address() {
                    Ok(address) => {
                        let function: unsafe extern "C" fn($($type),*) -> $answer = core::mem::transmute(address);
                        function($($arg),*)
                    }
                    Err(missing) => dlopen::Answer::without_function(missing),
                }
            }
        )*
    };
}

/// One function's place in the library: null until it was looked up.
pub(crate) struct Symbol {
    name: &'static str,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// `name` ends in a NUL.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, address: AtomicPtr::new(core::ptr::null_mut()) }
    }

    #[inline]
    pub(crate) fn address(&self) -> Result<*mut c_void, cudaError_t> {
        // Acquire pairs with the release below: whoever sees the address sees the library loaded and relocated.
        let address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            self.look_up()
        } else {
            Ok(address)
        }
    }

    #[cold]
    fn look_up(&self) -> Result<*mut c_void, cudaError_t> {
        let loaded = loaded().as_ref().map_err(|_| cudaError_t::cudaErrorSharedObjectInitFailed)?;
        let address = address_in(&loaded.library, self.name);
        if address.is_null() {
            return Err(cudaError_t::cudaErrorSharedObjectSymbolNotFound);
        }
        self.address.store(address, Ordering::Release);
        Ok(address)
    }
}

/// What a function answers when it is not there.
pub(crate) trait Answer {
    fn without_function(missing: cudaError_t) -> Self;
}

impl Answer for cudaError_t {
    #[cold]
    fn without_function(missing: cudaError_t) -> Self {
        missing
    }
}

/// The answer of `cudaGetErrorName` and `cudaGetErrorString`.
impl Answer for *const c_char {
    #[cold]
    fn without_function(_missing: cudaError_t) -> Self {
        c"no CUDA runtime library is loaded".as_ptr()
    }
}

/// `cudaPointerGetAttributes` for bindings older than 13.0, whose struct is shorter than what a runtime of 13 fills.
///
/// # Safety
/// As for the C function.
#[cfg(not(cuda_since_13_0))]
pub unsafe extern "C" fn cudaPointerGetAttributes(
    attributes: *mut crate::cudaPointerAttributes,
    ptr: *const c_void,
) -> cudaError_t {
    /// More than the struct of any version takes.
    #[repr(C)]
    struct Room {
        attributes: crate::cudaPointerAttributes,
        rest: [u64; 32],
    }
    if attributes.is_null() {
        // SAFETY: the runtime refuses a null pointer.
        return unsafe { crate::bindings::cudaPointerGetAttributes(attributes, ptr) };
    }
    let mut room = Room { attributes: Default::default(), rest: [0; 32] };
    // SAFETY: the pointer may be any, and the room holds what the runtime writes.
    let answer = unsafe { crate::bindings::cudaPointerGetAttributes(core::ptr::addr_of_mut!(room).cast(), ptr) };
    if answer == cudaError_t::cudaSuccess {
        // SAFETY: the caller's pointer is valid for its struct, and the fields of the older struct come first.
        unsafe { attributes.write(room.attributes) };
    }
    answer
}

struct Loaded {
    library: Library,
    runtime: Runtime,
}

pub(crate) fn runtime() -> Result<&'static Runtime, &'static LoadError> {
    loaded().as_ref().map(|loaded| &loaded.runtime)
}

/// The library, loaded once and kept until the process ends: other threads may be inside it at any time.
fn loaded() -> &'static Result<Loaded, LoadError> {
    static LOADED: OnceLock<Result<Loaded, LoadError>> = OnceLock::new();
    LOADED.get_or_init(|| {
        if let Some(path) = variable("CUDA_MEMPOOL_CUDART") {
            return first_of([Ok(PathBuf::from(path))], true);
        }
        if let Some(loaded) = already_there() {
            return Ok(loaded);
        }
        first_of(libraries::candidates(&variable, Path::new("/")), false)
    })
}

fn first_of(candidates: impl IntoIterator<Item = Candidate>, chosen_by_env: bool) -> Result<Loaded, LoadError> {
    let mut tried = Vec::new();
    for candidate in candidates {
        let path = match candidate {
            Ok(path) => path,
            Err(absent) => {
                tried.push(absent);
                continue;
            }
        };
        // SAFETY: the initialisers of a CUDA runtime have no requirement. That the file is one is the word of its
        // name or of the user.
        let opened = unsafe { Library::new(&path) }.map_err(|e| reason(&path, &e.to_string()));
        match opened.and_then(accepted) {
            Ok(loaded) => return Ok(loaded),
            Err(why) => tried.push((path, why)),
        }
    }
    Err(LoadError { tried, chosen_by_env })
}

/// The loader's words, without the name that most of them begin with.
fn reason(path: &Path, words: &str) -> String {
    let name = path.display().to_string();
    words.strip_prefix(&name).map_or(words, |rest| rest.trim_start_matches(": ")).to_owned()
}

/// A runtime that another part of the program has loaded: to share it is better than to bring a second one.
#[cfg(target_os = "linux")]
fn already_there() -> Option<Loaded> {
    use libloading::os::unix;
    const RTLD_NOLOAD: c_int = 4;
    libraries::NAMES.iter().find_map(|name| {
        // SAFETY: nothing is loaded, so no initialiser runs.
        let library = unsafe { unix::Library::open(Some(name), unix::RTLD_LAZY | RTLD_NOLOAD) }.ok()?;
        accepted(library.into()).ok()
    })
}

#[cfg(not(target_os = "linux"))]
fn already_there() -> Option<Loaded> {
    None
}

/// Takes a library that is a CUDA runtime of a supported major version, or says why not.
fn accepted(library: Library) -> Result<Loaded, String> {
    let get_version = address_in(&library, "cudaRuntimeGetVersion\0");
    if get_version.is_null() {
        return Err("not a CUDA runtime: it has no cudaRuntimeGetVersion".into());
    }
    let mut version: c_int = 0;
    // SAFETY: the function of this name has this signature in every CUDA version.
    let answer = unsafe {
        let function: unsafe extern "C" fn(*mut c_int) -> cudaError_t = core::mem::transmute(get_version);
        function(&mut version)
    };
    let (major, minor) = (version / 1000, version % 1000 / 10);
    if answer != cudaError_t::cudaSuccess {
        // A runtime of CUDA 11 asks the driver even for its own version, which stays 0 where there is no driver. That
        // it has pools tells it from the majors before.
        if address_in(&library, "cudaMemPoolCreate\0").is_null() {
            return Err(format!("its cudaRuntimeGetVersion answers error {}", answer.0));
        }
    } else if !(11..=13).contains(&major) {
        return Err(format!("CUDA runtime {major}.{minor}, but only 11 to 13 are supported"));
    }
    Ok(Loaded { library, runtime: Runtime { version, path: file_of(get_version.cast()) } })
}

/// The address of a symbol (whose name ends in a NUL), or null.
fn address_in(library: &Library, name: &str) -> *mut c_void {
    debug_assert!(CStr::from_bytes_with_nul(name.as_bytes()).is_ok());
    // SAFETY: the address is only kept as a pointer here.
    match unsafe { library.get::<*mut c_void>(name.as_bytes()) } {
        Ok(symbol) => *symbol,
        Err(_) => core::ptr::null_mut(),
    }
}

/// An environment variable that names files to load: not heeded in a process with more rights than its user.
fn variable(name: &str) -> Option<OsString> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStringExt;
        extern "C" {
            fn secure_getenv(name: *const c_char) -> *mut c_char;
        }
        let name = std::ffi::CString::new(name).ok()?;
        // SAFETY: the name is a C string; the answer is null or a C string that is copied at once.
        unsafe {
            let value = secure_getenv(name.as_ptr());
            (!value.is_null()).then(|| OsString::from_vec(CStr::from_ptr(value).to_bytes().to_vec()))
        }
        .filter(|value| !value.is_empty())
    }
    #[cfg(not(target_os = "linux"))]
    std::env::var_os(name).filter(|value| !value.is_empty())
}
