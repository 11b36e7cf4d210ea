//! What went wrong, in which C function, and what a reader can do about it.

use std::fmt;
use std::io;

use cuda_mempool_sys as sys;
use sys::cudaError_t;

use crate::{Device, MemPool};

/// The result of the calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Calls a C function and turns its answer into a [`Result`] that names it. Goes inside an `unsafe` block.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match $crate::teardown::reachable(stringify!($function)) {
            Ok(()) => $crate::error::call_entered!($function($($argument),*)),
            Err(refused) => Err(refused),
        }
    };
}
pub(crate) use call;

/// As [`call`], right after [`Stream::enter`](crate::Stream::enter) has looked whether it may be made.
macro_rules! call_entered {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::error::check(cuda_mempool_sys::$function($($argument),*), stringify!($function))
    };
}
pub(crate) use call_entered;

#[inline]
pub(crate) fn check(code: cudaError_t, function: &'static str) -> Result<()> {
    if code == cudaError_t::cudaSuccess {
        Ok(())
    } else {
        Err(Error::failed(code, function))
    }
}

/// A failure, with the C function that answered it.
///
/// One word wide: `Result<()>` costs no more than a pointer. Codes that this crate does not know are kept as they are.
/// After a failure the calling thread's last error is clear, so that C code on the same thread does not meet it.
pub struct Error(Box<Repr>);

struct Repr {
    code: cudaError_t,
    function: &'static str,
    detail: Detail,
    /// Whether it came before anything was enqueued.
    before_work: bool,
}

enum Detail {
    None,
    OutOfMemory(OutOfMemory),
    /// What would be needed.
    Missing(String),
    /// `accessing` cannot reach the memory of `owner`.
    Peers {
        accessing: Device,
        owner: Device,
    },
    /// A refusal of this crate, before anything was called.
    Refused(ErrorKind, String),
    /// What a refusal by the runtime was about.
    About(String),
}

/// What kind of failure an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The pool or the device has not enough memory, for which see [`Error::out_of_memory`], or a limit is reached, of which
    /// the error's text tells.
    OutOfMemory,
    /// The number of bytes overflows.
    SizeOverflow,
    /// The two sides of a copy differ in length.
    LengthMismatch,
    /// The device, the driver or the runtime cannot do that: see [`Error::missing`].
    Unsupported,
    /// A device cannot reach the memory of another: see [`Error::peers`].
    PeerAccess,
    /// Not possible on a stream that is being captured, or while a capture is going on elsewhere.
    Capture,
    /// A [per-thread stream](crate::Stream::per_thread) was used on another thread than its own.
    WrongThread,
    /// A handle belongs to code outside this crate, so its lifetime is not known.
    Foreign,
    /// No CUDA runtime library could be loaded. The error's text lists what was tried.
    NoRuntime,
    /// No device, or no driver that this runtime can work with.
    NoDevice,
    /// There is no device with this ordinal.
    InvalidDevice,
    /// The runtime refuses an argument.
    InvalidValue,
    /// A handle is stale, or of another device.
    InvalidHandle,
    /// Not permitted: from within a host function, or by the system's configuration.
    NotPermitted,
    /// Something enqueued earlier has broken the device's context: no call on it will succeed in this process.
    DeviceFault,
    /// The runtime is being unloaded because the process ends.
    Unloading,
    /// Any other code: see [`Error::raw`].
    Other,
}

/// The numbers behind an allocation that failed, in bytes. A number that could not be had is `None`, and so are those of
/// the pool where the memory would have been of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes of the pool in use.
    pub pool_used: Option<u64>,
    /// Bytes that the pool has from the device. Much more than is used means that they are in too small pieces, or
    /// that frees are still waiting for their streams.
    pub pool_reserved: Option<u64>,
    /// Bytes free on the stream's device.
    pub device_free: Option<usize>,
    /// Bytes that the stream's device has.
    pub device_total: Option<usize>,
}

impl OutOfMemory {
    /// What pool and device have now.
    #[cold]
    pub(crate) fn now(requested: usize, pool: Option<&MemPool>, device: Device) -> Self {
        let usage = pool.and_then(|pool| pool.usage().ok());
        let memory = device.memory().ok();
        Self {
            requested,
            pool_used: usage.map(|usage| usage.used),
            pool_reserved: usage.map(|usage| usage.reserved),
            device_free: memory.map(|memory| memory.free),
            device_total: memory.map(|memory| memory.total),
        }
    }
}

