//! Buffers go, come back and go again.

use std::os::fd::{AsFd, AsRawFd};
use std::task::Poll;
use std::time::{Duration, Instant};

use cuda_mempool::ipc::{Error, Exporter, Importer, Lease, SharedBuffer};
use cuda_mempool::{sys, DeviceBuffer, ErrorKind, MemPool};

use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[
    ("incrementer", increment),
    ("tag checker", check_tags),
    ("poller", poll_for_each),
    ("receiver of words", receive_words),
    ("asker of words", ask_for_words),
    ("two ways", two_ways),
    ("receiving threads", receive_on_threads),
    ("keeper of buffers", keep),
    ("receiver in a capture", receive_in_a_capture),
];

pub const TESTS: &[Test] = &[
    ("data_goes_and_comes_back", data_goes_and_comes_back),
    ("the_second_hand_over_imports_nothing", the_second_hand_over_imports_nothing),
    ("idle_streams_are_left_alone", idle_streams_are_left_alone),
    ("many_buffers_are_under_way_at_once", many_buffers_are_under_way_at_once),
    ("ten_thousand_hand_overs_hold_nothing", ten_thousand_hand_overs_hold_nothing),
    ("buffers_come_and_go", buffers_come_and_go),
    ("both_ways_at_once", both_ways_at_once),
    ("one_pool_several_importers", one_pool_several_importers),
    ("nothing_has_to_wait", nothing_has_to_wait),
    ("a_poll_tells_of_every_buffer", a_poll_tells_of_every_buffer),
    ("waiting_ends_in_time", waiting_ends_in_time),
    ("threads_share_a_session", threads_share_a_session),
    ("closing_waits_for_everything", closing_waits_for_everything),
    ("elements_must_agree", elements_must_agree),
    ("what_cannot_be_lent_comes_back", what_cannot_be_lent_comes_back),
    ("nothing_is_received_into_a_graph", nothing_is_received_into_a_graph),
    ("a_dropped_lease_gives_the_memory_back", a_dropped_lease_gives_the_memory_back),
    ("everything_can_be_dropped_in_any_order", everything_can_be_dropped_in_any_order),
];

/// Receives everything there is, adds one to every byte and gives it back.
fn increment(sockets: Sockets) {
    warm_up();
    let held = Held::now();
    {
        let stream = stream();
        let importer = Importer::with_options(sockets.session, &stream, &options()).expect("a session");
        while let Some(mut buffer) = receive(&importer) {
            let bytes: Vec<u8> = buffer.to_vec().expect("whole").iter().map(|byte| byte.wrapping_add(1)).collect();
            buffer.as_slice_mut().copy_from_host(&bytes).expect("a copy");
        }
    }
    drop(sockets.other);
    held.assert_again();
}

/// Runs an exporter against a peer that increments, and sees that nothing is left of it.
fn with_incrementer(pool: &MemPool, environment: &[(&str, &str)], run: impl FnOnce(&Exporter)) {
    let held = Held::now();
    let (peer, sockets) = Peer::start_with("incrementer", environment);
    let exporter = Exporter::with_options(sockets.session, pool, &options()).expect("a session");
    run(&exporter);
    drop(exporter);
    drop(sockets.other);
    peer.finish();
    held.assert_again();
    assert_unused(pool);
}

fn data_goes_and_comes_back() {
    for place in places() {
        for environment in [&[][..], &[(BY_HOST, "1")]] {
            let pool = pool_at(place);
            let stream = stream();
            with_incrementer(&pool, environment, |exporter| {
                let mut buffer = slowly_filled(&pool, &stream, 100_000, 7).into();
                for round in 1..=5 {
                    buffer = send(exporter, buffer).wait().expect("it comes back");
                    assert!(is_all(&buffer.to_vec().expect("whole"), 7 + round), "{place}, round {round}");
                }
            });
        }
    }
}

fn the_second_hand_over_imports_nothing() {
    let Some(sim) = simulator() else { return };
    let (pool, stream) = (pool(), stream());
    with_incrementer(&pool, &[], |exporter| {
        let buffer = slowly_filled(&pool, &stream, 1000, 1);
        let mut buffer = send(exporter, buffer).wait().expect("it comes back");
        sim.reset();
        for _ in 0..10 {
            buffer = send(exporter, buffer).wait().expect("it comes back");
        }
        assert_eq!(sim.calls("cudaMemPoolExportPointer"), 0);
    });
}

