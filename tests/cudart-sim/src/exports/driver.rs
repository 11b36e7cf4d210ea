//! The functions of the driver that programs of the runtime use, by entry point.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void, CStr};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{current, give, require};
use crate::cuda::{cudaDriverEntryPointQueryResult, cudaError, cudaMemoryType, cudaStream_t};
use crate::memory::allocation::{Allocation, Kind, Place};
use crate::memory::space::Found;
use crate::sim::{self, Sim};
use crate::stream::{Op, StreamId};
use crate::work::{Bytes, Compare, Condition, Work};
use crate::{call, error, fault, process, Outcome};

/// What a driver function answers: its errors have the numbers of the runtime's.
type Result = u32;
/// A device address, as the driver counts it.
type DevicePointer = u64;

pub unsafe fn cudaGetDriverEntryPointByVersion(
    symbol: *const c_char,
    funcPtr: *mut *mut c_void,
    cudaVersion: c_uint,
    flags: c_ulonglong,
    driverStatus: *mut cudaDriverEntryPointQueryResult,
) -> Outcome {
    /// Either default stream may be asked for; here they differ by the handle alone.
    const KNOWN_FLAGS: c_ulonglong = 0b11;
    require(!symbol.is_null() && !funcPtr.is_null() && flags & !KNOWN_FLAGS == 0)?;
    // SAFETY: the caller's C string.
    let name = unsafe { CStr::from_ptr(symbol) }.to_str().unwrap_or_default();
    let (address, status) = match EntryPoint::named(name) {
        Some(entry) if cudaVersion < entry.since => {
            (std::ptr::null_mut(), cudaDriverEntryPointQueryResult::cudaDriverEntryPointVersionNotSufficent)
        }
        Some(entry) => (entry.address.cast_mut(), cudaDriverEntryPointQueryResult::cudaDriverEntryPointSuccess),
        None => (std::ptr::null_mut(), cudaDriverEntryPointQueryResult::cudaDriverEntryPointSymbolNotFound),
    };
    // SAFETY: the caller's out pointers; the second may be left out.
    unsafe {
        give(funcPtr, address)?;
        if !driverStatus.is_null() {
            driverStatus.write(status);
        }
    }
    Ok(())
}

/// A function that can be asked for by name.
pub struct EntryPoint {
    name: &'static str,
    /// The CUDA version that brought it in this form.
    since: c_uint,
    address: *const c_void,
    /// How often it was called.
    calls: AtomicU64,
}

// SAFETY: the address is one of code, which any thread may call.
unsafe impl Sync for EntryPoint {}

impl EntryPoint {
    const fn new(name: &'static str, since: c_uint, address: *const c_void) -> Self {
        Self { name, since, address, calls: AtomicU64::new(0) }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The function of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ENTRY_POINTS.iter().find(|entry| entry.name == name)
    }

    /// How often it was called since the last reset.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Forgets how often each was called.
    pub fn reset_calls() {
        ENTRY_POINTS.iter().for_each(|entry| entry.calls.store(0, Ordering::Relaxed));
    }
}

static ENTRY_POINTS: [EntryPoint; 18] = [
    EntryPoint::new("cuInit", 2000, cuInit as *const c_void),
    EntryPoint::new("cuDriverGetVersion", 2020, cuDriverGetVersion as *const c_void),
    EntryPoint::new("cuGetErrorName", 6000, cuGetErrorName as *const c_void),
    EntryPoint::new("cuGetErrorString", 6000, cuGetErrorString as *const c_void),
    EntryPoint::new("cuDeviceGet", 2000, cuDeviceGet as *const c_void),
    EntryPoint::new("cuDeviceGetCount", 2000, cuDeviceGetCount as *const c_void),
    EntryPoint::new("cuDeviceGetName", 2000, cuDeviceGetName as *const c_void),
    EntryPoint::new("cuDeviceGetUuid", 9020, cuDeviceGetUuid as *const c_void),
    EntryPoint::new("cuDeviceGetUuid_v2", 11040, cuDeviceGetUuid as *const c_void),
    EntryPoint::new("cuCtxGetCurrent", 4000, cuCtxGetCurrent as *const c_void),
    EntryPoint::new("cuCtxGetDevice", 2000, cuCtxGetDevice as *const c_void),
    EntryPoint::new("cuPointerGetAttribute", 4000, cuPointerGetAttribute as *const c_void),
    EntryPoint::new("cuPointerGetAttributes", 7000, cuPointerGetAttributes as *const c_void),
    EntryPoint::new("cuMemGetAddressRange", 3020, cuMemGetAddressRange as *const c_void),
    EntryPoint::new("cuStreamWriteValue32", 8000, cuStreamWriteValue32 as *const c_void),
    EntryPoint::new("cuStreamWriteValue64", 9000, cuStreamWriteValue64 as *const c_void),
    EntryPoint::new("cuStreamWaitValue32", 8000, cuStreamWaitValue32 as *const c_void),
    EntryPoint::new("cuStreamWaitValue64", 9000, cuStreamWaitValue64 as *const c_void),
];

