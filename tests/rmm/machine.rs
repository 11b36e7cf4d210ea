//! The machine that a test runs on: real devices or simulated ones.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cuda_mempool::Device;

/// The first device, for one test at a time: some look at the device's free memory. Without one, a note that the test
/// is skipped; with `CUDA_MEMPOOL_REQUIRE_DEVICE` that is an error.
pub fn device() -> Option<(Device, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::new(0) {
        Ok(device) => Some((device, turn)),
        Err(why) => {
            assert!(std::env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_none(), "no device: {why}");
            eprintln!("skipped: {why}");
            None
        }
    }
}