/// What is done already needs no operation of a stream to be ordered.
fn idle_streams_are_left_alone() {
    let Some(sim) = simulator() else { return };
    let (pool, stream) = (pool(), stream());
    with_incrementer(&pool, &[], |exporter| {
        let buffer = slowly_filled_fast(&pool, &stream, 1000, 1);
        let mut buffer = send(exporter, buffer).wait().expect("it comes back");
        stream.synchronize().expect("no fault");
        sim.reset();
        for _ in 0..10 {
            buffer = send(exporter, buffer).wait().expect("it comes back");
        }
        assert_eq!([sim.calls("cuStreamWriteValue32"), sim.calls("cuStreamWaitValue32")], [0; 2]);
        slow(&stream, Duration::from_millis(10));
        buffer = send(exporter, buffer).wait().expect("it comes back");
        assert_eq!(sim.calls("cuStreamWriteValue32"), 1);
        assert!(is_all(&buffer.to_vec().expect("whole"), 13));
    });
}

fn many_buffers_are_under_way_at_once() {
    let (pool, stream) = (pool(), stream());
    with_incrementer(&pool, &[], |exporter| {
        let buffers: Vec<_> = (0..100).map(|byte| slowly_filled_fast(&pool, &stream, 1000, byte)).collect();
        let leases: Vec<_> = buffers.into_iter().map(|buffer| send(exporter, buffer)).collect();
        // Not in the order that they come back in.
        for (byte, lease) in leases.into_iter().enumerate().rev() {
            let buffer = lease.wait().expect("it comes back");
            assert!(is_all(&buffer.to_vec().expect("whole"), byte as u8 + 1));
        }
    });
}

pub fn slowly_filled_fast(
    pool: &MemPool,
    stream: &cuda_mempool::Stream,
    length: usize,
    byte: u8,
) -> cuda_mempool::DeviceBuffer<u8> {
    let mut buffer = pool.alloc::<u8>(stream, length).expect("memory");
    buffer.as_slice_mut().fill_bytes(byte).expect("a fill");
    buffer
}

fn ten_thousand_hand_overs_hold_nothing() {
    let (pool, stream) = (pool(), stream());
    let (peer, sockets) = Peer::start("receiver of words");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let mut buffer = slowly_filled_fast(&pool, &stream, 1 << 20, 0).into();
    let mut held = None;
    for round in 0..10_000_u32 {
        buffer = send(&exporter, buffer).wait().expect("it comes back");
        if round == 10 {
            stream.synchronize().expect("no fault");
            held = Some((Held::beside_a_session(), pool.usage().expect("alive").reserved));
        }
    }
    stream.synchronize().expect("no fault");
    let (before, reserved) = held.expect("measured");
    before.assert_again();
    assert_eq!(pool.usage().expect("alive").reserved, reserved);
    drop((buffer, exporter));
    peer.finish();
    assert_unused(&pool);
}

/// Receives everything and gives it back at once, and holds as much at the end as at the beginning.
fn receive_words(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    let (mut round, mut held) = (0, None);
    while let Some(buffer) = receive(&importer) {
        drop(buffer);
        round += 1;
        if round == 10 {
            stream.synchronize().expect("no fault");
            held = Some(Held::beside_a_session());
        }
        if round == 10_000 {
            stream.synchronize().expect("no fault");
            held.take().expect("measured").assert_again();
        }
    }
    assert_eq!(round, 10_000);
}

fn buffers_come_and_go() {
    let (pool, stream) = (pool(), stream());
    with_incrementer(&pool, &[], |exporter| {
        for round in 0..300_u32 {
            // The pool gives the same memory out again, so the importer must have let go of it.
            let buffer = slowly_filled_fast(&pool, &stream, 1000 + (round as usize % 3) * 5000, round as u8);
            let buffer = send(exporter, buffer).wait().expect("it comes back");
            assert!(is_all(&buffer.to_vec().expect("whole"), (round as u8).wrapping_add(1)), "round {round}");
        }
    });
}

fn both_ways_at_once() {
    let (peer, sockets) = Peer::start("two ways");
    two_ways(sockets);
    peer.finish();
}

