//! What processes do beside handing over: they fork, they end without notice, they live in namespaces of their own.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cuda_mempool::ipc::{Error, Exporter, ImportedPool, Importer, LegacyHandle, LegacyImport, MemHandle};
use cuda_mempool::ipc::{Lease, SharedBuffer};
use cuda_mempool::{sys, ErrorKind};

use crate::hand_over::slowly_filled_fast;
use crate::peer::{Peer, Role, Sockets};
use crate::sim::Sim;
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[
    ("asker for a device", ask_for_a_device),
    ("importer that ends at once", import_and_end),
    ("exporter that ends at once", export_and_end),
    ("importer that forks", import_and_fork),
];

pub const TESTS: &[Test] = &[
    ("across_process_namespaces", across_process_namespaces),
    ("the_exit_of_a_process_waits_for_what_is_being_closed", exit_while_closing),
    ("a_forked_child_leaves_the_session_alone", a_forked_child_leaves_the_session_alone),
    ("a_forked_child_waits_for_no_lock", a_forked_child_waits_for_no_lock),
    ("a_death_is_seen_although_a_child_keeps_the_socket", a_death_is_seen_although_a_child_keeps_the_socket),
];

/// What `unshare` can be told, as far as it is permitted here and the driver works behind it.
const NAMESPACES: [&[&str]; 4] = [
    &["--pid", "--fork", "--kill-child"],
    &["--pid", "--fork", "--kill-child", "--mount-proc"],
    &["--user", "--map-root-user", "--pid", "--fork", "--kill-child"],
    &["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"],
];

/// Nothing of this crate: the two calls with which every program of the runtime begins.
fn ask_for_a_device(_sockets: Sockets) {
    let mut count = 0;
    // SAFETY: the out pointer is valid, and freeing null does nothing else.
    let answers = unsafe { [sys::cudaGetDeviceCount(&mut count), sys::cudaFree(std::ptr::null_mut())] };
    if answers != [sys::cudaError_t::cudaSuccess; 2] || count == 0 {
        eprintln!("the runtime answers {answers:?}, {count} devices");
        std::process::exit(1);
    }
}

fn in_namespaces(namespaces: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(namespaces).arg(std::env::current_exe().expect("a path"));
    command
}

fn across_process_namespaces() {
    let works = |namespaces: &&&[&str]| {
        let (mut peer, _sockets) = Peer::start_by(in_namespaces(namespaces), "asker for a device", &[]);
        let works = peer.exit().success();
        if !works {
            eprintln!("no device behind unshare {}", namespaces.join(" "));
        }
        works
    };
    let Some(namespaces) = NAMESPACES.iter().find(works) else {
        return skip("the bare runtime finds no device in another process namespace here");
    };
    let (pool, stream) = (pool(), stream());
    let (peer, sockets) = Peer::start_by(in_namespaces(namespaces), "incrementer", &[]);
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let buffer = send(&exporter, slowly_filled(&pool, &stream, 1000, 8)).wait().expect("it comes back");
    assert!(is_all(&buffer.to_vec().expect("whole"), 9));
    drop((buffer, exporter, sockets.other));
    peer.finish();
    assert_unused(&pool);
}

/// Ends while the session's thread is about to let go of what it has.
fn import_and_end(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    drop(receive(&importer).expect("a buffer"));
}

fn export_and_end(sockets: Sockets) {
    let (pool, stream) = (pool(), stream());
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    drop(send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait().expect("it comes back"));
}

/// A driver that is called in the middle of its own end crashes.
fn exit_while_closing() {
    let (pool, stream) = (pool(), stream());
    for _ in 0..8 {
        let (peer, sockets) = Peer::start("importer that ends at once");
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        match send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait() {
            // The process may end before its stream has got to where it gives the buffer back.
            Ok(_) | Err(Error::Abandoned) => {}
            Err(error) => panic!("it comes back: {error}"),
        }
        peer.finish();
        drop(exporter);

        let (peer, sockets) = Peer::start("exporter that ends at once");
        let importer = Importer::new(sockets.session, &stream).expect("a session");
        drop(receive(&importer).expect("a buffer"));
        peer.finish();
    }
    assert_unused(&pool);
}

