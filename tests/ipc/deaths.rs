//! Peers that die, at every step of the protocol, and peers that live and do nothing.

use std::time::{Duration, Instant};

use cuda_mempool::ipc::{Error, Exporter, Importer, Lease, Options, SharedBuffer};
use cuda_mempool::{ErrorKind, MemPool, Stream};

use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[("dying importer", importer_that_dies), ("dying exporter", exporter_that_dies)];

pub const TESTS: &[Test] = &[
    ("importers_die_at_every_step", importers_die_at_every_step),
    ("exporters_die_at_every_step", exporters_die_at_every_step),
    ("no_buffer_has_the_session_wait_for_a_device", no_buffer_has_the_session_wait_for_a_device),
    ("importers_stall", importers_stall),
    ("exporters_stall", exporters_stall),
    ("stalls_end_where_the_hosts_keep_the_order", stalls_end_by_host),
    ("a_frozen_importer_can_be_given_up", a_frozen_importer_can_be_given_up),
    ("either_end_can_abort", either_end_can_abort),
];

const STEP: &str = "CUDA_MEMPOOL_TEST_STEP";
/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_secs(40);

fn step() -> String {
    std::env::var(STEP).expect("a step to die at")
}

/// Says that the step is reached, and waits for the end.
fn die_here(sockets: &mut Sockets) -> ! {
    sockets.say(b'x');
    loop {
        std::thread::park();
    }
}

/// Runs `work`, which must be over soon after `since`.
fn soon<R>(since: Instant, what: &str, work: impl FnOnce() -> R) -> R {
    let result = work();
    let took = since.elapsed();
    assert!(took < SOON, "{what} took {took:?}");
    result
}

// Importers

const IMPORTER_STEPS: &[&str] =
    &["at once", "half a frame", "in session", "with the buffer", "in a kernel", "given back", "given back done"];

fn importer_that_dies(mut sockets: Sockets) {
    let step = step();
    if step == "at once" {
        die_here(&mut sockets);
    }
    if step == "half a frame" {
        std::io::Write::write_all(&mut sockets.session, b"cmpI\x01\x00").expect("the peer is there");
        die_here(&mut sockets);
    }
    let stream = stream();
    let session = sockets.session.try_clone().expect("a socket");
    let importer = Importer::with_options(session, &stream, &options()).expect("a session");
    if step == "in session" {
        die_here(&mut sockets);
    }
    let mut buffer = receive(&importer).expect("a buffer");
    buffer.as_slice_mut().fill_bytes(9).expect("a fill");
    if step == "with the buffer" {
        die_here(&mut sockets);
    }
    if step != "given back done" {
        slow(&stream, FOR_EVER);
        buffer.as_slice_mut().fill_bytes(8).expect("a fill");
    }
    if step == "in a kernel" {
        die_here(&mut sockets);
    }
    drop(buffer);
    if step == "given back done" {
        stream.synchronize().expect("no fault");
    }
    die_here(&mut sockets);
}

/// An exporter that has lent one buffer, whose peer is at a step.
struct Lent {
    pool: MemPool,
    stream: Stream,
    held: Held,
    peer: Peer,
    exporter: Exporter,
    lease: Lease<SharedBuffer<u8>>,
}

fn lent(step: &str, environment: &[(&str, &str)], options: &Options) -> Lent {
    let (pool, stream) = (pool(), stream());
    let held = Held::now();
    let environment: Vec<_> = environment.iter().copied().chain([(STEP, step)]).collect();
    let (peer, mut sockets) = Peer::start_with("dying importer", &environment);
    let session = sockets.session.try_clone().expect("a socket");
    let exporter = Exporter::with_options(session, &pool, options).expect("a session");
    let mut buffer = pool.alloc::<u8>(&stream, 1000).expect("memory");
    buffer.as_slice_mut().fill_bytes(1).expect("a fill");
    let lease = send(&exporter, buffer);
    assert_eq!(sockets.hear(), b'x', "the peer comes to its step");
    Lent { pool, stream, held, peer, exporter, lease }
}

fn importers_die_at_every_step() {
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        for step in IMPORTER_STEPS {
            for ending in ["before the lease is waited for", "after", "never waited for"] {
                let case = format!("{step}, killed {ending}");
                importer_dies(step, ending, environment, &case);
            }
        }
    }
}

