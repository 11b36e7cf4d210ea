//! The C calls alone: pointer and event exported, one message, pointer and event imported.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;

use cuda_mempool::sys::{
    self, cudaError_t, cudaEvent_t, cudaIpcEventHandle_t, cudaMemPoolPtrExportData, cudaMemPool_t, cudaStream_t,
};
use cuda_mempool::{MemPool, Stream};

use crate::measure::{
    give, now, take, Answers, Outcome, FIRST, FIRST_HANDOVER, MEGABYTE, REPEATED, REPEATED_HANDOVER, THERE_AND_BACK,
};
use crate::ring::{self, Ring};

pub(crate) const SUBJECT: &str = "raw calls from Rust";

const BLOB: usize = 64;

pub(crate) fn check(answer: cudaError_t) {
    assert_eq!(answer, cudaError_t::cudaSuccess);
}

pub(crate) fn event() -> cudaEvent_t {
    let mut event = null_mut();
    // SAFETY: the out pointer is valid.
    check(unsafe {
        sys::cudaEventCreateWithFlags(&mut event, sys::cudaEventDisableTiming | sys::cudaEventInterprocess)
    });
    event
}

pub(crate) fn export_event(event: cudaEvent_t) -> [u8; BLOB] {
    let mut handle = cudaIpcEventHandle_t::default();
    // SAFETY: the event is alive and the out pointer valid.
    check(unsafe { sys::cudaIpcGetEventHandle(&mut handle, event) });
    // SAFETY: both are 64 plain bytes.
    unsafe { std::mem::transmute(handle) }
}

pub(crate) fn import_event(handle: [u8; BLOB]) -> cudaEvent_t {
    let mut event = null_mut();
    // SAFETY: both are 64 plain bytes.
    let handle: cudaIpcEventHandle_t = unsafe { std::mem::transmute(handle) };
    // SAFETY: the out pointer is valid.
    check(unsafe { sys::cudaIpcOpenEventHandle(&mut event, handle) });
    event
}

/// A pointer of a pool, to be sent.
pub(crate) fn export_pointer(pointer: *const c_void) -> [u8; BLOB] {
    let mut data = cudaMemPoolPtrExportData::default();
    // SAFETY: the memory is alive and the out pointer valid.
    check(unsafe { sys::cudaMemPoolExportPointer(&mut data, pointer.cast_mut()) });
    // SAFETY: 64 plain bytes.
    unsafe { std::mem::transmute(data) }
}

fn import_pointer(pool: cudaMemPool_t, blob: [u8; BLOB]) -> *mut c_void {
    // SAFETY: 64 plain bytes.
    let mut data: cudaMemPoolPtrExportData = unsafe { std::mem::transmute(blob) };
    let mut memory = null_mut();
    // SAFETY: the pool is alive and the pointers are valid.
    check(unsafe { sys::cudaMemPoolImportPointer(&mut memory, pool, &mut data) });
    memory
}

pub(crate) fn receive_pointer(words: &mut UnixStream, pool: cudaMemPool_t) -> Outcome<*mut c_void> {
    let mut blob = [0; BLOB];
    words.read_exact(&mut blob)?;
    Ok(import_pointer(pool, blob))
}

pub(crate) fn receive_event(words: &mut UnixStream) -> Outcome<cudaEvent_t> {
    let mut handle = [0; BLOB];
    words.read_exact(&mut handle)?;
    Ok(import_event(handle))
}

pub(crate) fn record(event: cudaEvent_t, stream: cudaStream_t) {
    // SAFETY: both are alive.
    check(unsafe { sys::cudaEventRecord(event, stream) });
}

pub(crate) fn wait(stream: cudaStream_t, event: cudaEvent_t) {
    // SAFETY: both are alive.
    check(unsafe { sys::cudaStreamWaitEvent(stream, event, 0) });
}

pub(crate) fn destroy(event: cudaEvent_t) {
    // SAFETY: it is not used again.
    check(unsafe { sys::cudaEventDestroy(event) });
}

