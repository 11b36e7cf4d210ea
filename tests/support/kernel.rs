//! A few kernels that tests launch without a CUDA compiler: PTX text that the driver translates.
//!
//! ```ignore
//! let kernels = Kernels::load()?; // for the current device
//! // SAFETY: `words` is device memory of `count` words, ordered before this on the stream.
//! unsafe { kernels.fill(stream, words, count, 7) }?;
//! ```

use std::ffi::{c_char, c_uint, c_void, CStr};
use std::ptr;

use cuda_mempool_sys::{cudaFree, cudaGetLastError, cudaStream_t};

use super::driver::{entry_point, CuResult, DriverError, CUDA_SUCCESS};

const SOURCE: &str = concat!(include_str!("kernels.ptx"), "\0");

type Module = *mut c_void;
type Function = *mut c_void;
type ModuleUnload = unsafe extern "C" fn(Module) -> CuResult;
type LaunchKernel = unsafe extern "C" fn(
    function: Function,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: cudaStream_t,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CuResult;

/// The kernels, translated for the device that was current when they were loaded.
///
/// They run on streams of that device. All of them are asynchronous: what they do wrong (an address that the device
/// cannot reach) is reported by a later synchronisation, and spoils the device for the rest of the process.
pub struct Kernels {
    module: Module,
    unload: ModuleUnload,
    launch: LaunchKernel,
    fill: Function,
    increment: Function,
    sum: Function,
    spin: Function,
    wait_for: Function,
}

impl Kernels {
    /// Loads them for the calling thread's current device.
    ///
    /// # Errors
    /// Where the driver's functions cannot be had (a simulated runtime has none), or refuse the kernels.
    pub fn load() -> Result<Self, DriverError> {
        let load = entry_point(c"cuModuleLoadData")?;
        let get_function = entry_point(c"cuModuleGetFunction")?;
        let unload = entry_point(c"cuModuleUnload")?;
        let launch = entry_point(c"cuLaunchKernel")?;
        // SAFETY: the driver's functions of these names have these signatures since CUDA 4.0.
        let (load, get_function, unload, launch) = unsafe {
            (
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Module, *const c_void) -> CuResult>(load),
                std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut Function, Module, *const c_char) -> CuResult,
                >(get_function),
                std::mem::transmute::<*mut c_void, ModuleUnload>(unload),
                std::mem::transmute::<*mut c_void, LaunchKernel>(launch),
            )
        };

        // The driver's functions need the device's context to be current: the runtime sees to it with its first call.
        // SAFETY: freeing null does nothing else.
        unsafe {
            cudaFree(ptr::null_mut());
            cudaGetLastError();
        }
        let mut module = ptr::null_mut();
        // SAFETY: the out pointer is valid and the source ends in a NUL.
        check("cuModuleLoadData", unsafe { load(&mut module, SOURCE.as_ptr().cast()) })?;
        let mut kernels = Self {
            module,
            unload,
            launch,
            fill: ptr::null_mut(),
            increment: ptr::null_mut(),
            sum: ptr::null_mut(),
            spin: ptr::null_mut(),
            wait_for: ptr::null_mut(),
        };
        let find = |kernel: &mut Function, name: &CStr| {
            // SAFETY: the out pointer is valid, the module was just loaded, the name is a C string.
            check("cuModuleGetFunction", unsafe { get_function(kernel, module, name.as_ptr()) })
        };
        find(&mut kernels.fill, c"fill")?;
        find(&mut kernels.increment, c"increment")?;
        find(&mut kernels.sum, c"sum")?;
        find(&mut kernels.spin, c"spin")?;
        find(&mut kernels.wait_for, c"wait_for")?;
        Ok(kernels)
    }

    /// Sets `count` words to `value`.
    ///
    /// # Safety
    /// `words` must be writable by the device for that many words whenever the kernel runs, and nothing else may use
    /// them meanwhile.
    pub unsafe fn fill(
        &self,
        stream: cudaStream_t,
        words: *mut u32,
        count: u64,
        value: u32,
    ) -> Result<(), DriverError> {
        // SAFETY: the arguments are those of the kernel, and the caller vouches for the memory.
        unsafe { self.launch(self.fill, WIDE, stream, &mut [argument(&words), argument(&count), argument(&value)]) }
    }

    /// Adds one to each of `count` words.
    ///
    /// # Safety
    /// As for [`fill`](Self::fill).
    pub unsafe fn increment(&self, stream: cudaStream_t, words: *mut u32, count: u64) -> Result<(), DriverError> {
        // SAFETY: the arguments are those of the kernel, and the caller vouches for the memory.
        unsafe { self.launch(self.increment, WIDE, stream, &mut [argument(&words), argument(&count)]) }
    }

    /// Adds the sum of `count` words to `total`.
    ///
    /// # Safety
    /// `words` must be readable and `total` writable by the device whenever the kernel runs, and nothing else may
    /// write them meanwhile.
    pub unsafe fn sum(
        &self,
        stream: cudaStream_t,
        words: *const u32,
        count: u64,
        total: *mut u64,
    ) -> Result<(), DriverError> {
        // SAFETY: the arguments are those of the kernel, and the caller vouches for the memory.
        unsafe { self.launch(self.sum, WIDE, stream, &mut [argument(&words), argument(&count), argument(&total)]) }
    }

    /// Keeps the stream busy for that many nanoseconds.
    pub fn spin(&self, stream: cudaStream_t, nanoseconds: u64) -> Result<(), DriverError> {
        // SAFETY: the argument is that of the kernel, which touches no memory.
        unsafe { self.launch(self.spin, SINGLE, stream, &mut [argument(&nanoseconds)]) }
    }

    /// Keeps the stream busy until `*flag` is `value` or more.
    ///
    /// # Safety
    /// `flag` must be readable by the device until the kernel ends.
    pub unsafe fn wait_for(&self, stream: cudaStream_t, flag: *const u32, value: u32) -> Result<(), DriverError> {
        // SAFETY: the arguments are those of the kernel, and the caller vouches for the memory.
        unsafe { self.launch(self.wait_for, SINGLE, stream, &mut [argument(&flag), argument(&value)]) }
    }

    /// # Safety
    /// The arguments must be the kernel's, in number, order and size.
    unsafe fn launch(
        &self,
        kernel: Function,
        (blocks, threads): Shape,
        stream: cudaStream_t,
        arguments: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        // SAFETY: the function is of this module; the arguments are read before the call returns.
        check("cuLaunchKernel", unsafe {
            (self.launch)(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments.as_mut_ptr(), ptr::null_mut())
        })
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        // SAFETY: the module was loaded by `load` and is unloaded once.
        unsafe { (self.unload)(self.module) };
    }
}

/// Blocks and threads of a launch.
type Shape = (c_uint, c_uint);
const WIDE: Shape = (64, 256);
const SINGLE: Shape = (1, 1);

fn argument<T>(value: &T) -> *mut c_void {
    ptr::from_ref(value).cast_mut().cast()
}

fn check(function: &str, answer: CuResult) -> Result<(), DriverError> {
    if answer == CUDA_SUCCESS {
        Ok(())
    } else {
        Err(DriverError(format!("{function}: {answer:?}")))
    }
}