impl Error {
    #[cold]
    pub(crate) fn failed(code: cudaError_t, function: &'static str) -> Self {
        // SAFETY: takes nothing, and answers without a device too.
        let _ = unsafe { sys::cudaGetLastError() };
        let detail = match code {
            cudaError_t::cudaErrorSharedObjectSymbolNotFound => Detail::Missing(missing_function(function)),
            _ => Detail::None,
        };
        Self::new(code, function, detail)
    }

    #[cold]
    fn new(code: cudaError_t, function: &'static str, detail: Detail) -> Self {
        Self(Box::new(Repr { code, function, detail, before_work: false }))
    }

    /// A refusal where the C function `function` would have been called next, for code that stands in for the runtime,
    /// such as a [memory resource](crate::resource::DeviceMemoryResource).
    #[cold]
    #[must_use]
    pub fn refused(kind: ErrorKind, function: &'static str, why: impl Into<String>) -> Self {
        let code = match kind {
            ErrorKind::OutOfMemory | ErrorKind::SizeOverflow => cudaError_t::cudaErrorMemoryAllocation,
            ErrorKind::Capture => cudaError_t::cudaErrorStreamCaptureUnsupported,
            ErrorKind::NotPermitted => cudaError_t::cudaErrorNotPermitted,
            ErrorKind::InvalidDevice => cudaError_t::cudaErrorInvalidDevice,
            ErrorKind::Unsupported => cudaError_t::cudaErrorNotSupported,
            ErrorKind::PeerAccess => cudaError_t::cudaErrorPeerAccessUnsupported,
            ErrorKind::InvalidHandle => cudaError_t::cudaErrorInvalidResourceHandle,
            ErrorKind::NoDevice => cudaError_t::cudaErrorNoDevice,
            ErrorKind::NoRuntime => cudaError_t::cudaErrorSharedObjectInitFailed,
            ErrorKind::Unloading => cudaError_t::cudaErrorCudartUnloading,
            ErrorKind::Other => cudaError_t::cudaErrorUnknown,
            _ => cudaError_t::cudaErrorInvalidValue,
        };
        Self::new(code, function, Detail::Refused(kind, why.into())).before_work()
    }

    /// Something that the machine or the bindings do not have.
    #[cold]
    pub(crate) fn unsupported(function: &'static str, what: impl Into<String>) -> Self {
        Self::new(cudaError_t::cudaErrorNotSupported, function, Detail::Missing(what.into()))
    }

    /// A function that the headers this program was built for do not have.
    #[cold]
    #[cfg_attr(cuda_since_13_0, allow(dead_code))]
    pub(crate) fn not_bound(function: &'static str) -> Self {
        let since = since(function).unwrap_or("newer");
        Self::unsupported(
            function,
            format!("{function} came with CUDA {since}, and this program is built for an older one"),
        )
    }

    #[cold]
    pub(crate) fn no_peer_access(function: &'static str, accessing: Device, owner: Device) -> Self {
        Self::new(cudaError_t::cudaErrorPeerAccessUnsupported, function, Detail::Peers { accessing, owner })
    }

    #[cold]
    pub(crate) fn with_out_of_memory(mut self, numbers: OutOfMemory) -> Self {
        self.0.detail = Detail::OutOfMemory(numbers);
        self
    }

    /// How many bytes were wanted of an allocation that asked for more than that.
    #[cold]
    pub(crate) fn with_requested(mut self, bytes: usize) -> Self {
        if let Detail::OutOfMemory(numbers) = &mut self.0.detail {
            numbers.requested = bytes;
        }
        self
    }

    #[cold]
    pub(crate) fn about(mut self, what: impl Into<String>) -> Self {
        // What is known already says more.
        if matches!(self.0.detail, Detail::None) {
            self.0.detail = Detail::About(what.into());
        }
        self
    }

    /// Says that the call which failed came before what would have enqueued work.
    #[cold]
    pub(crate) fn before_work(mut self) -> Self {
        self.0.before_work = true;
        self
    }

    /// Whether it is certain that nothing was enqueued: it was not tried, or the process is ending. Errors of what does
    /// enqueue may be those of earlier work.
    pub(crate) fn did_nothing(&self) -> bool {
        self.0.before_work || self.kind() == ErrorKind::Unloading
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.0.detail {
            Detail::Refused(kind, _) => *kind,
            Detail::Missing(_) => ErrorKind::Unsupported,
            Detail::Peers { .. } => ErrorKind::PeerAccess,
            Detail::OutOfMemory(_) => ErrorKind::OutOfMemory,
            Detail::None | Detail::About(_) => kind_of(self.0.code),
        }
    }

