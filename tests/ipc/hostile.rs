//! Peers that mean harm: always an error, never a crash, a hang or a leak.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cuda_mempool::ipc::protocol::frame::{Body, Farewell, Frame, Fresh, Hello, Lend, Place, Turn, LENGTH};
use cuda_mempool::ipc::protocol::nonce::Nonce;
use cuda_mempool::ipc::{Error, Exporter, Importer, PointerBlob, PointerExport, Violation};
use cuda_mempool::{DeviceBuffer, MemPool, Stream};

use crate::peer::{Peer, Role, Sockets};
use crate::raw::*;
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[("liar about sizes", lie_about_sizes)];

pub const TESTS: &[Test] = &[
    ("a_process_has_no_session_with_itself", a_process_has_no_session_with_itself),
    ("importers_refuse_what_they_are_sent", importers_refuse_what_they_are_sent),
    ("importers_refuse_buffers_that_do_not_fit", importers_refuse_buffers_that_do_not_fit),
    ("what_does_not_fit_is_unmapped", what_does_not_fit_is_unmapped),
    ("exporters_refuse_what_they_are_sent", exporters_refuse_what_they_are_sent),
    ("a_good_peer_of_raw_frames_is_served", a_good_peer_of_raw_frames_is_served),
    ("a_thousand_random_frames", a_thousand_random_frames),
    ("a_peer_that_scribbles_on_the_page", a_peer_that_scribbles_on_the_page),
    ("exporters_cannot_take_the_page_away", exporters_cannot_take_the_page_away),
    ("importers_cannot_take_the_page_away", importers_cannot_take_the_page_away),
    ("without_a_seal_the_hosts_keep_the_order", without_a_seal_the_hosts_keep_the_order),
    ("a_peer_that_trickles_or_floods", a_peer_that_trickles_or_floods),
    ("a_peer_that_never_unmaps", a_peer_that_never_unmaps),
];

fn a_process_has_no_session_with_itself() {
    let (pool, stream) = (pool(), stream());
    let held = Held::now();
    let (one, other) = UnixStream::pair().expect("a pair");
    let exporter = Exporter::new(one, &pool).expect("a session");
    let importer = Importer::new(other, &stream).expect("a session");
    assert!(matches!(importer.recv::<u8>(), Err(Error::Violation(Violation::OwnProcess))));
    let buffer = pool.alloc_zeroed::<u8>(&stream, 10).expect("memory");
    let deadline = Instant::now() + SOON;
    let mut buffer = Some(cuda_mempool::ipc::SharedBuffer::from(buffer));
    while let Some(kept) = buffer.take() {
        match exporter.send(kept) {
            // It had not heard of it yet.
            Ok(lease) => assert!(lease.wait().is_err()),
            Err((_, error)) => {
                let expected = matches!(
                    error,
                    Error::Violation(Violation::OwnProcess) | Error::PeerLeft(Farewell::OwnProcess) | Error::PeerGone
                );
                assert!(expected, "{error}");
            }
        }
        assert!(Instant::now() < deadline);
    }
    drop((exporter, importer));
    assert_unused(&pool);
    held.assert_again();
}

/// What an importer makes of a peer: an error, soon, and nothing is left of it.
fn importer_meets(case: &str, stream: &Stream, attack: impl FnOnce(&mut RawPeer)) -> Error {
    let held = Held::now();
    let (mut peer, socket) = RawPeer::new();
    let importer = Importer::new(socket, stream).expect("a session");
    attack(&mut peer);
    let asked = Instant::now();
    let error = loop {
        match importer.recv_timeout::<u8>(3 * SOON) {
            Ok(Some(buffer)) => drop(buffer),
            Ok(None) => panic!("{case}: a peaceful end"),
            Err(error) => break error,
        }
    };
    assert!(asked.elapsed() < SOON, "{case}: {:?}, {error}", asked.elapsed());
    drop((importer, peer));
    held.assert_again();
    error
}

type Attack<'a> = Box<dyn Fn(&mut RawPeer) + 'a>;

