//! The buffers of NVIDIA's cuda-core, from the device's default pool.

use std::ffi::CStr;
use std::sync::{mpsc, Arc};

use cuda_core::{completion, Context, DeviceBuffer, DriverError, Stream};

use crate::subject::Allocate;

pub struct Buffer(Arc<Context>);

impl Allocate for Buffer {
    const NAME: &'static CStr = c"cuda-core (Rust)";
    const VERSION: &'static CStr = c"0.5.0";
    const MEMORY: &'static CStr = c"device";
    const SETTLES: bool = true;

    type Worker = Arc<Stream>;
    type Block = DeviceBuffer<u8>;
    type Error = DriverError;

    fn open() -> Result<Self, DriverError> {
        Ok(Self(Context::new(0)?))
    }

    fn start(&self) -> Result<Self::Worker, DriverError> {
        self.0.new_stream()
    }

    #[inline]
    fn alloc(stream: &Self::Worker, bytes: usize) -> Result<Self::Block, DriverError> {
        // SAFETY: nothing reads it.
        unsafe { DeviceBuffer::uninitialized_async(stream, bytes) }
    }

    #[inline]
    fn free(_: &Self::Worker, block: Self::Block) -> Result<(), DriverError> {
        drop(block);
        Ok(())
    }

    /// It frees on a thread of its own. That goes through all that is pending before it looks for more, in no order: so
    /// once to be there with what is pending, and once more to come after it.
    fn settle(stream: &Self::Worker) -> Result<(), DriverError> {
        for _ in 0..2 {
            let (told, tells) = mpsc::channel::<()>();
            completion::retain_until_complete(told, stream)?;
            // Answers with an error when the sender is dropped, which is what is waited for.
            let _ = tells.recv();
        }
        Ok(())
    }
}
