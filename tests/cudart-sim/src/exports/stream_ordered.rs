//! Allocation and free in the order of a stream.

use std::ffi::c_void;

use super::{capture, current, give, require};
use crate::cuda::{cudaError, cudaMemPool_t, cudaStream_t};
use crate::handles::Id;
use crate::memory::allocation::Kind;
use crate::pool::{PoolId, Where};
use crate::sim::{self, Sim};
use crate::stream::StreamId;
use crate::Outcome;

pub unsafe fn cudaMallocAsync(devPtr: *mut *mut c_void, size: usize, hStream: cudaStream_t) -> Outcome {
    require(!devPtr.is_null())?;
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, hStream)?;
    let device = sim.streams.get(stream).expect("resolved above").device;
    let pool = sim.pool_choice(Where::Device(device)).current;
    let answer = allocate(&mut sim, "cudaMallocAsync", pool, size, stream);
    // SAFETY: the caller's out pointer; null on failure and for no bytes.
    unsafe { give(devPtr, answer.unwrap_or(0) as *mut c_void)? };
    answer.map(drop)
}

pub unsafe fn cudaMallocFromPoolAsync(
    ptr: *mut *mut c_void,
    size: usize,
    memPool: cudaMemPool_t,
    stream: cudaStream_t,
) -> Outcome {
    require(!ptr.is_null())?;
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, stream)?;
    let pool = Id::from_raw(memPool);
    let answer = match sim.own_pool(pool) {
        Ok(_) => allocate(&mut sim, "cudaMallocFromPoolAsync", pool, size, stream),
        Err(error) => Err(error),
    };
    // SAFETY: the caller's out pointer; null on failure and for no bytes.
    unsafe { give(ptr, answer.unwrap_or(0) as *mut c_void)? };
    answer.map(drop)
}

/// Allocates, or captures the allocation.
fn allocate(sim: &mut Sim, name: &'static str, pool: PoolId, size: usize, stream: StreamId) -> Outcome<usize> {
    let Some(capture) = sim.valid_capture_of(stream)? else {
        capture::police(sim)?;
        return sim.allocate(name, pool, size, stream);
    };
    if !matches!(sim.own_pool(pool)?.at, Where::Device(_)) {
        return Err(cudaError::cudaErrorNotSupported);
    }
    sim.capture_alloc(capture, stream, size)
}

pub unsafe fn cudaFreeAsync(devPtr: *mut c_void, hStream: cudaStream_t) -> Outcome {
    let mut sim = sim::lock();
    let stream = current::stream(&mut sim, hStream)?;
    if devPtr.is_null() {
        return Ok(());
    }
    if let Some(capture) = sim.valid_capture_of(stream)? {
        return sim.capture_free(capture, stream, devPtr as usize);
    }
    capture::police(&mut sim)?;
    match sim.space.at(devPtr as usize).map(|allocation| allocation.kind) {
        Some(Kind::Pool(_) | Kind::Imported { .. } | Kind::Plain) => {
            sim.free_in_stream("cudaFreeAsync", devPtr as usize, stream);
            Ok(())
        }
        Some(Kind::Graph) if sim.is_graph_memory_live(devPtr as usize) => {
            sim.free_graph_memory("cudaFreeAsync", devPtr as usize, stream);
            Ok(())
        }
        _ => Err(cudaError::cudaErrorInvalidValue),
    }
}
