//! The few functions of the driver that the runtime has no counterpart of, reached through the runtime.

use std::ffi::{c_int, c_uint, c_void, CStr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuda_mempool_sys::{cudaError_t, cudaMemPool_t, cudaStream_t};

use crate::current::CurrentDevice;
use crate::error::check;
use crate::{Device, Error, ErrorKind, Result, Stream};

/// `CUdeviceptr`.
pub(super) type DevicePointer = u64;

/// Driver errors that the runtime knows too have the same number there.
type CuResult = u32;

/// A driver function, found when it is first used.
struct EntryPoint {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl EntryPoint {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[inline]
    fn address(&self) -> Result<*mut c_void> {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            self.look_up()
        } else {
            Ok(address)
        }
    }

    #[cold]
    #[cfg(cuda_since_12_5)]
    fn look_up(&self) -> Result<*mut c_void> {
        use cuda_mempool_sys::cudaDriverEntryPointQueryResult;

        /// The version whose signatures are used here.
        const VERSION: c_uint = 12000;
        const DEFAULT_FLAGS: u64 = 0;
        let mut address = std::ptr::null_mut();
        let mut found = cudaDriverEntryPointQueryResult::cudaDriverEntryPointSymbolNotFound;
        // SAFETY: the name is a C string, and the out pointers are valid.
        unsafe {
            crate::error::call!(cudaGetDriverEntryPointByVersion(
                self.name.as_ptr(),
                &mut address,
                VERSION,
                DEFAULT_FLAGS,
                &mut found
            ))
        }?;
        if found != cudaDriverEntryPointQueryResult::cudaDriverEntryPointSuccess || address.is_null() {
            return Err(Error::unsupported(
                "cudaGetDriverEntryPointByVersion",
                format!("this driver has no {}", self.name.to_string_lossy()),
            ));
        }
        self.address.store(address, Ordering::Relaxed);
        Ok(address)
    }

    #[cold]
    #[cfg(not(cuda_since_12_5))]
    fn look_up(&self) -> Result<*mut c_void> {
        Err(Error::unsupported(
            "cudaGetDriverEntryPointByVersion",
            format!("{} is reached by a function that came with CUDA 12.5", self.name.to_string_lossy()),
        ))
    }
}

fn result(answer: CuResult, function: &'static str) -> Result<()> {
    check(cudaError_t(answer as _), function)
}

/// Where an allocation starts, and its exact size in bytes. `pointer` may be anywhere in it, where a device that can reach
/// the memory is current; elsewhere the driver knows the start from nothing but the start itself.
pub(super) fn range_of(pointer: *const c_void) -> Result<(NonNull<u8>, usize)> {
    const RANGE_START: c_int = 11;
    let size = size_of(pointer)?;
    let mut start: DevicePointer = 0;
    // SAFETY: the attribute is an address, as the out pointer is for.
    unsafe { pointer_attribute(std::ptr::from_mut(&mut start).cast(), RANGE_START, pointer) }?;
    // That of a pool on the host is no address: it counts from the start of what was mapped.
    if start > pointer as u64 || pointer as u64 - start >= size as u64 {
        start = host_start_of(pointer)?.unwrap_or(pointer as u64);
    }
    match NonNull::new(start as *mut u8) {
        Some(start) => Ok((start, size)),
        None => Err(Error::refused(ErrorKind::InvalidValue, "cuPointerGetAttribute", "not memory of a device")),
    }
}

/// The exact size of an allocation, in bytes. `pointer` may be anywhere in it.
pub(super) fn size_of(pointer: *const c_void) -> Result<usize> {
    const RANGE_SIZE: c_int = 12;
    let mut size: usize = 0;
    // SAFETY: the attribute is a size, as the out pointer is for.
    unsafe { pointer_attribute(std::ptr::from_mut(&mut size).cast(), RANGE_SIZE, pointer) }?;
    Ok(size)
}

/// Where an allocation on the host starts, if the current device can reach it.
fn host_start_of(pointer: *const c_void) -> Result<Option<DevicePointer>> {
    static FUNCTION: EntryPoint = EntryPoint::new(c"cuMemGetAddressRange");
    type Function = unsafe extern "C" fn(*mut DevicePointer, *mut usize, DevicePointer) -> CuResult;
    /// `CUDA_ERROR_NOT_FOUND`
    const NOT_FOUND: CuResult = 500;
    let address = FUNCTION.address()?;
    initialise_current()?;
    let (mut start, mut size) = (0, 0);
    // SAFETY: the driver's function of this name has this signature since 3.2, and the out pointers are valid.
    let answer =
        unsafe { std::mem::transmute::<*mut c_void, Function>(address)(&mut start, &mut size, pointer as u64) };
    match answer {
        NOT_FOUND => Ok(None),
        _ => result(answer, "cuMemGetAddressRange").map(|()| Some(start)),
    }
}

/// The pool that memory was allocated from.
pub(super) fn pool_of(pointer: *const c_void) -> Result<cudaMemPool_t> {
    const MEMPOOL_HANDLE: c_int = 17;
    let mut pool: cudaMemPool_t = std::ptr::null_mut();
    // SAFETY: the attribute is a handle, as the out pointer is for.
    unsafe { pointer_attribute(std::ptr::from_mut(&mut pool).cast(), MEMPOOL_HANDLE, pointer) }?;
    Ok(pool)
}

/// # Safety
/// `data` must be valid for writing an attribute of this kind.
unsafe fn pointer_attribute(data: *mut c_void, attribute: c_int, pointer: *const c_void) -> Result<()> {
    static FUNCTION: EntryPoint = EntryPoint::new(c"cuPointerGetAttribute");
    type Function = unsafe extern "C" fn(*mut c_void, c_int, DevicePointer) -> CuResult;
    let address = FUNCTION.address()?;
    // SAFETY: the driver's function of this name has this signature since 4.0; the rest is the caller's promise.
    let answer = unsafe { std::mem::transmute::<*mut c_void, Function>(address)(data, attribute, pointer as u64) };
    result(answer, "cuPointerGetAttribute")
}

/// Whether the driver has the functions that let streams write and wait for words in memory.
pub(super) fn has_stream_memory_operations() -> bool {
    WRITE_VALUE.address().is_ok() && WAIT_VALUE.address().is_ok()
}

static WRITE_VALUE: EntryPoint = EntryPoint::new(c"cuStreamWriteValue32");
static WAIT_VALUE: EntryPoint = EntryPoint::new(c"cuStreamWaitValue32");
type ValueFunction = unsafe extern "C" fn(cudaStream_t, DevicePointer, u32, c_uint) -> CuResult;

/// Enqueues writing `value` to a word, after all writes to memory that were enqueued before.
///
/// # Safety
/// `word` must be a word of device-visible memory that stays so until the stream has come there.
#[inline]
pub(super) unsafe fn write_value(stream: &Stream, word: DevicePointer, value: u32) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { on_stream(&WRITE_VALUE, "cuStreamWriteValue32", stream, word, value, 0) }
}