fn importers_refuse_what_they_are_sent() {
    let (pool, stream) = (pool(), stream());
    let pool = &pool;
    let pool_fd = || pool.export_fd().expect("a descriptor");
    let turn = Turn { slot: 0, generation: 2 };
    let place = Place::Device(device().uuid().expect("a UUID"));
    let pool_body = Body::Pool { origin: Nonce([0x77; 16]), number: 1 };
    let say = |body: Body, fds: fn() -> Vec<OwnedFd>| -> Attack<'_> {
        Box::new(move |peer: &mut RawPeer| peer.say(body.clone(), &fds()))
    };
    let after_hello = |body: Body, fds: fn() -> Vec<OwnedFd>| -> Attack<'_> {
        Box::new(move |peer: &mut RawPeer| {
            peer.say(hello(), &[good_page()]);
            peer.say(body.clone(), &fds());
        })
    };
    let greeted = |then: fn(&mut RawPeer)| -> Attack<'_> {
        Box::new(move |peer: &mut RawPeer| {
            peer.greet(pool);
            then(peer);
        })
    };
    let none = || Vec::new();
    let bad_fd = |error: &Error| matches!(error, Error::Violation(Violation::Descriptor(_)));
    let fd_count = |error: &Error| matches!(error, Error::Violation(Violation::Descriptors { .. }));
    let out_of_turn = |error: &Error| matches!(error, Error::Violation(Violation::OutOfTurn(_)));
    let sequence = |error: &Error| matches!(error, Error::Violation(Violation::Sequence { .. }));
    type Expected = fn(&Error) -> bool;
    let attacks: Vec<(&str, Attack<'_>, Expected)> = vec![
        ("noise", Box::new(|peer| peer.send(&[0x5a; LENGTH], &[])), |error| {
            matches!(error, Error::Violation(Violation::NotAFrame))
        }),
        (
            "another version",
            Box::new(|peer| {
                let mut bytes = peer.frame(hello());
                bytes[4] = 2;
                peer.send(&bytes, &[good_page()]);
            }),
            |error| matches!(error, Error::Violation(Violation::Version { theirs: 2 })),
        ),
        (
            "truncated",
            Box::new(|peer| {
                let bytes = peer.frame(hello());
                peer.send(&bytes[..100], &[good_page()]);
                peer.socket.shutdown(std::net::Shutdown::Both).expect("a socket");
            }),
            |error| matches!(error, Error::PeerGone),
        ),
        (
            "too long",
            Box::new(|peer| {
                let mut bytes = peer.frame(hello()).to_vec();
                bytes.push(0);
                peer.send(&bytes, &[good_page()]);
                peer.say(Body::Welcome, &[]);
            }),
            |error| matches!(error, Error::Violation(_)),
        ),
        ("no hello", say(Body::Life, || vec![null()]), out_of_turn),
        ("no fd", say(hello(), none), fd_count),
        ("two fds", say(hello(), || vec![good_page(), good_page()]), fd_count),
        ("two hundred fds", say(hello(), || (0..200).map(|_| null()).collect()), fd_count),
        ("an fd too many", greeted(|peer| peer.say(Body::Bye(Farewell::Done), &[null()])), fd_count),
        ("a page that is a socket", say(hello(), || vec![socket()]), bad_fd),
        ("a page that is /dev/null", say(hello(), || vec![null()]), bad_fd),
        ("a page that can shrink", say(hello(), || vec![page(65536, 0)]), bad_fd),
        ("a page too short", say(hello(), || vec![page(4096, SEALS)]), bad_fd),
        ("a page too long", say(hello(), || vec![page(1 << 30, SEALS)]), bad_fd),
        ("a page that cannot be written", say(hello(), || vec![page(65536, SEALS | libc::F_SEAL_WRITE)]), bad_fd),
        ("other slots", say(Body::Hello(Hello { slots: 7, place }), || vec![good_page()]), |error| {
            matches!(error, Error::Violation(Violation::Field(_)))
        }),
        (
            "another device",
            say(Body::Hello(Hello { slots: SLOTS, place: Place::Device([0xee; 16]) }), || vec![good_page()]),
            |error| matches!(error, Error::UnknownDevice(uuid) if *uuid == [0xee; 16]),
        ),
        ("hello twice", after_hello(hello(), || vec![good_page()]), out_of_turn),
        ("a pool without fd", after_hello(pool_body.clone(), none), fd_count),
        ("a pool that is a socket", after_hello(pool_body.clone(), || vec![socket()]), |error| {
            matches!(error, Error::Cuda(_))
        }),
        ("a pool that is /dev/null", after_hello(pool_body.clone(), || vec![null()]), |error| {
            matches!(error, Error::Cuda(_))
        }),
        (
            "a pool twice",
            {
                let again = pool_body.clone();
                Box::new(move |peer: &mut RawPeer| {
                    peer.greet(pool);
                    peer.say(again.clone(), &[pool_fd()]);
                })
            },
            out_of_turn,
        ),
        (
            "replayed",
            greeted(|peer| {
                let bytes = peer.frame(Body::Life);
                peer.send(&bytes, &[alive()]);
                peer.send(&bytes, &[alive()]);
            }),
            sequence,
        ),
        (
            "reordered",
            greeted(|peer| {
                let first = peer.frame(Body::Bye(Farewell::Done));
                let second = peer.frame(Body::Retire(Turn { slot: 0, generation: 0 }));
                peer.send(&second, &[]);
                peer.send(&first, &[]);
            }),
            sequence,
        ),
        (
            "left out",
            greeted(|peer| {
                peer.sequence += 1;
                peer.say(Body::Bye(Farewell::Done), &[]);
            }),
            sequence,
        ),
        (
            "another process",
            greeted(|peer| {
                peer.nonce = Nonce([0x78; 16]);
                peer.say(Body::Bye(Farewell::Done), &[]);
            }),
            |error| matches!(error, Error::Violation(Violation::Sender)),
        ),
        ("a frame of importers", greeted(|peer| peer.say(Body::Welcome, &[])), out_of_turn),
        ("retiring nothing", greeted(|peer| peer.say(Body::Retire(Turn { slot: 0, generation: 2 }), &[])), |error| {
            matches!(error, Error::Violation(Violation::Generation { .. }))
        }),
        ("a slot far away", greeted(|peer| peer.say(Body::Retire(Turn { slot: 4096, generation: 0 }), &[])), |error| {
            matches!(error, Error::Violation(Violation::Slot(4096)))
        }),
        (
            "memory never mapped",
            Box::new(move |peer: &mut RawPeer| {
                peer.say(hello(), &[good_page()]);
                peer.say(Body::Lend(Lend { turn, element: 1, offset: 0, bytes: 1, tag: 0, fresh: None }), &[]);
            }),
            out_of_turn,
        ),
        (
            "a farewell with a reason",
            greeted(|peer| {
                peer.say(Body::Bye(Farewell::Failed), &[]);
                peer.socket.shutdown(std::net::Shutdown::Both).expect("a socket");
            }),
            |error| matches!(error, Error::PeerLeft(Farewell::Failed)),
        ),
    ];
    for (case, attack, expected) in attacks {
        let error = importer_meets(case, &stream, attack);
        assert!(expected(&error), "{case}: {error:?}");
    }
}

