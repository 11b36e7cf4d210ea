//! From A to B to C.

use std::time::{Duration, Instant};

use cuda_mempool::ipc::{Error, Exporter, Forwarder, Importer};

use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] =
    &[("forwarder", forward), ("forwarder to one that dies", forward_to_one_that_dies), ("slow third", be_slow)];

pub const TESTS: &[Test] = &[
    ("what_a_gave_goes_to_c_and_back", what_a_gave_goes_to_c_and_back),
    ("what_c_does_not_finish_is_marked", what_c_does_not_finish_is_marked),
    ("there_must_be_something_to_forward", there_must_be_something_to_forward),
];

/// B: what A (the session) gives is handed on to C (a process of its own), and back when C has given it back.
fn forward(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    let (third, to_third) = Peer::start("incrementer");
    let mut forwarder = None;
    let mut socket = Some(to_third.session);
    while let Some(buffer) = receive(&importer) {
        let forwarder = forwarder
            .get_or_insert_with(|| Forwarder::new(socket.take().expect("one session"), &importer).expect("a session"));
        let send = || forwarder.send(buffer).map_err(|(_, error)| error).expect("C is there");
        let lease = send();
        let mut buffer = lease.wait().expect("it comes back");
        // C added one, and B adds ten.
        let bytes: Vec<u8> = buffer.to_vec().expect("whole").iter().map(|byte| byte.wrapping_add(10)).collect();
        buffer.as_slice_mut().copy_from_host(&bytes).expect("a copy");
    }
    drop(forwarder);
    drop(to_third.other);
    third.finish();
}

fn what_a_gave_goes_to_c_and_back() {
    let (pool, stream) = (pool(), stream());
    let held = Held::now();
    let (peer, sockets) = Peer::start("forwarder");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let mut buffer = slowly_filled(&pool, &stream, 10_000, 0).into();
    for round in 1..=10 {
        buffer = send(&exporter, buffer).wait().expect("it comes back");
        assert!(is_all(&buffer.to_vec().expect("whole"), round * 11), "round {round}");
    }
    let leases: Vec<_> = (0..10).map(|byte| send(&exporter, slowly_filled(&pool, &stream, 100, byte))).collect();
    for (byte, lease) in (0..).zip(leases) {
        assert!(is_all(&lease.wait().expect("it comes back").to_vec().expect("whole"), byte + 11));
    }
    drop((buffer, exporter, sockets.other));
    peer.finish();
    held.assert_again();
    assert_unused(&pool);
}

fn there_must_be_something_to_forward() {
    let stream = stream();
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let (other, _third) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let importer = Importer::new(socket, &stream).expect("a session");
    assert!(matches!(Forwarder::new(other, &importer), Err(Error::ForeignMemory)));
}

/// C: is not done with the second buffer when it has given it back.
fn be_slow(mut sockets: Sockets) {
    let (stream, second) = (stream(), stream());
    let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
    for (stream, time) in [(&stream, Duration::ZERO), (&second, 2 * LONG)] {
        let mut buffer = receive(&importer).expect("a buffer");
        buffer.set_stream(stream).expect("a move");
        slow(stream, time);
        buffer.as_slice_mut().fill_bytes(9).expect("a fill");
    }
    sockets.hear();
}

/// B: its third process dies at work, and B goes on with another one.
fn forward_to_one_that_dies(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    let mut buffer = receive(&importer).expect("a buffer");
    let (mut third, to_third) = Peer::start("slow third");
    let forwarder = Forwarder::new(to_third.session, &importer).expect("a session");
    let forward = |forwarder: &Forwarder, buffer| {
        let lease = forwarder.send(buffer).map_err(|(_, error)| error).expect("C is there");
        lease.wait().expect("it comes back")
    };
    buffer = forward(&forwarder, buffer);
    assert!(is_all(&buffer.to_vec().expect("C was done"), 9));
    buffer = forward(&forwarder, buffer);
    let killed = Instant::now();
    third.kill();
    assert!(matches!(buffer.confirm(), Err(Error::Abandoned)));
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());

    let (another, to_another) = Peer::start("incrementer");
    let second = Forwarder::new(to_another.session, &importer).expect("a session");
    buffer = forward(&second, buffer);
    assert!(matches!(buffer.to_vec(), Err(Error::Abandoned)), "it stays marked");
    drop((buffer, forwarder, second, to_another.other));
    another.finish();
    importer.close().expect("an end");
}

fn what_c_does_not_finish_is_marked() {
    let (pool, stream) = (pool(), stream());
    let held = Held::now();
    let (peer, sockets) = Peer::start("forwarder to one that dies");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    drop(send(&exporter, slowly_filled(&pool, &stream, 1000, 0)).wait().expect("it comes back"));
    exporter.close().expect("all is given back");
    peer.finish();
    drop(sockets.other);
    held.assert_again();
    assert_unused(&pool);
}
