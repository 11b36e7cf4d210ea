//! The parts, each with a transport and an order of one's own.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use cuda_mempool::ipc::{
    EventHandle, ImportedBuffer, ImportedPool, LegacyBuffer, LegacyHandle, LegacyImport, MemHandle, PointerBlob,
    PointerExport,
};
use cuda_mempool::{sys, Access, ErrorKind, Event, HandleTypes, MemPool, Stream};

use crate::peer::{Peer, Role, Sockets};
use crate::raw::{null, socket, Random};
use crate::world::*;
use crate::Test;

pub const ROLES: &[Role] = &[
    ("event waiter", wait_for_event),
    ("opener of legacy memory", open_legacy),
    ("closer of legacy memory", close_legacy),
];

pub const TESTS: &[Test] = &[
    ("descriptors_close_on_exec", descriptors_close_on_exec),
    ("only_pools_are_imported", only_pools_are_imported),
    ("fabric_handles", fabric_handles),
    ("an_imported_buffer_is_the_memory", an_imported_buffer_is_the_memory),
    ("one_pointer_is_one_mapping", one_pointer_is_one_mapping),
    ("two_imports_of_a_pool_share_mappings", two_imports_of_a_pool_share_mappings),
    ("a_free_to_come_does_not_unmap_another_import", a_free_to_come_does_not_unmap_another_import),
    ("raw_handles_of_imports_go_out_and_come_back", raw_handles_of_imports_go_out_and_come_back),
    ("mappings_are_made_and_dropped_by_many_threads", mappings_are_made_and_dropped_by_many_threads),
    ("a_buffer_keeps_its_pool", a_buffer_keeps_its_pool),
    ("extents_are_checked", extents_are_checked),
    ("failures_leave_nothing_behind", failures_leave_nothing_behind),
    ("what_stays_mapped_keeps_its_order", what_stays_mapped_keeps_its_order),
    ("streams_of_past_imports_are_let_go", streams_of_past_imports_are_let_go),
    ("events_are_waited_for_by_another_process", events_are_waited_for_by_another_process),
    ("only_interprocess_events_have_handles", only_interprocess_events_have_handles),
    ("legacy_memory_is_opened_in_part", legacy_memory_is_opened_in_part),
    ("legacy_memory_is_closed_when_the_device_is_done", legacy_memory_is_closed_when_the_device_is_done),
    ("legacy_memory_and_pools_do_not_mix", legacy_memory_and_pools_do_not_mix),
];

fn descriptors_close_on_exec() {
    let fd = pool().export_fd().expect("a descriptor");
    // SAFETY: asks for the flags of an open descriptor.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
    let private = MemPool::builder(device()).build().expect("a pool");
    assert_eq!(private.export_fd().expect_err("not made for it").kind(), ErrorKind::InvalidValue);
}

fn only_pools_are_imported() {
    let held = Held::now();
    for fd in [null(), socket()] {
        let error = ImportedPool::import_fd(fd.as_fd()).expect_err("no pool");
        assert_eq!(error.raw(), sys::cudaError_t::cudaErrorUnknown);
    }
    // Descriptor 0 is as good as any other.
    let fd = pool().export_fd().expect("a descriptor");
    // SAFETY: duplicates descriptors of this process, whose standard input nobody uses.
    unsafe {
        let input = libc::dup(0);
        assert_eq!(libc::dup2(fd.as_raw_fd(), 0), 0);
        let imported = ImportedPool::import_fd(std::io::stdin().as_fd());
        assert_eq!(libc::dup2(input, 0), 0);
        libc::close(input);
        drop(imported.expect("a pool"));
    }
    drop(fd);
    held.assert_again();
}

