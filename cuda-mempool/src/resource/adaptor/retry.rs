//! A second try.

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;

use crate::resource::{DeviceMemoryResource, ResourceId};
use crate::{Device, ErrorKind, Result, Stream};

/// When memory runs out, makes room and tries once more.
///
/// By default room is made by synchronising the stream, so that frees which wait for it are done, and trimming the
/// resource. A caller whose memory is held elsewhere passes a function of its own.
pub struct RetryAdaptor<R, F = fn(&R, usize, &Stream) -> bool> {
    upstream: R,
    make_room: F,
}

impl<R: DeviceMemoryResource> RetryAdaptor<R> {
    /// Synchronises the stream and trims `upstream` when it runs out of memory.
    #[must_use]
    pub fn new(upstream: R) -> Self {
        Self { upstream, make_room: synchronize_and_trim }
    }
}

impl<R, F: Fn(&R, usize, &Stream) -> bool> RetryAdaptor<R, F> {
    /// Calls `make_room` when `upstream` runs out of memory, with the resource, the bytes asked for and the stream. If
    /// it returns true the allocation is tried once more.
    #[must_use]
    pub fn with_callback(upstream: R, make_room: F) -> Self {
        Self { upstream, make_room }
    }
}

impl<R, F> RetryAdaptor<R, F> {
    /// The resource behind this one.
    #[must_use]
    pub fn upstream(&self) -> &R {
        &self.upstream
    }
}

/// Whether another try is worth it: an error here would hide that memory ran out.
fn synchronize_and_trim<R: DeviceMemoryResource>(upstream: &R, _bytes: usize, stream: &Stream) -> bool {
    stream.synchronize().is_ok() && upstream.trim().is_ok()
}

// SAFETY: blocks are those of the resource behind, and so is the id.
unsafe impl<R, F> DeviceMemoryResource for RetryAdaptor<R, F>
where
    R: DeviceMemoryResource,
    F: Fn(&R, usize, &Stream) -> bool,
{
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        match self.upstream.allocate_async_aligned(bytes, alignment, stream) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                if !(self.make_room)(&self.upstream, bytes, stream) {
                    return Err(error);
                }
                self.upstream.allocate_async_aligned(bytes, alignment, stream)
            }
            answer => answer,
        }
    }

    unsafe fn deallocate_async_aligned(
        &self,
        pointer: NonNull<c_void>,
        bytes: usize,
        alignment: usize,
        stream: &Stream,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.upstream.deallocate_async_aligned(pointer, bytes, alignment, stream) }
    }

    fn id(&self) -> ResourceId {
        self.upstream.id()
    }

    fn device(&self) -> Device {
        self.upstream.device()
    }

    fn trim(&self) -> Result<()> {
        self.upstream.trim()
    }
}

impl<R: fmt::Debug, F> fmt::Debug for RetryAdaptor<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryAdaptor").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
