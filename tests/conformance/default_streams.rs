//! The legacy default stream and the per-thread ones, with their implicit order.

use std::thread;

use crate::support::prelude::*;

area! {
    // The legacy stream waits for every blocking stream of the process: a process of its own.
    isolated: [
        legacy_stream_waits_for_blocking_streams,
        blocking_streams_wait_for_the_legacy_stream,
        legacy_stream_does_not_wait_for_non_blocking_streams,
        per_thread_stream_and_legacy_stream_wait_for_each_other,
        per_thread_stream_is_another_on_each_thread,
        stream_zero_is_the_legacy_stream,
        blocking_memset_is_on_the_legacy_stream,
    ],
}

const SOON: Duration = Duration::from_millis(30);

/// A busy stream, made of an event: the gate is on a stream that has no order with the default ones.
struct Busy {
    gate: Gate,
    event: Event,
    _held: Stream,
}

impl Busy {
    fn new() -> Self {
        let held = Stream::new();
        let gate = Gate::close(&held);
        Self { event: Event::recorded_on(&held), gate, _held: held }
    }

    fn holds_up(&self, stream: cudaStream_t) {
        ok!(cudaStreamWaitEvent(stream, self.event.raw(), 0));
    }
}

/// Puts an event behind what the stream has to do, and says whether it gets there soon.
fn gets_there(stream: cudaStream_t) -> bool {
    let event = Event::new();
    ok!(cudaEventRecord(event.raw(), stream));
    thread::sleep(SOON);
    event.query() == cudaError_t::cudaSuccess
}

fn legacy_stream_waits_for_blocking_streams() -> Outcome {
    let blocking = Stream::blocking();
    let busy = Busy::new();
    busy.holds_up(blocking.raw());
    assert!(!gets_there(cudaStreamLegacy));
    busy.gate.open();
    ok!(cudaStreamSynchronize(cudaStreamLegacy));
    Ok(())
}

fn blocking_streams_wait_for_the_legacy_stream() -> Outcome {
    let (blocking, other) = (Stream::blocking(), Stream::new());
    let busy = Busy::new();
    busy.holds_up(cudaStreamLegacy);
    assert!(!gets_there(blocking.raw()));
    assert!(gets_there(other.raw()), "a non-blocking stream does not wait");
    busy.gate.open();
    blocking.synchronize();
    Ok(())
}

fn legacy_stream_does_not_wait_for_non_blocking_streams() -> Outcome {
    let other = Stream::new();
    let busy = Busy::new();
    busy.holds_up(other.raw());
    assert!(gets_there(cudaStreamLegacy));
    Ok(())
}

fn per_thread_stream_and_legacy_stream_wait_for_each_other() -> Outcome {
    let busy = Busy::new();
    busy.holds_up(cudaStreamPerThread);
    assert!(!gets_there(cudaStreamLegacy));
    busy.gate.open();
    ok!(cudaDeviceSynchronize());
    let busy = Busy::new();
    busy.holds_up(cudaStreamLegacy);
    assert!(!gets_there(cudaStreamPerThread));
    busy.gate.open();
    ok!(cudaDeviceSynchronize());
    Ok(())
}

fn per_thread_stream_is_another_on_each_thread() -> Outcome {
    let busy = Busy::new();
    busy.holds_up(cudaStreamPerThread);
    assert!(!gets_there(cudaStreamPerThread));
    let elsewhere = thread::spawn(|| gets_there(cudaStreamPerThread)).join().expect("no assertion there");
    assert!(elsewhere, "the other thread's stream does not wait for this one's");
    busy.gate.open();
    ok!(cudaStreamSynchronize(cudaStreamPerThread));
    Ok(())
}

fn stream_zero_is_the_legacy_stream() -> Outcome {
    let busy = Busy::new();
    busy.holds_up(null_mut());
    assert!(!gets_there(cudaStreamLegacy));
    assert_eq!(ask!(cudaStreamQuery(cudaStreamLegacy)), cudaError_t::cudaErrorNotReady);
    assert_eq!(ask!(cudaStreamQuery(null_mut())), cudaError_t::cudaErrorNotReady);
    busy.gate.open();
    ok!(cudaStreamSynchronize(null_mut()));
    assert_eq!(ask!(cudaStreamQuery(cudaStreamLegacy)), cudaError_t::cudaSuccess);
    Ok(())
}

fn blocking_memset_is_on_the_legacy_stream() -> Outcome {
    let memory = Malloced::new(4096);
    let busy = Busy::new();
    busy.holds_up(cudaStreamLegacy);
    // It may wait for the device, so something must open the gate.
    busy.gate.open_after(SOON);
    ok!(cudaMemset(memory.ptr(), 3, 4096));
    let mut back = [0u8; 4096];
    ok!(cudaMemcpy(back.as_mut_ptr().cast(), memory.ptr(), 4096, cudaMemcpyKind::cudaMemcpyDefault));
    assert!(busy.gate.is_open());
    assert_eq!(back, [3; 4096]);
    Ok(())
}