/// A buffer of this process, which a raw peer hands over.
fn victim(pool: &MemPool, stream: &Stream) -> (DeviceBuffer<u8>, PointerExport) {
    let buffer = pool.alloc_zeroed::<u8>(stream, 4096).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    (buffer, export)
}

fn importers_refuse_buffers_that_do_not_fit() {
    let (pool, other, stream) = (pool(), pool(), stream());
    let (_buffer, export) = victim(&pool, &stream);
    let (_foreign, foreign) = victim(&other, &stream);
    let fresh = |lend: &mut Lend, change: &dyn Fn(&mut Fresh)| change(lend.fresh.as_mut().expect("a first hand-over"));
    type Change<'a> = Box<dyn Fn(&mut Lend) + 'a>;
    let changes: Vec<(&str, Change<'_>)> = vec![
        ("a blob of zeroes", Box::new(|lend| fresh(lend, &|fresh| fresh.blob = PointerBlob::from_bytes([0; 64])))),
        ("a blob of noise", Box::new(|lend| fresh(lend, &|fresh| fresh.blob = PointerBlob::from_bytes([0xa7; 64])))),
        ("a blob of another pool", Box::new(|lend| fresh(lend, &|fresh| fresh.blob = foreign.blob))),
        ("a range too large", Box::new(|lend| fresh(lend, &|fresh| fresh.range = 1 << 40))),
        (
            "more than there is",
            Box::new(|lend| {
                lend.bytes = 1 << 30;
                fresh(lend, &|fresh| fresh.range = 1 << 30);
            }),
        ),
        (
            "beyond the end",
            Box::new(|lend| {
                lend.offset = 4096;
                fresh(lend, &|fresh| fresh.range = 8192);
            }),
        ),
    ];
    for (case, change) in changes {
        importer_meets(case, &stream, |peer| {
            peer.greet(&pool);
            let mut lend = lend(&export);
            change(&mut lend);
            peer.say(Body::Lend(lend), &[]);
            // A peer that is let go on ends here, so that the case does not wait for ever.
            peer.socket.shutdown(std::net::Shutdown::Write).expect("a socket");
        });
    }
    let good = |peer: &mut RawPeer| {
        peer.greet(&pool);
        peer.say(Body::Lend(lend(&export)), &[]);
    };
    let error = importer_meets("handed over twice", &stream, |peer| {
        good(peer);
        peer.say(Body::Lend(Lend { turn: Turn { slot: 0, generation: 4 }, ..lend(&export) }), &[]);
    });
    assert!(matches!(error, Error::Violation(Violation::OutOfTurn(_))), "{error}");
    let error = importer_meets("an old hand-over", &stream, |peer| {
        good(peer);
        peer.say(Body::Lend(lend(&export)), &[]);
    });
    assert!(matches!(error, Error::Violation(Violation::Generation { .. })), "{error}");
}