/// Sends a hundred buffers one way and receives a hundred the other way, on two threads.
fn two_ways(sockets: Sockets) {
    let parent = std::env::var_os("CUDA_MEMPOOL_IPC_ROLE").is_none();
    let Sockets { session, other } = sockets;
    let (out, back) = if parent { (session, other) } else { (other, session) };
    let (pool, stream) = (pool(), stream());
    let exporter = Exporter::new(out, &pool).expect("a session");
    let importer = Importer::new(back, &stream).expect("a session");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut count = 0;
            while let Some(buffer) = receive(&importer) {
                assert!(is_all(&buffer.to_vec().expect("whole"), count));
                count += 1;
            }
            assert_eq!(count, 100);
        });
        scope.spawn(|| {
            let stream = crate::world::stream();
            for byte in 0..100 {
                let buffer = slowly_filled_fast(&pool, &stream, 5000, byte);
                send(&exporter, buffer).wait().expect("it comes back");
            }
            drop(exporter);
        });
    });
}

fn one_pool_several_importers() {
    let (pool, stream) = (pool(), stream());
    let held = Held::now();
    let (peers, exporters): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (peer, sockets) = Peer::start("incrementer");
            (peer, Exporter::new(sockets.session, &pool).expect("a session"))
        })
        .unzip();
    // One buffer from hand to hand, and then several at once.
    let mut buffer = slowly_filled(&pool, &stream, 1000, 0).into();
    for round in 0..9 {
        buffer = send(&exporters[round % 3], buffer).wait().expect("it comes back");
    }
    assert!(is_all(&buffer.to_vec().expect("whole"), 9));
    let leases: Vec<_> =
        exporters.iter().map(|exporter| send(exporter, slowly_filled_fast(&pool, &stream, 100, 5))).collect();
    for lease in leases {
        assert!(is_all(&lease.wait().expect("it comes back").to_vec().expect("whole"), 6));
    }
    drop((buffer, exporters));
    peers.into_iter().for_each(Peer::finish);
    held.assert_again();
    assert_unused(&pool);
}

/// Receives without waiting, by polling the socket.
fn check_tags(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    let mut expected = 0;
    loop {
        match importer.try_recv::<u32>().expect("the peer is there") {
            Poll::Ready(Some(buffer)) => {
                assert_eq!(buffer.tag(), expected);
                assert_eq!(buffer.len(), 10);
                expected += 1;
            }
            Poll::Ready(None) => break,
            Poll::Pending => poll(importer.as_fd()),
        }
    }
    assert_eq!(expected, 100);
}

fn poll(fd: std::os::fd::BorrowedFd<'_>) {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, which is open.
    let ready = unsafe { libc::poll(&mut polled, 1, LONG.as_millis() as i32) };
    assert_eq!(ready, 1, "nothing comes");
}

fn nothing_has_to_wait() {
    let (pool, stream) = (pool(), stream());
    let (peer, sockets) = Peer::start("tag checker");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    for tag in 0..100 {
        let buffer = pool.alloc_zeroed::<u32>(&stream, 10).expect("memory");
        let lease = exporter.send_tagged(buffer, tag).map_err(|(_, error)| error).expect("the peer is there");
        while !lease.is_returned().expect("the peer is there") {
            poll(exporter.as_fd());
        }
        let asked = Instant::now();
        drop(lease.wait().expect("it is back"));
        assert!(asked.elapsed() < SOON);
    }
    drop(exporter);
    peer.finish();
    assert_unused(&pool);
}

/// Receives one buffer after each time that the socket is readable.
fn poll_for_each(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    // Until there are several.
    std::thread::sleep(Duration::from_millis(200));
    loop {
        poll(importer.as_fd());
        if let Poll::Ready(None) = importer.try_recv::<u8>().expect("the peer is there") {
            break;
        }
    }
}

fn a_poll_tells_of_every_buffer() {
    let (pool, stream) = (pool(), stream());
    let (peer, sockets) = Peer::start("poller");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let leases: Vec<_> = (0..100).map(|byte| send(&exporter, slowly_filled_fast(&pool, &stream, 100, byte))).collect();
    // Kept, so that nothing else is said meanwhile.
    let back = |lease: Lease<_>| lease.wait_timeout(LONG).map_err(|(_, error)| error).expect("it comes back");
    let buffers: Vec<SharedBuffer<u8>> = leases.into_iter().map(back).collect();
    drop((buffers, exporter));
    peer.finish();
    assert_unused(&pool);
}

