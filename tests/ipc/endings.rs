//! What is left of a session when it is over.

use std::collections::VecDeque;
use std::time::Duration;

use cuda_mempool::ipc::{Error, Exporter, Importer, SharedBuffer};

use crate::hand_over::slowly_filled_fast;
use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[("sender of the same twice", send_twice), ("importer that comes and goes", come_and_go)];

pub const TESTS: &[Test] = &[
    ("what_is_not_received_again_is_unmapped", what_is_not_received_again_is_unmapped),
    ("a_buffer_forgets_sessions_that_are_over", a_buffer_forgets_sessions_that_are_over),
    ("what_crosses_with_a_farewell_comes_back", what_crosses_with_a_farewell_comes_back),
];

/// Hands one buffer over, and over again, and ends nowhere.
fn send_twice(mut sockets: Sockets) {
    let (pool, stream) = (pool(), stream());
    let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
    let buffer = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait().expect("it comes back");
    let _lease = send(&exporter, buffer);
    sockets.say(b'x');
    loop {
        std::thread::park();
    }
}

fn what_is_not_received_again_is_unmapped() {
    for ending in ["the exporter dies", "the importer is dropped", "the importer is dropped later"] {
        let stream = stream();
        let held = Held::now();
        let (mut peer, mut sockets) = Peer::start("sender of the same twice");
        let session = sockets.session.try_clone().expect("a socket");
        let importer = Importer::new(session, &stream).expect("a session");
        drop(receive(&importer).expect("a buffer"));
        assert_eq!(sockets.hear(), b'x');
        match ending {
            "the exporter dies" => {
                peer.kill();
                // Until the end is seen: what is received before that is as good as any other buffer.
                std::thread::sleep(SOON / 2);
                let error = std::iter::from_fn(|| Some(importer.recv::<u8>())).find_map(Result::err);
                assert!(matches!(error, Some(Error::PeerGone)));
            }
            "the importer is dropped later" => {
                importer.abort();
                std::thread::sleep(SOON);
            }
            _ => {}
        }
        drop((importer, sockets, peer));
        held.assert_again();
    }
}

fn a_buffer_forgets_sessions_that_are_over() {
    let (pool, stream) = (pool(), stream());
    let mut buffer: SharedBuffer<u8> = slowly_filled_fast(&pool, &stream, 1000, 0).into();
    let mut held = None;
    for round in 1..=4 {
        let (peer, sockets) = Peer::start("incrementer");
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        buffer = send(&exporter, buffer).wait().expect("it comes back");
        assert!(is_all(&buffer.to_vec().expect("whole"), round));
        drop((exporter, sockets.other));
        peer.finish();
        // Until the end of that process is seen.
        std::thread::sleep(Duration::from_millis(100));
        match &held {
            None => held = Some(Held::now()),
            Some(held) => Held::assert_again(held),
        }
    }
    drop(buffer);
    assert_unused(&pool);
}

/// Has one session after the other, and ends each after its first buffer.
fn come_and_go(mut sockets: Sockets) {
    let stream = stream();
    while let Ok(path) = std::env::var("CUDA_MEMPOOL_TEST_PATH") {
        let Ok(socket) = std::os::unix::net::UnixStream::connect(path) else { break };
        let importer = Importer::new(socket, &stream).expect("a session");
        // Nothing comes any more when the other process has seen enough.
        let Ok(Some(buffer)) = importer.recv::<u8>() else { break };
        drop(buffer);
        importer.close().expect("all is given back");
    }
    sockets.say(b'd');
    sockets.hear();
}

/// The importer ends the session while the exporter hands over.
fn what_crosses_with_a_farewell_comes_back() {
    let (pool, stream) = (pool(), stream());
    let path = std::env::temp_dir().join(format!("cuda-mempool-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let text = path.to_str().expect("a plain path");
    let (peer, mut sockets) = Peer::start_with("importer that comes and goes", &[("CUDA_MEMPOOL_TEST_PATH", text)]);
    let mut lost = 0;
    for _ in 0..300 {
        let (socket, _) = listener.accept().expect("the peer comes");
        let exporter = Exporter::new(socket, &pool).expect("a session");
        // As many as a socket takes are on their way when the importer has had enough.
        let mut leases = VecDeque::new();
        while let Ok(lease) = exporter.send(pool.alloc::<u8>(&stream, 100).expect("memory")) {
            leases.push_back(lease);
            if leases.len() > 100 {
                lost += leases.pop_front().and_then(|lease| lease.wait().err()).iter().count();
            }
        }
        lost += leases.into_iter().filter_map(|lease| lease.wait().err()).count();
    }
    std::fs::remove_file(&path).expect("it was there");
    drop(listener);
    assert_eq!(sockets.hear(), b'd');
    assert_eq!(lost, 0);
    assert_unused(&pool);
    sockets.say(b'd');
    peer.finish();
}