/// Of memory of another process, whose mappings are counted.
fn lie_about_sizes(mut sockets: Sockets) {
    let (pool, stream) = (pool(), stream());
    let (_buffer, export) = victim(&pool, &stream);
    let mut peer = RawPeer { socket: sockets.session.try_clone().expect("a socket"), ..RawPeer::new().0 };
    peer.greet(&pool);
    let mut lend = lend(&export);
    match sockets.hear() {
        b'r' => lend.fresh.as_mut().expect("a first hand-over").range += 1,
        _ => {
            peer.say(Body::Lend(lend.clone()), &[]);
            lend = Lend { turn: Turn { slot: 0, generation: 4 }, bytes: lend.bytes + 1, fresh: None, ..lend };
            sockets.hear();
        }
    }
    peer.say(Body::Lend(lend), &[]);
    sockets.hear();
}

fn what_does_not_fit_is_unmapped() {
    for lie in [b'r', b'e'] {
        let stream = stream();
        let held = Held::now();
        let (peer, mut sockets) = Peer::start("liar about sizes");
        let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
        sockets.say(lie);
        if lie == b'e' {
            drop(receive(&importer).expect("a buffer"));
            sockets.say(lie);
        }
        assert!(matches!(importer.recv_timeout::<u8>(LONG), Err(Error::Violation(Violation::Extent))));
        drop(importer);
        sockets.say(lie);
        peer.finish();
        drop(sockets);
        held.assert_again();
    }
}

/// What an exporter with one buffer lent makes of a peer.
fn exporter_meets(case: &str, pool: &MemPool, stream: &Stream, attack: impl FnOnce(&mut RawPeer)) -> Error {
    let held = Held::now();
    let (mut peer, socket) = RawPeer::new();
    let exporter = Exporter::new(socket, pool).expect("a session");
    let lease = send(&exporter, pool.alloc_zeroed::<u8>(stream, 100).expect("memory"));
    attack(&mut peer);
    let asked = Instant::now();
    let (_, error) = lease.wait_timeout(3 * SOON).expect_err("the peer means harm");
    assert!(asked.elapsed() < SOON, "{case}: {:?}, {error}", asked.elapsed());
    drop((exporter, peer));
    assert_unused(pool);
    held.assert_again();
    error
}

