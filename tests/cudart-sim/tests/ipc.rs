//! Pools, memory and events shared between real processes, and peers that die.

mod common;
#[path = "common/peer.rs"]
mod peer;

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::time::Duration;

use common::*;
use cudart_sim::cuda::*;
use peer::*;

const SIZE: usize = 100_000;
const FD: cudaMemAllocationHandleType = cudaMemAllocationHandleType::cudaMemHandleTypePosixFileDescriptor;

fn export(pool: cudaMemPool_t) -> i32 {
    let mut fd = -1_i32;
    // SAFETY: the out pointer is valid for an int.
    ok(unsafe { cudaMemPoolExportToShareableHandle(std::ptr::addr_of_mut!(fd).cast(), pool, FD, 0) });
    fd
}

fn import(fd: i32) -> Result<cudaMemPool_t, cudaError> {
    let mut pool = null_mut();
    // SAFETY: the out pointer is valid.
    let answer = unsafe { cudaMemPoolImportFromShareableHandle(&mut pool, fd as usize as *mut c_void, FD, 0) };
    if answer == cudaError::cudaSuccess {
        Ok(pool)
    } else {
        Err(answer)
    }
}

fn export_pointer(pointer: *mut c_void) -> [u8; 64] {
    let mut blob = cudaMemPoolPtrExportData::default();
    // SAFETY: the out pointer is valid.
    ok(unsafe { cudaMemPoolExportPointer(&mut blob, pointer) });
    blob.reserved
}

fn import_pointer(pool: cudaMemPool_t, blob: [u8; 64]) -> Result<*mut c_void, cudaError> {
    let (mut pointer, mut blob) = (null_mut(), cudaMemPoolPtrExportData { reserved: blob });
    // SAFETY: the pointers are valid.
    match unsafe { cudaMemPoolImportPointer(&mut pointer, pool, &mut blob) } {
        cudaError::cudaSuccess => Ok(pointer),
        error => Err(error),
    }
}

fn read(pointer: *mut c_void, stream: cudaStream_t) -> Vec<u8> {
    let mut bytes = vec![0_u8; SIZE];
    // SAFETY: both ranges hold so many bytes.
    unsafe {
        ok(cudaMemcpyAsync(bytes.as_mut_ptr().cast(), pointer, SIZE, cudaMemcpyKind::cudaMemcpyDefault, stream));
        ok(cudaStreamSynchronize(stream));
    }
    bytes
}

fn shareable(props: cudaMemPoolProps) -> cudaMemPool_t {
    pool(&cudaMemPoolProps { handleTypes: FD, ..props })
}

/// An exported pool, an allocation full of 9, and a stream.
fn exported(props: cudaMemPoolProps) -> (cudaMemPool_t, *mut c_void, cudaStream_t) {
    let (pool, stream) = (shareable(props), stream());
    let spacer = allocate(pool, 1000, stream);
    let pointer = allocate(pool, SIZE, stream);
    // SAFETY: the pointers are live.
    unsafe {
        ok(cudaMemcpyAsync(pointer, [9_u8; SIZE].as_ptr().cast(), SIZE, cudaMemcpyKind::cudaMemcpyDefault, stream));
        ok(cudaFreeAsync(spacer, stream));
        ok(cudaStreamSynchronize(stream));
    }
    (pool, pointer, stream)
}