/// Receives one buffer and keeps it until it is told.
fn keep(mut sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
    assert!(matches!(importer.recv_timeout::<u8>(Duration::from_millis(30)), Err(Error::TimedOut)));
    sockets.say(b'w');
    let buffer = receive(&importer).expect("a buffer");
    sockets.say(b'g');
    sockets.hear();
    drop(buffer);
    assert!(receive(&importer).is_none());
}

fn waiting_ends_in_time() {
    let (pool, stream) = (pool(), stream());
    let (peer, mut sockets) = Peer::start("keeper of buffers");
    let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
    assert_eq!(sockets.hear(), b'w');
    let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 100, 3));
    assert_eq!(sockets.hear(), b'g');
    let (lease, error) = lease.wait_timeout(Duration::from_millis(50)).expect_err("it is kept");
    assert!(matches!(error, Error::TimedOut), "{error}");
    let lease = lease.expect("it can be waited for again");
    assert!(!lease.is_returned().expect("the peer is there"));
    sockets.say(b'n');
    let buffer = lease.wait_timeout(LONG).map_err(|(_, error)| error).expect("it comes back");
    assert!(is_all(&buffer.to_vec().expect("whole"), 3));
    drop((buffer, exporter, sockets));
    peer.finish();
    assert_unused(&pool);
}

/// Receives on four threads, each of which writes what it was told to.
fn receive_on_threads(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    let count = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(mut buffer) = receive(&importer) {
                    let byte = buffer.tag() as u8;
                    buffer.as_slice_mut().fill_bytes(byte).expect("a fill");
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 800);
    importer.close().expect("all is given back");
}

fn threads_share_a_session() {
    let pool = pool();
    let (peer, sockets) = Peer::start("receiving threads");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (exporter, pool) = (&exporter, &pool);
            scope.spawn(move || {
                let stream = stream();
                let mut buffer: SharedBuffer<u8> = pool.alloc::<u8>(&stream, 1000).expect("memory").into();
                for round in 0..200 {
                    let tag = thread * 50 + round % 50;
                    let lease = exporter.send_tagged(buffer, tag).map_err(|(_, error)| error).expect("a peer");
                    buffer = lease.wait().expect("it comes back");
                    if round % 10 == 0 {
                        assert!(is_all(&buffer.to_vec().expect("whole"), tag as u8));
                    }
                }
            });
        }
    });
    exporter.close().expect("all is given back");
    peer.finish();
    assert_unused(&pool);
}

fn closing_waits_for_everything() {
    let (pool, stream) = (pool(), stream());
    for in_use in [true, false] {
        let held = Held::now();
        let (peer, sockets) = Peer::start("incrementer");
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        let mut buffer = Some(send(&exporter, slowly_filled(&pool, &stream, 1000, 1)).wait().expect("it comes back"));
        if !in_use {
            buffer = None;
        }
        match exporter.close() {
            Ok(()) => assert!(!in_use),
            Err(error) => assert!(in_use && matches!(error, Error::InUse), "{error}"),
        }
        if !in_use {
            // Nothing has to be waited for any more.
            stream.synchronize().expect("no fault");
            assert_eq!(pool.usage().expect("alive").used, 0);
        }
        drop((buffer, sockets.other));
        peer.finish();
        held.assert_again();
        assert_unused(&pool);
    }
}

/// Asks for words where bytes are sent.
fn ask_for_words(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    assert!(matches!(importer.recv::<u32>(), Err(Error::OtherElements { theirs: 1, ours: 4 })));
    assert!(importer.recv::<u32>().expect("the session goes on").is_none());
}

fn elements_must_agree() {
    let (pool, stream) = (pool(), stream());
    let (peer, sockets) = Peer::start("asker of words");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 40, 3));
    let buffer = lease.wait().expect("a buffer of other elements is given back");
    assert!(is_all(&buffer.to_vec().expect("whole"), 3));
    drop((buffer, exporter));
    peer.finish();
    assert_unused(&pool);
}

