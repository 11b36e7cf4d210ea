//! Release threshold, trimming and statistics.

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        threshold_zero_returns_all_at_a_synchronisation,
        threshold_keeps_what_a_synchronisation_would_return,
        trim_before_a_synchronisation_returns_nothing,
        trim_returns_whole_steps,
        high_mark_is_reset_by_zero_alone,
        current_marks_cannot_be_set,
        unknown_attribute_is_refused,
        no_attribute_is_wider_than_a_word,
        threshold_and_policies_can_be_read_back,
        statistics_follow_the_exact_requests,
    ],
    questions: [what_returns_memory, threshold_between, other_settings, trim_with_live_memory, when_used_falls],
}

const HUNDRED: usize = 100 * MIB;
const HUNDRED_USED: u64 = 100 << 20;
/// 100 MiB take four steps.
const HUNDRED_RESERVED: u64 = 4 * STEP;

#[track_caller]
fn set(pool: &Pool, attribute: cudaMemPoolAttr, mut value: u64) -> cudaError_t {
    ask!(cudaMemPoolSetAttribute(pool.raw(), attribute, std::ptr::from_mut(&mut value).cast()))
}

fn threshold_zero_returns_all_at_a_synchronisation() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    pool.alloc(HUNDRED, &stream).free();
    assert_eq!((pool.reserved(), pool.used()), (HUNDRED_RESERVED, 0), "before");
    stream.synchronize();
    assert_eq!((pool.reserved(), pool.used()), (0, 0), "after");
    assert_eq!((pool.attribute(RESERVED_HIGH), pool.attribute(USED_HIGH)), (HUNDRED_RESERVED, HUNDRED_USED));
    Ok(())
}

fn threshold_keeps_what_a_synchronisation_would_return() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    pool.set_threshold(u64::MAX);
    pool.alloc(HUNDRED, &stream).free();
    stream.synchronize();
    assert_eq!((pool.reserved(), pool.used()), (HUNDRED_RESERVED, 0));
    Ok(())
}

fn trim_before_a_synchronisation_returns_nothing() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    pool.set_threshold(u64::MAX);
    // Held up, so that the free cannot have happened by chance.
    let gate = Gate::close(&stream);
    pool.alloc(HUNDRED, &stream).free();
    ok!(cudaMemPoolTrimTo(pool.raw(), 0));
    assert_eq!(pool.reserved(), HUNDRED_RESERVED);
    gate.open();
    stream.synchronize();
    assert_eq!(pool.reserved(), HUNDRED_RESERVED);
    Ok(())
}

fn trim_returns_whole_steps() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    pool.set_threshold(u64::MAX);
    pool.alloc(HUNDRED, &stream).free();
    stream.synchronize();
    ok!(cudaMemPoolTrimTo(pool.raw(), 50 * MIB));
    assert_eq!(pool.reserved(), 2 * STEP);
    ok!(cudaMemPoolTrimTo(pool.raw(), 0));
    assert_eq!(pool.reserved(), 0);
    Ok(())
}

fn high_mark_is_reset_by_zero_alone() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    pool.alloc(HUNDRED, &stream).free();
    stream.synchronize();
    for (high, before) in [(RESERVED_HIGH, HUNDRED_RESERVED), (USED_HIGH, HUNDRED_USED)] {
        assert_eq!(set(&pool, high, 5), cudaError_t::cudaErrorInvalidValue);
        assert_eq!(pool.attribute(high), before);
        assert_eq!(set(&pool, high, 0), cudaError_t::cudaSuccess);
        assert_eq!(pool.attribute(high), 0, "what is reserved and used now");
    }
    Ok(())
}

fn current_marks_cannot_be_set() -> Outcome {
    let pool = Pool::device();
    for attribute in [RESERVED, USED] {
        assert_eq!(set(&pool, attribute, 0), cudaError_t::cudaErrorInvalidValue, "{attribute:?}");
    }
    Ok(())
}

