//! Borrowed memory is given back only when nothing can use it any more, and nothing is waited for that was not begun.

#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::{sys, ErrorKind, Event, MemPool, Stream};
use sim::{device, must};
use suite::{in_child, Outcome};

fn stream_and_pool() -> (Stream, MemPool) {
    (must(Stream::new(device(0))), must(MemPool::builder(device(0)).build()))
}

fn a_panic_in_a_scope_waits_for_the_stream() -> Outcome {
    let watch = suite::watch(1)?;
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope::<(), _>(|s| {
            s.launch_host_fn(|| std::thread::sleep(Duration::from_millis(20)))?;
            s.copy_to_host(&buffer, &mut output)?;
            panic!("in the middle of it")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(output, [7; 64], "the copy was done when the panic left the scope");
    watch.assert_well();
    Ok(())
}

/// A host function can take the scope along to another thread, and lend more while the scope is waiting for it.
fn what_a_host_function_has_lent_is_waited_for() -> Outcome {
    // A driver may deadlock when a host function waits for what calls CUDA.
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    // Pinned: a copy to other memory waits by itself.
    let memory = must(NumaAllocator::builder().near(device(0)).build());
    let mut outputs = [0; 2].map(|_: u8| must(PinnedBox::<[u8]>::zeroed(&memory, 64)));
    let [first, second] = &mut outputs;
    let pause = || std::thread::sleep(Duration::from_millis(20));
    let buffer = &buffer;
    must(stream.scope(|s| {
        let lend_both = move || {
            pause();
            must(s.launch_host_fn(move || {
                pause();
                std::thread::scope(|threads| drop(threads.spawn(|| must(s.copy_to_host(buffer, second)))));
            }));
            must(s.launch_host_fn(pause));
            must(s.copy_to_host(buffer, first));
        };
        s.launch_host_fn(move || std::thread::scope(|threads| drop(threads.spawn(lend_both))))
    }));
    assert_eq!([&*outputs[0], &*outputs[1]], [[7; 64]; 2], "the copies are done when the scope is over");
    assert_eq!(sim.races(), 0, "{}", sim.last_race());
    Ok(())
}

/// A failing wait at the end of a scope does not let the borrow end before the work.
fn a_scope_waits_although_waiting_fails() -> Outcome {
    let sim = suite::simulated(1)?;
    for faults in [
        "cudaStreamSynchronize#1=999",
        "cudaStreamSynchronize#1=999,cudaThreadExchangeStreamCaptureMode#1=999",
        "cudaStreamSynchronize#1=999,cudaStreamSynchronize#2=999",
        // Another thread captures a stream that synchronises with this one, for a while.
        "cudaStreamSynchronize#1=906,cudaStreamSynchronize#2=906,cudaStreamSynchronize#3=906,cudaDeviceSynchronize%1=900",
    ] {
        let (stream, pool) = (must(Stream::new(device(0))), must(MemPool::default_for(device(0))));
        let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
        let mut output = [0; 64];
        sim.add_fault(faults);
        let result = stream.scope(|s| {
            s.launch_host_fn(|| std::thread::sleep(Duration::from_millis(20)))?;
            s.copy_to_host(&buffer, &mut output)
        });
        assert_eq!(output, [7; 64], "the copy is done when the scope is over");
        let code = faults["cudaStreamSynchronize#1=".len()..][..3].parse().expect("three digits");
        assert_eq!(result.unwrap_err().raw().0, code, "the first of the errors");
        sim.clear_faults();
    }
    Ok(())
}

/// A copy whose way back cannot be ordered is waited for.
fn a_copy_that_cannot_be_ordered_is_waited_for() -> Outcome {
    let sim = suite::simulated(1)?;
    let (first, second) = (must(Stream::new(device(0))), must(Stream::new(device(0))));
    let pool = must(MemPool::default_for(device(0)));
    let source = must(pool.alloc_zeroed::<u8>(&first, 64));
    let mut target = must(pool.alloc::<u8>(&second, 64));
    sim.add_fault("cudaEventRecord#2=999");
    let error = target.copy_from(&source).unwrap_err();
    assert_eq!(error.function(), "cudaEventRecord");
    drop(source);
    drop(target);
    must(first.synchronize());
    must(second.synchronize());
    assert_eq!(sim.races(), 0, "{}", sim.last_race());
    Ok(())
}

/// A host function that runs is waited for, even when the wait for a broken device answers at once.
fn a_host_function_is_waited_for_on_a_broken_device() -> Outcome {
    let sim = suite::simulated(1)?;
    let stream = must(Stream::new(device(0)));
    let (begin, begun) = std::sync::mpsc::channel();
    let mut done = false;
    let result = stream.scope(|s| {
        s.launch_host_fn(|| {
            begin.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            done = true;
        })?;
        begun.recv().unwrap();
        sim.add_fault("cudaStreamQuery#1=700!");
        s.stream().query().map(drop)
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::DeviceFault);
    assert!(done, "it still ran when what it borrows was given back");
    Ok(())
}

/// Where nothing was enqueued, nothing is waited for: that may be impossible, and would spoil the capture.
fn what_a_capture_refuses_is_not_waited_for() -> Outcome {
    let watch = suite::watch(1)?;
    let ((stream, pool), legacy) = (stream_and_pool(), Stream::legacy(device(0)));
    let mut elsewhere = must(pool.alloc_zeroed::<u8>(&must(Stream::new(device(0))), 16));
    let on_legacy = must(pool.alloc_zeroed::<u8>(&legacy, 16));
    let mut host = [0; 16];
    must(device(0).synchronize());

    let captured = Capture::begin(&stream);
    let mut ran = false;
    let scoped = stream.scope(|s| {
        ran = true;
        s.copy_from_host(&mut elsewhere, &host)
    });
    assert_eq!(scoped.unwrap_err().kind(), ErrorKind::Capture);
    assert!(!ran, "what cannot be waited for is not begun");
    captured.end_well();

    // The legacy stream cannot be used at all while a stream is captured that synchronises with it.
    let blocking = must(Stream::builder(device(0)).blocking(true).build());
    let waits = || watch.sim().map(|sim| sim.calls("cudaStreamSynchronize") + sim.calls("cudaDeviceSynchronize"));
    let captured = Capture::begin(&blocking);
    let before = waits();
    let copied = on_legacy.copy_to_host(&mut host);
    assert_eq!(waits(), before);
    assert_eq!(copied.unwrap_err().kind(), ErrorKind::Capture);
    captured.end();
    must(on_legacy.copy_to_host(&mut host));
    watch.assert_well();
    Ok(())
}

/// A stream whose raw handle nobody has can still get into a capture, through an event that another thread records.
fn a_stream_that_waits_for_a_captured_event_is_asked() -> Outcome {
    let watch = suite::watch(1)?;
    let ((stream, pool), hidden) = (stream_and_pool(), must(Stream::new(device(0))));
    let event = must(Event::new(device(0)));
    let captured = Capture::begin(&stream);
    must(event.record(&stream));
    must(hidden.wait(&event));
    assert_eq!(pool.alloc::<u8>(&hidden, 16).unwrap_err().kind(), ErrorKind::Capture);
    must(stream.join(&hidden));
    captured.end_well();
    must(pool.alloc::<u8>(&hidden, 16));
    watch.assert_well();
    Ok(())
}

/// Raw code can record in a capture by a handle that it was given.
fn an_event_whose_raw_handle_is_known_may_be_captured() -> Outcome {
    let watch = suite::watch(1)?;
    let ((stream, pool), hidden) = (stream_and_pool(), must(Stream::new(device(0))));
    let event = must(Event::new(device(0)));
    let captured = Capture::begin(&stream);
    // SAFETY: both are alive.
    let recorded = unsafe { sys::cudaEventRecord(event.as_raw(), stream.as_raw()) };
    assert_eq!(recorded, sys::cudaError_t::cudaSuccess);
    must(hidden.wait(&event));
    assert_eq!(pool.alloc::<u8>(&hidden, 16).unwrap_err().kind(), ErrorKind::Capture);
    must(stream.join(&hidden));
    captured.end_well();
    watch.assert_well();
    Ok(())
}

/// Whoever made it still has its raw handle, and may capture by that before and after.
fn a_stream_that_was_taken_over_is_asked() -> Outcome {
    let watch = suite::watch(1)?;
    let (_, pool) = stream_and_pool();
    let mut raw = std::ptr::null_mut();
    // SAFETY: the out pointer is valid.
    let made = unsafe { sys::cudaStreamCreateWithFlags(&mut raw, sys::cudaStreamNonBlocking) };
    assert_eq!(made, sys::cudaError_t::cudaSuccess);
    let before = Capture::begin_raw(raw);
    // SAFETY: it was just made, on the current device, and nobody else destroys it.
    let stream = unsafe { Stream::from_raw(raw, device(0)) };
    assert_eq!(pool.alloc::<u8>(&stream, 16).unwrap_err().kind(), ErrorKind::Capture);
    before.end_well();
    must(pool.alloc::<u8>(&stream, 16));
    let after = Capture::begin_raw(raw);
    assert_eq!(pool.alloc::<u8>(&stream, 16).unwrap_err().kind(), ErrorKind::Capture);
    after.end_well();
    must(pool.alloc::<u8>(&stream, 16));
    watch.assert_well();
    Ok(())
}

/// A capture that raw code has begun, of a stream that its test keeps.
struct Capture(sys::cudaStream_t);

impl Capture {
    fn begin(stream: &Stream) -> Self {
        Self::begin_raw(stream.as_raw())
    }

    fn begin_raw(stream: sys::cudaStream_t) -> Self {
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        // SAFETY: the stream is alive, and the graph is never launched.
        assert_eq!(unsafe { sys::cudaStreamBeginCapture(stream, mode) }, sys::cudaError_t::cudaSuccess);
        Self(stream)
    }

    /// Ends it, whatever has become of it.
    fn end(self) -> sys::cudaError_t {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive, the out pointer valid, and the graph ours.
        unsafe {
            let answer = sys::cudaStreamEndCapture(self.0, &mut graph);
            if !graph.is_null() {
                sys::cudaGraphDestroy(graph);
            }
            sys::cudaGetLastError();
            answer
        }
    }

    fn end_well(self) {
        assert_eq!(self.end(), sys::cudaError_t::cudaSuccess, "the capture was spoiled");
    }
}

/// A context that is broken runs nothing any more: the scope returns its error.
fn a_scope_on_a_broken_device_returns() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    let result = stream.scope(|s| {
        s.copy_to_host(&buffer, &mut output)?;
        sim.add_fault("cudaStreamQuery#1=700!");
        s.stream().query().map(drop)
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::DeviceFault);
    drop((buffer, pool, stream));
    assert!(sim::heard().iter().all(|told| told.1 == 700), "drops are told of the fault");
    Ok(())
}

/// When no way of waiting works, the process ends rather than give the memory back.
fn a_scope_that_cannot_wait_ends_the_process() -> Outcome {
    let _sim = suite::simulated(1)?;
    let output = in_child("cannot_wait");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot wait for work that uses borrowed memory"), "{text}");
    assert!(!text.contains("returned"), "{text}");
    Ok(())
}

/// Nor does it go on where nobody can be told.
fn a_scope_that_cannot_wait_ends_the_process_without_a_word() -> Outcome {
    suite::simulated(1)?;
    let (reader, writer) = UnixStream::pair().expect("two ends");
    drop(reader);
    let status = suite::child("cannot_wait").stderr(OwnedFd::from(writer)).status().expect("the child starts");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    Ok(())
}

fn cannot_wait() {
    let sim = suite::simulated(1).expect("the parent saw it");
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    sim.add_fault("cudaStreamSynchronize%1=999,cudaDeviceSynchronize%1=999");
    let _ = catch_unwind(AssertUnwindSafe(|| stream.scope(|s| s.copy_to_host(&buffer, &mut output))));
    let _ = writeln!(std::io::stderr(), "returned");
}

/// Late in the end of the process, where nothing can be enqueued any more, nothing is waited for either.
fn an_unloading_runtime_stops_nobody() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool();
    let mut buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    let own = Stream::per_thread(device(0));
    sim.add_fault("*%1=4");
    let copied = buffer.copy_to_host(&mut output);
    let scoped = stream.scope(|s| s.copy_to_host(&buffer, &mut output));
    let empty = stream.scope(|_| Ok(()));
    let moved = buffer.set_stream(&own);
    sim.clear_faults();
    for answer in [copied, scoped, empty, moved] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unloading);
    }
    Ok(())
}

suite! {
    tests: [
        a_panic_in_a_scope_waits_for_the_stream,
        what_a_host_function_has_lent_is_waited_for,
        a_scope_waits_although_waiting_fails,
        a_copy_that_cannot_be_ordered_is_waited_for,
        a_host_function_is_waited_for_on_a_broken_device,
        what_a_capture_refuses_is_not_waited_for,
        a_stream_that_waits_for_a_captured_event_is_asked,
        an_event_whose_raw_handle_is_known_may_be_captured,
        a_stream_that_was_taken_over_is_asked,
        a_scope_on_a_broken_device_returns,
        a_scope_that_cannot_wait_ends_the_process,
        a_scope_that_cannot_wait_ends_the_process_without_a_word,
        an_unloading_runtime_stops_nobody,
    ],
    roles: [cannot_wait],
}
