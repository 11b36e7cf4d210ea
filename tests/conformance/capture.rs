//! Streams under capture: what they refuse.

use std::thread;

use crate::support::answer::name;
use crate::support::capture::{status_of, Capture};
use crate::support::prelude::*;

area! {
    facts: [
        status_is_active_during_a_capture,
        host_pool_cannot_be_allocated_from,
        uncaptured_memory_cannot_be_freed,
        captured_memory_cannot_be_freed_outside_a_launch,
    ],
    isolated: [
        alloc_on_another_thread_during_a_global_capture_invalidates_it,
        alloc_on_another_thread_during_a_thread_local_capture_succeeds,
    ],
    questions: [calls_on_a_capturing_stream, calls_elsewhere_during_a_capture, ends_of_captures, legacy_stream],
}

fn status_is_active_during_a_capture() -> Outcome {
    let stream = Stream::new();
    assert_eq!(status_of(&stream), cudaStreamCaptureStatus::cudaStreamCaptureStatusNone);
    let capture = Capture::of(&stream);
    assert_eq!(capture.status(), cudaStreamCaptureStatus::cudaStreamCaptureStatusActive);
    capture.end().expect("an empty capture is valid");
    assert_eq!(status_of(&stream), cudaStreamCaptureStatus::cudaStreamCaptureStatusNone);
    Ok(())
}

fn host_pool_cannot_be_allocated_from() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::host_numa(NO_HANDLE)?;
    let _capture = Capture::of(&stream);
    let mut pointer = null_mut();
    answers!(cudaMallocFromPoolAsync(&mut pointer, 100, pool.raw(), stream.raw()) => cudaErrorNotSupported);
    Ok(())
}

fn uncaptured_memory_cannot_be_freed() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(100, &stream);
    let capture = Capture::of(&stream);
    answers!(cudaFreeAsync(memory.ptr(), stream.raw()) => cudaErrorInvalidValue);
    drop(capture);
    memory.free();
    stream.synchronize();
    assert_eq!(pool.used(), 0);
    Ok(())
}

fn captured_memory_cannot_be_freed_outside_a_launch() -> Outcome {
    let stream = Stream::new();
    let capture = Capture::of(&stream);
    let mut pointer = null_mut();
    ok!(cudaMallocAsync(&mut pointer, 100, stream.raw()));
    let _graph = capture.end().expect("a capture of one allocation is valid");
    answers!(cudaFreeAsync(pointer, stream.raw()) => cudaErrorInvalidValue);
    Ok(())
}

/// Allocates on another thread while this one captures.
fn during_a_capture(mode: cudaStreamCaptureMode, other_thread: fn()) -> Result<(), cudaError_t> {
    let stream = Stream::new();
    let capture = Capture::with_mode(&stream, mode);
    thread::spawn(other_thread).join().expect("what the other thread asserts");
    capture.end().map(drop)
}

fn alloc_on_another_thread_during_a_global_capture_invalidates_it() -> Outcome {
    let end = during_a_capture(cudaStreamCaptureMode::cudaStreamCaptureModeGlobal, || {
        let stream = Stream::new();
        let mut pointer = null_mut();
        answers!(cudaMallocAsync(&mut pointer, 100, stream.raw()) => cudaErrorStreamCaptureUnsupported);
    });
    assert_eq!(end, Err(cudaError_t::cudaErrorStreamCaptureInvalidated));
    Ok(())
}

fn alloc_on_another_thread_during_a_thread_local_capture_succeeds() -> Outcome {
    let end = during_a_capture(cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal, || {
        let stream = Stream::new();
        Memory::new(100, &stream).free();
    });
    assert_eq!(end, Ok(()));
    Ok(())
}

