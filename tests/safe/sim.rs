//! The controls of the simulated runtime, found in the library that the process has loaded.

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cuda_mempool::{on_drop_error, sys, Device, DeviceBuffer, Error, Stream};
use libloading::Library;

pub use cudart_sim_control::Live;

/// The functions of `cudart_sim.h`.
pub struct Sim {
    library: Library,
}

#[repr(C)]
struct Access {
    pointer: *mut c_void,
    size: usize,
    write: c_int,
}

type Kernel = unsafe extern "C" fn(*mut c_void, *const *mut c_void);

/// The simulator, for one test at a time: its counters and faults are the process's.
pub struct Alone {
    sim: &'static Sim,
    before: Live,
    _turn: MutexGuard<'static, ()>,
}

/// The simulator with `devices` devices, or a note that the test is skipped. `CUDA_MEMPOOL_REQUIRE_SIM` makes its absence
/// an error.
pub fn alone(devices: usize) -> Option<Alone> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(sim) = with_devices(devices) else {
        assert!(std::env::var_os("CUDA_MEMPOOL_REQUIRE_SIM").is_none(), "not on the simulated runtime");
        eprintln!("skipped: not on the simulated runtime");
        return None;
    };
    let before = sim.settled();
    sim.reset();
    sim.set_race_mode("count");
    heard();
    Some(Alone { sim, before, _turn: turn })
}

/// The simulator, if the process has it, with at least this many devices.
pub fn with_devices(devices: usize) -> Option<&'static Sim> {
    static SIM: OnceLock<Option<Sim>> = OnceLock::new();
    static ADDING: Mutex<()> = Mutex::new(());
    let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
    let sim = SIM.get_or_init(Sim::load).as_ref()?;
    while Device::count().expect("the simulator has devices") < devices {
        sim.add_device();
    }
    Some(sim)
}

impl Alone {
    /// What stays that was not there when the test began. Earlier tests leak on purpose.
    pub fn new_live(&self) -> Live {
        since(self.before, self.settled())
    }
}

/// What is live in `now` and was not in `before`.
pub fn since(before: Live, now: Live) -> Live {
    Live {
        streams: now.streams - before.streams,
        events: now.events - before.events,
        pools: now.pools - before.pools,
        pool_allocations: now.pool_allocations - before.pool_allocations,
        plain_allocations: now.plain_allocations - before.plain_allocations,
        pinned_allocations: now.pinned_allocations - before.pinned_allocations,
        registered_ranges: now.registered_ranges - before.registered_ranges,
        graph_allocations: now.graph_allocations - before.graph_allocations,
        graphs: now.graphs - before.graphs,
        graph_execs: now.graph_execs - before.graph_execs,
        bytes: now.bytes - before.bytes,
    }
}

impl std::ops::Deref for Alone {
    type Target = Sim;

    fn deref(&self) -> &Sim {
        self.sim
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.sim.clear_faults();
        self.sim.reset();
    }
}

impl Sim {
    fn load() -> Option<Self> {
        let path = sys::runtime().ok()?.path()?;
        // SAFETY: the library is loaded already, so nothing runs.
        let library = unsafe { Library::new(path) }.ok()?;
        let sim = Self { library };
        // SAFETY: only whether it is there is asked.
        unsafe { sim.library.get::<extern "C" fn() -> c_int>(b"cudartSimVersion\0") }.ok()?;
        tell_the_tests();
        Some(sim)
    }

    fn get<F: Copy>(&self, name: &str) -> F {
        let name = CString::new(name).unwrap();
        // SAFETY: the callers below give the signatures of cudart_sim.h.
        *unsafe { self.library.get::<F>(name.as_bytes_with_nul()) }.expect("a function of the simulator")
    }

    pub fn reset(&self) {
        self.get::<extern "C" fn()>("cudartSimReset")();
    }

    pub fn add_device(&self) {
        self.get::<extern "C" fn() -> c_int>("cudartSimAddDevice")();
    }

    pub fn set_race_mode(&self, mode: &str) {
        let mode = CString::new(mode).unwrap();
        self.get::<extern "C" fn(*const c_char) -> c_int>("cudartSimSetRaceMode")(mode.as_ptr());
    }

    /// Streams pause at random for up to this many microseconds.
    pub fn set_delay(&self, longest: u32, seed: u64) {
        self.get::<extern "C" fn(u32, u64)>("cudartSimSetDelay")(longest, seed);
    }

    pub fn set_peer_access(&self, device: i32, peer: i32, possible: bool) {
        self.get::<extern "C" fn(c_int, c_int, c_int) -> c_int>("cudartSimSetPeerAccess")(
            device,
            peer,
            possible.into(),
        );
    }

    /// Versions as CUDA counts: 13000 is 13.0.
    pub fn set_versions(&self, runtime: i32, driver: i32) {
        self.get::<extern "C" fn(c_int, c_int)>("cudartSimSetVersions")(runtime, driver);
    }

    pub fn add_fault(&self, rule: &str) {
        let text = CString::new(rule).unwrap();
        let answer = self.get::<extern "C" fn(*const c_char) -> c_int>("cudartSimAddFaults")(text.as_ptr());
        assert_eq!(answer, 0, "fault rule {rule}");
    }