fn exporters_refuse_what_they_are_sent() {
    let (pool, stream) = (pool(), stream());
    let turn = Turn { slot: 0, generation: 2 };
    let back = |turn| Body::Return { turn, mapped: true };
    let said = |bodies: &[Body]| -> Attack<'static> {
        let bodies = bodies.to_vec();
        Box::new(move |peer: &mut RawPeer| bodies.iter().for_each(|body| peer.say(body.clone(), &[])))
    };
    let out_of_turn = |error: &Error| matches!(error, Error::Violation(Violation::OutOfTurn(_)));
    type Expected = fn(&Error) -> bool;
    let attacks: Vec<(&str, Attack<'static>, Expected)> = vec![
        ("noise", Box::new(|peer| peer.send(&[0xff; 500], &[])), |error| {
            matches!(error, Error::Violation(Violation::NotAFrame))
        }),
        ("no welcome", said(&[back(turn)]), out_of_turn),
        ("two welcomes", said(&[Body::Welcome, Body::Welcome]), out_of_turn),
        ("a frame of exporters", said(&[Body::Welcome, Body::Retire(turn)]), out_of_turn),
        ("the end of what was not asked", said(&[Body::Welcome, Body::Retired(turn)]), out_of_turn),
        ("another slot", said(&[Body::Welcome, back(Turn { slot: 1, generation: 2 })]), |error| {
            matches!(error, Error::Violation(Violation::Slot(1)))
        }),
        ("another generation", said(&[Body::Welcome, back(Turn { slot: 0, generation: 4 })]), |error| {
            matches!(error, Error::Violation(Violation::Generation { .. }))
        }),
        ("a descriptor", Box::new(|peer| peer.say(Body::Welcome, &[null()])), |error| {
            matches!(error, Error::Violation(Violation::Descriptors { .. }))
        }),
        ("a hang-up", Box::new(|peer| peer.socket.shutdown(std::net::Shutdown::Both).expect("a socket")), |error| {
            matches!(error, Error::PeerGone)
        }),
        (
            "a half hang-up",
            Box::new(|peer| peer.socket.shutdown(std::net::Shutdown::Write).expect("a socket")),
            |error| matches!(error, Error::PeerGone),
        ),
    ];
    for (case, attack, expected) in attacks {
        let error = exporter_meets(case, &pool, &stream, attack);
        assert!(expected(&error), "{case}: {error:?}");
    }
}

/// That the attacks fail for the reason given: the same frames without a fault are served.
fn a_good_peer_of_raw_frames_is_served() {
    let (pool, stream) = (pool(), stream());
    let (_buffer, export) = victim(&pool, &stream);
    let (mut peer, socket) = RawPeer::new();
    let importer = Importer::new(socket, &stream).expect("a session");
    peer.greet(&pool);
    let mut next = lend(&export);
    // The peer never writes the word: the stream waits until the session is over.
    peer.say(Body::Lend(next.clone()), &[]);
    let buffer = receive(&importer).expect("a buffer");
    assert_eq!((buffer.len(), stream.query().expect("no fault")), (4096, false));
    drop(buffer);
    assert!(peer.heard().contains(&Body::Return { turn: next.turn, mapped: true }));
    next.turn.generation = 4;
    next.fresh = None;
    peer.say(Body::Lend(next.clone()), &[]);
    drop(receive(&importer).expect("a buffer"));
    peer.say(Body::Retire(next.turn), &[]);
    peer.say(Body::Bye(Farewell::Done), &[]);
    assert!(receive(&importer).is_none());
    assert!(peer.heard().contains(&Body::Retired(next.turn)));
    drop(peer);
    stream.synchronize().expect("it goes on when the peer has gone");
}

fn a_thousand_random_frames() {
    let (pool, stream) = (pool(), stream());
    let (_buffer, export) = victim(&pool, &stream);
    let held = Held::now();
    let mut random = Random(0x5eed_5eed_5eed_5eed);
    let mut outcomes = std::collections::BTreeMap::<String, usize>::new();
    let mut frames = 0;
    while frames < 1000 {
        let (mut peer, socket) = RawPeer::new();
        let importer = Importer::new(socket, &stream).expect("a session");
        if random.below(4) > 0 {
            peer.greet(&pool);
        }
        for _ in 0..1 + random.below(4) {
            let (bytes, fds) = random_frame(&mut random, &mut peer, &export);
            peer.send(&bytes, &fds);
            frames += 1;
        }
        let _ = peer.socket.shutdown(std::net::Shutdown::Write);
        let asked = Instant::now();
        let outcome = loop {
            match importer.recv_timeout::<u8>(3 * SOON) {
                Ok(Some(buffer)) => drop(buffer),
                Ok(None) => break "a farewell".to_owned(),
                Err(error) => {
                    let text = format!("{error:?}");
                    let end = !matches!(error, Error::OtherElements { .. });
                    let text =
                        text.split(|char: char| !char.is_alphanumeric() && char != '(').next().map(str::to_owned);
                    *outcomes.entry(text.unwrap_or_default()).or_default() += 1;
                    if end {
                        break "an error".to_owned();
                    }
                }
            }
        };
        assert!(asked.elapsed() < SOON, "{outcome} after {:?}", asked.elapsed());
    }
    // If all frames met the same refusal, little was tried.
    assert!(outcomes.len() >= 5, "{outcomes:?}");
    held.assert_again();
    stream.synchronize().expect("no fault");
}

