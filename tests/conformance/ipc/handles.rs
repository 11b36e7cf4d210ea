//! Pool handles and pointer exports, as far as one process can tell.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;

use crate::support::answer::name;
use crate::support::ipc::{export_pointer, export_pool, fd_as_handle, import_pointer, import_pool};
use crate::support::pool::attribute_of;
use crate::support::prelude::*;

area! {
    isolated: [
        pool_without_handle_type_is_not_exported,
        default_pool_is_not_exported,
        exported_fd_is_inherited_by_a_new_program,
        pointer_of_a_pool_without_handle_type_is_not_exported,
        pointer_of_malloc_memory_is_not_exported,
        pointer_is_not_exported_before_its_pool,
        first_export_leaves_a_descriptor_with_the_pool,
        import_of_what_is_no_pool_is_an_unknown_error,
        import_of_descriptor_0_is_refused,
        import_in_the_exporting_process_makes_another_pool,
        pointer_imported_in_the_exporting_process_is_another_address,
        all_zero_pointer_is_not_imported,
        fabric_pool_is_exported_where_the_machine_permits,
    ],
    questions: [fabric_pool_step_by_step,
        fabric_export_to_an_odd_address, imported_pool_in_one_process, odd_handles, interior_pointer, foreign_pointer_data],
}

#[track_caller]
fn is_not_exported(pool: cudaMemPool_t) {
    let mut fd = -7;
    let out = std::ptr::from_mut(&mut fd).cast();
    answers!(cudaMemPoolExportToShareableHandle(out, pool, FD, 0) => cudaErrorInvalidValue);
    assert_eq!(fd, -7, "the out value is untouched");
}

fn pool_without_handle_type_is_not_exported() -> Outcome {
    is_not_exported(Pool::device().raw());
    Ok(())
}

fn default_pool_is_not_exported() -> Outcome {
    let mut pool = null_mut();
    ok!(cudaDeviceGetDefaultMemPool(&mut pool, 0));
    is_not_exported(pool);
    Ok(())
}

fn exported_fd_is_inherited_by_a_new_program() -> Outcome {
    let pool = Pool::device_for_ipc()?;
    let fd = export_pool(&pool);
    // SAFETY: asks for flags alone.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, 0);
    Ok(())
}

#[track_caller]
fn pointer_is_not_exported(pointer: *mut c_void) {
    let mut data = cudaMemPoolPtrExportData { reserved: [0; 64] };
    answers!(cudaMemPoolExportPointer(&mut data, pointer) => cudaErrorInvalidValue);
}

fn pointer_of_a_pool_without_handle_type_is_not_exported() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    pointer_is_not_exported(memory.ptr());
    Ok(())
}

fn pointer_of_malloc_memory_is_not_exported() -> Outcome {
    pointer_is_not_exported(Malloced::new(100).ptr());
    Ok(())
}

fn pointer_is_not_exported_before_its_pool() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    pointer_is_not_exported(memory.ptr());
    drop(export_pool(&pool));
    export_pointer(memory.ptr());
    Ok(())
}

fn first_export_leaves_a_descriptor_with_the_pool() -> Outcome {
    let open = || std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    let stream = Stream::new();
    // What the runtime opens for the whole process.
    drop(export_pool(&Pool::device_for_ipc()?));
    let pool = Pool::device_for_ipc()?;
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    let before = open();
    for _ in 0..2 {
        drop(export_pool(&pool));
        assert_eq!(open(), before + 1);
    }
    export_pointer(memory.ptr());
    assert_eq!(open(), before + 1);
    memory.free();
    stream.synchronize();
    drop(pool);
    assert!(open() <= before, "it goes with the pool");
    Ok(())
}

fn import_of_descriptor_0_is_refused() -> Outcome {
    machine::shares_by_fd()?;
    let mut pool = null_mut();
    answers!(cudaMemPoolImportFromShareableHandle(&mut pool, fd_as_handle(0), FD, 0) => cudaErrorInvalidValue);
    Ok(())
}

fn import_of_what_is_no_pool_is_an_unknown_error() -> Outcome {
    machine::shares_by_fd()?;
    let null_device = File::open("/dev/null").expect("there is a null device");
    let (socket, _other_end) = UnixStream::pair().expect("a socket pair");
    const CLOSED: i32 = 900;
    // SAFETY: asks for flags alone.
    assert_eq!(unsafe { libc::fcntl(CLOSED, libc::F_GETFD) }, -1, "{CLOSED} is not open");
    for fd in [-1, CLOSED, null_device.as_raw_fd(), socket.as_raw_fd()] {
        let mut pool = null_mut();
        answers!(cudaMemPoolImportFromShareableHandle(&mut pool, fd_as_handle(fd), FD, 0) => cudaErrorUnknown);
    }
    Ok(())
}

