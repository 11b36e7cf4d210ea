//! What a call means by default: the thread's current device and its default stream.

use std::cell::{Cell, RefCell};

use crate::cuda::{cudaError, cudaStreamLegacy, cudaStreamPerThread, cudaStream_t};
use crate::handles::Id;
use crate::sim::{self, Sim};
use crate::stream::{Kind, StreamId};
use crate::{process, Outcome};

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    /// Whether stream 0 means the thread's own stream in this call.
    static PER_THREAD: Cell<bool> = const { Cell::new(false) };
    static STREAMS: RefCell<ThreadStreams> = const { RefCell::new(ThreadStreams(Vec::new())) };
}

/// A thread's default streams by device; they end with the thread.
struct ThreadStreams(Vec<Option<StreamId>>);

impl Drop for ThreadStreams {
    fn drop(&mut self) {
        if !self.0.is_empty() && !process::is_forked_child() {
            let mut sim = sim::lock();
            for stream in self.0.drain(..).flatten() {
                sim.destroy_stream(stream);
            }
        }
    }
}

/// The thread's current device.
pub fn device(sim: &Sim) -> Outcome<usize> {
    sim.device(DEVICE.get())
}

/// Its number, which is there without any device.
pub fn device_number() -> i32 {
    DEVICE.get()
}

/// Makes a device current.
pub fn set_device(number: i32) {
    DEVICE.set(number);
}

/// Runs a call in which stream 0 means the thread's own stream.
pub fn with_per_thread_default<T>(body: impl FnOnce() -> T) -> T {
    PER_THREAD.set(true);
    let answer = body();
    PER_THREAD.set(false);
    answer
}

/// The stream that a handle means here and now.
///
/// # Errors
/// Invalid resource handle when there is none.
pub fn stream(sim: &mut Sim, handle: cudaStream_t) -> Outcome<StreamId> {
    let handle = match handle {
        null if null.is_null() && PER_THREAD.get() => cudaStreamPerThread,
        null if null.is_null() => cudaStreamLegacy,
        other => other,
    };
    if handle == cudaStreamLegacy {
        let device = device(sim)?;
        sim.police_legacy(device)?;
        return Ok(sim.devices[device].legacy);
    }
    if handle == cudaStreamPerThread {
        let device = device(sim)?;
        // A thread that is ending has no stream of its own any more.
        let own = STREAMS.try_with(|streams| own_stream(sim, &mut streams.borrow_mut().0, device));
        return Ok(own.unwrap_or(sim.devices[device].legacy));
    }
    let id = Id::from_raw(handle);
    let live = sim.streams.get(id).is_some_and(|stream| stream.kind == Kind::Created && !stream.destroyed);
    if live {
        Ok(id)
    } else {
        Err(cudaError::cudaErrorInvalidResourceHandle)
    }
}

fn own_stream(sim: &mut Sim, streams: &mut Vec<Option<StreamId>>, device: usize) -> StreamId {
    if streams.len() <= device {
        streams.resize(device + 1, None);
    }
    *streams[device].get_or_insert_with(|| sim.add_stream(device, Kind::PerThread, 0, 0))
}
