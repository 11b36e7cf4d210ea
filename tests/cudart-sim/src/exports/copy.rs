//! Copies and sets.

use std::ffi::{c_int, c_void};

use super::operand::operand;
use super::{current, require};
use crate::cuda::{cudaError, cudaMemcpyKind, cudaStream_t};
use crate::memory::allocation::Place;
use crate::sim::{self, Locked, Sim};
use crate::stream::{Op, StreamId};
use crate::work::Work;
use crate::{call, Outcome};

pub unsafe fn cudaMemcpy(dst: *mut c_void, src: *const c_void, count: usize, kind: cudaMemcpyKind) -> Outcome {
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, std::ptr::null_mut())?;
    copy(sim, "cudaMemcpy", dst, src, count, kind, stream, When::Done)
}

pub unsafe fn cudaMemcpyAsync(
    dst: *mut c_void,
    src: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, stream)?;
    copy(sim, "cudaMemcpyAsync", dst, src, count, kind, stream, When::Submitted)
}

pub unsafe fn cudaMemcpyPeer(
    dst: *mut c_void,
    dstDevice: c_int,
    src: *const c_void,
    srcDevice: c_int,
    count: usize,
) -> Outcome {
    let mut sim = sim::lock();
    sim.device(dstDevice)?;
    sim.device(srcDevice)?;
    let stream = current::stream(&mut sim, std::ptr::null_mut())?;
    copy(sim, "cudaMemcpyPeer", dst, src, count, cudaMemcpyKind::cudaMemcpyDefault, stream, When::Done)
}

pub unsafe fn cudaMemcpyPeerAsync(
    dst: *mut c_void,
    dstDevice: c_int,
    src: *const c_void,
    srcDevice: c_int,
    count: usize,
    stream: cudaStream_t,
) -> Outcome {
    let mut sim = sim::lock();
    sim.device(dstDevice)?;
    sim.device(srcDevice)?;
    let stream = current::stream(&mut sim, stream)?;
    copy(sim, "cudaMemcpyPeerAsync", dst, src, count, cudaMemcpyKind::cudaMemcpyDefault, stream, When::Submitted)
}

pub unsafe fn cudaMemset(devPtr: *mut c_void, value: c_int, count: usize) -> Outcome {
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, std::ptr::null_mut())?;
    let place = set(&mut sim, "cudaMemset", devPtr, value, count, stream)?;
    if !matches!(place, Place::Device(_)) {
        wait(sim, stream)?;
    }
    Ok(())
}

pub unsafe fn cudaMemsetAsync(devPtr: *mut c_void, value: c_int, count: usize, stream: cudaStream_t) -> Outcome {
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, stream)?;
    set(&mut sim, "cudaMemsetAsync", devPtr, value, count, stream).map(drop)
}

/// When a copy's call comes back.
#[derive(PartialEq)]
enum When {
    /// As soon as the caller's pageable memory is not needed any more.
    Submitted,
    /// When it is over; between devices' memory it need not be.
    Done,
}

#[allow(clippy::too_many_arguments)] // a copy has that many
fn copy(
    mut sim: Locked,
    name: &'static str,
    dst: *mut c_void,
    src: *const c_void,
    len: usize,
    kind: cudaMemcpyKind,
    stream: StreamId,
    when: When,
) -> Outcome {
    if kind.0 > cudaMemcpyKind::cudaMemcpyDefault.0 {
        return Err(cudaError::cudaErrorInvalidMemcpyDirection);
    }
    if len == 0 {
        return Ok(());
    }
    let (dst, src) = (dst as usize, src as usize);
    let (to, from) = (operand(&sim, dst, len)?, operand(&sim, src, len)?);
    // The direction that was named must not call the program's own memory a device's.
    require(
        !(to.is_pageable()
            && matches!(kind, cudaMemcpyKind::cudaMemcpyHostToDevice | cudaMemcpyKind::cudaMemcpyDeviceToDevice)),
    )?;
    require(
        !(from.is_pageable()
            && matches!(kind, cudaMemcpyKind::cudaMemcpyDeviceToHost | cudaMemcpyKind::cudaMemcpyDeviceToDevice)),
    )?;
    let accesses = to.access(true).into_iter().chain(from.access(false)).collect();
    let between_hosts = !to.is_device() && !from.is_device();
    let between_devices = to.is_device() && from.is_device();
    // Pageable memory is read at once; what goes there has to be there when the call comes back.
    // A captured copy happens at each launch.
    let captured = sim.valid_capture_of(stream)?.is_some();
    let waits = !captured && (to.is_pageable() || between_hosts || (when == When::Done && !between_devices));
    let op = if to.gone || from.gone {
        Op::Nothing
    } else if from.is_pageable() && !waits && !captured {
        // SAFETY: the caller promised that so many bytes can be read there.
        let bytes = unsafe { std::slice::from_raw_parts(from.bytes.at, len) }.into();
        Op::Work(Work::Store { to: to.bytes, bytes })
    } else {
        Op::Work(Work::Copy { to: to.bytes, from: from.bytes, len })
    };
    sim.submit(stream, name, accesses, op);
    if waits {
        wait(sim, stream)?;
    }
    Ok(())
}

fn set(
    sim: &mut Sim,
    name: &'static str,
    to: *mut c_void,
    value: c_int,
    len: usize,
    stream: StreamId,
) -> Outcome<Place> {
    sim.valid_capture_of(stream)?;
    let device = sim.streams.get(stream).expect("the caller resolved it").device;
    if len == 0 {
        return Ok(Place::Device(device));
    }
    let target = operand(sim, to as usize, len)?;
    let place = match &target.bytes.owner {
        Some(allocation) => {
            let elsewhere = matches!(allocation.place, Place::Device(_));
            require(elsewhere || sim.is_reached_by(allocation, device))?;
            allocation.place
        }
        None => {
            require(target.gone)?;
            Place::Device(device)
        }
    };
    let accesses = target.access(true).into_iter().collect();
    let op = if target.gone { Op::Nothing } else { Op::Work(Work::Set { to: target.bytes, value: value as u8, len }) };
    sim.submit(stream, name, accesses, op);
    Ok(place)
}

/// Waits for the stream, and tells whether all is well.
fn wait(sim: Locked, stream: StreamId) -> Outcome {
    drop(sim::wait_for_stream(sim, stream));
    call::healthy()
}