fn import_in_the_exporting_process_makes_another_pool() -> Outcome {
    let pool = Pool::device_for_ipc()?;
    let fd = export_pool(&pool);
    let imported = import_pool(fd.as_fd());
    assert_ne!(imported.raw(), pool.raw());
    // SAFETY: asks for flags alone.
    assert!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) } >= 0, "the descriptor stays open");
    Ok(())
}

fn pointer_imported_in_the_exporting_process_is_another_address() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = pool.alloc(100, &stream);
    ok!(cudaMemsetAsync(memory.ptr(), 9, 100, stream.raw()));
    stream.synchronize();
    let imported = import_pool(export_pool(&pool).as_fd());
    let pointer = import_pointer(&imported, &export_pointer(memory.ptr()));
    assert_ne!(pointer, memory.ptr());
    let bytes: [u8; 100] = crate::support::ipc::copied_from(pointer, &stream);
    assert_eq!(bytes, [9; 100]);
    ok!(cudaFreeAsync(pointer, stream.raw()));
    stream.synchronize();
    Ok(())
}

fn all_zero_pointer_is_not_imported() -> Outcome {
    let pool = Pool::device_for_ipc()?;
    let imported = import_pool(export_pool(&pool).as_fd());
    let mut pointer = null_mut();
    let mut data = cudaMemPoolPtrExportData { reserved: [0; 64] };
    answers!(cudaMemPoolImportPointer(&mut pointer, imported.raw(), &mut data) => cudaErrorInvalidValue);
    Ok(())
}

fn fabric_pool() -> Result<Pool, Skip> {
    if machine::pools_have(FABRIC) {
        Ok(Pool::on_device(0, FABRIC))
    } else {
        Skip::because("device 0 has no pools with fabric handles")
    }
}

/// More than the room that a fabric handle needs, aligned for any way to write it.
#[repr(align(64))]
struct Room([u8; 128]);

/// Without IMEX its handle is `NotPermitted`; it can be allocated from all the same.
fn fabric_pool_is_exported_where_the_machine_permits() -> Outcome {
    let stream = Stream::new();
    let pool = fabric_pool()?;
    let mut handle = Room([0; 128]);
    let out = handle.0.as_mut_ptr().cast();
    answers!(
        cudaMemPoolExportToShareableHandle(out, pool.raw(), FABRIC, 0) => cudaErrorNotPermitted | cudaSuccess
    );
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    // Not measured: whether such memory and such a pool can be given back.
    std::mem::forget((memory, pool));
    Ok(())
}

/// Each step may end the process: the last line tells how far it came.
fn fabric_pool_step_by_step() -> Outcome {
    let stream = Stream::new();
    let pool = fabric_pool()?;
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    say!("allocated");
    memory.free();
    stream.synchronize();
    say!("freed");
    pool.destroy();
    say!("destroyed");
    let pool = fabric_pool()?;
    let mut handle = Room([0; 128]);
    let out = handle.0.as_mut_ptr().cast();
    say!("export, aligned: {}", name(ask!(cudaMemPoolExportToShareableHandle(out, pool.raw(), FABRIC, 0))));
    pool.destroy();
    say!("destroyed");
    let pool = fabric_pool()?;
    let memory = pool.alloc(100, &stream);
    stream.synchronize();
    say!("export after alloc: {}", name(ask!(cudaMemPoolExportToShareableHandle(out, pool.raw(), FABRIC, 0))));
    memory.free();
    stream.synchronize();
    say!("freed");
    Ok(())
}

/// May end the process.
fn fabric_export_to_an_odd_address() -> Outcome {
    let _stream = Stream::new();
    let pool = fabric_pool()?;
    let mut handle = Room([0; 128]);
    let odd = handle.0.as_mut_ptr().wrapping_add(1).cast();
    say!("export: {}", name(ask!(cudaMemPoolExportToShareableHandle(odd, pool.raw(), FABRIC, 0))));
    Ok(())
}

/// The same as another process is answered, or not.
fn imported_pool_in_one_process() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = pool.alloc(1000, &stream);
    stream.synchronize();
    let data = export_pointer(memory.ptr());
    let imported = import_pool(export_pool(&pool).as_fd());
    let pointer = import_pointer(&imported, &data);
    let mut out = null_mut();
    let answer = ask!(cudaMallocFromPoolAsync(&mut out, 100, imported.raw(), stream.raw()));
    say!("alloc: {}, out {out:?}", name(answer));
    say!("trim: {}", name(ask!(cudaMemPoolTrimTo(imported.raw(), 0))));
    say!("set as current pool: {}", name(ask!(cudaDeviceSetMemPool(0, imported.raw()))));
    let again = import_pool(export_pool(&pool).as_fd());
    say!("second import of the pool: same handle {}", again.raw() == imported.raw());
    let (mut twice, mut same) = (null_mut(), data);
    let answer = ask!(cudaMemPoolImportPointer(&mut twice, again.raw(), &mut same));
    say!("the pointer through the second import: {}, same address {}", name(answer), twice == pointer);
    let mut from_own = null_mut();
    let answer = ask!(cudaMemPoolImportPointer(&mut from_own, pool.raw(), &mut same));
    say!("the pointer through the exporting pool: {}", name(answer));
    say!("export of the imported pointer: {:?}", {
        let mut data = data;
        name(ask!(cudaMemPoolExportPointer(&mut data, pointer)))
    });
    say!("used of the exporter meanwhile: {}", attribute_of(pool.raw(), USED));
    let destroyed = ask!(cudaMemPoolDestroy(imported.raw()));
    std::mem::forget(imported);
    say!("destroy of the import with a live pointer: {}", name(destroyed));
    say!("free of the pointer then: {}", name(ask!(cudaFreeAsync(pointer, stream.raw()))));
    say!("free again: {}", name(ask!(cudaFreeAsync(pointer, stream.raw()))));
    Ok(())
}

