//! The functions for C.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

use cuda_mempool::host::{NumaAllocator, NumaAllocatorBuilder};
use cuda_mempool::Device;

use crate::failure::{run, Failure};
use crate::{block, cuda_mempool_statistics};

/// An allocator of pinned memory on one NUMA node of the host. Its functions may be called from all threads at once.
///
/// A forked child has neither the blocks nor new ones: there it may only free blocks and destroy allocators, which does
/// nothing.
#[allow(non_camel_case_types)]
pub struct cuda_mempool_allocator(NumaAllocator);

/// Which allocator is wanted. All zero: one on the node nearest to device 0, to which that device has access.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct cuda_mempool_options {
    /// The CUDA device whose stream the allocator's calls go to.
    pub device: c_int,
    /// Whether `node` counts: 0 puts the memory on the node nearest to `device`, which has access to it then.
    pub on_node: c_int,
    /// The NUMA node of the memory.
    pub node: u32,
    /// How many devices `granted` lists.
    pub granted_count: u32,
    /// Devices, or more of them, that have access: their kernels may read and write the memory, and their copies are
    /// fast. Without access copies are staged, at a fraction of the speed. May be null if there are none.
    pub granted: *const c_int,
    /// How many bytes to take from the system at a time. 0: 32 MiB.
    pub chunk_size: usize,
    /// How many bytes to take from the system at most. 0: no bound.
    pub cap: usize,
    /// Whether the memory is the kernel's, registered with CUDA, rather than that of a pool: it comes several times as
    /// fast, and all devices have access. Linux alone. As with ordinary memory, a process that takes more than the node
    /// has is ended: set a cap.
    pub registered: c_int,
}

/// Makes an allocator. Returns 0, or a CUDA error code: `*allocator` is null then.
///
/// There is no fallback to other memory: where the driver has no pinned pools on the node, this fails and
/// `cuda_mempool_last_error` names what is missing.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_create(
    options: *const cuda_mempool_options,
    allocator: *mut *mut cuda_mempool_allocator,
) -> c_int {
    let made = run(|| {
        if options.is_null() || allocator.is_null() {
            return Err(Failure::invalid("a null pointer to the options, or for the allocator"));
        }
        // SAFETY: neither is null, and C vouches for the rest.
        let granted = unsafe { granted(&*options) }?;
        // SAFETY: as above.
        build(unsafe { &*options }, granted)
    });
    let (code, made) = match made {
        Ok(made) => (0, Box::into_raw(Box::new(cuda_mempool_allocator(made)))),
        Err(code) => (code, null_mut()),
    };
    if !allocator.is_null() {
        // SAFETY: C vouches for the pointer.
        unsafe { allocator.write(made) };
    }
    code
}

/// # Safety
/// The list must be as long as it says.
unsafe fn granted(options: &cuda_mempool_options) -> Result<&[c_int], Failure> {
    match (options.granted.is_null(), options.granted_count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid("a null pointer to the devices to grant access")),
        // SAFETY: the caller's promise.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(options.granted, count as usize) }),
    }
}

fn build(options: &cuda_mempool_options, granted: &[c_int]) -> Result<NumaAllocator, Failure> {
    let numbered = |ordinal: c_int| Device::new(usize::try_from(ordinal).unwrap_or(usize::MAX));
    let device = numbered(options.device)?;
    let granted = granted.iter().map(|&ordinal| numbered(ordinal)).collect::<Result<Vec<_>, _>>()?;
    let mut builder = NumaAllocator::builder().grant(granted);
    if options.chunk_size != 0 {
        builder = builder.chunk_size(options.chunk_size);
    }
    if options.cap != 0 {
        builder = builder.cap(options.cap);
    }
    if options.registered != 0 {
        builder = registered(builder)?;
    }
    let builder = if options.on_node == 0 { builder.near(device) } else { builder.node(options.node) };
    Ok(device.with_current(|| builder.build())??)
}

#[cfg(target_os = "linux")]
fn registered(builder: NumaAllocatorBuilder) -> Result<NumaAllocatorBuilder, Failure> {
    Ok(builder.registered())
}

#[cfg(not(target_os = "linux"))]
fn registered(_builder: NumaAllocatorBuilder) -> Result<NumaAllocatorBuilder, Failure> {
    let text = "registered memory needs Linux: leave `registered` 0".to_owned();
    Err(Failure { code: cuda_mempool::sys::cudaError_t::cudaErrorNotSupported, text })
}

/// Destroys an allocator. All its blocks go with it, so nothing may use them any more, on a device neither. Null is
/// nothing to do. Returns 0, or a CUDA error code.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_destroy(allocator: *mut cuda_mempool_allocator) -> c_int {
    let destroyed = run(|| {
        if !allocator.is_null() {
            // SAFETY: C gives back what `cuda_mempool_create` made.
            drop(unsafe { Box::from_raw(allocator) });
        }
        Ok(())
    });
    destroyed.err().unwrap_or(0)
}

