//! Pools and pointers handed to another process.

use std::os::unix::process::ExitStatusExt;

use crate::pointer_attributes::range;
use crate::support::answer::name;
use crate::support::child::Peer;
use crate::support::ipc::{import_pointer, Imported};
use crate::support::link::Link;
use crate::support::prelude::*;

area! {
    isolated: [
        import_may_be_the_first_call_of_a_process,
        importer_reads_and_writes_the_exporters_memory,
        importer_and_exporter_share_host_numa_memory,
        imported_pool_gives_no_memory,
        imported_pool_is_not_trimmed,
        imported_pool_has_no_attributes,
        access_of_an_imported_pool_is_read_and_set,
        imported_pool_is_not_exported_again,
        imported_pointer_is_not_exported_again,
        imported_pointer_tells_its_size,
        device_pointer_imported_twice_is_one_address,
        read_of_a_device_pointer_imported_twice_and_freed_once_is_fatal,
        host_numa_pointer_is_not_imported_twice,
        exporter_goes_on_when_its_importer_is_killed,
        importer_goes_on_when_its_exporter_is_killed,
    ],
    roles: [
        import_as_first_call,
        read_and_write,
        read_and_write_host_numa,
        ask_for_memory,
        trim,
        use_attributes,
        use_access,
        export_pool_again,
        export_pointer_again,
        ask_for_the_range,
        import_twice,
        read_after_one_of_two_frees,
        import_twice_host_numa,
        be_killed,
        export_and_be_killed,
        report_on_imports,
    ],
    questions: [imported],
}

const SIZE: usize = 4096;

/// Hands a pool and a pointer of `SIZE` bytes of 9 to a process in that role. Everything of the exporter's that is
/// left when the importer is done must be in order.
fn hand_to(role: &str, pool: Pool) -> Result<(), Skip> {
    let stream = Stream::new();
    let memory = filled(&pool, &stream);
    let mut peer = Peer::start(&AREA, role);
    peer.link.send_pool(&pool);
    peer.link.send_pointer(memory.ptr());
    peer.finish()?;
    give_back(pool, memory, &stream);
    Ok(())
}

fn filled<'s>(pool: &Pool, stream: &'s Stream) -> Memory<'s> {
    let memory = pool.alloc(SIZE, stream);
    // Copies reach every kind of pool.
    let nines = [9u8; SIZE];
    let from = nines.as_ptr().cast();
    ok!(cudaMemcpyAsync(memory.ptr(), from, SIZE, cudaMemcpyKind::cudaMemcpyDefault, stream.raw()));
    stream.synchronize();
    memory
}

fn give_back(pool: Pool, memory: Memory<'_>, stream: &Stream) {
    memory.free();
    stream.synchronize();
    assert_eq!(pool.used(), 0);
    pool.destroy();
}

fn import_may_be_the_first_call_of_a_process() -> Outcome {
    hand_to("import_as_first_call", Pool::device_for_ipc()?)
}

fn import_as_first_call(link: &mut Link) {
    let pool = link.receive_pool();
    let mut device = -1;
    ok!(cudaGetDevice(&mut device));
    assert_eq!(device, 0);
    pool.destroy();
}

fn importer_reads_and_writes_the_exporters_memory() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = filled(&pool, &stream);
    let mut peer = Peer::start(&AREA, "read_and_write");
    peer.link.send_pool(&pool);
    peer.link.send_pointer(memory.ptr());
    peer.finish()?;
    let bytes: [u8; SIZE] = crate::support::ipc::copied_from(memory.ptr(), &stream);
    assert_eq!(bytes, [5; SIZE]);
    give_back(pool, memory, &stream);
    Ok(())
}

fn read_and_write(link: &mut Link) {
    let imported = Imported::receive(link);
    assert_eq!(imported.bytes(), [9; SIZE]);
    ok!(cudaMemsetAsync(imported.pointer, 5, SIZE, imported.stream.raw()));
    imported.free();
    imported.pool.destroy();
}

fn importer_and_exporter_share_host_numa_memory() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::host_numa(FD)?;
    let memory = filled(&pool, &stream);
    let mut peer = Peer::start(&AREA, "read_and_write_host_numa");
    peer.link.send_pool(&pool);
    peer.link.send_pointer(memory.ptr());
    peer.finish()?;
    // SAFETY: host memory of that size; the stream and the peer have done with it.
    let bytes = unsafe { std::slice::from_raw_parts(memory.ptr().cast::<u8>(), SIZE) };
    assert!(bytes.iter().all(|byte| *byte == 5));
    give_back(pool, memory, &stream);
    Ok(())
}

fn read_and_write_host_numa(link: &mut Link) {
    let imported = Imported::receive(link);
    // SAFETY: host memory of that size, which the exporter leaves alone meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts_mut(imported.pointer.cast::<u8>(), SIZE) };
    assert!(bytes.iter().all(|byte| *byte == 9));
    bytes.fill(5);
    imported.free();
    imported.pool.destroy();
}

fn imported_pool_gives_no_memory() -> Outcome {
    hand_to("ask_for_memory", Pool::device_for_ipc()?)
}