#[test]
fn bytes_and_order_pass_both_ways() {
    let _alone = alone();
    let mut peer = Peer::start("importer");
    let (pool, pointer, stream) = exported(device_props());
    let fd = export(pool);
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, 0, "close-on-exec is not set, as with CUDA");
    peer.socket.send_fd(fd);
    // SAFETY: the descriptor is this test's own; the pointers are live.
    unsafe {
        libc::close(fd);
        let ready = shared_event();
        let gate = Gate::on(stream);
        ok(cudaMemsetAsync(pointer, 4, SIZE, stream));
        ok(cudaEventRecord(ready, stream));
        peer.socket.send(export_pointer(pointer));
        peer.socket.send(handle(ready));
        assert_eq!(peer.socket.receive(), [b'w'], "the peer has submitted its wait");
        drop(gate);
        let done = open_event(peer.socket.receive()).unwrap();
        ok(cudaStreamWaitEvent(stream, done, 0));
        assert!(read(pointer, stream).iter().all(|byte| *byte == 5));
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaStreamSynchronize(stream));
        assert_eq!(attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrUsedMemCurrent), 0);
        peer.socket.send([b'k']);
        peer.join();
        ok(cudaEventDestroy(ready));
        ok(cudaEventDestroy(done));
        ok(cudaMemPoolDestroy(pool));
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn importer() {
    as_peer("importer", |mut socket| {
        // The import is the process's first call.
        let pool = import(socket.receive_fd()).unwrap();
        let pointer = import_pointer(pool, socket.receive()).unwrap();
        let ready = open_event(socket.receive()).unwrap();
        let stream = stream();
        // SAFETY: the pointers are live until they are freed.
        unsafe {
            ok(cudaStreamWaitEvent(stream, ready, 0));
            let done = shared_event();
            let mut staging = null_mut();
            ok(cudaHostAlloc(&mut staging, SIZE, 0));
            ok(cudaMemcpyAsync(staging, pointer, SIZE, cudaMemcpyKind::cudaMemcpyDefault, stream));
            ok(fill(stream, pointer, SIZE, 5));
            ok(cudaEventRecord(done, stream));
            assert_eq!(cudaStreamQuery(stream), cudaError::cudaErrorNotReady);
            socket.send([b'w']);
            socket.send(handle(done));
            let mut attributes = cudaPointerAttributes::default();
            ok(cudaPointerGetAttributes(&mut attributes, pointer));
            assert_eq!((attributes.type_, attributes.device), (cudaMemoryType::cudaMemoryTypeDevice, 0));
            ok(cudaFreeAsync(pointer, stream));
            ok(cudaStreamSynchronize(stream));
            assert!(std::slice::from_raw_parts(staging.cast::<u8>(), SIZE).iter().all(|byte| *byte == 4));
            ok(cudaMemPoolDestroy(pool));
            assert_eq!(socket.receive(), [b'k']);
        }
    });
}

#[test]
fn an_imported_pool_is_only_for_importing() {
    let _alone = alone();
    let (pool, pointer, stream) = exported(device_props());
    let fd = export(pool);
    let imported = import(fd).unwrap();
    assert_ne!(imported, pool);
    let invalid = cudaError::cudaErrorInvalidValue;
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        assert!(libc::fcntl(fd, libc::F_GETFD) >= 0, "the descriptor stays the caller's");
        let (mut out, mut word, mut fd2) = (null_mut(), 0_u64, -7);
        assert_eq!(cudaMallocFromPoolAsync(&mut out, 100, imported, stream), invalid);
        assert_eq!(cudaMemPoolTrimTo(imported, 0), invalid);
        let word: *mut c_void = std::ptr::addr_of_mut!(word).cast();
        for attribute in 1..9 {
            assert_eq!(cudaMemPoolGetAttribute(imported, cudaMemPoolAttr(attribute), word), invalid);
            assert_eq!(cudaMemPoolSetAttribute(imported, cudaMemPoolAttr(attribute), word), invalid);
        }
        let fd2_out: *mut c_void = std::ptr::addr_of_mut!(fd2).cast();
        assert_eq!(cudaMemPoolExportToShareableHandle(fd2_out, imported, FD, 0), invalid);
        assert_eq!(fd2, -7);
        let (mut flags, mut device) = (cudaMemAccessFlags(0), device_props().location);
        ok(cudaMemPoolGetAccess(&mut flags, imported, &mut device));
        assert_eq!(flags.0, 3);
        let grant = cudaMemAccessDesc { location: device, flags };
        ok(cudaMemPoolSetAccess(imported, &grant, 1));
        let own = import_pointer(imported, export_pointer(pointer)).unwrap();
        assert_ne!(own, pointer, "another mapping of the same bytes");
        assert!(read(own, stream).iter().all(|byte| *byte == 9));
        let mut blob = cudaMemPoolPtrExportData::default();
        assert_eq!(cudaMemPoolExportPointer(&mut blob, own), invalid);
        assert_eq!(import_pointer(imported, [0; 64]), Err(invalid));
        ok(cudaFree(own));
        ok(cudaMemPoolDestroy(imported));
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaMemPoolDestroy(pool));
        ok(cudaStreamDestroy(stream));
        libc::close(fd);
    }
}

