//! A resource without CUDA, for the tests of what wraps resources.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;

use super::{DeviceMemoryResource, ResourceId, ALIGNMENT};
use crate::{Device, Error, ErrorKind, Result, Stream};

/// Hands out addresses that nobody may look at, up to a number of bytes, and panics at a block that it does not know.
pub(super) struct Fake {
    id: ResourceId,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) live: HashMap<usize, (usize, usize)>,
    pub(super) capacity: usize,
    /// Room that a trim brings.
    pub(super) room_to_trim: usize,
    pub(super) calls: usize,
    /// Takes nothing back.
    pub(super) stuck: bool,
    next: usize,
}

impl Fake {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        let state = State { capacity, next: 1 << 40, ..State::default() };
        Self { id: ResourceId::unique(), state: Mutex::new(state) }
    }

    pub(super) fn stream() -> Stream {
        Stream::legacy(Device::from_ordinal_unchecked(0))
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

// SAFETY: addresses are never handed out twice, and nothing reaches the memory that is not there.
unsafe impl DeviceMemoryResource for Fake {
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, _: &Stream) -> Result<NonNull<c_void>> {
        let mut state = self.state();
        state.calls += 1;
        let used: usize = state.live.values().map(|&(bytes, _)| bytes).sum();
        if bytes > state.capacity - used {
            return Err(Error::refused(ErrorKind::OutOfMemory, "fake", "no room"));
        }
        let address = state.next.next_multiple_of(alignment.max(ALIGNMENT));
        state.next = address + bytes;
        state.live.insert(address, (bytes, alignment));
        Ok(NonNull::new(address as *mut c_void).unwrap())
    }

    unsafe fn deallocate_async_aligned(
        &self,
        pointer: NonNull<c_void>,
        bytes: usize,
        alignment: usize,
        _: &Stream,
    ) -> Result<()> {
        if self.state().stuck {
            return Err(Error::refused(ErrorKind::Other, "fake", "stuck"));
        }
        let live = self.state().live.remove(&(pointer.as_ptr() as usize));
        assert_eq!(live, Some((bytes, alignment)), "given back as it was handed out");
        Ok(())
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn device(&self) -> Device {
        Device::from_ordinal_unchecked(0)
    }

    fn trim(&self) -> Result<()> {
        let mut state = self.state();
        state.capacity += std::mem::take(&mut state.room_to_trim);
        Ok(())
    }
}
