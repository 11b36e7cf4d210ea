//! Reuse across streams: a block freed on stream A, then asked for on stream B.

use crate::support::prelude::*;

area! {
    facts: [
        without_a_policy_a_busy_streams_block_is_not_reused,
        without_a_policy_a_full_pool_is_out_of_memory_until_a_synchronisation,
        follow_event_dependencies_reuses_what_an_event_orders,
        allow_opportunistic_reuses_what_is_finished,
        allow_internal_dependencies_takes_new_memory_while_there_is_room,
        allow_internal_dependencies_makes_b_wait_when_the_pool_is_full,
    ],
    questions: [finished_stream_without_opportunistic, event_on_a_third_stream, without_an_event_wait],
}

/// A whole step, so that a second block never fits beside the first.
const BLOCK: usize = STEP as usize;

/// A pool that keeps its memory and allows these policies alone.
fn keeping(pool: Pool, allowed: &[cudaMemPoolAttr]) -> Pool {
    pool.set_threshold(u64::MAX);
    pool.allow_reuse(allowed);
    pool
}

fn without_a_policy_a_busy_streams_block_is_not_reused() -> Outcome {
    let pool = keeping(Pool::device(), &[]);
    let (a, b) = (Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let address = first.ptr();
    let gate = Gate::close(&a);
    first.free();
    let second = pool.alloc(BLOCK, &b);
    assert_ne!(second.ptr(), address);
    assert_eq!(pool.reserved(), 2 * STEP);
    gate.open();
    a.synchronize();
    Ok(())
}

fn without_a_policy_a_full_pool_is_out_of_memory_until_a_synchronisation() -> Outcome {
    let pool = keeping(Pool::device_up_to(BLOCK), &[]);
    let (a, b) = (Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let gate = Gate::close(&a);
    gate.open_after(Duration::from_secs(5));
    first.free();
    let mut pointer = null_mut();
    answers!(cudaMallocFromPoolAsync(&mut pointer, BLOCK, pool.raw(), b.raw()) => cudaErrorMemoryAllocation);
    assert!(!gate.is_open(), "the call waited for stream A");
    gate.open();
    ok!(cudaDeviceSynchronize());
    pool.alloc(BLOCK, &b).free();
    b.synchronize();
    Ok(())
}

fn follow_event_dependencies_reuses_what_an_event_orders() -> Outcome {
    let pool = keeping(Pool::device(), &[FOLLOW_EVENT_DEPENDENCIES]);
    let (a, b) = (Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let address = first.ptr();
    let gate = Gate::close(&a);
    first.free();
    Event::recorded_on(&a).hold_up(&b);
    let second = pool.alloc(BLOCK, &b);
    assert_eq!(second.ptr(), address);
    assert_eq!(pool.reserved(), STEP);
    assert!(!b.is_idle(), "B waits for A");
    gate.open();
    second.free();
    b.synchronize();
    Ok(())
}

fn allow_opportunistic_reuses_what_is_finished() -> Outcome {
    let pool = keeping(Pool::device(), &[ALLOW_OPPORTUNISTIC]);
    let (a, b) = (Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let address = first.ptr();
    first.free();
    a.synchronize();
    let second = pool.alloc(BLOCK, &b);
    assert_eq!(second.ptr(), address);
    assert_eq!(pool.reserved(), STEP);
    Ok(())
}

fn allow_internal_dependencies_takes_new_memory_while_there_is_room() -> Outcome {
    let pool = keeping(Pool::device(), &[ALLOW_INTERNAL_DEPENDENCIES]);
    let (a, b) = (Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let address = first.ptr();
    let gate = Gate::close(&a);
    first.free();
    let second = pool.alloc(BLOCK, &b);
    assert_ne!(second.ptr(), address);
    gate.open();
    a.synchronize();
    Ok(())
}

fn allow_internal_dependencies_makes_b_wait_when_the_pool_is_full() -> Outcome {
    let pool = keeping(Pool::device_up_to(BLOCK), &[ALLOW_INTERNAL_DEPENDENCIES]);
    let (a, b) = (Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let address = first.ptr();
    let gate = Gate::close(&a);
    // Should the call wait for stream A after all, this keeps it from waiting for ever.
    gate.open_after(Duration::from_secs(5));
    first.free();
    let second = pool.alloc(BLOCK, &b);
    assert!(!gate.is_open(), "the call waited for stream A");
    assert_eq!(second.ptr(), address);
    assert_eq!(b.query(), cudaError_t::cudaErrorNotReady);
    gate.open();
    b.synchronize();
    Ok(())
}

/// A has finished, and nobody has looked.
fn finished_stream_without_opportunistic() -> Outcome {
    for (what, allowed) in [
        ("no policy", &[][..]),
        ("follow event", &[FOLLOW_EVENT_DEPENDENCIES][..]),
        ("internal", &[ALLOW_INTERNAL_DEPENDENCIES][..]),
        ("opportunistic", &[ALLOW_OPPORTUNISTIC][..]),
    ] {
        let pool = keeping(Pool::device(), allowed);
        let (a, b) = (Stream::new(), Stream::new());
        let first = pool.alloc(BLOCK, &a);
        let address = first.ptr();
        first.free();
        std::thread::sleep(Duration::from_millis(50));
        let second = pool.alloc(BLOCK, &b);
        let unseen = second.ptr() == address;
        second.free();
        b.synchronize();
        let pool = keeping(Pool::device(), allowed);
        let first = pool.alloc(BLOCK, &a);
        let address = first.ptr();
        first.free();
        a.synchronize();
        let second = pool.alloc(BLOCK, &b);
        say!("{what}: same block {unseen}; after a synchronisation of A {}", second.ptr() == address);
    }
    Ok(())
}

fn event_on_a_third_stream() -> Outcome {
    let pool = keeping(Pool::device(), &[FOLLOW_EVENT_DEPENDENCIES]);
    let (a, b, c) = (Stream::new(), Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let address = first.ptr();
    let gate = Gate::close(&a);
    first.free();
    Event::recorded_on(&a).hold_up(&c);
    Event::recorded_on(&c).hold_up(&b);
    let second = pool.alloc(BLOCK, &b);
    say!("B waits for C, which waits for A: same block {}", second.ptr() == address);
    gate.open();
    Ok(())
}

/// The event was recorded before the free, or not waited for.
fn without_an_event_wait() -> Outcome {
    let pool = keeping(Pool::device(), &[FOLLOW_EVENT_DEPENDENCIES]);
    let (a, b) = (Stream::new(), Stream::new());
    let first = pool.alloc(BLOCK, &a);
    let address = first.ptr();
    let gate = Gate::close(&a);
    let early = Event::recorded_on(&a);
    first.free();
    early.hold_up(&b);
    let second = pool.alloc(BLOCK, &b);
    say!("event recorded before the free: same block {}", second.ptr() == address);
    gate.open();
    Ok(())
}
