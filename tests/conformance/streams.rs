//! Streams and events: order, queries, host functions, timing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        stream_runs_in_order,
        stream_is_not_ready_while_it_is_busy,
        streams_do_not_wait_for_each_other,
        event_is_ready_at_first_and_busy_while_its_stream_is,
        event_holds_up_another_stream,
        event_stands_for_its_last_record_before_the_wait,
        event_wait_outlives_the_event,
        host_function_blocks_its_stream_and_sees_what_came_before,
        device_synchronisation_waits_for_all_streams,
        events_measure_time,
        interprocess_event_needs_timing_disabled,
        stream_tells_its_flags_and_priority,
        copy_from_pageable_memory_may_be_overwritten_after_the_call,
        kernel_and_copy_on_one_stream_are_ordered,
        destroyed_stream_finishes_its_work,
    ],
    questions: [elapsed_times, busy_answers, odd_handles, priorities, odd_copies, host_registration],
}

const SIZE: usize = 4096;
const ANY: cudaMemcpyKind = cudaMemcpyKind::cudaMemcpyDefault;

fn stream_runs_in_order() -> Outcome {
    let stream = Stream::new();
    let memory = Malloced::new(SIZE);
    let host = HostMemory::new(SIZE);
    for value in 0..50u8 {
        ok!(cudaMemsetAsync(memory.ptr(), i32::from(value), SIZE, stream.raw()));
        let to = host.ptr().wrapping_byte_add(usize::from(value));
        ok!(cudaMemcpyAsync(to, memory.ptr(), 1, ANY, stream.raw()));
    }
    stream.synchronize();
    // SAFETY: the first 50 bytes were written by the copies, which are done.
    let bytes = unsafe { std::slice::from_raw_parts(host.ptr().cast::<u8>(), 50) };
    assert!(bytes.iter().copied().eq(0..50));
    Ok(())
}

fn stream_is_not_ready_while_it_is_busy() -> Outcome {
    let stream = Stream::new();
    assert_eq!(stream.query(), cudaError_t::cudaSuccess);
    let gate = Gate::close(&stream);
    assert_eq!(stream.query(), cudaError_t::cudaErrorNotReady);
    gate.open();
    stream.synchronize();
    assert_eq!(stream.query(), cudaError_t::cudaSuccess);
    Ok(())
}

fn streams_do_not_wait_for_each_other() -> Outcome {
    let (busy, other) = (Stream::new(), Stream::new());
    let memory = Malloced::new(SIZE);
    let gate = Gate::close(&busy);
    ok!(cudaMemsetAsync(memory.ptr(), 1, SIZE, other.raw()));
    other.synchronize();
    assert!(!gate.is_open() && !busy.is_idle());
    Ok(())
}

fn event_is_ready_at_first_and_busy_while_its_stream_is() -> Outcome {
    let stream = Stream::new();
    let event = Event::new();
    assert_eq!(event.query(), cudaError_t::cudaSuccess);
    ok!(cudaEventSynchronize(event.raw()));
    let gate = Gate::close(&stream);
    event.record(&stream);
    assert_eq!(event.query(), cudaError_t::cudaErrorNotReady);
    gate.open();
    ok!(cudaEventSynchronize(event.raw()));
    assert_eq!(event.query(), cudaError_t::cudaSuccess);
    Ok(())
}

fn event_holds_up_another_stream() -> Outcome {
    let (a, b) = (Stream::new(), Stream::new());
    let gate = Gate::close(&a);
    let event = Event::recorded_on(&a);
    event.hold_up(&b);
    assert!(!b.settles_within(Duration::from_millis(20)));
    gate.open();
    b.synchronize();
    Ok(())
}

fn event_stands_for_its_last_record_before_the_wait() -> Outcome {
    let (a, b, c) = (Stream::new(), Stream::new(), Stream::new());
    let event = Event::recorded_on(&a);
    event.hold_up(&b);
    let gate = Gate::close(&c);
    event.record(&c);
    b.synchronize();
    event.hold_up(&b);
    assert!(!b.is_idle(), "the second record counts for the second wait");
    gate.open();
    b.synchronize();
    Ok(())
}