    pub fn clear_faults(&self) {
        self.get::<extern "C" fn()>("cudartSimClearFaults")();
    }

    /// How often a function was called since the last reset.
    pub fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).unwrap();
        let calls = self.get::<extern "C" fn(*const c_char) -> u64>("cudartSimCalls")(name.as_ptr());
        assert_ne!(calls, u64::MAX, "{function} is no function of the simulator");
        calls
    }

    /// How often any function was called since the last reset.
    pub fn all_calls(&self) -> u64 {
        self.get::<extern "C" fn(*const c_char) -> u64>("cudartSimCalls")(std::ptr::null())
    }

    pub fn live(&self) -> Live {
        let mut live = Live::default();
        self.get::<extern "C" fn(*mut Live) -> u64>("cudartSimLive")(&mut live);
        live
    }

    /// How many objects are live when all work is done, and pools have ended that waited for their memory.
    pub fn settled(&self) -> Live {
        for device in must(Device::all()) {
            must(device.synchronize());
        }
        self.live()
    }

    pub fn races(&self) -> u64 {
        self.get::<extern "C" fn() -> u64>("cudartSimRaces")()
    }

    /// What raced last.
    pub fn last_race(&self) -> String {
        let mut text = vec![0_u8; 4096];
        self.get::<extern "C" fn(*mut c_char, usize) -> usize>("cudartSimLastRace")(text.as_mut_ptr().cast(), 4095);
        CStr::from_bytes_until_nul(&text).unwrap().to_string_lossy().into_owned()
    }

    /// A kernel that writes `value` to every element.
    ///
    /// # Safety
    /// `pointer` must be valid for writing `length` elements in the order of `stream`.
    pub unsafe fn launch_fill(&self, stream: &Stream, pointer: *mut u32, length: usize, value: u32) {
        unsafe extern "C" fn fill(argument: *mut c_void, memory: *const *mut c_void) {
            // SAFETY: the argument is the box made below, and the access is as long as it says.
            unsafe {
                let (value, length) = *Box::from_raw(argument.cast::<(u32, usize)>());
                for index in 0..length {
                    (*memory).cast::<u32>().add(index).write_unaligned(value);
                }
            }
        }
        let argument = Box::into_raw(Box::new((value, length)));
        self.launch(stream, fill, argument.cast(), Access { pointer: pointer.cast(), size: length * 4, write: 1 });
    }

    /// A kernel that reads every element.
    ///
    /// # Safety
    /// `pointer` must be valid for reading `length` elements in the order of `stream`.
    pub unsafe fn launch_read(&self, stream: &Stream, pointer: *const u32, length: usize) {
        unsafe extern "C" fn read(_argument: *mut c_void, _memory: *const *mut c_void) {}
        let access = Access { pointer: pointer.cast_mut().cast(), size: length * 4, write: 0 };
        self.launch(stream, read, std::ptr::null_mut(), access);
    }

    fn launch(&self, stream: &Stream, kernel: Kernel, argument: *mut c_void, access: Access) {
        type Launch = unsafe extern "C" fn(
            sys::cudaStream_t,
            *const c_char,
            Kernel,
            *mut c_void,
            *const Access,
            usize,
        ) -> sys::cudaError_t;
        let launch = || {
            // SAFETY: the kernel fits its argument, and the access is the caller's promise.
            unsafe {
                self.get::<Launch>("cudartSimLaunch")(stream.as_raw(), c"kernel".as_ptr(), kernel, argument, &access, 1)
            }
        };
        let answer = stream.device().with_current(launch).expect("the device can be current");
        assert_eq!(answer, sys::cudaError_t::cudaSuccess, "the kernel is launched");
    }
}

static TOLD: Mutex<Vec<(&'static str, u32, String)>> = Mutex::new(Vec::new());

/// Keeps what drops tell the hook.
pub fn tell_the_tests() {
    on_drop_error(|error| {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        told.push((error.function(), error.raw().0, error.to_string()));
    });
}

/// What drops have told the hook since the last call: function, code, text.
pub fn heard() -> Vec<(&'static str, u32, String)> {
    std::mem::take(&mut TOLD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The device with this ordinal.
pub fn device(ordinal: usize) -> Device {
    Device::new(ordinal).expect("the device is there")
}

/// The last error of this thread, without clearing it.
pub fn last_error() -> sys::cudaError_t {
    // SAFETY: takes nothing.
    unsafe { sys::cudaPeekAtLastError() }
}

/// A buffer put on another stream without any order: the rule that safe code cannot break.
pub fn set_stream_unordered<T>(buffer: DeviceBuffer<T>, stream: &Stream) -> DeviceBuffer<T> {
    let mut raw = buffer.into_raw();
    raw.stream = stream.clone();
    // SAFETY: it is not: the order is missing. The simulator's memory is host memory, so what is wrong is reported.
    unsafe { DeviceBuffer::from_raw(raw) }
}

/// Fails the test with what the error says.
pub fn must<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
