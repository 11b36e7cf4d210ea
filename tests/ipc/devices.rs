//! Several devices, numbered differently, or not seen at all.

use cuda_mempool::ipc::{Error, Exporter, Farewell, Importer};
use cuda_mempool::{Device, Stream};

use crate::peer::{Peer, Role, Sockets};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[
    ("importer on another device", import_on_another),
    ("importer on both devices", import_on_both),
    ("importer that sees one device", import_blindly),
];

pub const TESTS: &[Test] = &[
    ("uuids_name_devices", uuids_name_devices),
    ("the_importer_can_work_on_another_device", the_importer_can_work_on_another_device),
    ("importers_of_one_process_work_on_several_devices", importers_work_on_several_devices),
    ("a_device_that_is_not_seen_is_an_error", a_device_that_is_not_seen_is_an_error),
    ("devices_can_be_numbered_differently", devices_can_be_numbered_differently),
];

/// Whether there are two devices. The simulator gets a second one.
fn two_devices() -> bool {
    let two = crate::sim::with_devices(2).is_some() || Device::count().expect("there are devices") > 1;
    if !two {
        skip("it takes two devices");
    }
    two
}

/// Whether there are two devices of which the second reaches the first.
fn two_peers() -> bool {
    if !two_devices() {
        return false;
    }
    let reaches = Device::new(1).and_then(|second| second.can_access(device())).expect("an answer");
    if !reaches {
        skip("it takes devices that reach each other");
    }
    reaches
}

fn uuids_name_devices() {
    let all: Vec<Device> = Device::all().expect("devices").collect();
    for &device in &all {
        let uuid = device.uuid().expect("a UUID");
        assert_eq!(Device::by_uuid(&uuid).expect("an answer"), Some(device));
    }
    assert_eq!(Device::by_uuid(&[0xee; 16]).expect("an answer"), None);
}

fn import_on_another(sockets: Sockets) {
    assert!(two_devices());
    let stream = Stream::new(Device::new(1).expect("a second device")).expect("a stream");
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    while let Some(mut buffer) = receive(&importer) {
        // What the copy engines do not need access for, this does.
        buffer.slice_mut(..100).fill_bytes(4).expect("access");
        assert!(is_all(&buffer.slice(100..).to_vec().expect("a copy"), 3));
    }
    assert_eq!(Device::current().expect("an answer"), device());
}

fn the_importer_can_work_on_another_device() {
    if !two_peers() {
        return;
    }
    for place in places() {
        let (pool, stream) = (pool_at(place), stream());
        let (peer, sockets) = Peer::start("importer on another device");
        let exporter = Exporter::new(sockets.session, &pool).expect("a session");
        let buffer = send(&exporter, slowly_filled(&pool, &stream, 1000, 3)).wait().expect("it comes back");
        let bytes = buffer.to_vec().expect("whole");
        assert!(is_all(&bytes[..100], 4) && is_all(&bytes[100..], 3));
        drop((buffer, exporter));
        peer.finish();
        assert_unused(&pool);
    }
}

/// Two sessions with the same exporter, whose streams are of different devices.
fn import_on_both(sockets: Sockets) {
    assert!(two_devices());
    for (socket, device) in [sockets.session, sockets.other].into_iter().zip(Device::all().expect("devices")) {
        let stream = Stream::new(device).expect("a stream");
        let importer = Importer::new(socket, &stream).expect("a session");
        let mut buffer = receive(&importer).expect("a buffer");
        buffer.as_slice_mut().fill_bytes(4).expect("access");
        stream.synchronize().expect("no fault");
        // Both at once: the pool is imported once.
        std::mem::forget(importer);
        std::mem::forget(buffer);
    }
}

fn importers_work_on_several_devices() {
    if !two_peers() {
        return;
    }
    for place in places() {
        let (pool, stream) = (pool_at(place), stream());
        let (peer, sockets) = Peer::start("importer on both devices");
        for socket in [sockets.session, sockets.other] {
            let exporter = Exporter::new(socket, &pool).expect("a session");
            drop(send(&exporter, slowly_filled(&pool, &stream, 1000, 3)));
        }
        peer.finish();
        assert_unused(&pool);
    }
}

fn import_blindly(sockets: Sockets) {
    let stream = stream();
    let importer = Importer::new(sockets.session, &stream).expect("a session");
    assert!(matches!(importer.recv::<u8>(), Err(Error::UnknownDevice(_))));
}

fn a_device_that_is_not_seen_is_an_error() {
    if !two_devices() {
        return;
    }
    let second = Device::new(1).expect("a second device");
    let (pool, stream) = (pool_at(second), Stream::new(second).expect("a stream"));
    let only_first = [("CUDART_SIM_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "0")];
    let (peer, sockets) = Peer::start_with("importer that sees one device", &only_first);
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    match exporter.send(pool.alloc::<u8>(&stream, 10).expect("memory")) {
        Ok(lease) => {
            let error = lease.wait().expect_err("nobody takes it");
            assert!(matches!(error, Error::PeerLeft(Farewell::UnknownDevice) | Error::PeerGone), "{error}");
        }
        Err((_, error)) => assert!(matches!(error, Error::PeerLeft(Farewell::UnknownDevice)), "{error}"),
    }
    peer.finish();
    drop(exporter);
    assert_unused(&pool);
}

fn devices_can_be_numbered_differently() {
    if !two_devices() {
        return;
    }
    let second = Device::new(1).expect("a second device");
    let (pool, stream) = (pool_at(second), Stream::new(second).expect("a stream"));
    let only_second = [("CUDART_SIM_VISIBLE_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "1")];
    let (peer, sockets) = Peer::start_with("incrementer", &only_second);
    let exporter = Exporter::new(sockets.session, &pool).expect("a session");
    let buffer = pool.from_slice::<u8>(&stream, &[1; 1000]).expect("memory");
    let buffer = send(&exporter, buffer).wait().expect("it comes back");
    assert!(is_all(&buffer.to_vec().expect("whole"), 2));
    drop((buffer, exporter, sockets.other));
    peer.finish();
    assert_unused(&pool);
}