#[test]
fn what_is_no_pool_cannot_be_imported() {
    let _alone = alone();
    let null = std::fs::File::open("/dev/null").unwrap();
    let socket = std::os::unix::net::UnixStream::pair().unwrap();
    for fd in [-1, 900, null.as_raw_fd(), socket.0.as_raw_fd()] {
        assert_eq!(import(fd), Err(cudaError::cudaErrorUnknown), "descriptor {fd}");
    }
    let (private, stream) = (pool(&device_props()), stream());
    let pointer = allocate(private, 100, stream);
    let mut fd = -7;
    let fd_out: *mut c_void = std::ptr::addr_of_mut!(fd).cast();
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        let invalid = cudaError::cudaErrorInvalidValue;
        assert_eq!(cudaMemPoolExportToShareableHandle(fd_out, private, FD, 0), invalid);
        let mut default = null_mut();
        ok(cudaDeviceGetDefaultMemPool(&mut default, 0));
        assert_eq!(cudaMemPoolExportToShareableHandle(fd_out, default, FD, 0), invalid);
        assert_eq!(fd, -7);
        let mut blob = cudaMemPoolPtrExportData::default();
        assert_eq!(cudaMemPoolExportPointer(&mut blob, pointer), invalid);
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaMemPoolDestroy(private));
        let fabric = cudaMemAllocationHandleType::cudaMemHandleTypeFabric;
        let fabric_pool = pool(&cudaMemPoolProps { handleTypes: fabric, ..device_props() });
        let mut handle = [0_u8; 64];
        let permitted = cudaMemPoolExportToShareableHandle(handle.as_mut_ptr().cast(), fabric_pool, fabric, 0);
        assert_eq!(permitted, cudaError::cudaErrorNotPermitted);
        ok(cudaMemPoolDestroy(fabric_pool));
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn a_duplicate_import_answers_as_measured() {
    let _alone = alone();
    for (role, props) in [("duplicate_device_importer", device_props()), ("duplicate_host_importer", host_numa_props())]
    {
        let mut peer = Peer::start(role);
        let (pool, pointer, stream) = exported(props);
        let fd = export(pool);
        peer.socket.send_fd(fd);
        peer.socket.send(export_pointer(pointer));
        let (status, said) = peer.end();
        if role == "duplicate_device_importer" {
            assert_eq!(status.signal(), Some(libc::SIGSEGV), "{said}");
            assert!(said.contains("imported twice and freed once"), "{said}");
        } else {
            assert!(status.success(), "{said}");
        }
        // SAFETY: the handles are live; the descriptor is this test's own.
        unsafe {
            ok(cudaFreeAsync(pointer, stream));
            ok(cudaMemPoolDestroy(pool));
            ok(cudaStreamDestroy(stream));
            libc::close(fd);
        }
    }
}

#[test]
fn duplicate_device_importer() {
    as_peer("duplicate_device_importer", |mut socket| {
        let (pool, stream) = (import(socket.receive_fd()).unwrap(), stream());
        let blob = socket.receive();
        let first = import_pointer(pool, blob).unwrap();
        assert_eq!(import_pointer(pool, blob), Ok(first));
        // SAFETY: the second import is live.
        ok(unsafe { cudaFreeAsync(first, stream) });
        read(first, stream);
    });
}

#[test]
fn duplicate_host_importer() {
    as_peer("duplicate_host_importer", |mut socket| {
        let (pool, stream) = (import(socket.receive_fd()).unwrap(), stream());
        let blob = socket.receive();
        let first = import_pointer(pool, blob).unwrap();
        assert_eq!(import_pointer(pool, blob), Err(cudaError::cudaErrorAlreadyMapped));
        // SAFETY: host memory of so many bytes.
        assert!(unsafe { std::slice::from_raw_parts(first.cast::<u8>(), SIZE) }.iter().all(|byte| *byte == 9));
        // SAFETY: the import is live.
        unsafe {
            ok(cudaFreeAsync(first, stream));
            ok(cudaStreamSynchronize(stream));
            assert!(import_pointer(pool, blob).is_ok(), "it can be imported again when it was freed");
        }
    });
}

#[test]
fn the_exporter_outlives_a_killed_importer() {
    let _alone = alone();
    let mut peer = Peer::start("idle_importer");
    let (pool, pointer, stream) = exported(device_props());
    let fd = export(pool);
    peer.socket.send_fd(fd);
    peer.socket.send(export_pointer(pointer));
    assert_eq!(peer.socket.receive(), [b'i']);
    peer.kill();
    // SAFETY: the handles are live; the descriptor is this test's own.
    unsafe {
        ok(cudaMemsetAsync(pointer, 7, SIZE, stream));
        ok(cudaStreamSynchronize(stream));
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaStreamSynchronize(stream));
        assert_eq!(attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrUsedMemCurrent), 0);
        ok(cudaMemPoolDestroy(pool));
        ok(cudaStreamDestroy(stream));
        libc::close(fd);
    }
}

