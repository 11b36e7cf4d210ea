//! The functions that only the simulator has, for tests: `include/cudart_sim.h` declares and describes them.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::time::Duration;

use crate::cuda::{cudaError, cudaStream_t, Function};
use crate::exports::EntryPoint;
pub use crate::leak::Live as cudartSimLiveObjects;
use crate::race::Mode;
use crate::random::Random;
use crate::{call, exports, fault, sim, Outcome};

/// Changed when a function here changes its meaning.
pub const VERSION: c_int = 1;

/// What a simulated kernel reads or writes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Access {
    pub pointer: *mut c_void,
    pub size: usize,
    /// Not 0: it writes.
    pub write: c_int,
}

/// A simulated kernel: its argument, and where the bytes of each declared access are.
pub type Kernel = unsafe extern "C" fn(argument: *mut c_void, memory: *const *mut c_void);

#[no_mangle]
pub extern "C" fn cudartSimVersion() -> c_int {
    VERSION
}

/// # Safety
/// As `include/cudart_sim.h` says.
#[no_mangle]
pub unsafe extern "C" fn cudartSimLaunch(
    stream: cudaStream_t,
    name: *const c_char,
    kernel: Option<Kernel>,
    argument: *mut c_void,
    accesses: *const Access,
    count: usize,
) -> cudaError {
    call::unlisted(|| {
        let kernel = kernel.ok_or(cudaError::cudaErrorInvalidValue)?;
        // SAFETY: the caller's C string and list.
        let (name, accesses) = unsafe { (text(name)?.to_owned(), list(accesses, count)?) };
        exports::launch(stream, name, kernel, argument, accesses)
    })
}

/// # Safety
/// `specification` must be a C string.
#[no_mangle]
pub unsafe extern "C" fn cudartSimAddFaults(specification: *const c_char) -> cudaError {
    let seed = sim::lock().config.seed;
    // SAFETY: the caller's C string.
    answer(unsafe { text(specification) }.and_then(|text| fault::add(text, seed).map_err(|_| INVALID)))
}

#[no_mangle]
pub extern "C" fn cudartSimClearFaults() {
    fault::clear();
}

/// # Safety
/// `function` must be null or a C string.
#[no_mangle]
pub unsafe extern "C" fn cudartSimCalls(function: *const c_char) -> u64 {
    if function.is_null() {
        return call::total();
    }
    // SAFETY: the caller's C string.
    let Ok(name) = (unsafe { text(function) }) else { return u64::MAX };
    let runtime = Function::named(name).map(call::count);
    runtime.or_else(|| EntryPoint::named(name).map(EntryPoint::calls)).unwrap_or(u64::MAX)
}

/// # Safety
/// `live` must be valid for a write.
#[no_mangle]
pub unsafe extern "C" fn cudartSimLive(live: *mut cudartSimLiveObjects) -> u64 {
    let now = sim::lock().live();
    if !live.is_null() {
        // SAFETY: the caller's out pointer.
        unsafe { live.write(now) };
    }
    now.objects()
}

/// # Safety
/// `buffer` must be valid for `len` bytes, or null.
#[no_mangle]
pub unsafe extern "C" fn cudartSimLeakReport(buffer: *mut c_char, len: usize) -> usize {
    // SAFETY: the caller's buffer.
    unsafe { give_text(&sim::lock().leak_report(), buffer, len) }
}

#[no_mangle]
pub extern "C" fn cudartSimRaces() -> u64 {
    sim::lock().races.count
}

/// # Safety
/// `buffer` must be valid for `len` bytes, or null.
#[no_mangle]
pub unsafe extern "C" fn cudartSimLastRace(buffer: *mut c_char, len: usize) -> usize {
    // SAFETY: the caller's buffer.
    unsafe { give_text(&sim::lock().races.last, buffer, len) }
}

/// # Safety
/// `mode` must be a C string.
#[no_mangle]
pub unsafe extern "C" fn cudartSimSetRaceMode(mode: *const c_char) -> cudaError {
    // SAFETY: the caller's C string.
    answer(unsafe { text(mode) }.and_then(|mode| {
        sim::lock().races.mode = Mode::named(mode).ok_or(INVALID)?;
        Ok(())
    }))
}

#[no_mangle]
pub extern "C" fn cudartSimSetDelay(longest_us: c_uint, seed: u64) {
    let mut sim = sim::lock();
    sim.config.delay = Duration::from_micros(longest_us.into());
    sim.delays = Random::new(seed);
}

#[no_mangle]
pub extern "C" fn cudartSimAddDevice() -> c_int {
    let mut sim = sim::lock();
    let place = sim.devices.iter().map(|device| device.place + 1).max().unwrap_or(0);
    sim.add_device(place);
    sim.devices.len() as c_int - 1
}

#[no_mangle]
pub extern "C" fn cudartSimSetMemory(device: c_int, bytes: usize) -> cudaError {
    let mut sim = sim::lock();
    answer(sim.device(device).map(|device| sim.devices[device].total = bytes))
}

#[no_mangle]
pub extern "C" fn cudartSimSetPeerAccess(device: c_int, peer: c_int, possible: c_int) -> cudaError {
    let mut sim = sim::lock();
    answer(sim.device(device).and_then(|device| {
        let peer = sim.device(peer)?;
        let reaches = &mut sim.devices[device].reaches;
        if possible != 0 && peer != device {
            reaches.insert(peer);
        } else {
            reaches.remove(&peer);
        }
        Ok(())
    }))
}

#[no_mangle]
pub extern "C" fn cudartSimSetVersions(runtime: c_int, driver: c_int) {
    let mut sim = sim::lock();
    (sim.config.runtime_version, sim.config.driver_version) = (runtime, driver);
}

#[no_mangle]
pub extern "C" fn cudartSimReset() {
    fault::clear();
    let mut sim = sim::lock();
    (sim.races.count, sim.races.last) = (0, String::new());
    call::reset();
    EntryPoint::reset_calls();
}

const INVALID: cudaError = cudaError::cudaErrorInvalidValue;

fn answer(outcome: Outcome) -> cudaError {
    outcome.err().unwrap_or(cudaError::cudaSuccess)
}

/// # Safety
/// `text` must be null or a C string that lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(INVALID);
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| INVALID)
}

/// # Safety
/// `items` must be valid for `count` items that live for `'a`.
unsafe fn list<'a, T>(items: *const T, count: usize) -> Outcome<&'a [T]> {
    match count {
        0 => Ok(&[]),
        _ if items.is_null() => Err(INVALID),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(items, count) }),
    }
}

/// Writes as much as there is room for, with a NUL; returns how much room it needs.
///
/// # Safety
/// `buffer` must be valid for `len` bytes, or null.
unsafe fn give_text(text: &str, buffer: *mut c_char, len: usize) -> usize {
    if !buffer.is_null() && len > 0 {
        let shown = text.len().min(len - 1);
        // SAFETY: the caller's buffer has this much room.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), shown);
            buffer.add(shown).write(0);
        }
    }
    text.len() + 1
}
