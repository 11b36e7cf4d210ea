//! Blocks as C knows them: freed by their address alone.
//!
//! In front of each block stands a [`Head`] with what Rust's allocators must be told at the end, the block's layout.

use std::alloc::Layout;
use std::mem::{align_of, size_of};
use std::ptr::NonNull;

use cuda_mempool::host::NumaAllocator;
use cuda_mempool::sys::cudaError_t;

use crate::failure::Failure;

/// As `malloc` aligns on the platforms that CUDA supports.
pub(crate) const ALIGNMENT: usize = 16;

/// The layout of the whole block, head included. The block proper begins `align` bytes in.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Head {
    size: usize,
    align: usize,
}

const _: () = assert!(size_of::<Head>() <= ALIGNMENT && align_of::<Head>() <= ALIGNMENT);

/// A block that holds `size` bytes, aligned to `align`.
pub fn allocate(allocator: &NumaAllocator, align: usize, size: usize) -> Result<NonNull<u8>, Failure> {
    if !align.is_power_of_two() {
        return Err(Failure::invalid(format!("an alignment of {align} is no power of two")));
    }
    let layout = layout(align.max(ALIGNMENT), size)?;
    let whole = allocator.try_allocate(layout)?;
    // SAFETY: the memory is fresh, and long enough for the layout.
    Ok(unsafe { with_head(whole, layout.align()) })
}

/// A block with the contents of another as far as they fit, which is then gone. On failure that one stays.
///
/// # Safety
/// The block must be one of this allocator's.
pub unsafe fn resize(allocator: &NumaAllocator, block: NonNull<u8>, size: usize) -> Result<NonNull<u8>, Failure> {
    if allocator.is_inherited() {
        // Nor is the head there.
        return Err(Failure {
            code: cudaError_t::cudaErrorNotPermitted,
            text: "this is a forked child, which does not have the block".into(),
        });
    }
    // SAFETY: the caller's promise.
    let (base, old) = unsafe { whole(block) };
    let new = layout(old.align(), size)?;
    // SAFETY: base and layout are those of the block.
    let resized = unsafe { allocator.try_resize(base, old, new) }?;
    // SAFETY: the memory is long enough for the layout.
    Ok(unsafe { with_head(resized, new.align()) })
}

/// # Safety
/// The block must be one of this allocator's, and is gone after.
pub unsafe fn free(allocator: &NumaAllocator, block: NonNull<u8>) {
    if allocator.is_inherited() {
        // The head is not there either.
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let (base, layout) = whole(block);
        allocator.free(base, layout);
    }
}

/// How many bytes a block really has.
///
/// # Safety
/// The block must be one of some allocator of this library.
pub unsafe fn usable_size(block: NonNull<u8>) -> usize {
    // SAFETY: the caller's promise.
    let (_, layout) = unsafe { whole(block) };
    layout.size() - layout.align()
}

/// The layout of a block with its head.
fn layout(align: usize, size: usize) -> Result<Layout, Failure> {
    let whole = size.max(1).checked_add(align).and_then(|size| Layout::from_size_align(size, align).ok());
    whole.ok_or_else(|| Failure::invalid(format!("{size} bytes at an alignment of {align} cannot be had")))
}

/// Writes the head of a block.
///
/// # Safety
/// The memory must be writable, aligned to `align`, and longer than that.
unsafe fn with_head(whole: NonNull<[u8]>, align: usize) -> NonNull<u8> {
    // SAFETY: `align` is at least as much as a head needs, in size and in alignment.
    unsafe {
        let block = whole.cast::<u8>().as_ptr().add(align);
        block.cast::<Head>().sub(1).write(Head { size: whole.len(), align });
        NonNull::new_unchecked(block)
    }
}

/// Where a block begins with its head, and the layout of all of it.
///
/// # Safety
/// As for [`usable_size`].
unsafe fn whole(block: NonNull<u8>) -> (NonNull<u8>, Layout) {
    // SAFETY: a head stands in front of each block, and holds what was a layout.
    unsafe {
        let head = block.as_ptr().cast::<Head>().sub(1).read();
        let base = NonNull::new_unchecked(block.as_ptr().sub(head.align));
        (base, Layout::from_size_align_unchecked(head.size, head.align))
    }
}
