//! Calls that fail: the caller gets an error, nothing leaks, and the other process is not left waiting.

use std::time::Duration;

use cuda_mempool::ipc::{Error, Exporter, Importer, Lease};
use cuda_mempool::{sys, DeviceBuffer, MemPool, Stream};

use crate::peer::{Peer, Role, Sockets};
use crate::sim::Sim;
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] =
    &[("importer with faults", import_with_faults), ("importer that cannot give back", import_and_fail_to_give_back)];

pub const TESTS: &[Test] = &[
    ("calls_of_the_exporter_fail", calls_of_the_exporter_fail),
    ("calls_of_the_importer_fail", calls_of_the_importer_fail),
    ("a_buffer_that_cannot_be_given_back_stays", a_buffer_that_cannot_be_given_back_stays),
];

/// Invalid value: an error that leaves the device as it was.
const CODE: sys::cudaError_t = sys::cudaError_t::cudaErrorInvalidValue;
/// The environment variable that tells an importer what fails.
const RULE: &str = "CUDA_MEMPOOL_TEST_RULE";

fn is_injected(error: &Error) -> bool {
    matches!(error, Error::Cuda(error) if error.raw() == CODE)
}

/// A buffer whose stream is not idle yet, so that streams have to wait and to write.
fn filled_late(pool: &MemPool, stream: &Stream) -> DeviceBuffer<u8> {
    let mut buffer = pool.alloc::<u8>(stream, 100).expect("memory");
    slow(stream, Duration::from_millis(10));
    buffer.as_slice_mut().fill_bytes(1).expect("a fill");
    buffer
}

/// What both ends call.
const CALLS: [&str; 13] = [
    "cudaHostRegister",
    "cudaHostGetDevicePointer",
    "cudaGetDriverEntryPointByVersion",
    "cudaEventCreateWithFlags",
    "cudaEventRecord",
    "cudaStreamIsCapturing",
    "cudaStreamQuery",
    "cudaLaunchHostFunc",
    "cuPointerGetAttribute",
    "cuDeviceGet",
    "cuDeviceGetUuid",
    "cuStreamWriteValue32",
    "cuStreamWaitValue32",
];

fn calls_of_the_exporter_fail() {
    let Some(sim) = simulator() else { return };
    let own = ["cudaMemPoolExportToShareableHandle", "cudaMemPoolExportPointer"];
    let calls = || own.into_iter().chain(CALLS).flat_map(|call| [(call, 1), (call, 2)]);
    for by_host in [false, true] {
        for (function, number) in calls() {
            let rule = format!("{function}#{number}={}", CODE.0);
            let first = exporter_fails(sim, by_host, &rule, false);
            let second = exporter_fails(sim, by_host, &rule, true);
            match (function, number) {
                // Streams do it from the second hand-over on.
                ("cuStreamWriteValue32" | "cuStreamWaitValue32", 1) => assert_eq!(second, !by_host, "{rule}"),
                ("cudaMemPoolExportToShareableHandle" | "cuDeviceGetUuid", 1) => assert!(first && !second, "{rule}"),
                ("cudaMemPoolExportPointer", 1) => assert!(first && second, "{rule}"),
                _ => {}
            }
        }
    }
}

/// Hands a buffer over with a fault, in a new session or in one that has handed one over before. Whether an error came
/// of it.
fn exporter_fails(sim: &Sim, by_host: bool, rule: &str, established: bool) -> bool {
    let (pool, stream) = (pool(), stream());
    let held = Held::now();
    let (peer, mut sockets) = Peer::start("importer with faults");
    assert_eq!(sockets.hear(), b'r', "the peer is ready");
    let open = || Exporter::with_options(sockets.session, &pool, &options().host_ordering(by_host));
    let hand_over =
        |exporter: &Exporter, buffer| exporter.send::<u8>(buffer).map_err(|(_, error)| error).and_then(Lease::wait);
    let outcome = if established {
        let exporter = open().expect("a session");
        let kept = hand_over(&exporter, filled_late(&pool, &stream)).expect("it comes back");
        let buffer = filled_late(&pool, &stream);
        sim.add_fault(rule);
        let outcome = hand_over(&exporter, buffer).map(drop);
        drop(kept);
        outcome.and_then(|()| exporter.close())
    } else {
        let buffer = filled_late(&pool, &stream);
        sim.add_fault(rule);
        open().and_then(|exporter| hand_over(&exporter, buffer).map(drop).and_then(|()| exporter.close()))
    };
    sim.clear_faults();
    if let Err(error) = &outcome {
        assert!(is_injected(error), "{rule}: {error}");
    }
    assert_eq!(crate::sim::last_error(), sys::cudaError_t::cudaSuccess, "{rule}");
    drop(sockets.other);
    peer.finish();
    drop(stream);
    assert_unused(&pool);
    held.without_stream().assert_again();
    outcome.is_err()
}

