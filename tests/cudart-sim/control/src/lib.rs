//! Controls of the simulated CUDA runtime, for tests that reach it as they would reach a real one: by loading
//! `libcudart_sim.so`, or by being linked with it.
//!
//! ```
//! use cudart_sim_control::Control;
//!
//! // On a real runtime there is none, and the same test goes on without.
//! if let Some(sim) = Control::loaded() {
//!     sim.reset();
//!     sim.add_faults("cudaMallocAsync#2=2").unwrap();
//! }
//! ```
//!
//! The functions behind it are those of `include/cudart_sim.h`. They are looked up in the library that the process has
//! loaded, whatever its file is called, so call one function of the runtime first.
#![warn(missing_docs)]

mod objects;

use objects::Object;

use std::ffi::{c_char, c_int, c_uint, c_void, CString};
use std::path::PathBuf;
use std::time::Duration;

/// A simulated kernel: gets its argument, and for each declared access where the host finds its bytes.
pub type Kernel = unsafe extern "C" fn(argument: *mut c_void, memory: *const *mut c_void);

/// What a simulated kernel reads or writes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Access {
    /// Memory that the stream's device reaches.
    pub pointer: *mut c_void,
    /// Bytes.
    pub size: usize,
    /// Not 0: it writes.
    pub write: c_int,
}

impl Access {
    /// A kernel reads these bytes.
    #[must_use]
    pub fn read(pointer: *const c_void, size: usize) -> Self {
        Self { pointer: pointer.cast_mut(), size, write: 0 }
    }

    /// A kernel writes these bytes, and may read them.
    #[must_use]
    pub fn write(pointer: *mut c_void, size: usize) -> Self {
        Self { pointer, size, write: 1 }
    }
}

/// How many objects of each kind are live. The runtime's own default pools and streams do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // their names say it
pub struct Live {
    pub streams: u64,
    pub events: u64,
    pub pools: u64,
    /// Own and imported.
    pub pool_allocations: u64,
    /// Of `cudaMalloc`, and opened memory handles.
    pub plain_allocations: u64,
    /// Of `cudaHostAlloc`.
    pub pinned_allocations: u64,
    /// Of `cudaHostRegister`.
    pub registered_ranges: u64,
    /// Made by a launch of a graph and not freed.
    pub graph_allocations: u64,
    pub graphs: u64,
    pub graph_execs: u64,
    /// In all allocations but the registered ranges.
    pub bytes: u64,
}

impl Live {
    /// How many objects there are of all kinds.
    #[must_use]
    pub fn objects(&self) -> u64 {
        let memory = self.pool_allocations + self.plain_allocations + self.pinned_allocations + self.graph_allocations;
        self.streams + self.events + self.pools + memory + self.registered_ranges + self.graphs + self.graph_execs
    }
}

/// What a stream-order race does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaceMode {
    /// It is reported on standard error, and every later call answers a sticky illegal address.
    Error,
    /// It is reported and ends the process.
    Abort,
    /// It is counted, and the operation runs.
    Count,
    /// Nothing is checked.
    Off,
}

/// The number of a CUDA error that a control function answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error(pub u32);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the simulated runtime answered error {}", self.0)
    }
}

impl std::error::Error for Error {}

/// The version of the interface that this crate speaks.
const VERSION: c_int = 1;

/// The functions of the interface: the struct that holds them, and how they are found.
macro_rules! functions {
    ($($field:ident = $name:literal: $type:ty;)*) => {
        /// The simulated runtime that this process has loaded.
        #[derive(Debug, Clone, Copy)]
        pub struct Control {
            $($field: $type,)*
        }

        impl Control {
            /// None if one is missing.
            fn of(object: &Object) -> Option<Self> {
                Some(Self {
                    $(
                        $field: {
                            let address = object.address($name)?;
                            // SAFETY: a library with this version of the interface has a function of this name and type.
                            unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
                        },
                    )*
                })
            }
        }
    };
}

