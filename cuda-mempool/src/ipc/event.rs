//! Events that other processes can wait for.

use cuda_mempool_sys::{cudaEvent_t, cudaIpcEventHandle_t};

use super::handles::{same_bytes, EventHandle};
use crate::current::CurrentDevice;
use crate::error::call;
use crate::{Device, Event, Result};

impl Event {
    /// A handle with which another process can open this event, which must have been made
    /// [interprocess](crate::EventBuilder::interprocess).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidHandle`](crate::ErrorKind::InvalidHandle) when it was not, or what the runtime answers.
    #[doc(alias = "cudaIpcGetEventHandle")]
    pub fn ipc_handle(&self) -> Result<EventHandle> {
        let mut handle = cudaIpcEventHandle_t::default();
        // SAFETY: the event is alive and the out pointer valid.
        unsafe { call!(cudaIpcGetEventHandle(&mut handle, self.raw())) }?;
        Ok(EventHandle::from_bytes(same_bytes!(handle, cudaIpcEventHandle_t => [u8; 64])))
    }

    /// Opens an event of another process, with `device` current.
    ///
    /// **A stream that waits for it may never run again**: when the other process dies before the work in front of the
    /// event is done, waits for it never end, and nothing that this process can do ends them (measured on an H200,
    /// driver 580.159). If the peer may die, use the [sessions](super) of this module, which order streams without
    /// events.
    ///
    /// # Safety
    /// The process that made the event must keep it until this one is dropped and all that waits for it is done.
    ///
    /// # Errors
    /// What the runtime answers, for instance to a handle of this very process or to bytes that are no handle.
    #[doc(alias = "cudaIpcOpenEventHandle")]
    pub unsafe fn open_ipc(handle: &EventHandle, device: Device) -> Result<Self> {
        let _current = CurrentDevice::set(device)?;
        let handle = same_bytes!(*handle.as_bytes(), [u8; 64] => cudaIpcEventHandle_t);
        let mut raw: cudaEvent_t = std::ptr::null_mut();
        // SAFETY: the out pointer is valid, and any bytes may be asked for.
        unsafe { call!(cudaIpcOpenEventHandle(&mut raw, handle)) }?;
        // SAFETY: it was just opened, and is ours to destroy.
        Ok(unsafe { Self::from_raw(raw, device) })
    }
}
