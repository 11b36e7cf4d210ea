//! Streams.

use std::ffi::{c_int, c_uint, c_void};

use super::{current, give, require};
use crate::capture::CaptureId;
use crate::cuda::{cudaError, cudaEventWaitExternal, cudaEvent_t, cudaHostFn_t, cudaStreamNonBlocking, cudaStream_t};
use crate::handles::Id;
use crate::sim::{self, wait_for_stream, Sim};
use crate::stream::{Kind, Op, StreamId};
use crate::work::{Argument, Condition, Work};
use crate::{call, Outcome};

/// Priorities go from 0 down to this, as on an H200.
pub const GREATEST_PRIORITY: c_int = -5;

pub unsafe fn cudaStreamCreate(pStream: *mut cudaStream_t) -> Outcome {
    // SAFETY: as the caller promised.
    unsafe { cudaStreamCreateWithPriority(pStream, 0, 0) }
}

pub unsafe fn cudaStreamCreateWithFlags(pStream: *mut cudaStream_t, flags: c_uint) -> Outcome {
    // SAFETY: as the caller promised.
    unsafe { cudaStreamCreateWithPriority(pStream, flags, 0) }
}

pub unsafe fn cudaStreamCreateWithPriority(pStream: *mut cudaStream_t, flags: c_uint, priority: c_int) -> Outcome {
    let mut sim = sim::lock();
    let device = current::device(&sim)?;
    require(!pStream.is_null() && flags & !cudaStreamNonBlocking == 0)?;
    let id = sim.add_stream(device, Kind::Created, flags, priority.clamp(GREATEST_PRIORITY, 0));
    // SAFETY: the caller's out pointer.
    unsafe { give(pStream, id.as_raw()) }
}

pub unsafe fn cudaStreamDestroy(stream: cudaStream_t) -> Outcome {
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    if sim.streams.get(id).map(|stream| stream.kind) != Some(Kind::Created) {
        return Err(cudaError::cudaErrorInvalidResourceHandle);
    }
    sim.destroy_stream(id);
    Ok(())
}

pub unsafe fn cudaStreamGetPriority(hStream: cudaStream_t, priority: *mut c_int) -> Outcome {
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, hStream)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(priority, sim.streams.get(id).map_or(0, |stream| stream.priority)) }
}

pub unsafe fn cudaStreamGetFlags(hStream: cudaStream_t, flags: *mut c_uint) -> Outcome {
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, hStream)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(flags, sim.streams.get(id).map_or(0, |stream| stream.flags)) }
}

pub unsafe fn cudaStreamGetDevice(hStream: cudaStream_t, device: *mut c_int) -> Outcome {
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, hStream)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(device, sim.streams.get(id).map_or(0, |stream| stream.device as c_int)) }
}

pub unsafe fn cudaStreamSynchronize(stream: cudaStream_t) -> Outcome {
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    sim.refuse_if_captured(id)?;
    let mut sim = wait_for_stream(sim, id);
    sim.synchronised();
    call::healthy()
}

pub unsafe fn cudaStreamQuery(stream: cudaStream_t) -> Outcome {
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    sim.refuse_if_captured(id)?;
    if sim.streams.get(id).is_some_and(|stream| !stream.is_idle()) {
        return Err(cudaError::cudaErrorNotReady);
    }
    sim.host_learns(id);
    call::healthy()
}

pub unsafe fn cudaStreamWaitEvent(stream: cudaStream_t, event: cudaEvent_t, flags: c_uint) -> Outcome {
    require(flags & !cudaEventWaitExternal == 0)?;
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    let event = sim.events.get(Id::from_raw(event)).ok_or(cudaError::cudaErrorInvalidResourceHandle)?;
    match (sim.valid_capture_of(id)?, event.captured.clone()) {
        (None, None) => {}
        (own, Some((capture, after))) => return join_capture(&mut sim, id, own, capture, after),
        (Some(_), None) if event.record.is_none() => return Ok(()),
        (Some(capture), None) => {
            sim.invalidate(capture);
            return Err(cudaError::cudaErrorStreamCaptureIsolation);
        }
    }
    if let Some((shared, number)) = event.foreign_record() {
        let posted = Condition::Posted { event: shared.clone(), number };
        sim.submit(id, "cudaStreamWaitEvent", Vec::new(), Op::Until(posted));
        return Ok(());
    }
    // An event that was never recorded holds nobody up.
    if let Some(record) = event.record.clone() {
        sim.streams.get_mut(id).expect("resolved above").submitted.join(&record.submitted);
        sim.submit(id, "cudaStreamWaitEvent", Vec::new(), Op::Await(record.marker));
    }
    Ok(())
}

/// A stream waits for an event of a capture: it takes part in it from then on.
fn join_capture(
    sim: &mut Sim,
    stream: StreamId,
    own: Option<CaptureId>,
    capture: CaptureId,
    after: Vec<usize>,
) -> Outcome {
    if own.is_some_and(|own| own != capture) {
        return Err(cudaError::cudaErrorStreamCaptureMerge);
    }
    match sim.captures.get(capture) {
        // An event of a capture that has ended cannot be waited for.
        None => Err(cudaError::cudaErrorInvalidValue),
        Some(capture) if capture.invalidated => Err(cudaError::cudaErrorStreamCaptureInvalidated),
        Some(_) => {
            sim.join_capture(capture, stream, after);
            Ok(())
        }
    }
}

pub unsafe fn cudaLaunchHostFunc(stream: cudaStream_t, fn_: cudaHostFn_t, userData: *mut c_void) -> Outcome {
    let function = fn_.ok_or(cudaError::cudaErrorInvalidValue)?;
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    sim.valid_capture_of(id)?;
    let work = Work::Call { function, argument: Argument(userData), host: true };
    sim.submit(id, "cudaLaunchHostFunc", Vec::new(), Op::Work(work));
    Ok(())
}