/// Noise, or a frame that is right but for some bits, in its header, its fields or its descriptors.
fn random_frame(random: &mut Random, peer: &mut RawPeer, export: &PointerExport) -> ([u8; LENGTH], Vec<OwnedFd>) {
    let turn = Turn { slot: random.below(3) as u32, generation: random.below(4) as u32 * 2 };
    let mut fds = Vec::new();
    let body = match random.below(8) {
        0 => hello(),
        1 => Body::Pool { origin: Nonce([random.below(3) as u8; 16]), number: random.next() },
        2 => Body::Life,
        3 => Body::Retire(turn),
        4 => Body::Bye(Farewell::Done),
        5 => Body::Return { turn, mapped: true },
        _ => Body::Lend(Lend { turn, ..lend(export) }),
    };
    for _ in 0..random.below(3) * random.below(2) + usize::from(body.has_fd()) {
        fds.push([null, socket, good_page, dead][random.below(4)]());
    }
    let mut bytes = peer.frame(body);
    match random.below(4) {
        0 => bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
        1 => {}
        _ => {
            for _ in 0..1 + random.below(3) {
                bytes[random.below(LENGTH)] ^= 1 << random.below(8);
            }
        }
    }
    // What it means does not matter, only that it can be asked.
    let _ = Frame::decode(&bytes);
    (bytes, fds)
}

fn a_peer_that_scribbles_on_the_page() {
    let (pool, stream) = (pool(), stream());
    let (mut peer, socket) = RawPeer::new();
    let page = good_page();
    let scribbler = Scribbler::new(&page);
    let importer = Importer::new(socket, &stream).expect("a session");
    peer.say(hello(), &[page]);
    peer.say(Body::Pool { origin: peer.nonce, number: 9 }, &[pool.export_fd().expect("a descriptor")]);
    let (_buffer, export) = victim(&pool, &stream);
    let mut random = Random(77);
    let mut lend = lend(&export);
    for round in 0..200_u32 {
        let noise: Vec<u8> = (0..256).map(|_| random.next() as u8).collect();
        scribbler.write(16 * (round as usize % 100), &noise);
        lend.turn.generation = 2 + 2 * round;
        // So that the stream is not held up for long.
        scribbler.write_word(0, lend.turn.generation);
        peer.say(Body::Lend(lend.clone()), &[]);
        let buffer = receive(&importer).expect("a buffer");
        stream.synchronize().expect("no fault");
        drop(buffer);
        lend.fresh = None;
    }
    lend.turn.generation += 2;
    peer.say(Body::Lend(lend), &[]);
    drop(receive(&importer).expect("a buffer"));
    drop(peer);
    stream.synchronize().expect("it goes on when the peer has gone");
}

/// A device keeps the pages that it was given: behind a hole, a stream that waits would not see who sets it free.
fn exporters_cannot_take_the_page_away() {
    let (pool, stream) = (pool(), stream());
    let (_buffer, export) = victim(&pool, &stream);
    let (mut peer, socket) = RawPeer::new();
    let page = good_page();
    let scribbler = Scribbler::new(&page);
    assert!(scribbler.make_hole(), "nobody uses it yet");
    let importer = Importer::new(socket, &stream).expect("a session");
    peer.say(hello(), &[page]);
    peer.say(Body::Pool { origin: peer.nonce, number: 12 }, &[pool.export_fd().expect("a descriptor")]);
    peer.say(Body::Lend(lend(&export)), &[]);
    let buffer = receive(&importer).expect("a buffer");
    assert!(!stream.query().expect("no fault"), "it waits for the word");
    assert!(!scribbler.make_hole());
    drop(peer);
    stream.synchronize().expect("it goes on when the peer has gone");
    assert!(matches!(buffer.confirm(), Err(Error::Abandoned)));
}

