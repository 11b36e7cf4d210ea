//! A kernel without a CUDA compiler: the driver translates its text.

use std::ffi::{c_char, c_uint, c_void, CStr};
use std::ptr::{addr_of_mut, null_mut};

use cuda_mempool::{sys, Stream};

const SOURCE: &str = concat!(include_str!("sum.ptx"), "\0");

type Handle = *mut c_void;
type LoadModule = unsafe extern "C" fn(*mut Handle, *const c_void) -> c_uint;
type GetFunction = unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> c_uint;
#[rustfmt::skip]
type Launch = unsafe extern "C" fn(
    Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, sys::cudaStream_t, *mut *mut c_void, *mut *mut c_void,
) -> c_uint;

/// Adds the sum of some words to a total.
pub struct Sum {
    function: Handle,
    launch: Launch,
}

impl Sum {
    /// Loads it for the current device, where it stays until the process ends.
    pub fn load() -> Result<Self, String> {
        // SAFETY: the driver's functions of these names have these types since CUDA 4.0.
        let (load, get, launch) = unsafe {
            (
                std::mem::transmute::<Handle, LoadModule>(driver_function(c"cuModuleLoadData")?),
                std::mem::transmute::<Handle, GetFunction>(driver_function(c"cuModuleGetFunction")?),
                std::mem::transmute::<Handle, Launch>(driver_function(c"cuLaunchKernel")?),
            )
        };
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the out pointer is valid, and the source ends in a NUL.
        match unsafe { load(&mut module, SOURCE.as_ptr().cast()) } {
            0 => {}
            error => return Err(format!("the driver refuses the kernel: {error}")),
        }
        // SAFETY: the out pointer is valid, and the module is loaded.
        match unsafe { get(&mut function, module, c"sum".as_ptr()) } {
            0 => Ok(Self { function, launch }),
            error => Err(format!("the driver does not find the kernel: {error}")),
        }
    }

    /// # Safety
    /// When the stream gets there, its device must be able to read `count` words and to write the total, and nobody else
    /// may write them meanwhile.
    pub unsafe fn launch(&self, stream: &Stream, mut words: *const u32, count: usize, mut total: *mut u64) {
        let mut count = count as u64;
        let mut arguments = [addr_of_mut!(words).cast(), addr_of_mut!(count).cast(), addr_of_mut!(total).cast()];
        // SAFETY: the arguments are those of the kernel, and are read before this returns.
        let answer = unsafe {
            (self.launch)(self.function, 4, 1, 1, 256, 1, 1, 0, stream.as_raw(), arguments.as_mut_ptr(), null_mut())
        };
        assert_eq!(answer, 0, "the kernel is launched");
    }
}

#[cfg(cuda_since_12_5)]
fn driver_function(name: &CStr) -> Result<Handle, String> {
    let mut function = null_mut();
    let mut found = sys::cudaDriverEntryPointQueryResult::cudaDriverEntryPointSymbolNotFound;
    // SAFETY: the name is a C string and the out pointers are valid.
    let answer = unsafe { sys::cudaGetDriverEntryPointByVersion(name.as_ptr(), &mut function, 12000, 0, &mut found) };
    if answer == sys::cudaError_t::cudaSuccess && !function.is_null() {
        Ok(function)
    } else {
        Err(format!("the runtime knows no driver function {name:?}"))
    }
}

#[cfg(not(cuda_since_12_5))]
fn driver_function(name: &CStr) -> Result<Handle, String> {
    Err(format!("these bindings have no way to the driver function {name:?}"))
}