#[test]
fn idle_importer() {
    as_peer("idle_importer", |mut socket| {
        let pool = import(socket.receive_fd()).unwrap();
        import_pointer(pool, socket.receive()).unwrap();
        socket.send([b'i']);
        std::thread::sleep(Duration::from_secs(60));
    });
}

#[test]
fn the_importer_outlives_a_killed_exporter() {
    let _alone = alone();
    let mut peer = Peer::start("exporter");
    let pool = import(peer.socket.receive_fd()).unwrap();
    let pointer = import_pointer(pool, peer.socket.receive()).unwrap();
    peer.kill();
    let stream = stream();
    assert!(read(pointer, stream).iter().all(|byte| *byte == 9));
    ok(fill(stream, pointer, SIZE, 3));
    assert!(read(pointer, stream).iter().all(|byte| *byte == 3));
    // SAFETY: the handles are live.
    unsafe {
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaStreamSynchronize(stream));
        ok(cudaMemPoolDestroy(pool));
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn exporter() {
    as_peer("exporter", |mut socket| {
        let (pool, pointer, _) = exported(device_props());
        socket.send_fd(export(pool));
        socket.send(export_pointer(pointer));
        std::thread::sleep(Duration::from_secs(60));
    });
}

#[test]
fn event_handles_are_checked() {
    let _alone = alone();
    assert_eq!(open_event([0; 64]), Err(cudaError::cudaErrorMapBufferObjectFailed));
    let (shared, plain) = (shared_event(), event());
    assert_eq!(open_event(handle(shared)), Err(cudaError::cudaErrorDeviceUninitialized));
    // SAFETY: the out pointers are valid.
    unsafe {
        let mut handle = cudaIpcEventHandle_t::default();
        assert_eq!(cudaIpcGetEventHandle(&mut handle, plain), cudaError::cudaErrorInvalidResourceHandle);
        let mut timed = null_mut();
        let answer = cudaEventCreateWithFlags(&mut timed, cudaEventInterprocess);
        assert_eq!(answer, cudaError::cudaErrorInvalidValue);
        ok(cudaEventDestroy(shared));
        ok(cudaEventDestroy(plain));
    }
}

#[test]
fn plain_memory_is_opened_by_its_handle() {
    let _alone = alone();
    let mut peer = Peer::start("opener");
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        let (mut pointer, mut handle, mut out) = (null_mut(), cudaIpcMemHandle_t::default(), null_mut());
        ok(cudaMalloc(&mut pointer, SIZE));
        ok(cudaMemset(pointer, 6, SIZE));
        // The handle of an address inside is that of the whole.
        ok(cudaIpcGetMemHandle(&mut handle, pointer.cast::<u8>().add(512).cast()));
        let uninitialised = cudaError::cudaErrorDeviceUninitialized;
        assert_eq!(cudaIpcOpenMemHandle(&mut out, handle, cudaIpcMemLazyEnablePeerAccess), uninitialised);
        let zero = cudaIpcMemHandle_t::default();
        let invalid = cudaError::cudaErrorInvalidValue;
        assert_eq!(cudaIpcOpenMemHandle(&mut out, zero, cudaIpcMemLazyEnablePeerAccess), invalid);
        let mut pooled = null_mut();
        ok(cudaMallocAsync(&mut pooled, SIZE, null_mut()));
        assert_eq!(cudaIpcGetMemHandle(&mut { handle }, pooled), invalid);
        ok(cudaFree(pooled));
        ok(cudaDeviceSynchronize());
        peer.socket.send(handle.reserved.map(|byte| byte as u8));
        assert_eq!(peer.socket.receive(), [b'w']);
        assert!(read(pointer, null_mut()).iter().all(|byte| *byte == 8));
        peer.join();
        ok(cudaFree(pointer));
    }
}