/// Each in a capture of its own, in thread-local mode, with how the capture ends.
fn calls_on_a_capturing_stream() -> Outcome {
    let stream = Stream::new();
    let (device, host) = (Pool::device(), Pool::host_numa(NO_HANDLE)?);
    let memory = device.alloc(100, &stream);
    let event = Event::new();
    stream.synchronize();
    let (s, m) = (stream.raw(), memory.ptr());
    let mut pointer = null_mut();
    let mut byte = [0u8; 4];
    type Call<'c> = (&'c str, Box<dyn FnMut() -> cudaError_t + 'c>);
    let calls: Vec<Call> = vec![
        ("cudaStreamSynchronize", Box::new(|| cu!(cudaStreamSynchronize(s)))),
        ("cudaStreamQuery", Box::new(|| cu!(cudaStreamQuery(s)))),
        ("alloc from a device pool", {
            let p = device.raw();
            Box::new(move || cu!(cudaMallocFromPoolAsync(&mut pointer, 100, p, s)))
        }),
        ("alloc from a host pool", {
            let p = host.raw();
            Box::new(move || cu!(cudaMallocFromPoolAsync(&mut pointer, 100, p, s)))
        }),
        ("alloc of size 0", Box::new(move || cu!(cudaMallocAsync(&mut pointer, 0, s)))),
        ("free of null", Box::new(|| cu!(cudaFreeAsync(null_mut(), s)))),
        ("free of uncaptured memory", Box::new(|| cu!(cudaFreeAsync(m, s)))),
        ("cudaMemsetAsync", Box::new(|| cu!(cudaMemsetAsync(m, 1, 100, s)))),
        ("copy to pageable memory", {
            let to = byte.as_mut_ptr().cast();
            Box::new(move || cu!(cudaMemcpyAsync(to, m, 4, cudaMemcpyKind::cudaMemcpyDefault, s)))
        }),
        ("cudaMalloc", Box::new(move || cu!(cudaMalloc(&mut pointer, 100)))),
        ("cudaMemcpy", {
            let mut byte = [0u8; 4];
            Box::new(move || cu!(cudaMemcpy(byte.as_mut_ptr().cast(), m, 4, cudaMemcpyKind::cudaMemcpyDefault)))
        }),
        ("cudaDeviceSynchronize", Box::new(|| cu!(cudaDeviceSynchronize()))),
        ("cudaEventRecord", Box::new(|| cu!(cudaEventRecord(event.raw(), s)))),
        (
            "cudaEventQuery after a captured record",
            Box::new(|| {
                cu!(cudaEventRecord(event.raw(), s));
                cu!(cudaEventQuery(event.raw()))
            }),
        ),
        ("cudaMemPoolTrimTo", Box::new(|| cu!(cudaMemPoolTrimTo(device.raw(), 0)))),
        (
            "cudaMemPoolCreate",
            Box::new(|| {
                let props = cudaMemPoolProps::new(PINNED, cudaMemLocation::device(0), NO_HANDLE);
                let mut pool = null_mut();
                cu!(cudaMemPoolCreate(&mut pool, &props))
            }),
        ),
        (
            "second cudaStreamBeginCapture",
            Box::new(|| cu!(cudaStreamBeginCapture(s, cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal))),
        ),
        ("cudaGetLastError", Box::new(|| cu!(cudaGetLastError()))),
    ];
    for (what, mut call) in calls {
        let capture = Capture::of(&stream);
        let answer = call();
        let last = ask!(cudaPeekAtLastError());
        let mut status = cudaStreamCaptureStatus(99);
        let asked = ask!(cudaStreamIsCapturing(s, &mut status));
        let end = capture.end().map(drop);
        say!(
            "{what}: {}, last error {}, status {} ({}), end {:?}",
            name(answer),
            name(last),
            status.0,
            name(asked),
            end.map_err(name)
        );
    }
    Ok(())
}

