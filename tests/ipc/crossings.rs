//! Buffers that cross between two processes, and frames that stand in each other's way.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use cuda_mempool::ipc::{Error, Exporter, Importer, Lease, Options, SharedBuffer};
use cuda_mempool::{DeviceBuffer, MemPool, Stream};

use crate::hand_over::slowly_filled_fast;
use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[
    ("crosser", |sockets| cross(sockets, false, &options())),
    ("receiver on request", receive_on_request),
    ("importer of what was freed", import_what_was_freed),
];

pub const TESTS: &[Test] = &[
    ("buffers_cross", buffers_cross),
    ("a_death_while_buffers_cross", a_death_while_buffers_cross),
    ("an_importer_may_take_its_time", an_importer_may_take_its_time),
    ("an_exporter_may_take_its_time", an_exporter_may_take_its_time),
    ("nothing_waits_for_memory_that_is_being_unmapped", nothing_waits_for_memory_that_is_being_unmapped),
];

/// How many go each way.
const ROUNDS: usize = 400;
const LENGTH: usize = 10_000;
/// How long the streams of the simulator may pause, in microseconds.
const PAUSE: u32 = 300;

/// What a buffer is filled with on its way out.
fn question(round: usize) -> u8 {
    (round % 100) as u8
}

/// What it is filled with where it is received.
fn answer(round: usize) -> u8 {
    100 + question(round)
}

/// Each process lends to the other, on two sessions at once, and no host waits for a device.
fn buffers_cross() {
    for environment in [&[][..], &[(BY_HOST, "1")]] {
        let held = Held::now();
        let races = sim().map(|sim| {
            sim.set_delay(PAUSE, 3);
            sim.races()
        });
        let pause = PAUSE.to_string();
        let pauses = [("CUDART_SIM_DELAY_US", pause.as_str()), ("CUDART_SIM_SEED", "4")];
        let (peer, sockets) = Peer::start_with("crosser", &[environment, &pauses].concat());
        cross(sockets, true, &options().host_ordering(!environment.is_empty()));
        peer.finish();
        if let Some(sim) = sim() {
            sim.set_delay(0, 0);
            assert_eq!(Some(sim.races()), races, "{}", sim.last_race());
        }
        held.assert_again();
    }
}

/// Whatever was under way in either direction, the survivor's streams run on, and nothing is left of it.
fn a_death_while_buffers_cross() {
    for round in 0..20 {
        let pool = pool();
        let held = Held::now();
        let (mut peer, Sockets { session, other }) = Peer::start_with("crosser", &[("CUDART_SIM_DELAY_US", "300")]);
        std::thread::scope(|scope| {
            let exporter = Exporter::new(session, &pool).expect("a session");
            scope.spawn(|| ask_until_the_end(exporter, &pool));
            scope.spawn(|| reply_until_the_end(other));
            std::thread::sleep(Duration::from_millis(50 + 10 * round));
            peer.kill();
        });
        drop(peer);
        assert_unused(&pool);
        held.assert_again();
    }
}

/// Hands buffers over, four at a time, until nobody takes them, and sees that its stream is not held up.
fn ask_until_the_end(exporter: Exporter, pool: &MemPool) {
    let stream = stream();
    let mut away = VecDeque::new();
    let mut home: Vec<SharedBuffer<u8>> = Vec::new();
    for round in 0.. {
        let mut buffer = home.pop().unwrap_or_else(|| pool.alloc::<u8>(&stream, LENGTH).expect("memory").into());
        buffer.as_slice_mut().fill_bytes(question(round)).expect("a fill");
        let Ok(lease) = exporter.send(buffer) else { break };
        away.push_back(lease);
        if away.len() == 4 {
            match away.pop_front().expect("there are four").wait() {
                Ok(buffer) => home.push(buffer),
                Err(_) => break,
            }
        }
    }
    let ended = Instant::now();
    stream.synchronize().expect("no fault");
    assert!(ended.elapsed() < SOON, "{:?}", ended.elapsed());
}

