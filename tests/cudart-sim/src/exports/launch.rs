//! Simulated kernels.

use std::ffi::c_void;

use super::current;
use super::operand::operand;
use crate::control::{Access, Kernel};
use crate::cuda::{cudaError, cudaStream_t};
use crate::stream::Op;
use crate::work::{Argument, Bytes, Work};
use crate::{call, sim, Outcome};

/// Runs a function of the program as a kernel would run: on the stream, on memory that the device reaches.
///
/// # Errors
/// A declared access to memory that the device does not reach is an illegal address, and sticky.
pub fn launch(
    stream: cudaStream_t,
    name: String,
    function: Kernel,
    argument: *mut c_void,
    accesses: &[Access],
) -> Outcome {
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, stream)?;
    sim.valid_capture_of(stream)?;
    let device = sim.streams.get(stream).expect("resolved above").device;
    let (mut used, mut memory, mut gone) = (Vec::new(), Vec::new(), false);
    for access in accesses {
        if access.size == 0 {
            memory.push(Bytes { at: std::ptr::null_mut(), owner: None });
            continue;
        }
        let operand = operand(&sim, access.pointer as usize, access.size)?;
        let reached = match &operand.bytes.owner {
            Some(allocation) => sim.is_reached_by(allocation, device),
            None => operand.gone,
        };
        if !reached {
            call::set_sticky(cudaError::cudaErrorIllegalAddress);
            return Err(cudaError::cudaErrorIllegalAddress);
        }
        used.extend(operand.access(access.write != 0));
        gone |= operand.gone;
        memory.push(operand.bytes);
    }
    let work = Work::Kernel { function, argument: Argument(argument), memory };
    sim.submit(stream, name, used, if gone { Op::Nothing } else { Op::Work(work) });
    Ok(())
}
