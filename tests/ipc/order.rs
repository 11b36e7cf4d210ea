//! The order of streams in two processes, with work slow enough to lose the race if an edge were missing.

use std::time::{Duration, Instant};

use cuda_mempool::ipc::{Exporter, Importer};

use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[
    ("slow copier", copy_slowly),
    ("slow writer", write_slowly),
    ("copier that refuses the second", copy_slowly_and_refuse),
    ("reader that refuses the first", refuse_and_read),
];

pub const TESTS: &[Test] = &[
    ("both_edges_hold", both_edges_hold),
    ("both_edges_hold_when_the_hosts_keep_the_order", both_edges_hold_by_host),
    ("what_the_importer_writes_is_waited_for", what_the_importer_writes_is_waited_for),
    ("no_host_waits_for_a_device", no_host_waits_for_a_device),
    ("a_buffer_can_change_its_stream", a_buffer_can_change_its_stream),
    ("a_refusal_does_not_overtake_work", a_refusal_does_not_overtake_work),
    ("a_slot_is_not_taken_back_in_time", a_slot_is_not_taken_back_in_time),
];

const ROUNDS: u8 = 20;
const LENGTH: usize = 1 << 20;

/// Copies each buffer slowly to memory of its own, and gives it back before the copy is done.
fn copy_slowly(sockets: Sockets) {
    if let Some(sim) = sim() {
        sim.set_delay(2000, 5);
    }
    let stream = stream();
    let importer = Importer::with_options(sockets.session, &stream, &options()).expect("a session");
    let pool = cuda_mempool::MemPool::default_for(device()).expect("a pool");
    let mut copies = Vec::new();
    while let Some(buffer) = receive(&importer) {
        let mut copy = pool.alloc::<u8>(&stream, LENGTH).expect("memory");
        slow(&stream, Duration::from_millis(5));
        copy.copy_from(buffer.as_slice()).expect("a copy");
        drop(buffer);
        copies.push(copy);
    }
    assert_eq!(copies.len(), ROUNDS.into());
    for (round, copy) in (0..).zip(copies) {
        assert!(is_all(&copy.to_vec().expect("a copy"), round), "round {round}");
    }
}

fn both_edges_hold() {
    hand_over_slowly(&[]);
}

fn both_edges_hold_by_host() {
    hand_over_slowly(&[(BY_HOST, "1")]);
}

/// Writes a new value in each round, without waiting for anything but the buffer's return.
fn hand_over_slowly(environment: &[(&str, &str)]) {
    for place in places() {
        let (pool, stream) = (pool_at(place), stream());
        let (peer, sockets) = Peer::start_with("slow copier", environment);
        let session = options().host_ordering(!environment.is_empty());
        let exporter = Exporter::with_options(sockets.session, &pool, &session).expect("a session");
        let mut buffer = slowly_filled(&pool, &stream, LENGTH, 0).into();
        for round in 0..ROUNDS {
            if round > 0 {
                slow(&stream, Duration::from_millis(u64::from(round % 3) * 3));
                let mut whole: cuda_mempool::ipc::SharedBuffer<u8> = buffer;
                whole.as_slice_mut().fill_bytes(round).expect("a fill");
                buffer = whole;
            }
            buffer = send(&exporter, buffer).wait().expect("it comes back");
        }
        // Spoils what is read too late.
        buffer.as_slice_mut().fill_bytes(0xff).expect("a fill");
        stream.synchronize().expect("no fault");
        drop((buffer, exporter));
        peer.finish();
        assert_unused(&pool);
    }
}

/// Writes to each buffer slowly, and gives it back before that is done.
fn write_slowly(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::with_options(sockets.session, &stream, &options()).expect("a session");
    let mut round = 0;
    while let Some(mut buffer) = receive(&importer) {
        slow(&stream, Duration::from_millis(10));
        buffer.as_slice_mut().fill_bytes(100 + round).expect("a fill");
        round += 1;
    }
    stream.synchronize().expect("no fault");
}

fn what_the_importer_writes_is_waited_for() {
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        let (pool, stream) = (pool(), stream());
        let (peer, sockets) = Peer::start_with("slow writer", environment);
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        let mut buffer = slowly_filled(&pool, &stream, LENGTH, 0).into();
        for round in 0..ROUNDS {
            buffer = send(&exporter, buffer).wait().expect("it comes back");
            assert!(is_all(&buffer.to_vec().expect("whole"), 100 + round), "round {round}");
        }
        // A buffer that is dropped while the importer still writes to it is freed behind that.
        drop(send(&exporter, buffer).wait().expect("it comes back"));
        drop(exporter);
        peer.finish();
        assert_unused(&pool);
    }
}