fn event_wait_outlives_the_event() -> Outcome {
    let (a, b) = (Stream::new(), Stream::new());
    let gate = Gate::close(&a);
    let event = Event::recorded_on(&a);
    event.hold_up(&b);
    drop(event);
    assert!(!b.is_idle());
    gate.open();
    b.synchronize();
    Ok(())
}

fn host_function_blocks_its_stream_and_sees_what_came_before() -> Outcome {
    struct Seen {
        from: *const u32,
        value: AtomicU32,
    }
    unsafe extern "C" fn look(seen: *mut c_void) {
        thread::sleep(Duration::from_millis(20));
        // SAFETY: the test keeps the struct, and the pinned word, until it has synchronised.
        let seen = unsafe { &*seen.cast_const().cast::<Seen>() };
        // SAFETY: as above; the copy before this on the stream is done, the set after it has not begun.
        seen.value.store(unsafe { seen.from.read_volatile() }, Ordering::Release);
    }

    let stream = Stream::new();
    let memory = Malloced::new(4);
    let host = HostMemory::new(4);
    let seen = Seen { from: host.ptr().cast_const().cast(), value: AtomicU32::new(0) };
    ok!(cudaMemsetAsync(memory.ptr(), 0x11, 4, stream.raw()));
    ok!(cudaMemcpyAsync(host.ptr(), memory.ptr(), 4, ANY, stream.raw()));
    ok!(cudaLaunchHostFunc(stream.raw(), Some(look), std::ptr::from_ref(&seen).cast_mut().cast()));
    ok!(cudaMemsetAsync(memory.ptr(), 0x22, 4, stream.raw()));
    ok!(cudaMemcpyAsync(host.ptr(), memory.ptr(), 4, ANY, stream.raw()));
    stream.synchronize();
    assert_eq!(seen.value.load(Ordering::Acquire), 0x1111_1111);
    Ok(())
}

fn device_synchronisation_waits_for_all_streams() -> Outcome {
    let (a, b) = (Stream::new(), Stream::new());
    let gate = Gate::close(&a);
    Event::recorded_on(&a).hold_up(&b);
    gate.open_after(Duration::from_millis(30));
    ok!(cudaDeviceSynchronize());
    assert!(gate.is_open() && a.is_idle() && b.is_idle());
    Ok(())
}

fn events_measure_time() -> Outcome {
    let stream = Stream::new();
    let start = Event::with_flags(cudaEventDefault);
    let end = Event::with_flags(cudaEventDefault);
    start.record(&stream);
    let gate = Gate::close(&stream);
    gate.open_after(Duration::from_millis(50));
    end.record(&stream);
    stream.synchronize();
    let mut milliseconds = 0.0;
    ok!(cudaEventElapsedTime(&mut milliseconds, start.raw(), end.raw()));
    assert!((40.0..5000.0).contains(&milliseconds), "{milliseconds} ms");
    Ok(())
}

fn interprocess_event_needs_timing_disabled() -> Outcome {
    let mut event = null_mut();
    answers!(cudaEventCreateWithFlags(&mut event, cudaEventInterprocess) => cudaErrorInvalidValue);
    Ok(())
}

fn stream_tells_its_flags_and_priority() -> Outcome {
    let (mut least, mut greatest) = (0, 0);
    ok!(cudaDeviceGetStreamPriorityRange(&mut least, &mut greatest));
    assert!(greatest <= least, "a greater priority is a smaller number");
    for (flags, priority) in [(cudaStreamDefault, least), (cudaStreamNonBlocking, greatest)] {
        let mut stream = null_mut();
        ok!(cudaStreamCreateWithPriority(&mut stream, flags, priority));
        let (mut flags_back, mut priority_back) = (99, 99);
        ok!(cudaStreamGetFlags(stream, &mut flags_back));
        ok!(cudaStreamGetPriority(stream, &mut priority_back));
        ok!(cudaStreamDestroy(stream));
        assert_eq!((flags_back, priority_back), (flags, priority));
    }
    Ok(())
}

