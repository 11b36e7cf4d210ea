//! What the examples of this documentation run in.

use crate::error::call;
use crate::{Device, Result, Stream};

/// Runs an example on the first device. Without one it says so and skips, unless `CUDA_MEMPOOL_REQUIRE_DEVICE` is set.
///
/// # Panics
/// When the example fails, or when there is no device and one is required.
pub fn run(example: impl FnOnce(Device) -> Result<()>) {
    match Device::new(0) {
        Ok(device) => example(device).expect("the example runs"),
        Err(why) if std::env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_some() => panic!("no device: {why}"),
        Err(why) => eprintln!("skipped, as there is no device: {why}"),
    }
}

/// Stands for the launch of a kernel that fills `length` bytes with 7: the examples are built without a device compiler.
///
/// # Safety
/// As for a kernel: `pointer` must be valid for writing `length` bytes in the order of `stream`.
///
/// # Panics
/// When the launch fails.
pub unsafe fn kernel(pointer: *mut u8, length: usize, stream: &Stream) {
    // SAFETY: the caller's promise.
    unsafe { call!(cudaMemsetAsync(pointer.cast(), 7, length, stream.as_raw())) }.expect("the kernel is launched");
}
