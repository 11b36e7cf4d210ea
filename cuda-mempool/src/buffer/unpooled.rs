//! Memory of `cudaMalloc`, which is of no pool.

use std::ffi::c_void;
use std::ptr::NonNull;

use bytemuck::Pod;
use cuda_mempool_sys::cudaError_t;

use super::block::{Block, Home};
use crate::current::CurrentDevice;
use crate::error::{call, OutOfMemory};
use crate::pool::reclaim;
use crate::{Device, DeviceBuffer, Error, ErrorKind, Location, Result, Stream};

const FUNCTION: &str = "cudaMalloc";

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates `length` elements with `cudaMalloc` on the device of `stream`, for use in the order of `stream`. Their
    /// contents are unspecified.
    ///
    /// For what pools cannot do: memory that every device reaches for which `cudaDeviceEnablePeerAccess` was called, or
    /// that other libraries want to be of `cudaMalloc`. It takes many times as long as [`MemPool::alloc`], and may wait
    /// for the device. The free, by `cudaFreeAsync`, comes in the order of the buffer's stream as for any other buffer.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// use cuda_mempool::{DeviceBuffer, Stream};
    /// let stream = Stream::new(device)?;
    /// let mut buffer = DeviceBuffer::<u32>::unpooled(&stream, 100)?;
    /// buffer.fill(7)?;
    /// assert_eq!(buffer.to_vec()?, [7; 100]);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] with what the device has free; [`ErrorKind::SizeOverflow`]; [`ErrorKind::Capture`] on a
    /// stream that is being captured, or while a capture in global mode is going on, which the call then spoils;
    /// [`ErrorKind::WrongThread`]; or what the runtime answers.
    ///
    /// [`MemPool::alloc`]: crate::MemPool::alloc
    #[doc(alias = "cudaMalloc")]
    pub fn unpooled(stream: &Stream, length: usize) -> Result<Self> {
        let allocate = |bytes| {
            let _current = stream.enter(FUNCTION)?;
            stream.refuse_capture(FUNCTION, "cudaMalloc would spoil the capture that is going on on the stream")?;
            let base = malloc(stream.device(), bytes)?.as_ptr();
            Ok(Block { base, stream: stream.clone(), home: Home::RUNTIME })
        };
        // SAFETY: fresh memory of the runtime, which nothing uses yet on any stream.
        unsafe { Self::allocate(FUNCTION, stream, length, allocate) }
    }
}

/// Memory of `cudaMalloc` on `device`.
///
/// # Errors
/// What the runtime answers; when memory is short, with the numbers.
pub(crate) fn malloc(device: Device, bytes: usize) -> Result<NonNull<c_void>> {
    let take = || {
        let _current = CurrentDevice::set(device)?;
        let mut base = std::ptr::null_mut();
        // SAFETY: the out pointer is valid.
        unsafe { call!(cudaMalloc(&mut base, bytes)) }?;
        NonNull::new(base).ok_or_else(|| Error::refused(ErrorKind::Other, FUNCTION, "success, but a null pointer"))
    };
    let out_of_memory = |error: &Error| error.raw() == cudaError_t::cudaErrorMemoryAllocation;
    match take() {
        Err(error) if out_of_memory(&error) => reclaim(Location::Device(device), device, error, take),
        answer => answer,
    }
    .map_err(|error| match out_of_memory(&error) {
        true => error.with_out_of_memory(OutOfMemory::now(bytes, None, device)),
        false => error,
    })
}
