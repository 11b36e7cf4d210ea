//! Stream capture.

use std::cell::Cell;

use super::{current, give, require};
use crate::cuda::{cudaError, cudaGraph_t, cudaStreamCaptureMode, cudaStreamCaptureStatus, cudaStream_t};
use crate::sim::{self, Sim};
use crate::stream::Kind;
use crate::Outcome;

thread_local! {
    /// How careful the thread's calls are of captures.
    static MODE: Cell<u32> = const { Cell::new(cudaStreamCaptureMode::cudaStreamCaptureModeGlobal.0) };
}

/// A call that may disturb captures; see [`Sim::police`].
pub fn police(sim: &mut Sim) -> Outcome {
    sim.police(cudaStreamCaptureMode(MODE.get()))
}

fn is_mode(mode: cudaStreamCaptureMode) -> bool {
    mode.0 <= cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed.0
}

pub unsafe fn cudaStreamBeginCapture(stream: cudaStream_t, mode: cudaStreamCaptureMode) -> Outcome {
    require(is_mode(mode))?;
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    if sim.streams.get(id).map(|stream| stream.kind) == Some(Kind::Legacy) {
        return Err(cudaError::cudaErrorStreamCaptureUnsupported);
    }
    if sim.capture_of(id).is_some() {
        return Err(cudaError::cudaErrorIllegalState);
    }
    sim.begin_capture(id, mode);
    Ok(())
}

pub unsafe fn cudaStreamEndCapture(stream: cudaStream_t, pGraph: *mut cudaGraph_t) -> Outcome {
    require(!pGraph.is_null())?;
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    let ended = sim.end_capture(id).map(|graph| sim.graphs.insert(graph).as_raw());
    // SAFETY: the caller's out pointer; null on failure.
    unsafe { give(pGraph, ended.unwrap_or(std::ptr::null_mut()))? };
    ended.map(drop)
}

pub unsafe fn cudaStreamIsCapturing(stream: cudaStream_t, pCaptureStatus: *mut cudaStreamCaptureStatus) -> Outcome {
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    let status = match sim.capture_of(id).and_then(|id| sim.captures.get(id)) {
        None => cudaStreamCaptureStatus::cudaStreamCaptureStatusNone,
        Some(capture) if capture.invalidated => cudaStreamCaptureStatus::cudaStreamCaptureStatusInvalidated,
        Some(_) => cudaStreamCaptureStatus::cudaStreamCaptureStatusActive,
    };
    // SAFETY: the caller's out pointer.
    unsafe { give(pCaptureStatus, status) }
}

pub unsafe fn cudaThreadExchangeStreamCaptureMode(mode: *mut cudaStreamCaptureMode) -> Outcome {
    require(!mode.is_null())?;
    // SAFETY: the caller's pointer, not null.
    unsafe {
        require(is_mode(*mode))?;
        mode.write(cudaStreamCaptureMode(MODE.replace((*mode).0)));
    }
    Ok(())
}