fn odd_handles() -> Outcome {
    let pool = Pool::device_for_ipc()?;
    let mut fd = -7;
    let out: *mut c_void = std::ptr::from_mut(&mut fd).cast();
    say!("flags 1: {}", name(ask!(cudaMemPoolExportToShareableHandle(out, pool.raw(), FD, 1))));
    say!("type none: {}", name(ask!(cudaMemPoolExportToShareableHandle(out, pool.raw(), NO_HANDLE, 0))));
    say!("type fabric: {}", name(ask!(cudaMemPoolExportToShareableHandle(out, pool.raw(), FABRIC, 0))));
    say!("null out: {}", name(ask!(cudaMemPoolExportToShareableHandle(null_mut(), pool.raw(), FD, 0))));
    say!("null pool: {}", name(ask!(cudaMemPoolExportToShareableHandle(out, null_mut(), FD, 0))));
    let handle = fd_as_handle(export_pool(&pool).into_raw_fd());
    let mut imported = null_mut();
    say!("import, flags 1: {}", name(ask!(cudaMemPoolImportFromShareableHandle(&mut imported, handle, FD, 1))));
    say!("import, type none: {}", {
        name(ask!(cudaMemPoolImportFromShareableHandle(&mut imported, handle, NO_HANDLE, 0)))
    });
    say!("import, null out: {}", name(ask!(cudaMemPoolImportFromShareableHandle(null_mut(), handle, FD, 0))));
    let mut data = cudaMemPoolPtrExportData { reserved: [0; 64] };
    say!("export null pointer: {}", name(ask!(cudaMemPoolExportPointer(&mut data, null_mut()))));
    say!("export to null: {}", name(ask!(cudaMemPoolExportPointer(null_mut(), handle))));
    let mut pointer = null_mut();
    say!("import through null pool: {}", name(ask!(cudaMemPoolImportPointer(&mut pointer, null_mut(), &mut data))));
    say!("import of null data: {}", name(ask!(cudaMemPoolImportPointer(&mut pointer, pool.raw(), null_mut()))));
    // More than one export of one pool.
    let (first, second) = (export_pool(&pool), export_pool(&pool));
    say!("two exports: different descriptors {}", first.as_raw_fd() != second.as_raw_fd());
    let link = std::fs::read_link(format!("/proc/self/fd/{}", first.as_raw_fd()));
    say!("what the descriptor is: {link:?}");
    Ok(())
}

fn interior_pointer() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device_for_ipc()?;
    let memory = pool.alloc(4096, &stream);
    stream.synchronize();
    let mut data = cudaMemPoolPtrExportData { reserved: [0; 64] };
    let answer = ask!(cudaMemPoolExportPointer(&mut data, memory.at(256)));
    let same = data.reserved == export_pointer(memory.ptr()).reserved;
    say!("export of an interior pointer: {}, the same as the base's {same}", name(answer));
    let again = export_pointer(memory.ptr()).reserved == export_pointer(memory.ptr()).reserved;
    say!("two exports of one pointer are the same: {again}");
    let freed = memory.ptr();
    memory.free();
    stream.synchronize();
    say!("export of a freed pointer: {}", name(ask!(cudaMemPoolExportPointer(&mut data, freed))));
    Ok(())
}

/// Data of one pool given to another, damaged data, data of freed memory.
fn foreign_pointer_data() -> Outcome {
    let stream = Stream::new();
    let (pool, other) = (Pool::device_for_ipc()?, Pool::device_for_ipc()?);
    let memory = pool.alloc(4096, &stream);
    let others = other.alloc(4096, &stream);
    stream.synchronize();
    let imported = import_pool(export_pool(&pool).as_fd());
    let mut pointer = null_mut();
    let mut data = export_pointer(others.ptr());
    let answer = ask!(cudaMemPoolImportPointer(&mut pointer, imported.raw(), &mut data));
    say!("data of another pool: {}, out {pointer:?}", name(answer));
    let mut stale = export_pointer(memory.ptr());
    memory.free();
    stream.synchronize();
    let answer = ask!(cudaMemPoolImportPointer(&mut pointer, imported.raw(), &mut stale));
    say!("data of freed memory: {}", name(answer));
    Ok(())
}
