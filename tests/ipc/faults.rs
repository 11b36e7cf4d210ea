//! Calls that fail: the caller gets an error, nothing leaks, and the other process is not left waiting.

use cuda_mempool::ipc::{Error, Exporter, Importer};
use cuda_mempool::sys;

use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[("importer with faults", import_with_faults)];

pub const TESTS: &[Test] = &[
    ("calls_of_the_exporter_fail", calls_of_the_exporter_fail),
    ("calls_of_the_importer_fail", calls_of_the_importer_fail),
];

/// Invalid value: an error that leaves the device as it was.
const CODE: sys::cudaError_t = sys::cudaError_t::cudaErrorInvalidValue;
/// The environment variable that tells an importer what fails.
const RULE: &str = "CUDA_MEMPOOL_TEST_RULE";

fn is_injected(error: &Error) -> bool {
    matches!(error, Error::Cuda(error) if error.raw() == CODE)
}

fn calls_of_the_exporter_fail() {
    let Some(sim) = sim() else { return };
    let calls = [
        "cudaMemPoolExportToShareableHandle",
        "cudaMemPoolExportPointer",
        "cudaHostRegister",
        "cudaHostGetDevicePointer",
        "cudaGetDriverEntryPointByVersion",
        "cudaEventCreateWithFlags",
        "cudaEventRecord",
        "cudaStreamIsCapturing",
        "cudaLaunchHostFunc",
    ];
    for by_host in [false, true] {
        for (function, number) in calls.into_iter().flat_map(|call| [(call, 1), (call, 2)]) {
            let (pool, stream) = (pool(), stream());
            let held = Held::now();
            let (peer, sockets) = Peer::start("importer with faults");
            sim.add_fault(&format!("{function}#{number}={}", CODE.0));
            let session = options().host_ordering(by_host);
            let outcome = Exporter::with_options(sockets.session, &pool, &session).and_then(|exporter| {
                let buffer = pool.alloc::<u8>(&stream, 100)?;
                let lease = exporter.send(buffer).map_err(|(_, error)| error)?;
                lease.wait().map(drop)?;
                exporter.close()
            });
            sim.clear_faults();
            if let Err(error) = outcome {
                assert!(is_injected(&error), "{function} {number}: {error}");
            }
            assert_eq!(crate::sim::last_error(), sys::cudaError_t::cudaSuccess, "{function}");
            drop(sockets.other);
            peer.finish();
            drop(stream);
            assert_unused(&pool);
            held.without_stream().assert_again();
        }
    }
}

/// Receives what there is, whatever happens, and has nothing left in the end.
fn import_with_faults(sockets: Sockets) {
    warm_up();
    let stream = stream();
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
                    Ok(Some(buffer)) => errors.extend(buffer.close().err().map(Error::Cuda)),
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
    if sim().is_none() {
        return;
    }
    let calls = [
        "cudaMemPoolImportFromShareableHandle",
        "cudaMemPoolImportPointer",
        "cudaHostRegister",
        "cudaHostGetDevicePointer",
        "cudaGetDriverEntryPointByVersion",
        "cudaEventCreateWithFlags",
        "cudaEventRecord",
        "cudaStreamIsCapturing",
        "cudaLaunchHostFunc",
    ];
    let (pool, stream) = (pool(), stream());
    for by_host in [false, true] {
        for (function, number) in calls.into_iter().flat_map(|call| [(call, 1), (call, 2)]) {
            let held = Held::now();
            let rule = format!("{function}#{number}={}", CODE.0);
            let mut environment = vec![(RULE, rule.as_str())];
            environment.extend(by_host.then_some((BY_HOST, "1")));
            let (peer, sockets) = Peer::start_with("importer with faults", &environment);
            let exporter = Exporter::new(sockets.session, &pool).expect("a session");
            for _ in 0..3 {
                let buffer = pool.alloc::<u8>(&stream, 100).expect("memory");
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