functions! {
    launch = c"cudartSimLaunch": unsafe extern "C" fn(*mut c_void, *const c_char, Kernel, *mut c_void, *const Access, usize) -> c_uint;
    add_faults = c"cudartSimAddFaults": unsafe extern "C" fn(*const c_char) -> c_uint;
    clear_faults = c"cudartSimClearFaults": unsafe extern "C" fn();
    calls = c"cudartSimCalls": unsafe extern "C" fn(*const c_char) -> u64;
    live = c"cudartSimLive": unsafe extern "C" fn(*mut Live) -> u64;
    leak_report = c"cudartSimLeakReport": unsafe extern "C" fn(*mut c_char, usize) -> usize;
    races = c"cudartSimRaces": unsafe extern "C" fn() -> u64;
    last_race = c"cudartSimLastRace": unsafe extern "C" fn(*mut c_char, usize) -> usize;
    set_race_mode = c"cudartSimSetRaceMode": unsafe extern "C" fn(*const c_char) -> c_uint;
    set_delay = c"cudartSimSetDelay": unsafe extern "C" fn(c_uint, u64);
    add_device = c"cudartSimAddDevice": unsafe extern "C" fn() -> c_int;
    set_memory = c"cudartSimSetMemory": unsafe extern "C" fn(c_int, usize) -> c_uint;
    set_peer_access = c"cudartSimSetPeerAccess": unsafe extern "C" fn(c_int, c_int, c_int) -> c_uint;
    set_versions = c"cudartSimSetVersions": unsafe extern "C" fn(c_int, c_int);
    reset = c"cudartSimReset": unsafe extern "C" fn();
}

impl Control {
    /// The simulated runtime of this process; none when it has loaded a real one, or nothing yet.
    #[must_use]
    pub fn loaded() -> Option<Self> {
        let object = objects::with(c"cudartSimVersion")?;
        let version = object.address(c"cudartSimVersion")?;
        // SAFETY: the function of this name has this type in every version of the interface.
        let version = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(version)() };
        if version != VERSION {
            return None;
        }
        Self::of(&object)
    }

    /// Runs a host function in a stream's order as a kernel that makes these accesses. The race detector names it.
    ///
    /// # Errors
    /// An illegal address (700, sticky) when the stream's device does not reach the memory; what the runtime answers to
    /// a wrong stream or size.
    ///
    /// # Safety
    /// The stream is a handle of this runtime. The kernel is called with the argument on another thread, at any time until
    /// the stream has come so far, and touches no more of the memory than was declared.
    pub unsafe fn launch(
        &self,
        stream: *mut c_void,
        name: &str,
        kernel: Kernel,
        argument: *mut c_void,
        accesses: &[Access],
    ) -> Result<(), Error> {
        let name = c_string(name);
        // SAFETY: the name and the list are valid for the call; the rest is the caller's promise.
        checked(unsafe { (self.launch)(stream, name.as_ptr(), kernel, argument, accesses.as_ptr(), accesses.len()) })
    }

    /// Adds rules of faults to inject, separated by commas.
    ///
    /// `FUNCTION#N=ERROR` lets the Nth call from now answer the error, `FUNCTION%RATE=ERROR` that fraction of calls.
    /// `FUNCTION` is a name, that of a driver function too, or `*` for any of the runtime; a `!` behind the error makes it sticky.
    ///
    /// # Errors
    /// Invalid value (1) when a rule cannot be read; then none is added.
    pub fn add_faults(&self, rules: &str) -> Result<(), Error> {
        let rules = c_string(rules);
        // SAFETY: a C string.
        checked(unsafe { (self.add_faults)(rules.as_ptr()) })
    }

    /// Forgets all rules.
    pub fn clear_faults(&self) {
        // SAFETY: may be called at any time.
        unsafe { (self.clear_faults)() }
    }

    /// How often the function was called since the last reset; none for a name that is not bound.
    #[must_use]
    pub fn calls(&self, function: &str) -> Option<u64> {
        let name = c_string(function);
        // SAFETY: a C string.
        Some(unsafe { (self.calls)(name.as_ptr()) }).filter(|count| *count != u64::MAX)
    }

    /// How many calls there were of any function of the runtime since the last reset.
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        // SAFETY: null asks for all.
        unsafe { (self.calls)(std::ptr::null()) }
    }

    /// What is live now.
    #[must_use]
    pub fn live(&self) -> Live {
        let mut live = Live::default();
        // SAFETY: the out pointer is valid and the struct is the header's.
        unsafe { (self.live)(&mut live) };
        live
    }

    /// The live objects as text, one a line.
    #[must_use]
    pub fn leak_report(&self) -> String {
        text(self.leak_report)
    }

    /// How many races were found since the last reset.
    #[must_use]
    pub fn races(&self) -> u64 {
        // SAFETY: may be called at any time.
        unsafe { (self.races)() }
    }

    /// What the latest race was; empty when there was none.
    #[must_use]
    pub fn last_race(&self) -> String {
        text(self.last_race)
    }

    /// Sets what a race does from now on.
    pub fn set_race_mode(&self, mode: RaceMode) {
        let name = match mode {
            RaceMode::Error => c"error",
            RaceMode::Abort => c"abort",
            RaceMode::Count => c"count",
            RaceMode::Off => c"off",
        };
        // SAFETY: a C string.
        let answer = unsafe { (self.set_race_mode)(name.as_ptr()) };
        debug_assert_eq!(answer, 0, "the simulator knows every mode");
    }

    /// From now on streams pause before each operation for a random time up to `longest`.
    pub fn set_delay(&self, longest: Duration, seed: u64) {
        let longest = longest.as_micros().try_into().unwrap_or(c_uint::MAX);
        // SAFETY: may be called at any time.
        unsafe { (self.set_delay)(longest, seed) }
    }

    /// One more device. Returns its ordinal.
    pub fn add_device(&self) -> i32 {
        // SAFETY: may be called at any time.
        unsafe { (self.add_device)() }
    }

    /// Sets how many bytes of memory a device has.
    ///
    /// # Errors
    /// Invalid device (101).
    pub fn set_memory(&self, device: i32, bytes: usize) -> Result<(), Error> {
        // SAFETY: may be called at any time.
        checked(unsafe { (self.set_memory)(device, bytes) })
    }

    /// Sets whether a device can be given access to a peer's memory.
    ///
    /// # Errors
    /// Invalid device (101).
    pub fn set_peer_access(&self, device: i32, peer: i32, possible: bool) -> Result<(), Error> {
        // SAFETY: may be called at any time.
        checked(unsafe { (self.set_peer_access)(device, peer, possible.into()) })
    }

    /// Sets what the runtime says of its own and the driver's version: 13000 is 13.0.
    pub fn set_versions(&self, runtime: i32, driver: i32) {
        // SAFETY: may be called at any time.
        unsafe { (self.set_versions)(runtime, driver) }
    }

    /// Forgets counters, faults, races, the sticky error and this thread's last error. Objects and settings stay.
    pub fn reset(&self) {
        // SAFETY: may be called at any time.
        unsafe { (self.reset)() }
    }
}

