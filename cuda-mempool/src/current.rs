//! The calling thread's current device, borrowed for a call and put back.

use crate::error::call;
use crate::{teardown, Device, Result};

/// Makes a device current until it is dropped.
#[must_use]
pub(crate) struct CurrentDevice {
    previous: Option<Device>,
}

impl CurrentDevice {
    pub(crate) fn set(device: Device) -> Result<Self> {
        teardown::reachable("cudaSetDevice")?;
        let current = Device::current()?;
        if current == device {
            return Ok(Self { previous: None });
        }
        Self::change(current, device)
    }

    /// As [`set`](Self::set), and has the thread use the device's context, which the driver's own functions need: the
    /// first device is current on a new thread that has none.
    pub(crate) fn set_with_context(device: Device) -> Result<Self> {
        teardown::reachable("cudaSetDevice")?;
        Self::change(Device::current()?, device)
    }

    fn change(current: Device, device: Device) -> Result<Self> {
        teardown::watch_forks();
        make_current(device)?;
        Ok(Self { previous: Some(current).filter(|&current| current != device) })
    }
}

impl Drop for CurrentDevice {
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            teardown::release("cudaSetDevice", || make_current(previous));
        }
    }
}

fn make_current(device: Device) -> Result<()> {
    // SAFETY: any number may be given.
    unsafe { call!(cudaSetDevice(device.ordinal())) }
}
