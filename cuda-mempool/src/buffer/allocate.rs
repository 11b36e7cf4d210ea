//! Sizes and alignments, settled before anything is called.

use std::ffi::c_void;
use std::mem::{align_of, size_of};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use super::block::{Block, Home};
use crate::resource::DeviceMemoryResource;
use crate::{DeviceBuffer, Error, ErrorKind, Result, Stream};

/// The alignment that the runtime promises for every allocation.
const RUNTIME_ALIGNMENT: usize = 256;
/// The C function behind most allocations, for errors.
pub(crate) const FROM_POOL: &str = "cudaMallocFromPoolAsync";

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates `length` elements from a memory resource, for use in the order of `stream`. Their contents are
    /// unspecified. The resource gets the memory back when the buffer is dropped.
    ///
    /// Costs a small allocation on the host beside that of the resource. No bytes are never asked for.
    ///
    /// # Errors
    /// What the resource answers, and [`ErrorKind::SizeOverflow`].
    pub fn from_resource(
        resource: Arc<dyn DeviceMemoryResource + Send + Sync>,
        stream: &Stream,
        length: usize,
    ) -> Result<Self> {
        // SAFETY: a resource answers with memory that nobody else uses, in the order of `stream`, and takes it back.
        unsafe {
            Self::allocate(FROM_POOL, stream, length, |bytes| {
                let base = resource.allocate_async_aligned(bytes, RUNTIME_ALIGNMENT, stream)?.as_ptr();
                Ok(Block { base, stream: stream.clone(), home: Home::resource(resource, bytes, RUNTIME_ALIGNMENT) })
            })
        }
    }

    /// A buffer of `length` elements in what `allocate` answers, by this C function. That is asked for a number of bytes,
    /// above 0, and must answer with a block of at least as many that nobody else uses, aligned as the runtime promises.
    ///
    /// # Safety
    /// The block must be as described.
    #[inline]
    pub(crate) unsafe fn allocate(
        function: &'static str,
        stream: &Stream,
        length: usize,
        allocate: impl FnOnce(usize) -> Result<Block>,
    ) -> Result<Self> {
        let Some(bytes) = bytes_for::<T>(length) else { return Err(overflow(function, length, size_of::<T>())) };
        if bytes == 0 {
            // SAFETY: no bytes need no memory.
            return Ok(unsafe { Self::from_block(NonNull::dangling(), length, Block::none(stream.clone())) });
        }
        let block = allocate(bytes)?;
        // SAFETY: fresh memory, with room for `length` aligned elements from there on.
        Ok(unsafe { Self::from_block(aligned(block.base), length, block) })
    }
}

/// The first place for a `T` from `base` on: `base`, where the runtime's alignment is enough.
#[inline]
fn aligned<T>(base: *mut c_void) -> NonNull<T> {
    let ahead = if align_of::<T>() <= RUNTIME_ALIGNMENT {
        0
    } else {
        let address = base as usize;
        address.next_multiple_of(align_of::<T>()) - address
    };
    // SAFETY: `bytes_for` made room for this, and memory does not wrap around to null.
    unsafe { NonNull::new_unchecked(base.cast::<u8>().wrapping_add(ahead).cast()) }
}

/// How many bytes to ask for: room for `length` elements, and for aligning them where the runtime does not.
#[inline]
fn bytes_for<T>(length: usize) -> Option<usize> {
    let bytes = length.checked_mul(size_of::<T>())?;
    let extra = if bytes == 0 { 0 } else { align_of::<T>().saturating_sub(RUNTIME_ALIGNMENT) };
    bytes.checked_add(extra).filter(|&bytes| isize::try_from(bytes).is_ok())
}

#[cold]
fn overflow(function: &'static str, length: usize, size: usize) -> Error {
    Error::refused(
        ErrorKind::SizeOverflow,
        function,
        format!("{length} elements of {size} bytes are more than memory can be addressed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_settled_before_cuda_is_called() {
        #[derive(Clone, Copy)]
        #[repr(align(4096))]
        #[allow(dead_code)]
        struct Page([u8; 4096]);
        assert_eq!(bytes_for::<u32>(3), Some(12));
        assert_eq!(bytes_for::<()>(usize::MAX), Some(0));
        assert_eq!(bytes_for::<Page>(0), Some(0));
        assert_eq!(bytes_for::<Page>(1), Some(4096 + 4096 - 256));
        assert_eq!(bytes_for::<u8>(isize::MAX as usize), Some(isize::MAX as usize));
        assert_eq!(bytes_for::<u8>(isize::MAX as usize + 1), None);
        assert_eq!(bytes_for::<u64>(usize::MAX / 2), None);
    }
}
