//! Forked children, and calls while the process ends.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::support::answer::name;
use crate::support::child::Peer;
use crate::support::link::Link;
use crate::support::prelude::*;

area! {
    facts: [free_in_an_exit_hook_registered_after_the_first_call_reaches_the_runtime],
    isolated: [forked_child_is_told_success_by_a_free, forked_child_cannot_ask_for_its_device],
    roles: [free_at_exit, free_at_exit_registered_first],
    questions: [forked_child, exit_hook_registered_before_the_first_call],
}

/// Runs `call` in a forked child and gives its answer; none if the child does not end.
fn in_a_forked_child(call: impl FnOnce() -> cudaError_t) -> Option<cudaError_t> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child makes the one call, writes and leaves, and never returns to the suite.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let answer = call().0;
        // SAFETY: the descriptor is the pipe's, and the bytes are the answer's.
        unsafe {
            libc::alarm(20);
            libc::write(ends[1], std::ptr::from_ref(&answer).cast(), 4);
            libc::_exit(0);
        }
    }
    let mut answer = cudaError_t(0);
    let mut end = libc::pollfd { fd: ends[0], events: libc::POLLIN, revents: 0 };
    // SAFETY: the descriptors are the pipe's, the child is this process's, and the out values are valid.
    unsafe {
        libc::close(ends[1]);
        let answered = libc::poll(&mut end, 1, 10_000) == 1
            && libc::read(ends[0], std::ptr::from_mut(&mut answer).cast(), 4) == 4;
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, null_mut(), 0);
        libc::close(ends[0]);
        answered.then_some(answer)
    }
}

fn forked_child_is_told_success_by_a_free() -> Outcome {
    let stream = Stream::new();
    let memory = Memory::new(100, &stream);
    stream.synchronize();
    let answer = in_a_forked_child(|| cu!(cudaFreeAsync(memory.ptr(), stream.raw())));
    assert_eq!(answer, Some(cudaError_t::cudaSuccess));
    // It was not freed here.
    memory.free();
    stream.synchronize();
    Ok(())
}

fn forked_child_cannot_ask_for_its_device() -> Outcome {
    let _stream = Stream::new();
    let mut device = 0;
    let answer = in_a_forked_child(|| cu!(cudaGetDevice(&mut device)));
    assert_eq!(answer, Some(cudaError_t::cudaErrorInitializationError));
    Ok(())
}

fn forked_child() -> Outcome {
    let stream = Stream::new();
    let memory = Memory::new(100, &stream);
    stream.synchronize();
    let report = |what: &str, answer: Option<cudaError_t>| match answer {
        Some(answer) => say!("{what}: {}", name(answer)),
        None => say!("{what}: the child does not end or dies"),
    };
    let (mut number, mut pointer) = (0, null_mut());
    report("cudaGetDeviceCount", in_a_forked_child(|| cu!(cudaGetDeviceCount(&mut number))));
    report("cudaSetDevice", in_a_forked_child(|| cu!(cudaSetDevice(0))));
    report("cudaMallocAsync", in_a_forked_child(|| cu!(cudaMallocAsync(&mut pointer, 100, stream.raw()))));
    report("cudaMalloc", in_a_forked_child(|| cu!(cudaMalloc(&mut pointer, 100))));
    report("cudaStreamSynchronize", in_a_forked_child(|| cu!(cudaStreamSynchronize(stream.raw()))));
    report("cudaStreamQuery", in_a_forked_child(|| cu!(cudaStreamQuery(stream.raw()))));
    report("cudaGetLastError", in_a_forked_child(|| cu!(cudaGetLastError())));
    report("cudaRuntimeGetVersion", in_a_forked_child(|| cu!(cudaRuntimeGetVersion(&mut number))));
    report("cudaDriverGetVersion", in_a_forked_child(|| cu!(cudaDriverGetVersion(&mut number))));
    report("cudaFree", in_a_forked_child(|| cu!(cudaFree(memory.ptr()))));
    report("cudaStreamDestroy", in_a_forked_child(|| cu!(cudaStreamDestroy(stream.raw()))));
    Ok(())
}

/// What the exit hook frees, and where it reports.
static MEMORY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static STREAM: AtomicPtr<CUstream_st> = AtomicPtr::new(null_mut());
static LINK: AtomicPtr<Link> = AtomicPtr::new(null_mut());

extern "C" fn free() {
    let answer = cu!(cudaFreeAsync(MEMORY.load(Ordering::Relaxed), STREAM.load(Ordering::Relaxed)));
    // SAFETY: the link is leaked by the role that registers this hook, and used here alone.
    let link = unsafe { &mut *LINK.load(Ordering::Relaxed) };
    link.send(&answer.0.to_ne_bytes());
}

fn register() {
    // SAFETY: the hook may run at any time after `leave_memory`, which comes before the exit.
    assert_eq!(unsafe { libc::atexit(free) }, 0);
}

/// Leaves memory for the exit hook.
fn leave_memory(link: &mut Link) {
    LINK.store(link, Ordering::Relaxed);
    let stream = Stream::new();
    STREAM.store(stream.raw(), Ordering::Relaxed);
    MEMORY.store(Memory::new(100, &stream).release(), Ordering::Relaxed);
    std::mem::forget(stream);
}

fn free_at_exit(link: &mut Link) {
    leave_memory(link);
    register();
    std::process::exit(0)
}

fn free_at_exit_registered_first(link: &mut Link) {
    register();
    leave_memory(link);
    std::process::exit(0)
}

fn answer_at_exit(role: &str) -> cudaError_t {
    let mut peer = Peer::start(&AREA, role);
    let answer = peer.link.receive();
    let status = peer.exit();
    assert!(status.success(), "{status}");
    cudaError_t(u32::from_ne_bytes(answer.try_into().expect("four bytes")))
}

fn free_in_an_exit_hook_registered_after_the_first_call_reaches_the_runtime() -> Outcome {
    assert_eq!(answer_at_exit("free_at_exit"), cudaError_t::cudaSuccess);
    Ok(())
}

fn exit_hook_registered_before_the_first_call() -> Outcome {
    say!("{}", name(answer_at_exit("free_at_exit_registered_first")));
    Ok(())
}