fn fabric_handles() {
    let pool = match MemPool::builder(device()).handle_types(HandleTypes::FABRIC).build() {
        Ok(pool) => pool,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    };
    match pool.export_fabric() {
        Ok(handle) => drop(ImportedPool::import_fabric(&handle).expect("a pool of this domain")),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotPermitted, "{error}"),
    }
    // Refused or not, the pool and its memory can be used and given back.
    let stream = stream();
    let buffer = pool.from_slice::<u8>(&stream, &[6; 100]).expect("memory");
    assert!(is_all(&buffer.to_vec().expect("a copy"), 6));
    drop(buffer);
    stream.synchronize().expect("no fault");
    pool.close().map_err(|(_, error)| error).expect("it is destroyed");
}

/// A pool of this process, and the same as another process would see it.
fn both_sides() -> (MemPool, ImportedPool, Stream) {
    let pool = pool();
    let imported = import(&pool);
    (pool, imported, stream())
}

fn import(pool: &MemPool) -> ImportedPool {
    ImportedPool::import_fd(pool.export_fd().expect("a descriptor").as_fd()).expect("a pool")
}

/// Imports memory of this same process, on the stream that its buffer belongs to.
fn map(pool: &ImportedPool, export: &PointerExport, stream: &Stream) -> ImportedBuffer<u8> {
    // SAFETY: everything is on one stream, and the tests free imports before what they are imports of.
    unsafe { pool.import(export, stream) }.expect("a mapping")
}

fn an_imported_buffer_is_the_memory() {
    let (pool, imported, stream) = both_sides();
    let held = Held::now();
    let mut buffer = pool.alloc::<u8>(&stream, 5000).expect("memory");
    buffer.as_slice_mut().fill_bytes(1).expect("a fill");
    let mut other = map(&imported, &buffer.export_pointer().expect("an export"), &stream);
    assert_eq!((other.len(), other.tag()), (5000, 0));
    assert!(is_all(&other.to_vec().expect("a copy"), 1));
    other.slice_mut(1000..).fill_bytes(2).expect("a fill");
    let bytes = buffer.to_vec().expect("a copy");
    assert!(is_all(&bytes[..1000], 1) && is_all(&bytes[1000..], 2));
    other.close().expect("it is unmapped");
    drop(buffer);
    stream.synchronize().expect("no fault");
    held.assert_again();
    assert_eq!(imported.access(device()).expect("an answer"), Access::ReadWrite);
}

fn one_pointer_is_one_mapping() {
    let (pool, imported, stream) = both_sides();
    let buffer = pool.from_slice::<u8>(&stream, &[7; 1000]).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut imports: Vec<_> = (0..3).map(|_| Some(map(&imported, &export, &stream))).collect();
        let addresses: Vec<_> = imports.iter().flatten().map(ImportedBuffer::as_ptr).collect();
        assert!(addresses.iter().all(|&address| address == addresses[0]), "{addresses:?}");
        for (dropped, index) in order.into_iter().enumerate() {
            imports[index] = None;
            stream.synchronize().expect("no fault");
            for import in imports.iter().flatten() {
                assert!(is_all(&import.to_vec().expect("still mapped"), 7), "after {dropped} drops");
            }
        }
    }
    if let Some(sim) = sim() {
        stream.synchronize().expect("no fault");
        assert_eq!(sim.live().pool_allocations, 1, "the imports are unmapped");
    }
}

fn two_imports_of_a_pool_share_mappings() {
    let (pool, first, stream) = both_sides();
    let second = import(&pool);
    let buffer = pool.from_slice::<u8>(&stream, &[7; 1000]).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    let one = map(&first, &export, &stream);
    let other = map(&second, &export, &stream);
    drop((one, first));
    stream.synchronize().expect("no fault");
    assert!(is_all(&other.to_vec().expect("still mapped"), 7));
}

