//! `cudaIpc*` memory: for what `cudaMalloc` gives, and for nothing else.

use crate::support::answer::name;
use crate::support::child::Peer;
use crate::support::link::Link;
use crate::support::prelude::*;

area! {
    isolated: [
        pool_memory_has_no_handle,
        malloc_memory_has_a_handle,
        handle_is_not_opened_in_its_own_process,
        all_zero_handle_is_not_opened,
        another_process_opens_the_memory,
    ],
    roles: [open_and_use, report_on_handles],
    questions: [opened_memory],
}

const SIZE: usize = 4096;

#[track_caller]
fn handle_of(memory: *mut c_void) -> cudaIpcMemHandle_t {
    let mut handle = cudaIpcMemHandle_t { reserved: [0; 64] };
    ok!(cudaIpcGetMemHandle(&mut handle, memory));
    handle
}

fn bytes_of(handle: cudaIpcMemHandle_t) -> [u8; 64] {
    handle.reserved.map(|byte| byte as u8)
}

fn receive(link: &mut Link) -> cudaIpcMemHandle_t {
    let bytes: [u8; 64] = link.receive().try_into().expect("64 bytes");
    cudaIpcMemHandle_t { reserved: bytes.map(|byte| byte as _) }
}

fn pool_memory_has_no_handle() -> Outcome {
    let stream = Stream::new();
    for pool in [Pool::device(), Pool::device_for_ipc()?] {
        let memory = pool.alloc(100, &stream);
        stream.synchronize();
        let mut handle = cudaIpcMemHandle_t { reserved: [0; 64] };
        answers!(cudaIpcGetMemHandle(&mut handle, memory.ptr()) => cudaErrorInvalidValue);
    }
    Ok(())
}

fn malloc_memory_has_a_handle() -> Outcome {
    let memory = Malloced::new(100);
    handle_of(memory.ptr());
    Ok(())
}

fn handle_is_not_opened_in_its_own_process() -> Outcome {
    let memory = Malloced::new(100);
    let (mut opened, handle) = (null_mut(), handle_of(memory.ptr()));
    answers!(
        cudaIpcOpenMemHandle(&mut opened, handle, cudaIpcMemLazyEnablePeerAccess) => cudaErrorDeviceUninitialized
    );
    Ok(())
}

fn all_zero_handle_is_not_opened() -> Outcome {
    let mut opened = null_mut();
    let zero = cudaIpcMemHandle_t { reserved: [0; 64] };
    answers!(cudaIpcOpenMemHandle(&mut opened, zero, cudaIpcMemLazyEnablePeerAccess) => cudaErrorInvalidValue);
    Ok(())
}

fn another_process_opens_the_memory() -> Outcome {
    let stream = Stream::new();
    let memory = Malloced::new(SIZE);
    ok!(cudaMemsetAsync(memory.ptr(), 9, SIZE, stream.raw()));
    stream.synchronize();
    let mut peer = Peer::start(&AREA, "open_and_use");
    peer.link.send(&bytes_of(handle_of(memory.ptr())));
    peer.finish()?;
    let bytes: [u8; SIZE] = crate::support::ipc::copied_from(memory.ptr(), &stream);
    assert_eq!(bytes, [5; SIZE]);
    Ok(())
}

fn open_and_use(link: &mut Link) {
    let handle = receive(link);
    let stream = Stream::new();
    let mut memory = null_mut();
    ok!(cudaIpcOpenMemHandle(&mut memory, handle, cudaIpcMemLazyEnablePeerAccess));
    let bytes: [u8; SIZE] = crate::support::ipc::copied_from(memory, &stream);
    assert_eq!(bytes, [9; SIZE]);
    ok!(cudaMemsetAsync(memory, 5, SIZE, stream.raw()));
    stream.synchronize();
    ok!(cudaIpcCloseMemHandle(memory));
}

fn opened_memory() -> Outcome {
    let memory = Malloced::new(SIZE);
    let base = handle_of(memory.ptr());
    let mut interior = cudaIpcMemHandle_t { reserved: [0; 64] };
    let answer = ask!(cudaIpcGetMemHandle(&mut interior, memory.ptr().wrapping_byte_add(256)));
    say!("handle of an interior pointer: {}, the base's {}", name(answer), bytes_of(interior) == bytes_of(base));
    let host = HostMemory::new(100);
    say!("handle of pinned host memory: {}", name(ask!(cudaIpcGetMemHandle(&mut interior, host.ptr()))));
    say!("close of own memory: {}", name(ask!(cudaIpcCloseMemHandle(memory.ptr()))));
    let mut peer = Peer::start(&AREA, "report_on_handles");
    peer.link.send(&bytes_of(base));
    peer.finish()
}

fn report_on_handles(link: &mut Link) {
    let handle = receive(link);
    let stream = Stream::new();
    let (mut first, mut second) = (null_mut(), null_mut());
    let lazy = cudaIpcMemLazyEnablePeerAccess;
    say!("open with flags 0: {}", name(ask!(cudaIpcOpenMemHandle(&mut first, handle, 0))));
    say!("open: {}", name(ask!(cudaIpcOpenMemHandle(&mut first, handle, lazy))));
    let answer = ask!(cudaIpcOpenMemHandle(&mut second, handle, lazy));
    say!("open again: {}, same {}", name(answer), first == second);
    say!("cudaFree: {}", name(ask!(cudaFree(first))));
    say!("cudaFreeAsync: {}", name(ask!(cudaFreeAsync(first, stream.raw()))));
    for what in ["close", "close again", "and again", "once more"] {
        say!("{what}: {}", name(ask!(cudaIpcCloseMemHandle(first))));
    }
}