fn unknown_attribute_is_refused() -> Outcome {
    let pool = Pool::device();
    let mut value = 0x5555u64;
    let out = std::ptr::from_mut(&mut value).cast();
    answers!(cudaMemPoolGetAttribute(pool.raw(), cudaMemPoolAttr(0x7fff_ffff), out) => cudaErrorInvalidValue);
    assert_eq!(value, 0x5555);
    Ok(())
}

/// Of those that the safe layer reads, which makes room for a word.
fn no_attribute_is_wider_than_a_word() -> Outcome {
    const CANARY: u64 = 0x5555_5555_5555_5555;
    let pool = Pool::device();
    for number in (1..=8).chain([10, 13, 14]) {
        let mut words = [CANARY, 0, CANARY];
        let out = words.as_mut_ptr().wrapping_add(1).cast();
        let answer = ask!(cudaMemPoolGetAttribute(pool.raw(), cudaMemPoolAttr(number), out));
        assert_eq!([words[0], words[2]], [CANARY; 2], "attribute {number}");
        assert!(answer == cudaError_t::cudaSuccess || words[1] == 0, "attribute {number} has no value");
    }
    Ok(())
}

fn threshold_and_policies_can_be_read_back() -> Outcome {
    let pool = Pool::device();
    for bytes in [1, 12345, u64::MAX] {
        pool.set_threshold(bytes);
        assert_eq!(pool.attribute(RELEASE_THRESHOLD), bytes);
    }
    for policy in REUSE_POLICIES {
        pool.allow_reuse(&[policy]);
        for other in REUSE_POLICIES {
            assert_eq!(pool.attribute(other), u64::from(other == policy), "{other:?} with {policy:?} alone");
        }
    }
    Ok(())
}

fn statistics_follow_the_exact_requests() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let first = pool.alloc(1001, &stream);
    let second = pool.alloc(77, &stream);
    assert_eq!((pool.used(), pool.attribute(USED_HIGH)), (1078, 1078));
    first.free();
    stream.synchronize();
    assert_eq!((pool.used(), pool.attribute(USED_HIGH)), (77, 1078));
    second.free();
    stream.synchronize();
    assert_eq!((pool.used(), pool.attribute(USED_HIGH)), (0, 1078));
    assert_eq!((pool.reserved(), pool.attribute(RESERVED_HIGH)), (0, STEP));
    Ok(())
}

/// With threshold 0, which calls after a free make the pool return its memory.
fn what_returns_memory() -> Outcome {
    let (stream, other) = (Stream::new(), Stream::new());
    let freed = || {
        let pool = Pool::device();
        pool.alloc(HUNDRED, &stream).free();
        while !stream.is_idle() {}
        pool
    };
    let report = |what: &str, pool: &Pool| say!("{what}: reserved {} MiB", pool.reserved() >> 20);
    let pool = freed();
    report("query of the stream", &pool);
    ok!(cudaStreamSynchronize(other.raw()));
    report("synchronisation of another stream", &pool);
    let pool = freed();
    let event = Event::recorded_on(&stream);
    ok!(cudaEventSynchronize(event.raw()));
    report("synchronisation of an event after the free", &pool);
    let pool = freed();
    let event = Event::recorded_on(&stream);
    while event.query() != cudaError_t::cudaSuccess {}
    report("query of an event after the free", &pool);
    let pool = freed();
    ok!(cudaDeviceSynchronize());
    report("cudaDeviceSynchronize", &pool);
    let pool = freed();
    ok!(cudaMemPoolTrimTo(pool.raw(), 0));
    report("trim after a query said ready", &pool);
    let pool = freed();
    let malloced = Malloced::new(100);
    report("cudaMalloc", &pool);
    let mut byte = 0u8;
    let to = std::ptr::from_mut(&mut byte).cast();
    ok!(cudaMemcpy(to, malloced.ptr(), 1, cudaMemcpyKind::cudaMemcpyDefault));
    report("blocking cudaMemcpy", &pool);
    drop(malloced);
    report("cudaFree", &pool);
    let pool = freed();
    ok!(cudaStreamSynchronize(null_mut()));
    report("synchronisation of the legacy stream", &pool);
    let pool = freed();
    pool.set_threshold(0);
    report("setting the threshold to 0 again", &pool);
    let pool = freed();
    let memory = pool.alloc(1, &stream);
    report("a further allocation", &pool);
    stream.synchronize();
    report("and a synchronisation", &pool);
    drop(memory);
    Ok(())
}