/// A block of `size` bytes, aligned to 16. Their contents are unspecified; a size of 0 is a block too. Null on failure.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_malloc(allocator: *mut cuda_mempool_allocator, size: usize) -> *mut c_void {
    // SAFETY: C vouches for the allocator.
    unsafe { cuda_mempool_aligned_malloc(allocator, block::ALIGNMENT, size) }
}

/// A block of `size` bytes at a multiple of `alignment`, which must be a power of two. Null on failure.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_aligned_malloc(
    allocator: *mut cuda_mempool_allocator,
    alignment: usize,
    size: usize,
) -> *mut c_void {
    // SAFETY: C vouches for the allocator.
    pointer(|| block::allocate(unsafe { numa(allocator) }?, alignment, size))
}

/// Makes a block longer or shorter, in another place if need be; the contents and the alignment stay. A null block is
/// allocated. Null on failure, and the old block is then as it was.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_realloc(
    allocator: *mut cuda_mempool_allocator,
    block: *mut c_void,
    size: usize,
) -> *mut c_void {
    pointer(|| {
        // SAFETY: C vouches for the allocator.
        let numa = unsafe { numa(allocator) }?;
        match NonNull::new(block.cast()) {
            None => block::allocate(numa, block::ALIGNMENT, size),
            // SAFETY: C gives a block of this allocator.
            Some(block) => unsafe { block::resize(numa, block, size) },
        }
    })
}

/// Frees a block of this allocator, on any thread. It may be handed out again at once, so a device must be done with it.
/// A null block is nothing to do.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_free(allocator: *mut cuda_mempool_allocator, block: *mut c_void) {
    // A failure is remembered; there is nobody to tell.
    let _ = run(|| {
        if let Some(block) = NonNull::new(block.cast()) {
            // SAFETY: C gives an allocator, and a block of it.
            unsafe { block::free(numa(allocator)?, block) };
        }
        Ok(())
    });
}

/// How many bytes of a block may be used: what was asked for or more. Of a null block 0.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_usable_size(block: *const c_void) -> usize {
    // SAFETY: C gives a block.
    NonNull::new(block.cast_mut().cast()).map_or(0, |block| unsafe { block::usable_size(block) })
}

/// Fills in what the allocator holds. Returns 0, or a CUDA error code.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_stats(
    allocator: *mut cuda_mempool_allocator,
    statistics: *mut cuda_mempool_statistics,
) -> c_int {
    let filled = run(|| {
        // SAFETY: C vouches for the allocator.
        let stats = unsafe { numa(allocator) }?.stats();
        if statistics.is_null() {
            return Err(Failure::invalid("a null pointer for the statistics"));
        }
        // SAFETY: C vouches for the pointer.
        unsafe { statistics.write(stats.into()) };
        Ok(())
    });
    filled.err().unwrap_or(0)
}

/// Gives memory that is free back to the system. Returns 0, or a CUDA error code.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_trim(allocator: *mut cuda_mempool_allocator) -> c_int {
    // SAFETY: C vouches for the allocator.
    let trimmed = run(|| Ok(unsafe { numa(allocator) }?.trim()?));
    trimmed.err().unwrap_or(0)
}

/// Sets `*bytes` to what it has from the system, in use or kept. Returns 0, or a CUDA error code.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_reserved(allocator: *mut cuda_mempool_allocator, bytes: *mut usize) -> c_int {
    let asked = run(|| {
        // SAFETY: C vouches for the allocator.
        let reserved = unsafe { numa(allocator) }?.reserved()?;
        if bytes.is_null() {
            return Err(Failure::invalid("a null pointer for the number of bytes"));
        }
        // SAFETY: C vouches for the pointer.
        unsafe { bytes.write(reserved) };
        Ok(())
    });
    asked.err().unwrap_or(0)
}

/// Gets memory from the system ahead of time, on several threads at once, and keeps it until it is trimmed: the next
/// allocations, up to so many bytes that are free in all, find it there. Returns 0, or a CUDA error code; some may be there
/// then.
#[no_mangle]
pub unsafe extern "C" fn cuda_mempool_prime(allocator: *mut cuda_mempool_allocator, bytes: usize) -> c_int {
    // SAFETY: C vouches for the allocator.
    let primed = run(|| Ok(unsafe { numa(allocator) }?.prime(bytes)?));
    primed.err().unwrap_or(0)
}

/// # Safety
/// The pointer must be null or a live allocator.
unsafe fn numa<'a>(allocator: *mut cuda_mempool_allocator) -> Result<&'a NumaAllocator, Failure> {
    // SAFETY: the caller's promise.
    let allocator = unsafe { allocator.as_ref() };
    allocator.map(|allocator| &allocator.0).ok_or_else(|| Failure::invalid("a null pointer to the allocator"))
}

fn pointer(work: impl FnOnce() -> Result<NonNull<u8>, Failure>) -> *mut c_void {
    run(work).map_or(null_mut(), |block| block.as_ptr().cast())
}