#[test]
fn opener() {
    as_peer("opener", |mut socket| {
        let handle = cudaIpcMemHandle_t { reserved: socket.receive().map(|byte: u8| byte as _) };
        // SAFETY: the pointers are valid for the calls.
        unsafe {
            let (mut pointer, mut again) = (null_mut(), null_mut());
            ok(cudaIpcOpenMemHandle(&mut pointer, handle, cudaIpcMemLazyEnablePeerAccess));
            ok(cudaIpcOpenMemHandle(&mut again, handle, cudaIpcMemLazyEnablePeerAccess));
            assert_eq!(pointer, again);
            ok(cudaIpcCloseMemHandle(again));
            assert!(read(pointer, null_mut()).iter().all(|byte| *byte == 6));
            ok(cudaMemset(pointer, 8, SIZE));
            ok(cudaDeviceSynchronize());
            socket.send([b'w']);
            assert_eq!(cudaFree(pointer), cudaError::cudaErrorInvalidValue);
            ok(cudaIpcCloseMemHandle(pointer));
            assert_eq!(cudaIpcCloseMemHandle(pointer), cudaError::cudaErrorInvalidValue);
        }
    });
}

/// `cuStreamWriteValue32` or `cuStreamWaitValue32`.
type ValueFunction = unsafe extern "C" fn(cudaStream_t, u64, u32, u32) -> u32;

fn entry_point(name: &std::ffi::CStr) -> ValueFunction {
    let (mut address, mut found) = (null_mut(), cudaDriverEntryPointQueryResult(9));
    // SAFETY: the pointers are valid; the functions asked for here have this type.
    unsafe {
        ok(cudaGetDriverEntryPointByVersion(name.as_ptr(), &mut address, 12000, 0, &mut found));
        assert_eq!(found, cudaDriverEntryPointQueryResult::cudaDriverEntryPointSuccess);
        std::mem::transmute(address)
    }
}

/// Maps a file's page and registers it.
fn page(fd: i32) -> *mut c_void {
    // SAFETY: a new mapping of an open file; the page stays mapped.
    unsafe {
        let page = libc::mmap(null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
        assert_ne!(page, libc::MAP_FAILED);
        ok(cudaHostRegister(page, 4096, cudaHostRegisterMapped | cudaHostRegisterPortable));
        let mut device = null_mut();
        ok(cudaHostGetDevicePointer(&mut device, page, 0));
        device
    }
}

#[test]
fn semaphores_in_shared_memory_order_processes_and_survive_a_death() {
    let _alone = alone();
    // SAFETY: a new file of this test's own, and live handles.
    unsafe {
        let fd = libc::memfd_create(c"semaphores".as_ptr(), 0);
        assert_eq!(libc::ftruncate(fd, 4096), 0);
        let (wait, write) = (entry_point(c"cuStreamWaitValue32"), entry_point(c"cuStreamWriteValue32"));
        let peer = Peer::start("semaphore_peer");
        peer.socket.send_fd(fd);
        let words = page(fd);
        let stream = stream();
        const GREATER_OR_EQUAL: u32 = 0;
        for round in 1..=100 {
            assert_eq!(write(stream, words as u64, round, 0), 0);
            assert_eq!(wait(stream, words as u64 + 64, round, GREATER_OR_EQUAL), 0);
        }
        assert!(settles(stream, Duration::from_secs(60)));
        // The peer promises 101 but dies; the survivor's CPU writes it.
        assert_eq!(wait(stream, words as u64 + 64, 101, GREATER_OR_EQUAL), 0);
        peer.kill();
        assert!(!settles(stream, Duration::from_millis(100)));
        (*words.cast::<std::sync::atomic::AtomicU32>().add(16)).store(101, std::sync::atomic::Ordering::Release);
        assert!(settles(stream, Duration::from_secs(20)));
        ok(cudaHostUnregister(words));
        ok(cudaStreamDestroy(stream));
        libc::close(fd);
    }
}

#[test]
fn semaphore_peer() {
    as_peer("semaphore_peer", |socket| {
        let words = page(socket.receive_fd());
        let (wait, write) = (entry_point(c"cuStreamWaitValue32"), entry_point(c"cuStreamWriteValue32"));
        let stream = stream();
        for round in 1..=100 {
            // SAFETY: live handles and registered memory.
            unsafe {
                assert_eq!(wait(stream, words as u64, round, 0), 0);
                assert_eq!(write(stream, words as u64 + 64, round, 0), 0);
            }
        }
        std::thread::sleep(Duration::from_secs(60));
    });
}