/// Runs a driver function: its failure is nobody's last error.
fn driver(name: &'static str, body: impl FnOnce() -> Outcome) -> Result {
    if process::is_forked_child() {
        return cudaError::cudaErrorInitializationError.0;
    }
    if let Some(entry) = EntryPoint::named(name) {
        entry.calls.fetch_add(1, Ordering::Relaxed);
    }
    match fault::injected_into_driver(name).map_or_else(body, Err) {
        Ok(()) => cudaError::cudaSuccess.0,
        Err(error) => error.0,
    }
}

unsafe extern "C" fn cuInit(flags: c_uint) -> Result {
    driver("cuInit", || require(flags == 0))
}

unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Result {
    // SAFETY: the caller's out pointer.
    driver("cuDriverGetVersion", || unsafe { give(version, sim::lock().config.driver_version) })
}

unsafe extern "C" fn cuGetErrorName(code: Result, text: *mut *const c_char) -> Result {
    // SAFETY: the caller's out pointer.
    driver("cuGetErrorName", || unsafe { give(text, error::driver_name(cudaError(code))?.as_ptr()) })
}

unsafe extern "C" fn cuGetErrorString(code: Result, text: *mut *const c_char) -> Result {
    error::driver_name(cudaError(code)).map_or_else(
        |error| error.0,
        // SAFETY: the caller's out pointer.
        |_| driver("cuGetErrorString", || unsafe { give(text, error::text(cudaError(code)).as_ptr()) }),
    )
}

unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Result {
    driver("cuDeviceGet", || {
        sim::lock().device(ordinal)?;
        // SAFETY: the caller's out pointer.
        unsafe { give(device, ordinal) }
    })
}

unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Result {
    // SAFETY: the caller's out pointer.
    driver("cuDeviceGetCount", || unsafe { give(count, sim::lock().devices.len() as c_int) })
}

unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> Result {
    driver("cuDeviceGetName", || {
        sim::lock().device(device)?;
        let text = b"Simulated device (cudart-sim)\0";
        require(!name.is_null() && len > 0)?;
        let shown = text.len().min(len as usize);
        // SAFETY: the caller's buffer of `len` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), shown);
            name.add(shown - 1).write(0);
        }
        Ok(())
    })
}

unsafe extern "C" fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: c_int) -> Result {
    driver("cuDeviceGetUuid", || {
        let sim = sim::lock();
        let mut bytes = *b"cudart-sim device";
        bytes[16] = sim.devices[sim.device(device)?].place as u8;
        // SAFETY: the caller's out pointer.
        unsafe { give(uuid, bytes[1..].try_into().expect("sixteen are left")) }
    })
}

unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> Result {
    driver("cuCtxGetCurrent", || {
        let device = current::device(&sim::lock())?;
        // SAFETY: the caller's out pointer. A context is only ever compared.
        unsafe { give(context, context_of(device)) }
    })
}

unsafe extern "C" fn cuCtxGetDevice(device: *mut c_int) -> Result {
    driver("cuCtxGetDevice", || {
        let current = current::device(&sim::lock())?;
        // SAFETY: the caller's out pointer.
        unsafe { give(device, current as c_int) }
    })
}

fn context_of(device: usize) -> *mut c_void {
    (0xC0_0000 + device) as *mut c_void
}