/// Enqueues waiting until a word has come to `value`, in arithmetic that wraps around.
///
/// # Safety
/// As for [`write_value`].
#[inline]
pub(super) unsafe fn wait_value(stream: &Stream, word: DevicePointer, value: u32) -> Result<()> {
    const GREATER_OR_EQUAL: c_uint = 0;
    // SAFETY: the caller's promise.
    unsafe { on_stream(&WAIT_VALUE, "cuStreamWaitValue32", stream, word, value, GREATER_OR_EQUAL) }
}

/// # Safety
/// As for [`write_value`].
#[inline]
unsafe fn on_stream(
    function: &EntryPoint,
    name: &'static str,
    stream: &Stream,
    word: DevicePointer,
    value: u32,
    flags: c_uint,
) -> Result<()> {
    let address = function.address()?;
    // SAFETY: both functions have this signature since CUDA 12.0.
    let call = unsafe { std::mem::transmute::<*mut c_void, ValueFunction>(address) };
    let _current = stream.enter(name)?;
    // SAFETY: the stream is alive, and for the word there is the caller's promise.
    let answer = unsafe { call(stream.raw(), word, value, flags) };
    if cudaError_t(answer as _) == cudaError_t::cudaErrorDeviceUninitialized {
        // The thread has never used the device through the runtime.
        let _current = CurrentDevice::set(stream.device())?;
        initialise_current()?;
        // SAFETY: as above.
        return result(unsafe { call(stream.raw(), word, value, flags) }, name);
    }
    result(answer, name)
}

/// Makes the current device's context the thread's.
#[cold]
fn initialise_current() -> Result<()> {
    // SAFETY: freeing null does nothing else.
    unsafe { crate::error::call!(cudaFree(std::ptr::null_mut())) }
}

impl Device {
    /// Its UUID: the same in every process, whatever ordinal it has there. That of the instance, where the GPU is
    /// partitioned.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with bindings older than CUDA 12.5, or what the driver answers.
    #[doc(alias = "cuDeviceGetUuid")]
    pub fn uuid(self) -> Result<[u8; 16]> {
        static GET: EntryPoint = EntryPoint::new(c"cuDeviceGet");
        static UUID: EntryPoint = EntryPoint::new(c"cuDeviceGetUuid");
        type Get = unsafe extern "C" fn(*mut c_int, c_int) -> CuResult;
        type Uuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> CuResult;
        let (get, uuid) = (GET.address()?, UUID.address()?);
        let (mut handle, mut bytes) = (0, [0; 16]);
        // SAFETY: the functions have these signatures, and the out pointers are valid.
        unsafe {
            result(std::mem::transmute::<*mut c_void, Get>(get)(&mut handle, self.ordinal()), "cuDeviceGet")?;
            result(std::mem::transmute::<*mut c_void, Uuid>(uuid)(&mut bytes, handle), "cuDeviceGetUuid")?;
        }
        Ok(bytes)
    }

    /// The device with this UUID, if this process can see it.
    ///
    /// # Errors
    /// As [`Device::uuid`] and [`Device::count`].
    pub fn by_uuid(uuid: &[u8; 16]) -> Result<Option<Self>> {
        for device in Self::all()? {
            if device.uuid()? == *uuid {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }
}