/// Also not under an import by the other handle, where the free of the first is still to come.
fn a_free_to_come_does_not_unmap_another_import() {
    let (pool, first, stream) = both_sides();
    let (second, other) = (import(&pool), crate::world::stream());
    let buffer = pool.from_slice::<u8>(&stream, &[7; 1000]).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    stream.synchronize().expect("no fault");
    for (before, after) in [(&first, &second), (&second, &first), (&first, &first)] {
        let one = map(before, &export, &stream);
        let (started, time) = (Instant::now(), Duration::from_millis(200));
        slow(&stream, time);
        drop(one);
        let another = map(after, &export, &other);
        assert!(started.elapsed() >= time, "the free has not come to its turn");
        assert!(is_all(&another.to_vec().expect("mapped"), 7));
        drop(another);
        other.synchronize().expect("no fault");
    }
}

fn raw_handles_of_imports_go_out_and_come_back() {
    let held = Held::now().with_one_of_the_drivers();
    {
        let (pool, imported, stream) = both_sides();
        let buffer = pool.from_slice(&stream, &[7_u8; 10]).expect("memory");
        stream.synchronize().expect("no fault");
        let export = buffer.export_pointer().expect("an export");
        let import = map(&imported, &export, &stream);
        let imported = imported.into_raw().expect_err("a buffer keeps it");
        drop(import);
        let raw = imported.into_raw().expect("nothing keeps it");
        // SAFETY: it was just given away. Nothing of it is mapped, and it stays alive.
        let borrowed = unsafe { ImportedPool::from_raw_borrowed(raw) };
        assert_eq!(map(&borrowed, &export, &stream).to_vec().expect("a copy"), [7; 10]);
        borrowed.close().map_err(|(_, error)| error).expect("it is not destroyed");
        // SAFETY: as above, and nobody else destroys it.
        let owned = unsafe { ImportedPool::from_raw(raw) };
        assert_eq!(map(&owned, &export, &stream).to_vec().expect("a copy"), [7; 10]);
    }
    {
        let buffer = LegacyBuffer::<u32>::new(device(), 10).expect("memory");
        let pointer = buffer.into_raw();
        // SAFETY: it was just given away.
        let mut buffer = unsafe { LegacyBuffer::from_raw(pointer, 10, device()) };
        buffer.copy_from_host(&[3; 10]).expect("a copy");
        assert_eq!(buffer.to_vec().expect("a copy"), [3; 10]);
    }
    held.assert_again();
}

fn mappings_are_made_and_dropped_by_many_threads() {
    let (pool, imported, stream) = both_sides();
    let held = Held::now();
    let buffers: Vec<_> = (0..4).map(|byte| pool.from_slice::<u8>(&stream, &[byte; 1000]).expect("memory")).collect();
    let exports: Vec<_> = buffers.iter().map(|buffer| buffer.export_pointer().expect("an export")).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (exports, imported) = (&exports, &imported);
            scope.spawn(move || {
                let stream = crate::world::stream();
                let mut random = Random(0x1234 + thread);
                for _ in 0..100 {
                    let which = random.below(exports.len());
                    // The buffers are only read meanwhile.
                    let import = map(imported, &exports[which], &stream);
                    assert!(is_all(&import.to_vec().expect("mapped"), which as u8));
                }
            });
        }
    });
    device().synchronize().expect("no fault");
    drop(buffers);
    stream.synchronize().expect("no fault");
    held.assert_again();
}

fn a_buffer_keeps_its_pool() {
    let (pool, imported, stream) = both_sides();
    let buffer = pool.from_slice::<u8>(&stream, &[3; 100]).expect("memory");
    let other = map(&imported, &buffer.export_pointer().expect("an export"), &stream);
    drop(imported);
    drop(pool);
    assert!(is_all(&other.to_vec().expect("mapped"), 3));
}

