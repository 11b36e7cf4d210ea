//! Streams that are being captured into graphs.

use std::time::Duration;

use cuda_mempool::ipc::{Exporter, Importer};
use cuda_mempool::{sys, ErrorKind, Stream};

use crate::hand_over::slowly_filled_fast;
use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[
    ("capturer", capture_while_asked),
    ("dropper in a capture", drop_in_a_capture),
    ("dropper in a host function", drop_in_a_host_function),
];

pub const TESTS: &[Test] = &[
    ("nothing_is_unmapped_into_a_graph", nothing_is_unmapped_into_a_graph),
    ("nothing_is_given_back_into_a_graph", nothing_is_given_back_into_a_graph),
    ("a_host_function_may_drop_a_buffer", a_host_function_may_drop_a_buffer),
    ("the_captures_of_others_go_on", the_captures_of_others_go_on),
    ("a_session_is_not_closed_into_a_graph", a_session_is_not_closed_into_a_graph),
];

/// Captures what is enqueued on the stream meanwhile: that must be nothing.
fn captured(stream: &Stream, work: impl FnOnce()) {
    captured_in(sys::cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed, stream, work);
}

fn captured_in(mode: sys::cudaStreamCaptureMode, stream: &Stream, work: impl FnOnce()) {
    // SAFETY: the stream is alive, and the graph is never launched.
    let begun = unsafe { sys::cudaStreamBeginCapture(stream.as_raw(), mode) };
    assert_eq!(begun, sys::cudaError_t::cudaSuccess);
    work();
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, the out pointer valid, and the graph ours.
    let ended = unsafe { sys::cudaStreamEndCapture(stream.as_raw(), &mut graph) };
    assert_eq!(ended, sys::cudaError_t::cudaSuccess);
    // SAFETY: the graph is ours.
    assert_eq!(unsafe { sys::cudaGraphDestroy(graph) }, sys::cudaError_t::cudaSuccess);
}

/// Is asked to unmap memory that it used on a stream that is being captured.
fn capture_while_asked(mut sockets: Sockets) {
    let stream = stream();
    // The driver's thread for host functions gets the name of the thread that enqueues the first: not of a session's.
    stream.launch_host_fn(|| {}).expect("it is enqueued");
    let held = Held::now();
    let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
    drop(receive(&importer).expect("a buffer"));
    captured(&stream, || {
        sockets.say(b'c');
        sockets.hear();
    });
    assert!(receive(&importer).is_none());
    drop(importer);
    drop(sockets);
    held.assert_again();
}

fn nothing_is_unmapped_into_a_graph() {
    let (pool, stream) = (pool(), stream());
    let (peer, mut sockets) = Peer::start("capturer");
    let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
    let buffer = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait().expect("it comes back");
    assert_eq!(sockets.hear(), b'c');
    drop(buffer);
    std::thread::sleep(Duration::from_millis(300));
    sockets.say(b'g');
    exporter.close().expect("all is given back");
    drop(sockets);
    peer.finish();
    assert_unused(&pool);
}

/// Neither marks of its streams nor the frees of its buffers get into it.
fn a_session_is_not_closed_into_a_graph() {
    for freed_before in [true, false] {
        let (pool, stream) = (pool(), stream());
        let held = Held::now();
        let (peer, sockets) = Peer::start("incrementer");
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        let buffer = send(&exporter, slowly_filled(&pool, &stream, 1000, 1)).wait().expect("it comes back");
        let mut buffer = Some(send(&exporter, buffer).wait().expect("it comes back"));
        stream.synchronize().expect("no fault");
        if freed_before {
            buffer = None;
            assert_unused(&pool);
        }
        let recorded = || sim().map(|sim| sim.calls("cudaEventRecord"));
        captured(&stream, || {
            let before = recorded();
            drop((buffer, exporter));
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(recorded(), before);
        });
        drop(sockets.other);
        peer.finish();
        held.assert_again();
        assert_unused(&pool);
    }
}

/// Gives a buffer back while its stream is being captured: `close` refuses, and Drop puts it off.
fn drop_in_a_capture(mut sockets: Sockets) {
    let stream = stream();
    let held = Held::now();
    let session = sockets.session.try_clone().expect("a socket");
    let importer = Importer::with_options(session, &stream, &options()).expect("a session");
    let mut buffer = receive(&importer).expect("a buffer");
    buffer.as_slice_mut().fill_bytes(7).expect("a fill");
    captured(&stream, || {
        let (kept, error) = buffer.close().expect_err("it would get into the graph");
        assert_eq!(error.kind(), ErrorKind::Capture, "{error}");
        drop(kept);
        sockets.say(b'd');
        sockets.hear();
    });
    assert!(receive(&importer).is_none());
    importer.close().expect("an end");
    drop(sockets);
    held.assert_again();
}

fn nothing_is_given_back_into_a_graph() {
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        let (pool, stream) = (pool(), stream());
        let (peer, mut sockets) = Peer::start_with("dropper in a capture", environment);
        let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
        let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1));
        assert_eq!(sockets.hear(), b'd');
        let (lease, _) = lease.wait_timeout(Duration::from_millis(50)).expect_err("not while the capture goes on");
        sockets.say(b'g');
        let buffer = lease.expect("time was up").wait().expect("it comes back");
        assert!(is_all(&buffer.to_vec().expect("whole"), 7));
        drop((buffer, exporter, sockets));
        peer.finish();
        assert_unused(&pool);
    }
}

/// What a host function cannot give back is given back after it.
fn drop_in_a_host_function(sockets: Sockets) {
    let stream = stream();
    let held = Held::now();
    let importer = Importer::with_options(sockets.session, &stream, &options()).expect("a session");
    let mut buffer = receive(&importer).expect("a buffer");
    buffer.as_slice_mut().fill_bytes(7).expect("a fill");
    stream.launch_host_fn(move || drop(buffer)).expect("a host function");
    assert!(receive(&importer).is_none());
    importer.close().expect("an end");
    held.assert_again();
}

fn a_host_function_may_drop_a_buffer() {
    let (pool, stream) = (pool(), stream());
    let (peer, sockets) = Peer::start("dropper in a host function");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let buffer = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1));
    let buffer = buffer.wait_timeout(LONG).map_err(|(_, error)| error).expect("it comes back");
    assert!(is_all(&buffer.to_vec().expect("whole"), 7));
    drop((buffer, exporter, sockets.other));
    peer.finish();
    assert_unused(&pool);
}

/// What the thread of a session asks does not invalidate what another thread captures, even in global mode. (On a GPU
/// such captures do not survive frees of other threads, either.)
fn the_captures_of_others_go_on() {
    if simulator().is_none() {
        return;
    }
    let (pool, stream, other) = (pool(), stream(), stream());
    let (peer, sockets) = Peer::start("incrementer");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let buffer = send(&exporter, slowly_filled(&pool, &stream, 1000, 1)).wait().expect("it comes back");
    let buffer = send(&exporter, buffer).wait().expect("it comes back");
    stream.synchronize().expect("no fault");
    captured_in(sys::cudaStreamCaptureMode::cudaStreamCaptureModeGlobal, &other, || {
        drop((buffer, exporter));
        std::thread::sleep(Duration::from_millis(300));
    });
    drop(sockets.other);
    peer.finish();
    assert_unused(&pool);
}