    /// The code that the C function answered. A refusal by this crate has the code that comes nearest.
    #[must_use]
    pub fn raw(&self) -> cudaError_t {
        self.0.code
    }

    /// The C function that failed, or that would have been called next had there been no refusal.
    #[must_use]
    pub fn function(&self) -> &'static str {
        self.0.function
    }

    /// The name of the code, as the runtime gives it; `None` when no runtime is loaded.
    #[must_use]
    #[doc(alias = "cudaGetErrorName")]
    pub fn name(&self) -> Option<&'static str> {
        // SAFETY: any code may be asked for.
        runtime_text(|| unsafe { sys::cudaGetErrorName(self.0.code) })
    }

    /// The text of the code, as the runtime gives it; `None` when no runtime is loaded.
    #[must_use]
    #[doc(alias = "cudaGetErrorString")]
    pub fn text(&self) -> Option<&'static str> {
        // SAFETY: any code may be asked for.
        runtime_text(|| unsafe { sys::cudaGetErrorString(self.0.code) })
    }

    /// The numbers behind a failed allocation.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match &self.0.detail {
            Detail::OutOfMemory(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// What an [`ErrorKind::Unsupported`] would need: the device attribute, the function or the version.
    #[must_use]
    pub fn missing(&self) -> Option<&str> {
        match &self.0.detail {
            Detail::Missing(what) => Some(what),
            _ => None,
        }
    }

    /// The device that cannot reach, and the device whose memory it cannot reach.
    #[must_use]
    pub fn peers(&self) -> Option<(Device, Device)> {
        match self.0.detail {
            Detail::Peers { accessing, owner } => Some((accessing, owner)),
            _ => None,
        }
    }
}

fn kind_of(code: cudaError_t) -> ErrorKind {
    match code {
        cudaError_t::cudaErrorMemoryAllocation => ErrorKind::OutOfMemory,
        cudaError_t::cudaErrorNotSupported
        | cudaError_t::cudaErrorSharedObjectSymbolNotFound
        | cudaError_t::cudaErrorCallRequiresNewerDriver => ErrorKind::Unsupported,
        cudaError_t::cudaErrorPeerAccessUnsupported => ErrorKind::PeerAccess,
        cudaError_t::cudaErrorSharedObjectInitFailed => ErrorKind::NoRuntime,
        cudaError_t::cudaErrorNoDevice
        | cudaError_t::cudaErrorInsufficientDriver
        | cudaError_t::cudaErrorStubLibrary
        | cudaError_t::cudaErrorInitializationError
        | cudaError_t::cudaErrorSystemDriverMismatch
        | cudaError_t::cudaErrorSystemNotReady
        | cudaError_t::cudaErrorDevicesUnavailable => ErrorKind::NoDevice,
        cudaError_t::cudaErrorInvalidDevice => ErrorKind::InvalidDevice,
        cudaError_t::cudaErrorInvalidValue => ErrorKind::InvalidValue,
        cudaError_t::cudaErrorInvalidResourceHandle => ErrorKind::InvalidHandle,
        cudaError_t::cudaErrorNotPermitted => ErrorKind::NotPermitted,
        cudaError_t::cudaErrorCudartUnloading => ErrorKind::Unloading,
        cudaError_t(900..=908) => ErrorKind::Capture,
        // Errors of work on the device: the driver stops everything in the context before it reports them. 214, 220
        // and 226 are memory and link faults, 700 to 721 faults of kernels, 806 and 810 the end of the MPS server or of
        // this client of it, 911 a fault outside the device.
        cudaError_t(214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 806 | 810 | 911) => {
            ErrorKind::DeviceFault
        }
        _ => ErrorKind::Other,
    }
}

/// The first version of CUDA whose runtime has a function, for those that came after 11.8.
pub(crate) fn since(function: &str) -> Option<&'static str> {
    match function {
        "cudaStreamGetDevice" => Some("12.8"),
        "cudaGetDriverEntryPointByVersion" => Some("12.5"),
        "cudaMemGetDefaultMemPool" | "cudaMemGetMemPool" | "cudaMemSetMemPool" => Some("13.0"),
        _ => None,
    }
}