fn what_cannot_be_lent_comes_back() {
    let (pool, other, stream) = (pool(), pool(), stream());
    with_incrementer(&pool, &[], |exporter| {
        let empty = pool.alloc::<u8>(&stream, 0).expect("nothing");
        assert!(matches!(exporter.send(empty), Err((_, Error::Empty))));
        let foreign = other.alloc_zeroed::<u8>(&stream, 10).expect("memory");
        let (buffer, error) = exporter.send(foreign).expect_err("memory of another pool");
        assert!(matches!(error, Error::ForeignMemory), "{error}");
        assert_eq!(buffer.to_vec().expect("untouched"), [0; 10]);
        let of_no_pool = DeviceBuffer::<u8>::unpooled(&stream, 10).expect("memory");
        assert_eq!(of_no_pool.export_pointer().expect_err("of no pool").kind(), ErrorKind::InvalidValue);
        let (_, error) = exporter.send(of_no_pool).expect_err("memory of no pool");
        assert!(matches!(error, Error::ForeignMemory), "{error}");
        let thread = cuda_mempool::Stream::per_thread(device());
        let here = pool.alloc_zeroed::<u8>(&thread, 10).expect("memory");
        let (mut buffer, error) = exporter.send(here).expect_err("a stream that only this thread reaches");
        assert!(matches!(error, Error::Cuda(ref error) if error.kind() == ErrorKind::WrongThread));
        buffer.set_stream(&stream).expect("a move");
        assert!(is_all(&send(exporter, buffer).wait().expect("it comes back").to_vec().expect("whole"), 1));
    });
    let private = MemPool::builder(device()).build().expect("a pool");
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    assert!(matches!(Exporter::new(socket, &private), Err(Error::Cuda(_))));
}

/// Is refused a buffer while its stream is being captured, and receives it after that.
fn receive_in_a_capture(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::with_options(sockets.session, &stream, &options()).expect("a session");
    drop(receive(&importer).expect("a buffer"));
    let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
    // SAFETY: the stream is alive, and the graph is never launched.
    let begun = unsafe { sys::cudaStreamBeginCapture(stream.as_raw(), mode) };
    assert_eq!(begun, sys::cudaError_t::cudaSuccess);
    for _ in 0..2 {
        match importer.recv_timeout::<u8>(LONG) {
            Err(Error::Cuda(error)) => assert_eq!(error.kind(), ErrorKind::Capture),
            other => panic!("{other:?}"),
        }
    }
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, the out pointer valid, and the graph ours.
    let ended = unsafe { [sys::cudaStreamEndCapture(stream.as_raw(), &mut graph), sys::cudaGraphDestroy(graph)] };
    assert_eq!(ended, [sys::cudaError_t::cudaSuccess; 2]);
    let mut buffer = receive(&importer).expect("it is still there");
    assert!(is_all(&buffer.to_vec().expect("whole"), 1));
    buffer.as_slice_mut().fill_bytes(2).expect("a fill");
    drop(buffer);
    importer.close().expect("an end");
}

fn nothing_is_received_into_a_graph() {
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        let (pool, stream) = (pool(), stream());
        let (peer, sockets) = Peer::start_with("receiver in a capture", environment);
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        let mut buffer = slowly_filled(&pool, &stream, 1000, 1).into();
        for _ in 0..2 {
            buffer = send(&exporter, buffer).wait().expect("it comes back");
        }
        assert!(is_all(&buffer.to_vec().expect("whole"), 2));
        drop((buffer, exporter));
        peer.finish();
        assert_unused(&pool);
    }
}

fn a_dropped_lease_gives_the_memory_back() {
    let (pool, stream) = (pool(), stream());
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        with_incrementer(&pool, environment, |exporter| {
            for byte in 0..20 {
                drop(send(exporter, slowly_filled_fast(&pool, &stream, 1000, byte)));
            }
        });
    }
}

fn everything_can_be_dropped_in_any_order() {
    let pool = pool();
    for order in 0..6 {
        let held = Held::now();
        let (peer, sockets) = Peer::start("incrementer");
        let stream = stream();
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        let buffer = send(&exporter, slowly_filled_fast(&pool, &stream, 100, 1)).wait().expect("it comes back");
        let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 100, 1));
        let (mut exporter, mut buffer, mut lease) = (Some(exporter), Some(buffer), Some(lease));
        for step in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][order] {
            match step {
                0 => drop(exporter.take()),
                1 => drop(buffer.take()),
                _ => drop(lease.take()),
            }
        }
        drop((stream, sockets.other));
        peer.finish();
        held.assert_again();
        assert_unused(&pool);
    }
}
