//! The implementations of the exported functions, by area. They check the arguments and work on the simulator.

mod capture;
mod copy;
mod current;
mod device;
mod driver;
mod error;
mod event;
mod graph;
mod ipc;
mod launch;
mod memory;
mod operand;
mod pool;
mod stream;
mod stream_ordered;

pub use capture::*;
pub use copy::*;
pub use current::with_per_thread_default;
pub use device::*;
pub use driver::*;
pub use error::*;
pub use event::*;
pub use graph::*;
pub use ipc::*;
pub use launch::launch;
pub use memory::*;
pub use pool::*;
pub use stream::*;
pub use stream_ordered::*;

use crate::cuda::cudaError;
use crate::Outcome;

/// An argument that the C function refuses.
fn require(holds: bool) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(cudaError::cudaErrorInvalidValue)
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `out` must be null or valid for a write.
unsafe fn give<T>(out: *mut T, value: T) -> Outcome {
    require(!out.is_null())?;
    // SAFETY: not null, so valid by the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}