fn extents_are_checked() {
    let (pool, imported, stream) = both_sides();
    let held = Held::now();
    let buffer = pool.alloc_zeroed::<u8>(&stream, 1000).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    assert_eq!((export.offset, export.bytes), (0, 1000));
    assert_eq!(PointerExport::from_bytes(&export.to_bytes()), export);
    // SAFETY: everything is on one stream.
    let words = |export| unsafe { imported.import::<u64>(&export, &stream) };
    assert_eq!(words(PointerExport { offset: 8, bytes: 80, ..export }).expect("within").len(), 10);
    for (offset, bytes) in [(0, 1008), (1000, 8), (usize::MAX - 7, 8), (0, usize::MAX - 7), (4, 8), (0, 12)] {
        let error = words(PointerExport { offset, bytes, ..export }).expect_err("it does not fit");
        assert_eq!(error.kind(), ErrorKind::InvalidValue, "{offset} {bytes}: {error}");
    }
    let nothing = PointerExport { blob: PointerBlob::from_bytes([0; 64]), ..export };
    assert_eq!(words(nothing).expect_err("no memory").kind(), ErrorKind::InvalidValue);
    assert!(pool.alloc::<u8>(&stream, 0).expect("nothing").export_pointer().is_err());
    drop(buffer);
    stream.synchronize().expect("no fault");
    held.assert_again();
}

fn failures_leave_nothing_behind() {
    let Some(sim) = simulator() else { return };
    let (pool, imported, stream) = both_sides();
    let buffer = pool.alloc_zeroed::<u8>(&stream, 1000).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    let held = Held::now();
    let faults: [(&str, &dyn Fn() -> bool); 5] = [
        ("cudaMemPoolExportToShareableHandle", &|| pool.export_fd().is_err()),
        ("cudaMemPoolImportFromShareableHandle", &|| {
            ImportedPool::import_fd(pool.export_fd().expect("a descriptor").as_fd()).is_err()
        }),
        ("cudaMemPoolExportPointer", &|| buffer.export_pointer().is_err()),
        // SAFETY: everything is on one stream.
        ("cudaMemPoolImportPointer", &|| unsafe { imported.import::<u8>(&export, &stream) }.is_err()),
        ("cudaMemPoolSetAccess", &|| imported.set_access(device(), Access::ReadWrite).is_err()),
    ];
    for (function, fails) in faults {
        sim.add_fault(&format!("{function}#1=700"));
        assert!(fails(), "{function}");
        sim.clear_faults();
        assert_eq!(crate::sim::last_error(), sys::cudaError_t::cudaSuccess, "{function}");
        held.assert_again();
    }
    // A pool that cannot be destroyed is given back.
    let another = import(&pool);
    sim.add_fault("cudaMemPoolDestroy#1=1");
    let (another, _) = another.close().expect_err("it stays");
    sim.clear_faults();
    another.close().map_err(|(_, error)| error).expect("it goes");
    imported.clone().close().map_err(|(_, error)| error).expect("only a clone goes");
    held.assert_again();
    // A free that fails gives the buffer back.
    let import = map(&imported, &export, &stream);
    sim.add_fault("cudaFreeAsync#1=1");
    let (import, error) = import.close().expect_err("the free fails");
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    sim.clear_faults();
    assert!(is_all(&import.to_vec().expect("still mapped"), 0));
    import.close().map_err(|(_, error)| error).expect("it is unmapped now");
    stream.synchronize().expect("no fault");
    held.assert_again();
}

/// Where Drop cannot unmap, whoever imports the memory again gets that mapping, and unmaps it behind all that was done
/// with it.
fn what_stays_mapped_keeps_its_order() {
    let Some(sim) = simulator() else { return };
    let (pool, imported, stream) = both_sides();
    let held = Held::now();
    let second = crate::world::stream();
    let buffer = pool.alloc_zeroed::<u8>(&stream, 1000).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    stream.synchronize().expect("no fault");
    let mut import = map(&imported, &export, &stream);
    slow(&stream, Duration::from_millis(100));
    import.as_slice_mut().fill_bytes(5).expect("a fill");
    sim.add_fault("cudaFreeAsync#1=1");
    drop(import);
    sim.clear_faults();
    assert!(!crate::sim::heard().is_empty(), "the hook hears of it");
    let again = map(&imported, &export, &second);
    let races = sim.races();
    again.close().map_err(|(_, error)| error).expect("it is unmapped now");
    second.synchronize().expect("no fault");
    assert!(stream.query().expect("no fault"), "the free has waited for what was done before");
    assert_eq!(sim.races(), races, "{}", sim.last_race());
    drop((buffer, second));
    stream.synchronize().expect("no fault");
    held.assert_again();
}

