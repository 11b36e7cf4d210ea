//! Events.

use std::ffi::c_uint;
use std::sync::Arc;
use std::time::Duration;

use super::{capture, current, give, require};
use crate::cuda::{
    cudaError, cudaEventBlockingSync, cudaEventDisableTiming, cudaEventInterprocess, cudaEventRecordExternal,
    cudaEvent_t, cudaStream_t,
};
use crate::event::{Event, Record};
use crate::handles::Id;
use crate::ipc::board::Shared;
use crate::sim::{self, Sim};
use crate::stream::{Marker, Op};
use crate::work::Condition;
use crate::{call, Outcome};

pub unsafe fn cudaEventCreate(event: *mut cudaEvent_t) -> Outcome {
    // SAFETY: as the caller promised.
    unsafe { cudaEventCreateWithFlags(event, 0) }
}

pub unsafe fn cudaEventCreateWithFlags(event: *mut cudaEvent_t, flags: c_uint) -> Outcome {
    let mut sim = sim::lock();
    let device = current::device(&sim)?;
    let known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    let is_ipc = flags & cudaEventInterprocess != 0;
    require(!event.is_null() && flags & !known == 0 && (!is_ipc || flags & cudaEventDisableTiming != 0))?;
    let shared = if is_ipc { Some(sim.board.add().map_err(|_| cudaError::cudaErrorMemoryAllocation)?) } else { None };
    let id = sim.events.insert(Event { device, flags, record: None, shared, captured: None });
    // SAFETY: the caller's out pointer.
    unsafe { give(event, id.as_raw()) }
}

pub unsafe fn cudaEventDestroy(event: cudaEvent_t) -> Outcome {
    let removed = sim::lock().events.remove(Id::from_raw(event));
    removed.map(drop).ok_or(cudaError::cudaErrorInvalidResourceHandle)
}

pub unsafe fn cudaEventRecord(event: cudaEvent_t, stream: cudaStream_t) -> Outcome {
    // SAFETY: as the caller promised.
    unsafe { cudaEventRecordWithFlags(event, stream, 0) }
}

pub unsafe fn cudaEventRecordWithFlags(event: cudaEvent_t, stream: cudaStream_t, flags: c_uint) -> Outcome {
    require(flags & !cudaEventRecordExternal == 0)?;
    let mut sim = sim::lock();
    let id = current::stream(&mut sim, stream)?;
    let event_id = Id::from_raw(event);
    let device = find(&sim, event)?.device;
    if sim.streams.get(id).map(|stream| stream.device) != Some(device) {
        return Err(cudaError::cudaErrorInvalidResourceHandle);
    }
    if let Some(capture) = sim.valid_capture_of(id)? {
        let ends = sim.captured_ends(capture, id);
        sim.events.get_mut(event_id).expect("found above").captured = Some((capture, ends));
        return Ok(());
    }
    let shared = find(&sim, event)?.shared.clone();
    let number = shared.as_ref().map_or(0, Shared::take);
    if number > 1 {
        // Numbers are posted in their order, so this one waits for the one before, whosever that is.
        let before = match (&find(&sim, event)?.record, &shared) {
            (Some(own), _) if own.number == number - 1 => Op::Await(Arc::clone(&own.marker)),
            (_, Some(shared)) => Op::Until(Condition::Posted { event: shared.clone(), number: number - 1 }),
            (_, None) => unreachable!("only shared events have numbers"),
        };
        sim.submit(id, "cudaEventRecord", Vec::new(), before);
    }
    let marker = Arc::<Marker>::default();
    sim.submit(id, "cudaEventRecord", Vec::new(), Op::Mark(Arc::clone(&marker)));
    if let Some(shared) = shared {
        sim.submit(id, "cudaEventRecord", Vec::new(), Op::Post(shared, number));
    }
    let submitted = sim.streams.get(id).expect("resolved above").submitted.stamp();
    let event = sim.events.get_mut(event_id).expect("found above");
    (event.record, event.captured) = (Some(Record { marker, submitted, number }), None);
    Ok(())
}

pub unsafe fn cudaEventQuery(event: cudaEvent_t) -> Outcome {
    let mut sim = sim::lock();
    capture::police(&mut sim)?;
    if !is_over(&mut sim, event)? {
        return Err(cudaError::cudaErrorNotReady);
    }
    call::healthy()
}

/// Whether the latest record's stream has got there; then the host knows it.
fn is_over(sim: &mut Sim, event: cudaEvent_t) -> Outcome<bool> {
    refuse_if_captured(sim, event)?;
    let found = find(sim, event)?;
    if let Some((shared, number)) = found.foreign_record() {
        return Ok(shared.is_posted(number));
    }
    let Some(record) = found.record.clone() else { return Ok(true) };
    let Some(stamp) = record.marker.stamp() else { return Ok(false) };
    sim.host.join(&stamp);
    Ok(true)
}

pub unsafe fn cudaEventSynchronize(event: cudaEvent_t) -> Outcome {
    let mut sim = sim::lock();
    refuse_if_captured(&mut sim, event)?;
    if let Some((shared, number)) = find(&sim, event)?.foreign_record().map(|(shared, n)| (shared.clone(), n)) {
        // Another process posts it without a sign to this one.
        drop(sim);
        while !shared.is_posted(number) {
            std::thread::sleep(Duration::from_micros(50));
        }
        sim = sim::lock();
    } else if let Some(record) = find(&sim, event)?.record.clone() {
        sim = sim::wait_until(sim, |_| record.marker.is_done());
        if let Some(stamp) = record.marker.stamp() {
            sim.host.join(&stamp);
        }
    }
    sim.synchronised();
    call::healthy()
}

pub unsafe fn cudaEventElapsedTime(ms: *mut f32, start: cudaEvent_t, end: cudaEvent_t) -> Outcome {
    let mut sim = sim::lock();
    let mut times = Vec::with_capacity(2);
    for event in [start, end] {
        refuse_if_captured(&mut sim, event)?;
        let event = find(&sim, event)?;
        let timed = event.record.clone().filter(|_| event.flags & cudaEventDisableTiming == 0);
        let record = timed.ok_or(cudaError::cudaErrorInvalidResourceHandle)?;
        let (stamp, time) = record.marker.stamp().zip(record.marker.time()).ok_or(cudaError::cudaErrorNotReady)?;
        sim.host.join(&stamp);
        times.push(time);
    }
    let (start, end) = (times[0], times[1]);
    let seconds = match end.checked_duration_since(start) {
        Some(elapsed) => elapsed.as_secs_f32(),
        None => -start.duration_since(end).as_secs_f32(),
    };
    // SAFETY: the caller's out pointer.
    unsafe { give(ms, seconds * 1e3) }
}

fn find(sim: &Sim, event: cudaEvent_t) -> Outcome<&Event> {
    sim.events.get(Id::from_raw(event)).ok_or(cudaError::cudaErrorInvalidResourceHandle)
}

/// A captured event stands for no point in any stream's order.
fn refuse_if_captured(sim: &mut Sim, event: cudaEvent_t) -> Outcome {
    let Some((capture, _)) = find(sim, event)?.captured.clone() else { return Ok(()) };
    sim.invalidate(capture);
    Err(cudaError::cudaErrorCapturedEvent)
}