fn copy_from_pageable_memory_may_be_overwritten_after_the_call() -> Outcome {
    let stream = Stream::new();
    let memory = Malloced::new(SIZE);
    let mut source = vec![5u8; SIZE];
    let from = source.as_ptr().cast();
    ok!(cudaMemcpyAsync(memory.ptr(), from, SIZE, cudaMemcpyKind::cudaMemcpyHostToDevice, stream.raw()));
    // The call has read pageable memory when it returns, at this size.
    source.fill(6);
    let to = source.as_mut_ptr().cast();
    ok!(cudaMemcpyAsync(to, memory.ptr(), SIZE, cudaMemcpyKind::cudaMemcpyDeviceToHost, stream.raw()));
    stream.synchronize();
    assert_eq!(source, vec![5u8; SIZE]);
    Ok(())
}

fn kernel_and_copy_on_one_stream_are_ordered() -> Outcome {
    let kernels = machine::kernels()?;
    let stream = Stream::new();
    let pool = Pool::device();
    let words = pool.alloc(SIZE, &stream);
    let total = pool.alloc(8, &stream);
    ok!(cudaMemsetAsync(total.ptr(), 0, 8, stream.raw()));
    ok!(cudaMemsetAsync(words.ptr(), 0, SIZE, stream.raw()));
    kernels.spin(stream.raw(), 5_000_000)?;
    let count = SIZE as u64 / 4;
    // SAFETY: memory of that many words and of one total, allocated on the same stream.
    unsafe {
        kernels.increment(stream.raw(), words.ptr().cast(), count)?;
        kernels.sum(stream.raw(), words.ptr().cast(), count, total.ptr().cast())?;
    }
    let mut sum = 0u64;
    ok!(cudaMemcpyAsync(std::ptr::from_mut(&mut sum).cast(), total.ptr(), 8, ANY, stream.raw()));
    stream.synchronize();
    assert_eq!(sum, count);
    Ok(())
}

fn destroyed_stream_finishes_its_work() -> Outcome {
    let stream = Stream::new();
    let memory = Malloced::new(SIZE);
    let gate = Gate::close(&stream);
    ok!(cudaMemsetAsync(memory.ptr(), 8, SIZE, stream.raw()));
    let event = Event::recorded_on(&stream);
    // Should the call wait for the work, this keeps it from waiting for ever.
    gate.open_after(Duration::from_millis(200));
    stream.destroy();
    ok!(cudaEventSynchronize(event.raw()));
    let mut back = [0u8; SIZE];
    ok!(cudaMemcpy(back.as_mut_ptr().cast(), memory.ptr(), SIZE, ANY));
    assert_eq!(back, [8; SIZE]);
    Ok(())
}

fn elapsed_times() -> Outcome {
    let stream = Stream::new();
    let (start, end) = (Event::with_flags(cudaEventDefault), Event::with_flags(cudaEventDefault));
    let untimed = Event::new();
    let mut time = -5.0;
    let mut elapsed = |what: &str, from: &Event, to: &Event| {
        let answer = ask!(cudaEventElapsedTime(&mut time, from.raw(), to.raw()));
        say!("{what}: {}, {time}", name(answer));
    };
    elapsed("neither recorded", &start, &end);
    start.record(&stream);
    stream.synchronize();
    elapsed("end not recorded", &start, &end);
    untimed.record(&stream);
    stream.synchronize();
    elapsed("end without timing", &start, &untimed);
    let gate = Gate::close(&stream);
    end.record(&stream);
    elapsed("end not ready", &start, &end);
    gate.open();
    Ok(())
}