fn streams_of_past_imports_are_let_go() {
    let (pool, imported, stream) = both_sides();
    let buffer = pool.from_slice::<u8>(&stream, &[7; 1000]).expect("memory");
    let export = buffer.export_pointer().expect("an export");
    let kept = map(&imported, &export, &stream);
    let held = Held::now();
    for _ in 0..100 {
        let stream = crate::world::stream();
        let import = map(&imported, &export, &stream);
        assert!(is_all(&import.to_vec().expect("mapped"), 7));
    }
    assert!(held.streams_since() < 20, "{} streams are kept", held.streams_since());
    drop((kept, buffer));
    stream.synchronize().expect("no fault");
}

/// Has a stream wait for the other process's event, and says what the memory was then.
fn wait_for_event(mut sockets: Sockets) {
    let mut handle = [0; 64];
    sockets.other.read_exact(&mut handle).expect("a handle");
    let stream = stream();
    // SAFETY: the other process keeps the event until it has heard from here.
    let event = unsafe { Event::open_ipc(&EventHandle::from_bytes(handle), device()) }.expect("an event");
    stream.wait(&event).expect("a wait");
    let waited = Instant::now();
    stream.synchronize().expect("no fault");
    assert!(waited.elapsed() > Duration::from_millis(50), "{:?}", waited.elapsed());
    sockets.say(b'd');
}

fn events_are_waited_for_by_another_process() {
    let stream = stream();
    let event = Event::builder(device()).interprocess(true).build().expect("an event");
    let (peer, mut sockets) = Peer::start("event waiter");
    slow(&stream, Duration::from_millis(1000));
    event.record(&stream).expect("a mark");
    sockets.other.write_all(event.ipc_handle().expect("a handle").as_bytes()).expect("the peer listens");
    assert_eq!(sockets.hear(), b'd');
    assert!(event.query().expect("no fault"));
    peer.finish();
}

fn only_interprocess_events_have_handles() {
    let event = Event::new(device()).expect("an event");
    assert_eq!(event.ipc_handle().expect_err("an ordinary event").kind(), ErrorKind::InvalidHandle);
    let nothing = EventHandle::from_bytes([0; 64]);
    // SAFETY: there is no such event.
    assert!(unsafe { Event::open_ipc(&nothing, device()) }.is_err());
}

fn hear_legacy_handle(sockets: &mut Sockets) -> LegacyHandle {
    let mut bytes = [0; 80];
    sockets.other.read_exact(&mut bytes).expect("a handle");
    LegacyHandle::from_bytes(&bytes)
}

