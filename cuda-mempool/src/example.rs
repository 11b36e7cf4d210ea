//! What the examples of this documentation run in.

use crate::{Device, Result};

/// Runs an example on the first device. Without one it says so and skips, unless `CUDA_MEMPOOL_REQUIRE_DEVICE` is set.
///
/// # Panics
/// When the example fails, or when there is no device and one is required.
#[doc(hidden)]
pub fn example(run: impl FnOnce(Device) -> Result<()>) {
    match Device::new(0) {
        Ok(device) => run(device).expect("the example runs"),
        Err(why) if std::env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_some() => panic!("no device: {why}"),
        Err(why) => eprintln!("skipped, as there is no device: {why}"),
    }
}