fn busy_answers() -> Outcome {
    let stream = Stream::new();
    let gate = Gate::close(&stream);
    let event = Event::recorded_on(&stream);
    say!("stream query: {}, last error {}", name(cu!(cudaStreamQuery(stream.raw()))), name(cu!(cudaGetLastError())));
    say!("event query: {}, last error {}", name(cu!(cudaEventQuery(event.raw()))), name(cu!(cudaGetLastError())));
    gate.open_after(Duration::from_millis(100));
    let answer = ask!(cudaStreamDestroy(stream.raw()));
    std::mem::forget(stream);
    say!("destroy of a busy stream: {}, gate open {}", name(answer), gate.is_open());
    say!("destroy of a busy event: {}", name(ask!(cudaEventDestroy(event.raw()))));
    std::mem::forget(event);
    Ok(())
}

fn odd_handles() -> Outcome {
    let event = Event::new();
    let mut stream = null_mut();
    say!("null out, stream: {}", name(ask!(cudaStreamCreate(null_mut()))));
    say!("stream flags 4: {}", name(ask!(cudaStreamCreateWithFlags(&mut stream, 4))));
    say!("destroy stream 0: {}", name(ask!(cudaStreamDestroy(null_mut()))));
    say!("destroy cudaStreamLegacy: {}", name(ask!(cudaStreamDestroy(cudaStreamLegacy))));
    say!("destroy cudaStreamPerThread: {}", name(ask!(cudaStreamDestroy(cudaStreamPerThread))));
    let mut raw = null_mut();
    say!("null out, event: {}", name(ask!(cudaEventCreate(null_mut()))));
    say!("event flags 64: {}", name(ask!(cudaEventCreateWithFlags(&mut raw, 64))));
    say!("destroy null event: {}", name(ask!(cudaEventDestroy(null_mut()))));
    say!("record null event: {}", name(ask!(cudaEventRecord(null_mut(), null_mut()))));
    say!("query null event: {}", name(ask!(cudaEventQuery(null_mut()))));
    say!("wait for null event: {}", name(ask!(cudaStreamWaitEvent(null_mut(), null_mut(), 0))));
    say!("wait flags 2: {}", name(ask!(cudaStreamWaitEvent(null_mut(), event.raw(), 2))));
    say!("wait flags 1 outside a capture: {}", name(ask!(cudaStreamWaitEvent(null_mut(), event.raw(), 1))));
    say!("record flags 1 outside a capture: {}", name(ask!(cudaEventRecordWithFlags(event.raw(), null_mut(), 1))));
    say!("null host function: {}", name(ask!(cudaLaunchHostFunc(null_mut(), None, null_mut()))));
    let mut device = -5;
    say!("set device 77: {}", name(ask!(cudaSetDevice(NO_DEVICE))));
    say!("set device -1: {}", name(ask!(cudaSetDevice(-1))));
    say!("get device: {} {device}", name(ask!(cudaGetDevice(&mut device))));
    say!("get device to null: {}", name(ask!(cudaGetDevice(null_mut()))));
    Ok(())
}

fn priorities() -> Outcome {
    let (mut least, mut greatest) = (99, 99);
    let answer = ask!(cudaDeviceGetStreamPriorityRange(&mut least, &mut greatest));
    say!("range: {}, least {least}, greatest {greatest}", name(answer));
    for priority in [-100, 100] {
        let (mut stream, mut back) = (null_mut(), 99);
        let answer = ask!(cudaStreamCreateWithPriority(&mut stream, cudaStreamNonBlocking, priority));
        let asked = ask!(cudaStreamGetPriority(stream, &mut back));
        say!("priority {priority}: {}; reads {} {back}", name(answer), name(asked));
    }
    for (what, stream) in [("0", null_mut()), ("legacy", cudaStreamLegacy), ("per-thread", cudaStreamPerThread)] {
        let (mut flags, mut priority) = (99, 99);
        let answers =
            (ask!(cudaStreamGetFlags(stream, &mut flags)), ask!(cudaStreamGetPriority(stream, &mut priority)));
        say!("stream {what}: flags {} {flags}, priority {} {priority}", name(answers.0), name(answers.1));
    }
    Ok(())
}