pub(crate) fn exporter(stream: &Stream, pool: &MemPool, words: &mut UnixStream) -> Outcome<Answers> {
    let mut answers = Answers::default();
    let raw = stream.as_raw();
    // What the calls of this side take is sent to the other, so that there is one sum.
    for _ in 0..FIRST {
        let buffer = pool.alloc::<u8>(stream, MEGABYTE)?;
        let ready = event();
        record(ready, raw);
        stream.synchronize()?;
        let started = now();
        let blob = export_pointer(buffer.as_ptr().cast());
        let handle = export_event(ready);
        let took = now() - started;
        words.write_all(&[&blob[..], &handle, &took.to_ne_bytes()].concat())?;
        words.read_exact(&mut [0])?;
        destroy(ready);
    }
    answers.add(FIRST_HANDOVER, MEGABYTE, SUBJECT, &take(words, FIRST)?);

    let ready = event();
    record(ready, raw);
    words.write_all(&export_event(ready))?;
    let done = receive_event(words)?;
    let mut both_ways = Vec::with_capacity(REPEATED);
    for _ in 0..REPEATED {
        let started = now();
        record(ready, raw);
        words.write_all(&started.to_ne_bytes())?;
        words.read_exact(&mut [0])?;
        wait(raw, done);
        both_ways.push(now() - started);
    }
    stream.synchronize()?;
    answers.add(REPEATED_HANDOVER, MEGABYTE, SUBJECT, &take(words, REPEATED)?);
    answers.add(THERE_AND_BACK, MEGABYTE, SUBJECT, &both_ways);
    destroy(done);
    destroy(ready);
    let ring = Ring::new(stream, pool)?;
    ring.plain(&mut answers)?;
    ring.bare(words, &mut answers)?;
    Ok(answers)
}

pub(crate) fn importer(stream: &Stream, pool_fd: i32, words: &mut UnixStream) -> Outcome {
    let raw = stream.as_raw();
    let types = sys::cudaMemAllocationHandleType::cudaMemHandleTypePosixFileDescriptor;
    let mut pool: cudaMemPool_t = null_mut();
    // SAFETY: the descriptor is open, and inherited for this.
    check(unsafe { sys::cudaMemPoolImportFromShareableHandle(&mut pool, pool_fd as usize as *mut c_void, types, 0) });
    let mut samples = Vec::with_capacity(REPEATED);
    for _ in 0..FIRST {
        let mut message = [0; 2 * BLOB + 8];
        words.read_exact(&mut message)?;
        let (blob, rest) = message.split_at(BLOB);
        let (handle, theirs) = rest.split_at(BLOB);
        let blob = blob.try_into()?;
        let started = now();
        let memory = import_pointer(pool, blob);
        let ready = import_event(handle.try_into()?);
        samples.push(now() - started + u64::from_ne_bytes(theirs.try_into()?));
        wait(raw, ready);
        // SAFETY: the memory was imported, and is not used again.
        check(unsafe { sys::cudaFreeAsync(memory, raw) });
        stream.synchronize()?;
        destroy(ready);
        words.write_all(&[0])?;
    }
    give(words, &samples)?;

    let (done, ready) = (event(), receive_event(words)?);
    record(done, raw);
    words.write_all(&export_event(done))?;
    samples.clear();
    for _ in 0..REPEATED {
        let mut started = [0; 8];
        words.read_exact(&mut started)?;
        wait(raw, ready);
        samples.push(now() - u64::from_ne_bytes(started));
        record(done, raw);
        words.write_all(&[0])?;
    }
    stream.synchronize()?;
    give(words, &samples)?;
    destroy(ready);
    destroy(done);
    ring::bare_importer(stream, pool, words)?;
    // SAFETY: nothing of it is left.
    check(unsafe { sys::cudaMemPoolDestroy(pool) });
    Ok(())
}
