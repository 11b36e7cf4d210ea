//! Handles and memory that cross from one side to the other and are used, or freed, there.

use std::ffi::c_void;

use cuda_mempool::example::run;
use cuda_mempool::{DeviceBuffer, Event, Home, MemPool, RawDeviceBuffer, Stream};
use cuda_mempool_sys::{self as sys, cudaError_t};

use crate::owner::{self, Owner};

const SIZE: usize = 100_000;

/// Takes over memory that C allocated.
///
/// # Safety
/// As for [`DeviceBuffer::from_raw`].
unsafe fn buffer_of(memory: *mut c_void, stream: &Stream) -> DeviceBuffer<u8> {
    let raw = RawDeviceBuffer {
        pointer: memory.cast(),
        length: SIZE,
        base: memory,
        stream: stream.clone(),
        home: Home::RUNTIME,
    };
    // SAFETY: the caller's promise.
    unsafe { DeviceBuffer::from_raw(raw) }
}

#[test]
fn rust_uses_what_c_owns() {
    run(|device| {
        let owner = Owner::new(device);
        {
            // SAFETY: the owner destroys both at the end of the test.
            let (pool, stream) = unsafe {
                (MemPool::from_raw_borrowed(owner.pool, device), Stream::from_raw_borrowed(owner.stream, device))
            };
            let mut buffer = pool.alloc::<u8>(&stream, SIZE)?;
            buffer.fill_bytes(3)?;
            // SAFETY: the buffer is alive and belongs to that stream.
            assert!(unsafe { owner::is_filled(buffer.as_ptr().cast(), SIZE, 3, owner.stream) });
            assert_eq!(owner::used(&pool, &stream), SIZE as u64);
            drop(buffer);
            assert_eq!(owner::used(&pool, &stream), 0);
        }
        // SAFETY: borrowed handles are not destroyed, so both are alive.
        let memory = unsafe { owner::alloc(owner.pool, owner.stream, SIZE, 1) };
        // SAFETY: it is the memory just made, on its stream.
        unsafe { owner::free(memory, owner.stream) };
        owner.destroy();
        Ok(())
    });
}

#[test]
fn c_uses_what_rust_owns() {
    run(|device| {
        let (pool, stream) = (MemPool::builder(device).build()?, Stream::new(device)?);
        // SAFETY: pool and stream are alive.
        let memory = unsafe { owner::alloc(pool.as_raw(), stream.as_raw(), SIZE, 5) };
        assert_eq!(owner::used(&pool, &stream), SIZE as u64);
        // SAFETY: it is the memory just made, on its stream.
        unsafe { owner::free(memory, stream.as_raw()) };
        assert_eq!(owner::used(&pool, &stream), 0);
        Ok(())
    });
}

#[test]
fn rust_frees_what_c_allocated() {
    run(|device| {
        let (pool, stream) = (MemPool::builder(device).build()?, Stream::new(device)?);
        // SAFETY: pool and stream are alive.
        let memory = unsafe { owner::alloc(pool.as_raw(), stream.as_raw(), SIZE, 9) };
        // SAFETY: C gives it away, in the order of that stream.
        let buffer = unsafe { buffer_of(memory, &stream) };
        assert_eq!(buffer.to_vec()?, [9; SIZE]);
        buffer.close().map_err(|(_, error)| error)?;
        assert_eq!(owner::used(&pool, &stream), 0);
        Ok(())
    });
}

#[test]
fn c_frees_what_rust_allocated() {
    run(|device| {
        let (pool, stream) = (MemPool::builder(device).build()?, Stream::new(device)?);
        let raw = pool.from_slice(&stream, &[4_u8; SIZE])?.into_raw();
        // SAFETY: the memory is whole until it is freed below, on its stream.
        assert!(unsafe { owner::is_filled(raw.pointer.cast(), SIZE, 4, raw.stream.as_raw()) });
        // SAFETY: it was given away with `into_raw`, and nothing uses it after.
        unsafe { owner::free(raw.base, raw.stream.as_raw()) };
        assert_eq!(owner::used(&pool, &stream), 0);
        Ok(())
    });
}

#[test]
fn rust_destroys_what_c_made() {
    run(|device| {
        let mut owner = Owner::new(device);
        // SAFETY: the owner gives both away here.
        let (pool, stream) = unsafe { (MemPool::from_raw(owner.pool, device), Stream::from_raw(owner.stream, device)) };
        (owner.pool, owner.stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        owner.destroy();
        assert_eq!(pool.from_slice(&stream, &[1_u8, 2])?.to_vec()?, [1, 2]);
        pool.close().map_err(|(_, error)| error)?;
        stream.close().map_err(|(_, error)| error)
    });
}

#[test]
fn c_destroys_what_rust_made() {
    run(|device| {
        let pool = MemPool::builder(device).build()?;
        let stream = Stream::new(device)?;
        let shared = stream.clone();
        let stream = stream.into_raw().unwrap_err(); // not while somebody else counts on it
        drop(shared);
        let owner = Owner {
            device: device.ordinal(),
            pool: pool.into_raw().expect("there is no other handle"),
            stream: stream.into_raw().expect("there is no other handle"),
        };
        owner.destroy();
        Ok(())
    });
}

/// An event of each side, waited for by a stream of the other.
#[test]
fn events_order_the_two_sides() {
    run(|device| {
        let owner = Owner::new(device);
        let (pool, stream) = (MemPool::builder(device).build()?, Stream::new(device)?);
        let event = Event::new(device)?;
        // SAFETY: pool and stream are alive.
        let memory = unsafe { owner::alloc(pool.as_raw(), owner.stream, SIZE, 6) };
        // SAFETY: event and stream are alive.
        let recorded = unsafe { sys::cudaEventRecord(event.as_raw(), owner.stream) };
        assert_eq!(recorded, cudaError_t::cudaSuccess);
        stream.wait(&event)?;
        // SAFETY: C gives it away, and the wait orders what C did before all that `stream` does.
        let mut buffer = unsafe { buffer_of(memory, &stream) };
        buffer.fill_bytes(7)?;

        event.record(&stream)?;
        let event = event.into_raw().expect("there is no other handle");
        // SAFETY: both are alive.
        let waited = unsafe { sys::cudaStreamWaitEvent(owner.stream, event, 0) };
        assert_eq!(waited, cudaError_t::cudaSuccess);
        // SAFETY: the wait orders the fill before what C reads, and the buffer is alive.
        assert!(unsafe { owner::is_filled(memory, SIZE, 7, owner.stream) });
        // SAFETY: the event is ours since `into_raw`.
        assert_eq!(unsafe { sys::cudaEventDestroy(event) }, cudaError_t::cudaSuccess);
        drop(buffer);
        owner.destroy();
        Ok(())
    });
}