fn odd_copies() -> Outcome {
    let stream = Stream::new();
    let memory = Malloced::new(SIZE);
    let s = stream.raw();
    let mut local = [0u8; 64];
    let here: *mut c_void = local.as_mut_ptr().cast();
    let (to_host, to_device) = (cudaMemcpyKind::cudaMemcpyDeviceToHost, cudaMemcpyKind::cudaMemcpyHostToDevice);
    say!("0 bytes of null: {}", name(ask!(cudaMemcpyAsync(null_mut(), null(), 0, ANY, s))));
    say!("1 byte from null: {}", name(ask!(cudaMemcpyAsync(memory.ptr(), null(), 1, ANY, s))));
    say!("1 byte to null: {}", name(ask!(cudaMemcpyAsync(null_mut(), memory.ptr(), 1, ANY, s))));
    say!("wrong direction: {}", name(ask!(cudaMemcpyAsync(memory.ptr(), here, 1, to_host, s))));
    say!("wrong direction back: {}", name(ask!(cudaMemcpyAsync(here, memory.ptr(), 1, to_device, s))));
    say!("kind 9: {}", name(ask!(cudaMemcpyAsync(here, memory.ptr(), 1, cudaMemcpyKind(9), s))));
    say!("memset of 0 bytes at null: {}", name(ask!(cudaMemsetAsync(null_mut(), 0, 0, s))));
    say!("memset of 1 byte at null: {}", name(ask!(cudaMemsetAsync(null_mut(), 0, 1, s))));
    say!("memset of the stack: {}", name(ask!(cudaMemsetAsync(here, 0, 1, s))));
    say!("host to host: {}", name(ask!(cudaMemcpyAsync(here, here.wrapping_byte_add(32), 8, ANY, s))));
    say!("sync: {}", name(ask!(cudaStreamSynchronize(s))));
    say!(
        "a TiB beyond the end: {}",
        name(ask!(cudaMemcpyAsync(here, memory.ptr().wrapping_byte_add(1 << 40), 1, ANY, s)))
    );
    say!("sync: {}", name(ask!(cudaStreamSynchronize(s))));
    Ok(())
}

fn host_registration() -> Outcome {
    let mut memory = vec![0u8; 3 * 4096];
    let page = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(4096)).cast::<c_void>();
    let flags = cudaHostRegisterMapped | cudaHostRegisterPortable;
    let mut device = null_mut();
    say!("register: {}", name(ask!(cudaHostRegister(page, 4096, flags))));
    say!("again: {}", name(ask!(cudaHostRegister(page, 4096, flags))));
    let answer = ask!(cudaHostGetDevicePointer(&mut device, page, 0));
    say!("device pointer: {}, the same {}", name(answer), device == page);
    let mut attributes = cudaPointerAttributes::default();
    let answer = ask!(cudaPointerGetAttributes(&mut attributes, page));
    say!("attributes: {}, type {}", name(answer), attributes.type_.0);
    say!("cudaFreeHost: {}", name(ask!(cudaFreeHost(page))));
    say!("unregister: {}", name(ask!(cudaHostUnregister(page))));
    say!("again: {}", name(ask!(cudaHostUnregister(page))));
    say!("device pointer then: {}", name(ask!(cudaHostGetDevicePointer(&mut device, page, 0))));
    say!("0 bytes: {}", name(ask!(cudaHostRegister(page, 0, flags))));
    say!("null: {}", name(ask!(cudaHostRegister(null_mut(), 4096, flags))));
    let inside = page.wrapping_byte_add(100);
    say!("unaligned: {}", name(ask!(cudaHostRegister(inside, 50, flags))));
    say!("    unregister: {}", name(ask!(cudaHostUnregister(inside))));
    Ok(())
}