/// As above, for what comes.
fn reply_until_the_end(socket: UnixStream) {
    let stream = stream();
    let importer = Importer::new(socket, &stream).expect("a session");
    let mut held = VecDeque::new();
    for round in 0.. {
        let Ok(Some(mut buffer)) = importer.recv::<u8>() else { break };
        buffer.as_slice_mut().fill_bytes(answer(round)).expect("a fill");
        held.push_back(buffer);
        if held.len() == 3 {
            held.pop_front();
        }
    }
    let ended = Instant::now();
    stream.synchronize().expect("no fault");
    assert!(ended.elapsed() < SOON, "{:?}", ended.elapsed());
}

fn cross(sockets: Sockets, first: bool, options: &Options) {
    warm_up();
    let held = Held::now();
    let Sockets { session, other } = sockets;
    let (out, back) = if first { (session, other) } else { (other, session) };
    let pool = pool();
    std::thread::scope(|scope| {
        scope.spawn(|| ask(Exporter::with_options(out, &pool, options).expect("a session"), &pool));
        scope.spawn(|| reply(|stream| Importer::with_options(back, stream, options).expect("a session")));
    });
    assert_unused(&pool);
    drop(pool);
    if let Some(sim) = sim() {
        assert_eq!(sim.races(), 0, "{}", sim.last_race());
    }
    if !first {
        held.assert_again();
    }
}

/// What the buffer holds when its stream comes here.
fn copy_of(buffer: &SharedBuffer<u8>, pool: &MemPool) -> DeviceBuffer<u8> {
    let mut copy = pool.alloc::<u8>(buffer.stream(), LENGTH).expect("memory");
    copy.copy_from(buffer.as_slice()).expect("a copy");
    copy
}

/// Hands buffers of several streams over, four at a time, and sees what comes back in them.
fn ask(exporter: Exporter, pool: &MemPool) {
    let streams = [stream(), stream(), stream()];
    let fresh =
        |round: usize| -> SharedBuffer<u8> { pool.alloc::<u8>(&streams[round % 3], LENGTH).expect("memory").into() };
    let mut home: VecDeque<SharedBuffer<u8>> = (0..6).map(fresh).collect();
    let mut away: VecDeque<(usize, Lease<SharedBuffer<u8>>)> = VecDeque::new();
    let mut copies = Vec::new();
    for round in 0..ROUNDS {
        let mut buffer = home.pop_front().unwrap_or_else(|| fresh(round));
        if round % 5 == 0 {
            buffer.set_stream(&streams[(round + 1) % 3]).expect("a move");
        }
        buffer.as_slice_mut().fill_bytes(question(round)).expect("a fill");
        let lease = send(&exporter, buffer);
        if round % 10 == 9 {
            drop(lease);
        } else {
            away.push_back((round, lease));
        }
        if away.len() == 4 {
            let (round, lease) = away.pop_front().expect("there are four");
            let buffer = lease.wait().expect("it comes back");
            copies.push((round, copy_of(&buffer, pool)));
            home.push_back(buffer);
        }
    }
    for (round, lease) in away {
        copies.push((round, copy_of(&lease.wait().expect("it comes back"), pool)));
    }
    drop(home);
    exporter.close().expect("all is given back");
    for (round, copy) in copies {
        assert!(is_all(&copy.to_vec().expect("a copy"), answer(round)), "the answer of round {round}");
    }
}

/// Sees what comes, writes something else, and gives it back, without waiting for either.
fn reply(open: impl FnOnce(&Stream) -> Importer) {
    let (stream, second) = (stream(), stream());
    let importer = open(&stream);
    let pool = MemPool::default_for(device()).expect("a pool");
    let mut copies = Vec::new();
    while let Some(mut buffer) = receive(&importer) {
        let round = copies.len();
        let mut copy = pool.alloc::<u8>(&stream, LENGTH).expect("memory");
        copy.copy_from(buffer.as_slice()).expect("a copy");
        if round % 3 == 0 {
            buffer.set_stream(&second).expect("a move");
        }
        buffer.as_slice_mut().fill_bytes(answer(round)).expect("a fill");
        copies.push(copy);
    }
    importer.close().expect("all is given back");
    assert_eq!(copies.len(), ROUNDS);
    for (round, copy) in copies.into_iter().enumerate() {
        assert!(is_all(&copy.to_vec().expect("a copy"), question(round)), "the question of round {round}");
    }
}