fn a_forked_child_leaves_the_session_alone() {
    let (pool, stream) = (pool(), stream());
    let held = Held::now();
    let (peer, sockets) = Peer::start("incrementer");
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let (back_socket, nobody) = UnixStream::pair().expect("a pair");
    let importer = Importer::new(back_socket, &stream).expect("a session");
    let shared = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait().expect("it comes back");
    let lease = send(&exporter, slowly_filled(&pool, &stream, 1000, 5));
    let mut all = Some((shared, lease, exporter, importer));

    let sim = sim();
    // Now and then a thread of the session holds its lock in that moment.
    for _ in 0..20 {
        // SAFETY: the child only drops, asks what is refused, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut all = AssertUnwindSafe(&mut all);
            let wrong = catch_unwind(move || find_wrong_in_child(all.take().expect("the child's own"), sim));
            // SAFETY: ends the child without the parent's hooks.
            unsafe { libc::_exit(wrong.unwrap_or(255)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours and the out pointer valid.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFEXITED(status), "the child ended with {status}");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the sum of what the child found wrong");
    }

    let (shared, lease, exporter, importer) = all.take().expect("the parent's own");
    assert!(is_all(&lease.wait().expect("it comes back").to_vec().expect("whole"), 6));
    assert!(is_all(&send(&exporter, shared).wait().expect("it comes back").to_vec().expect("whole"), 3));
    drop((exporter, importer, sockets.other, nobody));
    peer.finish();
    held.assert_again();
    assert_unused(&pool);
}

type Session = (SharedBuffer<u8>, Lease<SharedBuffer<u8>>, Exporter, Importer);

/// In a forked child: what is asked is refused, and what is dropped calls nothing.
fn find_wrong_in_child((shared, lease, exporter, importer): Session, sim: Option<&Sim>) -> i32 {
    let calls = || sim.map(Sim::all_calls);
    let before = calls();
    let refused = |error: Error| matches!(error, Error::Cuda(error) if error.kind() == ErrorKind::NotPermitted);
    let right = [
        lease.is_returned().is_err_and(refused),
        lease.wait().is_err_and(refused),
        exporter.send(shared).is_err_and(|(_shared, error)| refused(error)),
        importer.recv::<u8>().is_err_and(refused),
        importer.close().is_err_and(refused),
        {
            exporter.abort();
            drop(exporter);
            calls() == before
        },
    ];
    right.iter().enumerate().filter(|(_, &right)| !right).map(|(index, _)| 1 << index).sum()
}

/// Whoever has a lock at that moment does not exist in the child.
fn a_forked_child_waits_for_no_lock() {
    let (pool, stream) = (pool(), stream());
    let imported = ImportedPool::import_fd(pool.export_fd().expect("a descriptor").as_fd()).expect("a pool");
    let buffer = pool.alloc_zeroed::<u8>(&stream, 1000).expect("memory");
    stream.synchronize().expect("no fault");
    let export = buffer.export_pointer().expect("an export");
    let nothing = LegacyHandle { handle: MemHandle::from_bytes([0; 64]), offset: 0, bytes: 1 };
    let socket = || UnixStream::pair().expect("a pair").0;
    let device = device();
    let stop = AtomicBool::new(false);
    let busily = |work: &dyn Fn()| {
        while !stop.load(Ordering::Relaxed) {
            work();
        }
    };
    std::thread::scope(|scope| {
        // SAFETY: nothing writes to the memory, which outlives its imports.
        scope.spawn(|| busily(&|| drop(unsafe { imported.import::<u8>(&export, &stream) }.expect("a mapping"))));
        // SAFETY: there is no such memory.
        scope.spawn(|| busily(&|| drop(unsafe { LegacyImport::<u8>::open(&nothing, device) }.expect_err("nothing"))));
        scope.spawn(|| busily(&|| drop(Exporter::new(socket(), &pool).expect("a session"))));
        let children: Vec<i32> = (0..50)
            .map(|_| {
                // SAFETY: the child only asks what is refused, and leaves.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: ends the child if it waits.
                    unsafe { libc::alarm(2) };
                    let refused = |error: &cuda_mempool::Error| error.kind() == ErrorKind::NotPermitted;
                    // SAFETY: nothing is imported, here and below.
                    let right = unsafe { imported.import::<u8>(&export, &stream) }.is_err_and(|error| refused(&error))
                    // SAFETY: as above.
                    && unsafe { LegacyImport::<u8>::open(&nothing, device) }.is_err_and(|error| refused(&error))
                    && Exporter::new(socket(), &pool)
                        .is_err_and(|error| matches!(error, Error::Cuda(error) if refused(&error)));
                    // SAFETY: ends the child without the parent's hooks.
                    unsafe { libc::_exit(i32::from(!right)) };
                }
                let mut status = 0;
                // SAFETY: the child is ours and the out pointer valid.
                unsafe { libc::waitpid(child, &mut status, 0) };
                status
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(children, [0; 50], "how the children have ended");
    });
}

/// Keeps a buffer, and leaves a child behind that has all its descriptors.
fn import_and_fork(mut sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
    let _buffer = receive(&importer).expect("a buffer");
    // SAFETY: the child only sleeps, longer than it may take to see the parent's death.
    if unsafe { libc::fork() } == 0 {
        std::thread::sleep(3 * SOON);
        // SAFETY: ends the child without the parent's hooks.
        unsafe { libc::_exit(0) };
    }
    sockets.say(b'x');
    loop {
        std::thread::park();
    }
}

fn a_death_is_seen_although_a_child_keeps_the_socket() {
    let (pool, stream) = (pool(), stream());
    let (mut peer, mut sockets) = Peer::start("importer that forks");
    let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
    let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1));
    assert_eq!(sockets.hear(), b'x', "the peer has the buffer");
    let killed = Instant::now();
    peer.kill();
    let error = lease.wait_timeout(3 * SOON).expect_err("it does not come back").1;
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    assert!(matches!(error, Error::PeerGone), "{error}");
    drop(exporter);
    assert_unused(&pool);
}