fn ask_for_memory(link: &mut Link) {
    let imported = Imported::receive(link);
    let (mut pointer, pool) = (null_mut(), imported.pool.raw());
    answers!(cudaMallocFromPoolAsync(&mut pointer, 100, pool, imported.stream.raw()) => cudaErrorInvalidValue);
    imported.free();
}

fn imported_pool_is_not_trimmed() -> Outcome {
    hand_to("trim", Pool::device_for_ipc()?)
}

fn trim(link: &mut Link) {
    let imported = Imported::receive(link);
    answers!(cudaMemPoolTrimTo(imported.pool.raw(), 0) => cudaErrorInvalidValue);
    imported.free();
}

fn imported_pool_has_no_attributes() -> Outcome {
    hand_to("use_attributes", Pool::device_for_ipc()?)
}

fn use_attributes(link: &mut Link) {
    let imported = Imported::receive(link);
    let pool = imported.pool.raw();
    for attribute in (1..=8).map(cudaMemPoolAttr) {
        let mut value = 0u64;
        let value: *mut c_void = std::ptr::from_mut(&mut value).cast();
        answers!(cudaMemPoolGetAttribute(pool, attribute, value) => cudaErrorInvalidValue);
        answers!(cudaMemPoolSetAttribute(pool, attribute, value) => cudaErrorInvalidValue);
    }
    imported.free();
}

fn access_of_an_imported_pool_is_read_and_set() -> Outcome {
    hand_to("use_access", Pool::device_for_ipc()?)
}

fn use_access(link: &mut Link) {
    let imported = Imported::receive(link);
    assert_eq!(imported.pool.access(cudaMemLocation::device(0)), READ_WRITE);
    imported.pool.grant(0);
    imported.free();
}

fn imported_pool_is_not_exported_again() -> Outcome {
    hand_to("export_pool_again", Pool::device_for_ipc()?)
}

fn export_pool_again(link: &mut Link) {
    let imported = Imported::receive(link);
    let mut fd = -7;
    let out = std::ptr::from_mut(&mut fd).cast();
    answers!(cudaMemPoolExportToShareableHandle(out, imported.pool.raw(), FD, 0) => cudaErrorInvalidValue);
    imported.free();
}

fn imported_pointer_is_not_exported_again() -> Outcome {
    hand_to("export_pointer_again", Pool::device_for_ipc()?)
}

fn export_pointer_again(link: &mut Link) {
    let imported = Imported::receive(link);
    let mut data = cudaMemPoolPtrExportData { reserved: [0; 64] };
    answers!(cudaMemPoolExportPointer(&mut data, imported.pointer) => cudaErrorInvalidValue);
    imported.free();
}

fn imported_pointer_tells_its_size() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = pool.alloc(100_000, &stream);
    stream.synchronize();
    range(memory.ptr())?;
    let mut peer = Peer::start(&AREA, "ask_for_the_range");
    peer.link.send_pool(&pool);
    peer.link.send_pointer(memory.ptr());
    peer.finish()?;
    give_back(pool, memory, &stream);
    Ok(())
}

fn ask_for_the_range(link: &mut Link) {
    let imported = Imported::receive(link);
    let base = imported.pointer;
    assert_eq!(range(base).expect("the exporter had it"), (100_000, base as u64));
    let interior = base.wrapping_byte_add(5000);
    assert_eq!(range(interior).expect("the exporter had it"), (100_000, base as u64));
    imported.free();
}

fn device_pointer_imported_twice_is_one_address() -> Outcome {
    hand_to("import_twice", Pool::device_for_ipc()?)
}

fn import_twice(link: &mut Link) {
    let imported = Imported::receive(link);
    assert_eq!(import_pointer(&imported.pool, &imported.data), imported.pointer);
}

fn read_of_a_device_pointer_imported_twice_and_freed_once_is_fatal() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = filled(&pool, &stream);
    let mut peer = Peer::start(&AREA, "read_after_one_of_two_frees");
    peer.link.send_pool(&pool);
    peer.link.send_pointer(memory.ptr());
    peer.link.wait();
    let status = peer.exit();
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
    give_back(pool, memory, &stream);
    Ok(())
}

fn read_after_one_of_two_frees(link: &mut Link) {
    let imported = Imported::receive(link);
    let second = import_pointer(&imported.pool, &imported.data);
    ok!(cudaFreeAsync(second, imported.stream.raw()));
    imported.stream.synchronize();
    without_a_core_dump();
    link.signal();
    imported.bytes::<16>();
}

fn without_a_core_dump() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a valid struct.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
}

fn host_numa_pointer_is_not_imported_twice() -> Outcome {
    hand_to("import_twice_host_numa", Pool::host_numa(FD)?)
}

fn import_twice_host_numa(link: &mut Link) {
    let imported = Imported::receive(link);
    let (mut again, mut data) = (null_mut(), imported.data);
    answers!(cudaMemPoolImportPointer(&mut again, imported.pool.raw(), &mut data) => cudaErrorAlreadyMapped);
    imported.free();
}