/// Receives as many buffers as it is told to, and gives each back at once.
fn receive_on_request(mut sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
    loop {
        match sockets.hear() {
            0 => break,
            count => (0..count).for_each(|_| drop(receive(&importer).expect("a buffer"))),
        }
        sockets.say(b'd');
    }
    assert!(receive(&importer).is_none());
}

fn hasty() -> Options {
    options().stall_timeout(Some(Duration::from_millis(200)))
}

/// What is asked of an importer may stand behind a buffer that it has not received yet.
fn an_importer_may_take_its_time() {
    let (pool, stream) = (pool(), stream());
    let (peer, mut sockets) = Peer::start("receiver on request");
    let session = sockets.session.try_clone().expect("a socket");
    let exporter = Exporter::with_options(session, &pool, &hasty()).expect("a session");
    sockets.say(1);
    let first = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait().expect("it comes back");
    assert_eq!(sockets.hear(), b'd');
    let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 2));
    drop(first);
    std::thread::sleep(SOON);
    sockets.say(1);
    drop(lease.wait().expect("it comes back"));
    assert_eq!(sockets.hear(), b'd');
    sockets.say(0);
    exporter.close().expect("all is given back");
    peer.finish();
    assert_unused(&pool);
}

/// What an importer answers may stand behind a buffer that the exporter has not waited for yet.
fn an_exporter_may_take_its_time() {
    let (pool, stream) = (pool(), stream());
    let (peer, mut sockets) = Peer::start("receiver on request");
    let session = sockets.session.try_clone().expect("a socket");
    let exporter = Exporter::with_options(session, &pool, &hasty()).expect("a session");
    sockets.say(2);
    let first = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait().expect("it comes back");
    let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 2));
    assert_eq!(sockets.hear(), b'd');
    drop(first);
    std::thread::sleep(SOON);
    drop(lease.wait().expect("it is back"));
    sockets.say(0);
    exporter.close().expect("all is given back");
    peer.finish();
    assert_unused(&pool);
}

/// Is given the memory again that its stream is still to unmap.
fn import_what_was_freed(mut sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session.try_clone().expect("a socket"), &stream).expect("a session");
    let buffer = receive(&importer).expect("a buffer");
    slow(&stream, Duration::from_millis(1500));
    drop(buffer);
    sockets.hear();
    let asked = Instant::now();
    let tried = importer.recv_timeout::<u8>(Duration::from_millis(50));
    assert!(asked.elapsed() < SOON / 2, "{:?}, {tried:?}", asked.elapsed());
    assert!(matches!(tried, Err(Error::TimedOut)));
    assert!(is_all(&receive(&importer).expect("a buffer").to_vec().expect("whole"), 2));
    assert!(receive(&importer).is_none());
}

fn nothing_waits_for_memory_that_is_being_unmapped() {
    let (pool, stream) = (pool(), stream());
    let (peer, mut sockets) = Peer::start("importer of what was freed");
    let exporter = Exporter::new(sockets.session.try_clone().expect("a socket"), &pool).expect("a session");
    let first = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 1)).wait().expect("it comes back");
    drop(first);
    // Until the importer has enqueued the unmapping, and the free is enqueued here.
    std::thread::sleep(Duration::from_millis(300));
    let lease = send(&exporter, slowly_filled_fast(&pool, &stream, 1000, 2));
    sockets.say(b'g');
    drop(lease.wait().expect("it comes back"));
    drop(exporter);
    peer.finish();
    assert_unused(&pool);
}
