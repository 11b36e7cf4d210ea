//! A cache as a memory resource.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::{BlockCache, Store};
use crate::resource::{request, DeviceMemoryResource, ResourceId};
use crate::stream::order;
use crate::{Device, Result, Stream};

// SAFETY: the store hands out blocks that nobody else has, and the events bring them into the order of the caller's
// stream and back. What it handed out it takes back alone: its blocks are larger than what was asked for.
unsafe impl DeviceMemoryResource for BlockCache {
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        request::allocate(bytes, alignment, |whole| {
            let lease = Store::take(&self.store, whole)?;
            if let Err(error) = order(self.stream(), stream) {
                // SAFETY: the block was handed out above and is not used.
                let _ = unsafe { Store::give_back(&self.store, &lease.stream, lease.base, whole) };
                return Err(error);
            }
            Ok(lease.base)
        })
    }

    unsafe fn deallocate_async_aligned(
        &self,
        pointer: NonNull<c_void>,
        bytes: usize,
        alignment: usize,
        stream: &Stream,
    ) -> Result<()> {
        request::deallocate(pointer, bytes, alignment, |base, whole| {
            // SAFETY: the caller's promise.
            unsafe { Store::give_back(&self.store, stream, base, whole) }
        })
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn device(&self) -> Device {
        self.stream().device()
    }

    fn trim(&self) -> Result<()> {
        self.trim(0);
        self.pool().trim_to(0)
    }
}
