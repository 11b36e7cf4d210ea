//! cudarc's slices, from the device's default pool.

use std::ffi::CStr;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};

use crate::subject::Allocate;

/// `TRACKED` is what a new context does: each slice has two events, by which streams wait for each other.
pub struct Slice<const TRACKED: bool>(Arc<CudaContext>);

impl<const TRACKED: bool> Allocate for Slice<TRACKED> {
    const NAME: &'static CStr = if TRACKED { c"cudarc" } else { c"cudarc without event tracking" };
    const VERSION: &'static CStr = c"0.19.10";
    const MEMORY: &'static CStr = c"device";

    type Worker = Arc<CudaStream>;
    type Block = CudaSlice<u8>;
    type Error = DriverError;

    fn open() -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        if !TRACKED {
            // SAFETY: no slice is used on two streams.
            unsafe { context.disable_event_tracking() };
        }
        Ok(Self(context))
    }

    fn start(&self) -> Result<Self::Worker, DriverError> {
        self.0.new_stream()
    }

    #[inline]
    fn alloc(stream: &Self::Worker, bytes: usize) -> Result<Self::Block, DriverError> {
        // SAFETY: nothing reads it.
        unsafe { stream.alloc(bytes) }
    }

    #[inline]
    fn free(_: &Self::Worker, block: Self::Block) -> Result<(), DriverError> {
        drop(block);
        Ok(())
    }
}