fn importer_dies(step: &str, ending: &str, environment: &[(&str, &str)], case: &str) {
    // With the environment, both ends have the hosts keep the order.
    let ours = options().host_ordering(!environment.is_empty());
    let Lent { pool, stream, held, mut peer, exporter, lease } = lent(step, environment, &ours);
    let returned = step.starts_with("given back");
    let killed;
    if ending == "after" && returned && environment.is_empty() {
        // The stream waits for work that will never be done.
        let mut buffer = lease.wait().expect("it is back");
        buffer.as_slice_mut().fill_bytes(2).expect("a fill");
        killed = Instant::now();
        peer.kill();
        let confirmed = soon(killed, case, || buffer.confirm());
        match step {
            "given back done" => confirmed.expect("the importer's work was done"),
            _ => assert!(matches!(confirmed, Err(Error::Abandoned)), "{case}: {confirmed:?}"),
        }
        assert!(exporter.send(buffer).is_err(), "{case}");
    } else if ending == "never waited for" {
        drop(lease);
        killed = Instant::now();
        peer.kill();
    } else {
        killed = Instant::now();
        peer.kill();
        match soon(killed, case, || lease.wait()) {
            Ok(buffer) => {
                assert_eq!(step, "given back done");
                assert!(is_all(&buffer.to_vec().expect("whole"), 9), "{case}");
            }
            Err(error) => {
                assert_ne!(step, "given back done", "{case}: {error}");
                assert!(matches!(error, Error::PeerGone | Error::Abandoned), "{case}: {error}");
            }
        }
    }
    soon(killed, case, || stream.synchronize()).expect("no fault");
    drop(exporter);
    soon(killed, case, || assert_unused(&pool));
    drop(stream);
    drop(peer);
    held.without_stream().assert_again();
}

/// To free memory of a per-thread stream from another thread is to wait for the device: the thread that sets streams
/// free must not have to.
fn no_buffer_has_the_session_wait_for_a_device() {
    let (pool, stream) = (pool(), stream());
    let (mut peer, sockets) = Peer::start("slow third");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let fresh = || pool.alloc_zeroed::<u8>(&stream, 1000).expect("memory");
    let mut first = send(&exporter, fresh()).wait().expect("it comes back");
    let second = send(&exporter, fresh()).wait().expect("it comes back before the work on it is done");
    let refusal = first.set_stream(&Stream::per_thread(device()));
    drop(first);
    std::thread::sleep(SOON / 4);
    let killed = Instant::now();
    peer.kill();
    soon(killed, "the death", || stream.synchronize()).expect("no fault");
    assert!(matches!(second.confirm(), Err(Error::Abandoned)));
    assert!(matches!(refusal, Err(Error::Cuda(error)) if error.kind() == ErrorKind::WrongThread));
    drop((second, exporter));
    assert_unused(&pool);
}

// Exporters

const EXPORTER_STEPS: &[&str] = &["at once", "half a frame", "in session", "lent", "in a kernel", "idle"];

fn exporter_that_dies(mut sockets: Sockets) {
    let step = step();
    if step == "at once" {
        die_here(&mut sockets);
    }
    if step == "half a frame" {
        std::io::Write::write_all(&mut sockets.session, b"cmpI\x01\x00").expect("the peer is there");
        die_here(&mut sockets);
    }
    let (pool, stream) = (pool(), stream());
    let session = sockets.session.try_clone().expect("a socket");
    let exporter = Exporter::with_options(session, &pool, &options()).expect("a session");
    if step == "in session" {
        die_here(&mut sockets);
    }
    let mut buffer = pool.alloc::<u8>(&stream, 1000).expect("memory");
    buffer.as_slice_mut().fill_bytes(1).expect("a fill");
    stream.synchronize().expect("no fault");
    if step == "in a kernel" {
        slow(&stream, FOR_EVER);
        buffer.as_slice_mut().fill_bytes(2).expect("a fill");
    }
    let lease = send(&exporter, buffer);
    if step == "lent" {
        stream.synchronize().expect("no fault");
    }
    if step == "idle" {
        let _buffer = lease.wait().expect("it comes back");
        die_here(&mut sockets);
    }
    die_here(&mut sockets);
}

fn exporters_die_at_every_step() {
    for step in EXPORTER_STEPS {
        let stream = stream();
        let held = Held::now();
        let (mut peer, mut sockets) = Peer::start_with("dying exporter", &[(STEP, step)]);
        let session = sockets.session.try_clone().expect("a socket");
        let importer = Importer::new(session, &stream).expect("a session");
        let lends = ["lent", "in a kernel", "idle"].contains(step);
        let mut buffer = lends.then(|| receive(&importer).expect("a buffer"));
        if *step == "idle" {
            buffer = None;
        }
        assert_eq!(sockets.hear(), b'x', "the peer comes to its step");
        if let Some(buffer) = &mut buffer {
            buffer.as_slice_mut().fill_bytes(5).expect("a fill");
        }
        let killed = Instant::now();
        peer.kill();
        soon(killed, step, || stream.synchronize()).expect("no fault");
        if let Some(mut buffer) = buffer {
            let confirmed = buffer.confirm();
            match *step {
                "lent" => assert!(is_all(&buffer.to_vec().expect("it was whole"), 5)),
                _ => assert!(matches!(confirmed, Err(Error::Abandoned)), "{step}: {confirmed:?}"),
            }
            // The memory stays usable until it is dropped.
            buffer.as_slice_mut().fill_bytes(6).expect("a fill");
            stream.synchronize().expect("no fault");
        }
        let error = soon(killed, step, || importer.recv::<u8>()).expect_err("nobody sends");
        assert!(matches!(error, Error::PeerGone), "{step}: {error}");
        drop((importer, sockets, peer));
        held.assert_again();
    }
}