/// Receives what there is, whatever happens, and has nothing left in the end.
fn import_with_faults(mut sockets: Sockets) {
    warm_up();
    let stream = stream();
    sockets.say(b'r');
    let held = Held::now();
    let sim = sim().expect("only started on the simulator");
    if let Ok(rule) = std::env::var(RULE) {
        sim.add_fault(&rule);
    }
    let mut errors = Vec::new();
    match Importer::with_options(sockets.session, &stream, &options()) {
        Ok(importer) => {
            while errors.len() < 4 {
                match importer.recv_timeout::<u8>(LONG) {
                    Ok(Some(buffer)) => errors.extend(buffer.close().err().map(|(_, error)| Error::Cuda(error))),
                    Ok(None) => break,
                    Err(error) => errors.push(error),
                }
            }
            errors.extend(importer.close().err());
        }
        Err(error) => errors.push(error),
    }
    sim.clear_faults();
    for error in &errors {
        assert!(is_injected(error) || matches!(error, Error::PeerGone), "{error}");
    }
    held.assert_again();
}

fn calls_of_the_importer_fail() {
    if simulator().is_none() {
        return;
    }
    let own = ["cudaMemPoolImportFromShareableHandle", "cudaMemPoolImportPointer"];
    let calls = || own.into_iter().chain(CALLS).flat_map(|call| [(call, 1), (call, 2)]);
    let (pool, stream) = (pool(), stream());
    for by_host in [false, true] {
        for (function, number) in calls() {
            let held = Held::now();
            let rule = format!("{function}#{number}={}", CODE.0);
            let mut environment = vec![(RULE, rule.as_str())];
            environment.extend(by_host.then_some((BY_HOST, "1")));
            let (peer, mut sockets) = Peer::start_with("importer with faults", &environment);
            assert_eq!(sockets.hear(), b'r', "the peer is ready");
            let exporter = Exporter::new(sockets.session, &pool).expect("a session");
            for _ in 0..3 {
                let buffer = filled_late(&pool, &stream);
                // It comes back, or the importer has given up.
                let outcome = exporter.send(buffer).map_err(|(_, error)| error).and_then(|lease| lease.wait());
                if let Err(error) = outcome {
                    assert!(matches!(error, Error::PeerGone | Error::PeerLeft(_)), "{rule}: {error}");
                }
            }
            drop(exporter);
            peer.finish();
            drop(sockets.other);
            held.assert_again();
            assert_unused(&pool);
        }
    }
}

/// Fails to give a buffer back, uses it once more, and gives it back after all.
fn import_and_fail_to_give_back(sockets: Sockets) {
    let sim = sim().expect("only started on the simulator");
    let stream = stream();
    let held = Held::now();
    let importer = Importer::with_options(sockets.session, &stream, &options()).expect("a session");
    let mut buffer = receive(&importer).expect("a buffer");
    for round in 0..3 {
        slow(&stream, Duration::from_millis(20));
        sim.add_fault("cuStreamWriteValue32#1=1");
        sim.add_fault("cudaLaunchHostFunc#1=1");
        let (kept, error) = buffer.close().expect_err("the stream cannot write the word");
        sim.clear_faults();
        assert_eq!(error.raw(), CODE);
        buffer = kept;
        buffer.as_slice_mut().fill_bytes(round).expect("a fill");
    }
    buffer.close().map_err(|(_, error)| error).expect("it goes back now");
    assert!(receive(&importer).is_none());
    importer.close().expect("an end");
    held.assert_again();
}

fn a_buffer_that_cannot_be_given_back_stays() {
    if simulator().is_none() {
        return;
    }
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        let (pool, stream) = (pool(), stream());
        let (peer, sockets) = Peer::start_with("importer that cannot give back", environment);
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        let buffer = send(&exporter, filled_late(&pool, &stream)).wait().expect("it comes back");
        assert!(is_all(&buffer.to_vec().expect("whole"), 2));
        drop((buffer, exporter));
        peer.finish();
        assert_unused(&pool);
    }
}