fn exporter_goes_on_when_its_importer_is_killed() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = filled(&pool, &stream);
    let mut peer = Peer::start(&AREA, "be_killed");
    peer.link.send_pool(&pool);
    peer.link.send_pointer(memory.ptr());
    peer.link.wait();
    peer.kill();
    ok!(cudaMemsetAsync(memory.ptr(), 7, SIZE, stream.raw()));
    stream.synchronize();
    give_back(pool, memory, &stream);
    Ok(())
}

/// Uses the memory, and never gives it back.
fn be_killed(link: &mut Link) {
    let imported = Imported::receive(link);
    ok!(cudaMemsetAsync(imported.pointer, 3, SIZE, imported.stream.raw()));
    imported.stream.synchronize();
    link.signal();
    link.wait();
}

fn importer_goes_on_when_its_exporter_is_killed() -> Outcome {
    machine::shares_by_fd()?;
    let mut peer = Peer::start(&AREA, "export_and_be_killed");
    let imported = Imported::receive(&mut peer.link);
    peer.kill();
    assert_eq!(imported.bytes(), [9; SIZE]);
    ok!(cudaMemsetAsync(imported.pointer, 4, SIZE, imported.stream.raw()));
    imported.stream.synchronize();
    if let Ok(kernels) = machine::kernels() {
        // SAFETY: memory of that many words, which this process alone still uses.
        unsafe { kernels.fill(imported.stream.raw(), imported.pointer.cast(), SIZE as u64 / 4, 0x0404_0404) }?;
        imported.stream.synchronize();
    }
    assert_eq!(imported.bytes(), [4; SIZE]);
    imported.free();
    imported.pool.destroy();
    Ok(())
}

fn export_and_be_killed(link: &mut Link) {
    let stream = Stream::new();
    let pool = Pool::on_device(0, FD);
    let memory = filled(&pool, &stream);
    link.send_pool(&pool);
    link.send_pointer(memory.ptr());
    link.wait();
}

fn imported() -> Outcome {
    for (what, pool) in [("device", Pool::device_for_ipc()), ("host-NUMA", Pool::host_numa(FD))] {
        let Ok(pool) = pool else { continue };
        say!("{what} pool:");
        hand_to("report_on_imports", pool)?;
    }
    Ok(())
}

fn report_on_imports(link: &mut Link) {
    let imported = Imported::receive(link);
    let (pool, pointer, s) = (imported.pool.raw(), imported.pointer, imported.stream.raw());
    let mut attributes = cudaPointerAttributes::default();
    let answer = ask!(cudaPointerGetAttributes(&mut attributes, pointer));
    say!(
        "attributes: {}, type {}, device {}, device pointer itself {}, host pointer itself {}, null {}",
        name(answer),
        attributes.type_.0,
        attributes.device,
        attributes.devicePointer == pointer,
        attributes.hostPointer == pointer,
        attributes.hostPointer.is_null()
    );
    say!("access of device 0: {:?}, of the host: {:?}", access(pool, cudaMemLocation::device(0)), {
        access(pool, cudaMemLocation::host())
    });
    say!("memset: {}", name(ask!(cudaMemsetAsync(pointer, 1, 100, s))));
    let grant = cudaMemAccessDesc::new(cudaMemLocation::device(0), READ_WRITE);
    say!("grant device 0: {}", name(ask!(cudaMemPoolSetAccess(pool, &grant, 1))));
    say!("memset: {}", name(ask!(cudaMemsetAsync(pointer, 1, 100, s))));
    say!("free of an interior pointer: {}", name(ask!(cudaFreeAsync(pointer.wrapping_byte_add(512), s))));
    let (mut twice, mut data) = (null_mut(), imported.data);
    let answer = ask!(cudaMemPoolImportPointer(&mut twice, pool, &mut data));
    say!("second import: {}, same {}", name(answer), twice == pointer);
    if answer == cudaError_t::cudaSuccess {
        say!("free of the second: {}", name(ask!(cudaFreeAsync(twice, s))));
    }
    // What cudaFree of pool memory leaves to the caller.
    imported.stream.synchronize();
    say!("cudaFree of the first: {}", name(ask!(cudaFree(pointer))));
    say!("cudaFree again: {}", name(ask!(cudaFree(pointer))));
    let answer = ask!(cudaMemPoolImportPointer(&mut twice, pool, &mut data));
    say!("import after the free: {}, same {}", name(answer), twice == pointer);
    let destroyed = ask!(cudaMemPoolDestroy(pool));
    std::mem::forget(imported.pool);
    say!("destroy with a live pointer: {}", name(destroyed));
    say!("free then: {}", name(ask!(cudaFreeAsync(twice, s))));
    say!("free again: {}", name(ask!(cudaFreeAsync(twice, s))));
    say!("sync: {}", name(ask!(cudaStreamSynchronize(s))));
}

fn access(pool: cudaMemPool_t, mut location: cudaMemLocation) -> (cudaError_t, u32) {
    let mut flags = cudaMemAccessFlags(99);
    (ask!(cudaMemPoolGetAccess(&mut flags, pool, &mut location)), flags.0)
}