// Peers that live

fn hasty() -> Options {
    Options::default().stall_timeout(Some(Duration::from_millis(200)))
}

fn importers_stall() {
    let Lent { pool, stream, peer, exporter, lease, .. } = lent("given back", &[], &hasty());
    let started = Instant::now();
    let mut buffer = lease.wait().expect("it is back");
    buffer.as_slice_mut().fill_bytes(2).expect("a fill");
    stream.synchronize().expect("the stream goes on");
    assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
    assert!(matches!(buffer.confirm(), Err(Error::Abandoned)));
    let (buffer, error) = exporter.send(buffer).expect_err("the session is over");
    assert!(matches!(error, Error::TimedOut), "{error}");
    drop((buffer, exporter));
    drop(peer);
    assert_unused(&pool);
}

fn exporters_stall() {
    let stream = stream();
    let (peer, mut sockets) = Peer::start_with("dying exporter", &[(STEP, "in a kernel")]);
    let session = sockets.session.try_clone().expect("a socket");
    let importer = Importer::with_options(session, &stream, &hasty()).expect("a session");
    let buffer = receive(&importer).expect("a buffer");
    assert_eq!(sockets.hear(), b'x');
    let started = Instant::now();
    stream.synchronize().expect("the stream goes on");
    assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
    assert!(matches!(buffer.confirm(), Err(Error::Abandoned)));
    assert!(matches!(importer.recv::<u8>(), Err(Error::TimedOut)));
    drop((buffer, importer, peer));
}

fn stalls_end_by_host() {
    let by_host = hasty().host_ordering(true);
    for waited_for in [true, false] {
        let Lent { pool, peer, exporter, lease, .. } = lent("given back", &[], &by_host);
        let started = Instant::now();
        if waited_for {
            assert!(matches!(lease.wait(), Err(Error::TimedOut | Error::Abandoned)));
        } else {
            drop(lease);
            assert!(matches!(exporter.close(), Err(Error::TimedOut)));
        }
        assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
        drop(peer);
        assert_unused(&pool);
    }

    let stream = stream();
    let (_peer, mut sockets) = Peer::start_with("dying exporter", &[(STEP, "in a kernel")]);
    let session = sockets.session.try_clone().expect("a socket");
    let importer = Importer::with_options(session, &stream, &by_host).expect("a session");
    assert_eq!(sockets.hear(), b'x');
    let started = Instant::now();
    assert!(matches!(importer.recv::<u8>(), Err(Error::TimedOut)));
    assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
}

fn a_frozen_importer_can_be_given_up() {
    let Lent { pool, stream, held, mut peer, exporter, lease } = lent("with the buffer", &[], &options());
    peer.freeze();
    let (lease, error) = lease.wait_timeout(Duration::from_millis(50)).expect_err("nobody answers");
    assert!(matches!(error, Error::TimedOut), "{error}");
    let lease = lease.expect("it can be waited for again");
    exporter.abort();
    assert!(matches!(lease.wait(), Err(Error::PeerGone)));
    stream.synchronize().expect("no fault");
    // The importer could still be using the memory, so it is kept until the importer has ended.
    assert!(pool.usage().expect("alive").used > 0);
    drop((exporter, stream));
    peer.kill();
    assert_unused(&pool);
    held.without_stream().assert_again();
}

fn either_end_can_abort() {
    let Lent { pool, exporter, lease, peer, .. } = lent("with the buffer", &[], &options());
    exporter.abort();
    assert!(matches!(lease.wait(), Err(Error::PeerGone)));
    drop((exporter, peer));
    assert_unused(&pool);

    let stream = stream();
    let (_peer, mut sockets) = Peer::start_with("dying exporter", &[(STEP, "in session")]);
    let session = sockets.session.try_clone().expect("a socket");
    let importer = Importer::new(session, &stream).expect("a session");
    assert_eq!(sockets.hear(), b'x');
    importer.abort();
    assert!(matches!(importer.recv::<u8>(), Err(Error::PeerGone)));
}
