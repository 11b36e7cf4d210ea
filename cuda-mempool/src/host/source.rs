//! Where chunks and large blocks come from.

use std::ptr::NonNull;

use crate::Result;

/// Memory by the large block, slow to get.
///
/// # Safety
/// What `take` hands out is valid for reads and writes of `len` bytes by the CPU and aligned to [`Source::ALIGN`], and
/// stays so until it is given back or the source is dropped.
pub(super) unsafe trait Source: Send + Sync {
    /// The alignment that every block has, a power of two of at least 32.
    const ALIGN: usize;

    /// A block of `len` bytes, which are not zero.
    fn take(&self, len: usize) -> Result<NonNull<u8>>;

    /// Takes a block back, and says whether it could: otherwise the memory is lost, and still the source's.
    ///
    /// # Safety
    /// `block` is exactly what a `take` returned, was not given back before, and is not used any more.
    unsafe fn give(&self, block: NonNull<[u8]>) -> bool;

    /// Lets go of what the source itself keeps of blocks that were given back.
    fn trim(&self) -> Result<()>;
}