/// The same thread, another stream or none, in the three modes.
fn calls_elsewhere_during_a_capture() -> Outcome {
    let (stream, other) = (Stream::new(), Stream::new());
    let pool = Pool::device();
    for (what, mode) in [
        ("global", cudaStreamCaptureMode::cudaStreamCaptureModeGlobal),
        ("thread-local", cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal),
        ("relaxed", cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed),
    ] {
        let mut pointer = null_mut();
        let capture = Capture::with_mode(&stream, mode);
        let answer = ask!(cudaMallocFromPoolAsync(&mut pointer, 100, pool.raw(), other.raw()));
        say!("{what}: alloc on another stream: {}, end {:?}", name(answer), capture.end().map(drop).map_err(name));
        let capture = Capture::with_mode(&stream, mode);
        let freed = if answer == cudaError_t::cudaSuccess { pointer } else { null_mut() };
        let answer = ask!(cudaFreeAsync(freed, other.raw()));
        say!("{what}: free on another stream: {}, end {:?}", name(answer), capture.end().map(drop).map_err(name));
        let capture = Capture::with_mode(&stream, mode);
        let answer = ask!(cudaMalloc(&mut pointer, 100));
        say!("{what}: cudaMalloc: {}, end {:?}", name(answer), capture.end().map(drop).map_err(name));
        let capture = Capture::with_mode(&stream, mode);
        let answer = ask!(cudaStreamSynchronize(other.raw()));
        say!("{what}: synchronise another: {}, end {:?}", name(answer), capture.end().map(drop).map_err(name));
        let capture = Capture::with_mode(&stream, mode);
        let answer = ask!(cudaStreamQuery(other.raw()));
        say!("{what}: query another: {}, end {:?}", name(answer), capture.end().map(drop).map_err(name));
        let capture = Capture::with_mode(&stream, mode);
        let mut default = null_mut();
        let answer = ask!(cudaDeviceGetDefaultMemPool(&mut default, 0));
        say!("{what}: default pool: {}, end {:?}", name(answer), capture.end().map(drop).map_err(name));
    }
    Ok(())
}

fn ends_of_captures() -> Outcome {
    let (stream, other) = (Stream::new(), Stream::new());
    let mut graph = null_mut();
    say!("end without begin: {}", name(ask!(cudaStreamEndCapture(stream.raw(), &mut graph))));
    let capture = Capture::of(&stream);
    Event::recorded_on(&stream).hold_up(&other);
    say!("a second stream that waited for a captured event: status {:?}", status_of(&other));
    say!("end unjoined: {:?}", capture.end().map(drop).map_err(name));
    say!("the second stream then: {:?}", status_of(&other));
    let capture = Capture::of(&stream);
    let end = thread::scope(|scope| {
        let stream = &stream;
        let raw = stream.raw() as usize;
        let ended = scope.spawn(move || {
            let mut graph = null_mut();
            name(ask!(cudaStreamEndCapture(raw as cudaStream_t, &mut graph)))
        });
        ended.join().expect("no panic")
    });
    say!("end on another thread: {end}");
    say!("and on its own: {:?}", capture.end().map(drop).map_err(name));
    Ok(())
}

fn legacy_stream() -> Outcome {
    let mode = cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
    say!("begin on stream 0: {}", name(ask!(cudaStreamBeginCapture(null_mut(), mode))));
    say!("begin on cudaStreamLegacy: {}", name(ask!(cudaStreamBeginCapture(cudaStreamLegacy, mode))));
    let begun = ask!(cudaStreamBeginCapture(cudaStreamPerThread, mode));
    say!("begin on cudaStreamPerThread: {}", name(begun));
    let mut graph = null_mut();
    say!("    end: {}", name(ask!(cudaStreamEndCapture(cudaStreamPerThread, &mut graph))));
    let stream = Stream::blocking();
    let _capture = Capture::of(&stream);
    let mut pointer = null_mut();
    let answer = ask!(cudaMallocAsync(&mut pointer, 100, null_mut()));
    say!("alloc on stream 0 while a blocking stream captures: {}", name(answer));
    let mut status = cudaStreamCaptureStatus(99);
    let answer = ask!(cudaStreamIsCapturing(null_mut(), &mut status));
    say!("cudaStreamIsCapturing of stream 0 meanwhile: {}, {}", name(answer), status.0);
    Ok(())
}