/// The simulated runtime that cargo built beside this test, for `CUDA_MEMPOOL_CUDART`. The environment variable
/// `CUDART_SIM_LIBRARY` names another.
///
/// A package whose tests use it has `cudart-sim` among its dev-dependencies, so that cargo builds it first.
/// None when it is not there.
#[must_use]
pub fn library() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("CUDART_SIM_LIBRARY") {
        return Some(path.into());
    }
    let program = std::env::current_exe().ok()?;
    // Tests lie in `deps`, examples and benches in a folder beside it.
    let folders = program.ancestors().skip(1).take(3);
    folders
        .flat_map(|folder| [folder.to_owned(), folder.join("deps")])
        .map(|f| f.join("libcudart_sim.so"))
        .find(|p| p.exists())
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("names and rules hold no NUL")
}

fn checked(answer: c_uint) -> Result<(), Error> {
    if answer == 0 {
        Ok(())
    } else {
        Err(Error(answer))
    }
}

/// A text that the library writes to a buffer.
fn text(give: unsafe extern "C" fn(*mut c_char, usize) -> usize) -> String {
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        // SAFETY: the buffer has as many bytes.
        let needed = unsafe { give(buffer.as_mut_ptr().cast(), buffer.len()) };
        if needed <= buffer.len() {
            buffer.truncate(needed - 1);
            return String::from_utf8_lossy(&buffer).into_owned();
        }
        // It may have grown meanwhile, so ask again.
        buffer.resize(needed, 0);
    }
}