unsafe extern "C" fn cuMemGetAddressRange(
    base: *mut DevicePointer,
    size: *mut usize,
    pointer: DevicePointer,
) -> Result {
    driver("cuMemGetAddressRange", || {
        let sim = sim::lock();
        let reached = |allocation: &Allocation| {
            allocation.place != Place::Host || current::device(&sim).is_ok_and(|it| sim.is_reached_by(allocation, it))
        };
        let allocation = match sim.space.find(pointer as usize) {
            Found::Live(allocation) if reached(&allocation) => allocation,
            _ => return Err(cudaError::cudaErrorSymbolNotFound),
        };
        // SAFETY: the caller's out pointers; either may be left out.
        unsafe {
            if !base.is_null() {
                base.write(allocation.base as u64);
            }
            if !size.is_null() {
                size.write(allocation.size);
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, pointer: DevicePointer) -> Result {
    driver("cuPointerGetAttribute", || {
        require(!data.is_null())?;
        let sim = sim::lock();
        let Found::Live(allocation) = sim.space.find(pointer as usize) else {
            return Err(cudaError::cudaErrorInvalidValue);
        };
        let answer = attribute_of(&sim, &allocation, attribute, pointer)?;
        // SAFETY: the caller's room for an attribute of that width.
        unsafe { answer.write(data) };
        Ok(())
    })
}

unsafe extern "C" fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *const c_uint,
    data: *mut *mut c_void,
    pointer: DevicePointer,
) -> Result {
    driver("cuPointerGetAttributes", || {
        require(count > 0 && !attributes.is_null() && !data.is_null())?;
        let sim = sim::lock();
        let found = sim.space.find(pointer as usize);
        for index in 0..count as usize {
            // SAFETY: the caller's two lists of so many.
            let (attribute, out) = unsafe { (*attributes.add(index), *data.add(index)) };
            require(!out.is_null())?;
            let answer = match &found {
                Found::Live(allocation) => attribute_of(&sim, allocation, attribute, pointer)?,
                // Nothing is known of other memory, and that is no error here.
                Found::Ghost(_) | Found::Nothing => nothing_of(attribute)?,
            };
            // SAFETY: the caller's room for an attribute of that width.
            unsafe { answer.write(out) };
        }
        Ok(())
    })
}

/// The value of an attribute, in its width.
enum Value {
    Byte(bool),
    Int(c_int),
    Long(u64),
}

impl Value {
    /// # Safety
    /// `out` must have room for the width.
    unsafe fn write(self, out: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Value::Byte(value) => out.cast::<u8>().write(value.into()),
                Value::Int(value) => out.cast::<c_int>().write(value),
                Value::Long(value) => out.cast::<u64>().write(value),
            }
        }
    }
}

// Numbers of `CUpointer_attribute`.
const CONTEXT: c_uint = 1;
const MEMORY_TYPE: c_uint = 2;
const DEVICE_POINTER: c_uint = 3;
const HOST_POINTER: c_uint = 4;
const IS_MANAGED: c_uint = 8;
const DEVICE_ORDINAL: c_uint = 9;
const IS_LEGACY_IPC_CAPABLE: c_uint = 10;
const RANGE_START: c_uint = 11;
const RANGE_SIZE: c_uint = 12;
const MAPPED: c_uint = 13;
const MEMPOOL_HANDLE: c_uint = 17;

fn attribute_of(sim: &Sim, allocation: &Allocation, attribute: c_uint, pointer: DevicePointer) -> Outcome<Value> {
    let current = current::device(sim)?;
    let device = if let Place::Device(device) = allocation.place { device } else { current };
    let is_device = matches!(allocation.place, Place::Device(_));
    Ok(match attribute {
        CONTEXT => Value::Long(context_of(device) as u64),
        MEMORY_TYPE => Value::Int(match allocation.place {
            Place::Host => cudaMemoryType::cudaMemoryTypeHost.0 as c_int,
            Place::Device(_) | Place::Managed => cudaMemoryType::cudaMemoryTypeDevice.0 as c_int,
        }),
        DEVICE_POINTER => {
            require(is_device || sim.is_reached_by(allocation, current))?;
            Value::Long(pointer)
        }
        HOST_POINTER => {
            require(!is_device)?;
            Value::Long(pointer)
        }
        IS_MANAGED => Value::Byte(allocation.place == Place::Managed),
        DEVICE_ORDINAL => Value::Int(device as c_int),
        IS_LEGACY_IPC_CAPABLE => Value::Byte(allocation.kind == Kind::Plain),
        RANGE_START => Value::Long(match (&allocation.kind, &allocation.segment) {
            // Measured on an H200: not where it starts, but how far into what the pool has mapped.
            (Kind::Pool(_) | Kind::Imported { .. }, Some(segment)) if allocation.place == Place::Host => {
                (allocation.base - segment.user) as u64
            }
            _ => allocation.base as u64,
        }),
        RANGE_SIZE => Value::Long(allocation.size as u64),
        MAPPED => Value::Byte(true),
        MEMPOOL_HANDLE => Value::Long(match allocation.kind {
            Kind::Pool(id) | Kind::Imported { pool: id, .. } => id.as_raw::<c_void>() as u64,
            _ => 0,
        }),
        _ => return Err(cudaError::cudaErrorInvalidValue),
    })
}

fn nothing_of(attribute: c_uint) -> Outcome<Value> {
    Ok(match attribute {
        IS_MANAGED | IS_LEGACY_IPC_CAPABLE | MAPPED => Value::Byte(false),
        MEMORY_TYPE => Value::Int(0),
        DEVICE_ORDINAL => Value::Int(-2),
        CONTEXT | DEVICE_POINTER | HOST_POINTER | RANGE_START | RANGE_SIZE | MEMPOOL_HANDLE => Value::Long(0),
        _ => return Err(cudaError::cudaErrorInvalidValue),
    })
}

unsafe extern "C" fn cuStreamWriteValue32(
    stream: cudaStream_t,
    address: DevicePointer,
    value: u32,
    flags: c_uint,
) -> Result {
    driver("cuStreamWriteValue32", || write_value("cuStreamWriteValue32", stream, address, value.into(), false, flags))
}

unsafe extern "C" fn cuStreamWriteValue64(
    stream: cudaStream_t,
    address: DevicePointer,
    value: u64,
    flags: c_uint,
) -> Result {
    driver("cuStreamWriteValue64", || write_value("cuStreamWriteValue64", stream, address, value, true, flags))
}

unsafe extern "C" fn cuStreamWaitValue32(
    stream: cudaStream_t,
    address: DevicePointer,
    value: u32,
    flags: c_uint,
) -> Result {
    driver("cuStreamWaitValue32", || wait_value("cuStreamWaitValue32", stream, address, value.into(), false, flags))
}

unsafe extern "C" fn cuStreamWaitValue64(
    stream: cudaStream_t,
    address: DevicePointer,
    value: u64,
    flags: c_uint,
) -> Result {
    driver("cuStreamWaitValue64", || wait_value("cuStreamWaitValue64", stream, address, value, true, flags))
}

fn write_value(
    name: &'static str,
    stream: cudaStream_t,
    address: DevicePointer,
    value: u64,
    wide: bool,
    flags: c_uint,
) -> Outcome {
    /// Asks for no barrier before the write; here it makes no difference.
    const NO_MEMORY_BARRIER: c_uint = 1;
    require(flags & !NO_MEMORY_BARRIER == 0)?;
    let mut sim = sim::lock();
    let (stream, to) = word(&mut sim, stream, address, wide)?;
    // Words that streams wait on are meant to be used from several at once, so they are no race.
    sim.submit(stream, name, Vec::new(), Op::Work(Work::Write { to, value, wide }));
    Ok(())
}

fn wait_value(
    name: &'static str,
    stream: cudaStream_t,
    address: DevicePointer,
    value: u64,
    wide: bool,
    flags: c_uint,
) -> Outcome {
    /// Asks that remote writes be visible behind the wait; here they always are.
    const FLUSH: c_uint = 1 << 30;
    let compare = match flags & !FLUSH {
        0 => Compare::GreaterOrEqual,
        1 => Compare::Equal,
        2 => Compare::And,
        3 => Compare::Nor,
        _ => return Err(cudaError::cudaErrorInvalidValue),
    };
    let mut sim = sim::lock();
    let (stream, at) = word(&mut sim, stream, address, wide)?;
    sim.submit(stream, name, Vec::new(), Op::Until(Condition::Value { at, value, wide, compare }));
    Ok(())
}

/// A stream, and a word in memory that it can wait on.
fn word(sim: &mut Sim, stream: cudaStream_t, address: DevicePointer, wide: bool) -> Outcome<(StreamId, Bytes)> {
    call::healthy()?;
    let stream = current::stream(sim, stream)?;
    sim.valid_capture_of(stream)?;
    let address = address as usize;
    let len = if wide { 8 } else { 4 };
    require(address % len == 0)?;
    let Found::Live(allocation) = sim.space.find(address) else {
        return Err(cudaError::cudaErrorInvalidValue);
    };
    require(address + len <= allocation.end())?;
    Ok((stream, Bytes { at: allocation.internal(address), owner: Some(allocation) }))
}