/// Opens a part twice and the whole once, writes to the part, and refuses what lies outside.
fn open_legacy(mut sockets: Sockets) {
    let handle = hear_legacy_handle(&mut sockets);
    // SAFETY: the other process waits for a word from here, and then keeps the memory until this one has ended.
    let open =
        |offset, bytes| unsafe { LegacyImport::<u32>::open(&LegacyHandle { offset, bytes, ..handle }, device()) };
    let mut part = open(handle.offset, handle.bytes).expect("memory");
    let again = open(handle.offset, handle.bytes).expect("memory");
    let whole = open(0, 4000).expect("memory");
    assert_eq!((part.as_ptr(), part.len()), (again.as_ptr(), 10));
    assert!(open(0, 4004).is_err() && open(4000, 4).is_err() && open(2, 4).is_err() && open(0, 5).is_err());
    assert_eq!(part.to_vec().expect("a copy"), (100..110).collect::<Vec<_>>());
    part.copy_from_host(&[7; 10]).expect("a copy");
    drop(part);
    again.close().map_err(|(_, error)| error).expect("others are still open");
    assert_eq!(whole.to_vec().expect("still open")[99..111], [99, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 110]);
    if let Some(sim) = sim() {
        sim.add_fault("cudaIpcCloseMemHandle#1=1");
        let (whole, _) = whole.close().expect_err("it stays open");
        sim.add_fault("cudaIpcCloseMemHandle#1=1");
        drop(whole);
        sim.clear_faults();
        // Whoever opens it again gets what is open, and closes that.
        open(0, 4000).expect("memory").close().map_err(|(_, error)| error).expect("it is closed");
        assert_eq!(sim.live().plain_allocations, 0);
    } else {
        whole.close().map_err(|(_, error)| error).expect("it is closed");
    }
    sockets.say(b'd');
}

fn legacy_memory_is_opened_in_part() {
    let mut buffer = LegacyBuffer::<u32>::new(device(), 1000).expect("memory");
    buffer.copy_from_host(&(0..1000).collect::<Vec<_>>()).expect("a copy");
    let (peer, mut sockets) = Peer::start("opener of legacy memory");
    let handle = buffer.legacy_handle(100..110).expect("a handle");
    assert_eq!((handle.offset, handle.bytes), (400, 40));
    sockets.other.write_all(&handle.to_bytes()).expect("the peer listens");
    assert_eq!(sockets.hear(), b'd');
    peer.finish();
    assert_eq!(buffer.to_vec().expect("a copy")[99..102], [99, 7, 7]);
    buffer.close().expect("it is freed");
}

/// Ends its use while the device has work that may use the memory: by dropping, and by hand.
fn close_legacy(mut sockets: Sockets) {
    let handle = hear_legacy_handle(&mut sockets);
    let stream = stream();
    let ends: [fn(LegacyImport<u32>); 2] =
        [drop, |import| import.close().map_err(|(_, error)| error).expect("it ends")];
    for end in ends {
        // SAFETY: the other process keeps the memory until this one has ended, and does nothing with it.
        let import = unsafe { LegacyImport::<u32>::open(&handle, device()) }.expect("memory");
        slow(&stream, Duration::from_millis(100));
        end(import);
        assert!(stream.query().expect("no fault"), "the mapping went while the device was at work");
    }
}

fn legacy_memory_is_closed_when_the_device_is_done() {
    let buffer = LegacyBuffer::<u32>::new(device(), 10).expect("memory");
    let (peer, mut sockets) = Peer::start("closer of legacy memory");
    let handle = buffer.legacy_handle(..).expect("a handle");
    sockets.other.write_all(&handle.to_bytes()).expect("the peer listens");
    peer.finish();
    buffer.close().expect("it is freed");
}

fn legacy_memory_and_pools_do_not_mix() {
    let buffer = LegacyBuffer::<u8>::new(device(), 100).expect("memory");
    let handle = buffer.legacy_handle(..).expect("a handle");
    // SAFETY: the memory is kept.
    let error = unsafe { LegacyImport::<u8>::open(&handle, device()) }.expect_err("of this same process");
    assert_eq!(error.raw(), sys::cudaError_t(201));
    let nothing = LegacyHandle { handle: MemHandle::from_bytes([0; 64]), ..handle };
    // SAFETY: there is no such memory.
    assert!(unsafe { LegacyImport::<u8>::open(&nothing, device()) }.is_err());
    assert!(LegacyBuffer::<u8>::new(device(), 0).is_err());
    assert_eq!(
        LegacyBuffer::<u64>::new(device(), usize::MAX / 4).expect_err("too large").kind(),
        ErrorKind::SizeOverflow
    );
}