/// As above.
fn importers_cannot_take_the_page_away() {
    let (pool, stream) = (pool(), stream());
    let (mut peer, socket) = RawPeer::new();
    let exporter = Exporter::new(socket, &pool).expect("a session");
    let lease = send(&exporter, pool.alloc_zeroed::<u8>(&stream, 100).expect("memory"));
    let (Body::Hello(_), page) = peer.heard_with_fd() else { panic!("no greeting") };
    let scribbler = Scribbler::new(&page);
    assert!(scribbler.make_hole(), "nobody uses it yet");
    peer.say(Body::Welcome, &[]);
    let deadline = Instant::now() + SOON;
    while !scribbler.is_closed() {
        assert!(Instant::now() < deadline, "the exporter does not close the page");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!scribbler.make_hole());
    peer.say(Body::Return { turn: Turn { slot: 0, generation: 2 }, mapped: false }, &[]);
    let buffer = lease.wait().expect("it says that it is back");
    assert!(!stream.query().expect("no fault"), "the importer may still be using it");
    scribbler.write_word(4, 2);
    stream.synchronize().expect("no fault");
    buffer.confirm().expect("the importer was done");
    drop((buffer, exporter, peer));
    assert_unused(&pool);
}

fn without_a_seal_the_hosts_keep_the_order() {
    let held = Held::now().with_one_of_the_drivers();
    let (pool, stream) = (pool(), stream());
    let (buffer, export) = victim(&pool, &stream);
    let (mut peer, socket) = RawPeer::new();
    let page = page(65536, SEALS | libc::F_SEAL_SEAL);
    let scribbler = Scribbler::new(&page);
    let importer = Importer::new(socket, &stream).expect("a session");
    peer.say(hello(), &[page]);
    peer.say(Body::Pool { origin: peer.nonce, number: 13 }, &[pool.export_fd().expect("a descriptor")]);
    peer.say(Body::Lend(lend(&export)), &[]);
    assert!(matches!(importer.recv_timeout::<u8>(Duration::from_millis(50)), Err(Error::TimedOut)));
    assert!(stream.query().expect("no fault"), "nothing was enqueued");
    scribbler.write_word(0, 2);
    drop(receive(&importer).expect("a buffer"));
    stream.synchronize().expect("no fault");
    drop((importer, peer, scribbler));
    drop((buffer, pool, stream));
    held.assert_again();
}

fn a_peer_that_trickles_or_floods() {
    let (pool, stream) = (pool(), stream());
    // One byte at a time is a frame in the end.
    let (mut peer, socket) = RawPeer::new();
    let importer = Importer::new(socket, &stream).expect("a session");
    let mut bytes = peer.frame(hello());
    peer.send(&bytes[..1], &[good_page()]);
    for byte in &bytes[1..] {
        std::thread::sleep(Duration::from_micros(50));
        peer.send(&[*byte], &[]);
    }
    bytes = peer.frame(Body::Pool { origin: peer.nonce, number: 3 });
    peer.send(&bytes, &[pool.export_fd().expect("a descriptor")]);
    assert!(matches!(importer.recv_timeout::<u8>(Duration::from_millis(20)), Err(Error::TimedOut)));
    drop((importer, peer));

    // Whoever never reads does not hold anybody up.
    let (peer, socket) = RawPeer::new();
    let exporter = Exporter::new(socket, &pool).expect("a session");
    let started = Instant::now();
    let leases: Vec<_> = (0..700).map(|_| send(&exporter, pool.alloc::<u8>(&stream, 1).expect("memory"))).collect();
    assert!(started.elapsed() < 5 * SOON, "{:?}", started.elapsed());
    drop((leases, exporter, peer));
    assert_unused(&pool);
}

fn a_peer_that_never_unmaps() {
    let (pool, stream) = (pool(), stream());
    let (mut peer, socket) = RawPeer::new();
    let hasty = options().stall_timeout(Some(Duration::from_millis(200)));
    let exporter = Exporter::with_options(socket, &pool, &hasty).expect("a session");
    let lease = send(&exporter, pool.alloc_zeroed::<u8>(&stream, 100).expect("memory"));
    peer.say(Body::Welcome, &[]);
    peer.say(Body::Return { turn: Turn { slot: 0, generation: 2 }, mapped: true }, &[]);
    let asked = Instant::now();
    drop(lease.wait().expect("it says that it is back"));
    // It has given no sign of its life to wait for the end of, so the memory is free when its time is up.
    stream.synchronize().expect("the stream goes on");
    assert_unused(&pool);
    assert!(asked.elapsed() < 2 * SOON, "{:?}", asked.elapsed());
    assert!(peer.heard().iter().any(|body| matches!(body, Body::Retire(_))));
    assert!(matches!(exporter.close(), Ok(()) | Err(Error::TimedOut)));
}