fn no_host_waits_for_a_device() {
    let (pool, stream) = (pool(), stream());
    let (peer, sockets) = Peer::start("slow writer");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let buffer = slowly_filled(&pool, &stream, 1000, 0);
    let buffer = send(&exporter, buffer).wait().expect("it comes back");
    stream.synchronize().expect("no fault");

    slow(&stream, Duration::from_millis(500));
    let asked = Instant::now();
    let buffer = send(&exporter, buffer).wait().expect("it comes back");
    assert!(asked.elapsed() < Duration::from_millis(400), "the hosts have waited: {:?}", asked.elapsed());
    assert!(!stream.query().expect("no fault"));
    assert!(is_all(&buffer.to_vec().expect("whole"), 101));
    drop((buffer, exporter));
    peer.finish();
}

fn a_buffer_can_change_its_stream() {
    let (pool, first, second) = (pool(), stream(), stream());
    let (peer, sockets) = Peer::start("slow writer");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let mut buffer: cuda_mempool::ipc::SharedBuffer<u8> = slowly_filled(&pool, &first, LENGTH, 0).into();
    for round in 0..6 {
        buffer.set_stream([&first, &second][round % 2]).expect("a move");
        buffer = send(&exporter, buffer).wait().expect("it comes back");
        buffer.set_stream([&second, &first][round % 2]).expect("a move");
        assert!(is_all(&buffer.to_vec().expect("whole"), 100 + round as u8), "round {round}");
    }
    drop((buffer, exporter));
    peer.finish();
    assert_unused(&pool);
}

/// Copies a buffer slowly, gives it back before that is done, and refuses it when it comes again meanwhile.
fn copy_slowly_and_refuse(mut sockets: Sockets) {
    let stream = stream();
    let importer = Importer::with_options(sockets.session.try_clone().expect("a socket"), &stream, &options());
    let importer = importer.expect("a session");
    let pool = cuda_mempool::MemPool::default_for(device()).expect("a pool");
    let mut copy = pool.alloc::<u8>(&stream, LENGTH).expect("memory");
    let buffer = receive(&importer).expect("a buffer");
    slow(&stream, Duration::from_millis(300));
    copy.copy_from(buffer.as_slice()).expect("a copy");
    drop(buffer);
    sockets.hear();
    drop(importer);
    assert!(is_all(&copy.to_vec().expect("a copy"), 1), "it was given back as unused before the copy was done");
}

fn a_refusal_does_not_overtake_work() {
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        let (pool, stream) = (pool(), stream());
        let (peer, mut sockets) = Peer::start_with("copier that refuses the second", environment);
        let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
        let mut buffer = send(&exporter, slowly_filled(&pool, &stream, LENGTH, 1)).wait().expect("it comes back");
        buffer.as_slice_mut().fill_bytes(2).expect("a fill");
        let lease = send(&exporter, buffer);
        sockets.say(1);
        let buffer = lease.wait().expect("it comes back");
        assert!(is_all(&buffer.to_vec().expect("whole"), 2));
        drop((buffer, exporter));
        peer.finish();
        assert_unused(&pool);
    }
}

/// Takes the first buffer for one of other elements, and looks at the second when all work on the first is done.
fn refuse_and_read(mut sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
    assert!(importer.recv_timeout::<u64>(LONG).is_err());
    sockets.hear();
    let buffer = receive(&importer).expect("a buffer");
    assert!(is_all(&buffer.to_vec().expect("whole"), 2));
}

/// What a stream is still to write for a buffer that is gone is not written over what another stream wrote for the next.
fn a_slot_is_not_taken_back_in_time() {
    let (pool, busy, idle) = (pool(), stream(), stream());
    let (peer, mut sockets) = Peer::start("reader that refuses the first");
    let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
    let next = slowly_filled(&pool, &idle, LENGTH, 2);
    idle.synchronize().expect("no fault");
    let first = slowly_filled(&pool, &busy, LENGTH, 1);
    slow(&busy, Duration::from_millis(2000));
    drop(send(&exporter, first).wait().expect("it comes back"));
    // Until the importer has unmapped it.
    std::thread::sleep(Duration::from_millis(400));
    let lease = send(&exporter, next);
    assert!(!busy.query().expect("no fault"), "too late to see anything");
    busy.synchronize().expect("no fault");
    sockets.say(1);
    drop(lease.wait().expect("it comes back"));
    drop(exporter);
    peer.finish();
    assert_unused(&pool);
}