fn missing_function(function: &str) -> String {
    let needed = since(function).map(|version| format!(", which came with CUDA {version}")).unwrap_or_default();
    match sys::runtime() {
        Ok(runtime) => {
            let version = crate::Version::from_raw(runtime.version());
            format!("the loaded CUDA runtime {version} has no {function}{needed}")
        }
        Err(_) => format!("{function}{needed}"),
    }
}

fn runtime_text(ask: impl FnOnce() -> *const std::ffi::c_char) -> Option<&'static str> {
    sys::runtime().ok()?;
    let text = ask();
    if text.is_null() {
        return None;
    }
    // SAFETY: the runtime answers with C strings that are part of the library, which is never unloaded.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_str().ok()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.0.function)?;
        match &self.0.detail {
            Detail::Refused(_, why) => return f.write_str(why),
            Detail::Missing(what) => return write!(f, "not supported here: {what}"),
            Detail::Peers { accessing, owner } => {
                return write!(f, "{accessing} cannot reach the memory of {owner}");
            }
            Detail::None | Detail::OutOfMemory(_) | Detail::About(_) => {}
        }
        if let (cudaError_t::cudaErrorSharedObjectInitFailed, Err(why)) = (self.0.code, sys::runtime()) {
            return write!(f, "{why}");
        }
        match (self.name(), self.text()) {
            (Some(name), Some(text)) => write!(f, "{text} ({name}, {})", self.0.code.0)?,
            _ => write!(f, "CUDA error {}", self.0.code.0)?,
        }
        match &self.0.detail {
            Detail::OutOfMemory(numbers) => write!(f, ": {numbers}"),
            Detail::About(what) => write!(f, ": {what}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Known<T>(Option<T>);
        impl<T: fmt::Display> fmt::Display for Known<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match &self.0 {
                    Some(number) => number.fmt(f),
                    None => f.write_str("an unknown number"),
                }
            }
        }
        write!(f, "{} bytes asked; ", self.requested)?;
        if self.pool_used.is_some() || self.pool_reserved.is_some() {
            write!(f, "the pool uses {} of {} reserved; ", Known(self.pool_used), Known(self.pool_reserved))?;
        }
        write!(f, "the device has {} of {} free", Known(self.device_free), Known(self.device_total))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self})", self.kind())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::NoRuntime | ErrorKind::NoDevice | ErrorKind::InvalidDevice => io::ErrorKind::NotFound,
            ErrorKind::NotPermitted => io::ErrorKind::PermissionDenied,
            ErrorKind::InvalidValue | ErrorKind::LengthMismatch | ErrorKind::SizeOverflow => {
                io::ErrorKind::InvalidInput
            }
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn results_are_thin() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
        assert!(size_of::<Result<usize>>() <= 2 * size_of::<usize>());
    }

    #[test]
    fn unknown_codes_survive() {
        let error = Error::failed(cudaError_t(12345), "cudaFreeAsync");
        assert_eq!(error.raw(), cudaError_t(12345));
        assert_eq!(error.kind(), ErrorKind::Other);
        let text = error.to_string();
        assert!(text.contains("cudaFreeAsync") && text.contains("12345"), "{text}");
    }

    #[test]
    fn a_missing_function_names_itself_and_its_version() {
        let error = Error::failed(cudaError_t::cudaErrorSharedObjectSymbolNotFound, "cudaMemSetMemPool");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let missing = error.missing().expect("it says what is missing");
        assert!(missing.contains("cudaMemSetMemPool") && missing.contains("13.0"), "{missing}");
        let about =
            Error::failed(cudaError_t::cudaErrorSharedObjectSymbolNotFound, "cudaMemPoolCreate").about("a pool");
        assert!(about.missing().is_some_and(|missing| missing.contains("cudaMemPoolCreate")), "{about}");
    }

    #[test]
    fn peer_errors_name_both_devices() {
        let error = Error::no_peer_access(
            "cudaDeviceCanAccessPeer",
            Device::from_ordinal_unchecked(3),
            Device::from_ordinal_unchecked(5),
        );
        assert_eq!(error.to_string(), "cudaDeviceCanAccessPeer: device 3 cannot reach the memory of device 5");
    }

    #[test]
    fn becomes_an_io_error() {
        let error = Error::failed(cudaError_t::cudaErrorMemoryAllocation, "cudaMallocAsync");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::OutOfMemory);
    }
}