/// 100 MiB freed with a threshold that is neither none nor all.
fn threshold_between() -> Outcome {
    let stream = Stream::new();
    for mib in [1, 31, 32, 33, 50, 64, 96, 100, 127, 128] {
        let pool = Pool::device();
        pool.set_threshold(mib << 20);
        pool.alloc(HUNDRED, &stream).free();
        stream.synchronize();
        let one = pool.reserved() >> 20;
        pool.set_threshold(u64::MAX);
        let blocks: Vec<_> = (0..4).map(|_| pool.alloc(32 * MIB, &stream)).collect();
        drop(blocks);
        stream.synchronize();
        pool.set_threshold(mib << 20);
        stream.synchronize();
        say!("threshold {mib} MiB: reserved {one} MiB; of four blocks, set later: {} MiB", pool.reserved() >> 20);
        pool.alloc(1, &stream).free();
        stream.synchronize();
        say!("    after another free and synchronisation: {} MiB", pool.reserved() >> 20);
    }
    Ok(())
}

fn other_settings() -> Outcome {
    let pool = Pool::device();
    say!("policy set to 2: {}", name(set(&pool, ALLOW_OPPORTUNISTIC, 2)));
    say!("    reads {}", pool.attribute(ALLOW_OPPORTUNISTIC));
    say!("policy set to -1: {}", name(set(&pool, ALLOW_OPPORTUNISTIC, u64::MAX)));
    say!("    reads {}", pool.attribute(ALLOW_OPPORTUNISTIC));
    say!("unknown attribute set: {}", name(set(&pool, cudaMemPoolAttr(0x7fff_ffff), 0)));
    say!("attribute 0 set: {}", name(set(&pool, cudaMemPoolAttr(0), 0)));
    say!("attribute 9 set: {}", name(set(&pool, cudaMemPoolAttr(9), 0)));
    say!("null value: {}", name(ask!(cudaMemPoolSetAttribute(pool.raw(), RELEASE_THRESHOLD, null_mut()))));
    say!("null pool: {}", name(ask!(cudaMemPoolSetAttribute(null_mut(), RELEASE_THRESHOLD, null_mut()))));
    // How many bytes of the out value a policy takes.
    let mut value = 0xaaaa_aaaa_aaaa_aaaa_u64;
    let out = std::ptr::from_mut(&mut value).cast();
    ok!(cudaMemPoolGetAttribute(pool.raw(), ALLOW_OPPORTUNISTIC, out));
    say!("policy read into a word of aa: {value:#x}");
    Ok(())
}

fn trim_with_live_memory() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    pool.set_threshold(u64::MAX);
    let blocks: Vec<_> = (0..4).map(|_| pool.alloc(32 * MIB, &stream)).collect();
    let mut blocks: Vec<_> = blocks.into_iter().map(Some).collect();
    blocks[1] = None;
    blocks[3] = None;
    stream.synchronize();
    say!("four blocks of 32 MiB, two freed: reserved {} MiB", pool.reserved() >> 20);
    for keep in [usize::MAX, 96 * MIB, 80 * MIB, 0] {
        let answer = ask!(cudaMemPoolTrimTo(pool.raw(), keep));
        say!("trim to {keep}: {}, reserved {} MiB", name(answer), pool.reserved() >> 20);
    }
    Ok(())
}

/// Whether a free counts when it is called or when the stream reaches it.
fn when_used_falls() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let gate = Gate::close(&stream);
    let memory = pool.alloc(1000, &stream);
    say!("allocated on a stream that is held up: used {}, reserved {}", pool.used(), pool.reserved());
    memory.free();
    say!("freed on it: used {}, reserved {}", pool.used(), pool.reserved());
    gate.open();
    stream.synchronize();
    say!("synchronised: used {}, reserved {}", pool.used(), pool.reserved());
    Ok(())
}
