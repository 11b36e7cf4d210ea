//! Forked children, and calls while the process ends.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::support::answer::name;
use crate::support::child::Peer;
use crate::support::link::Link;
use crate::support::prelude::*;

area! {
    // Where the hook was registered after the first call: what is registered last runs first.
    facts: [free_in_an_exit_hook_reaches_the_runtime, free_in_a_static_destructor_reaches_the_runtime],
    isolated: [forked_child_is_told_success_by_a_free, forked_child_cannot_ask_for_its_device],
    roles: [free_in_an_exit_hook, free_in_a_destructor, free_in_an_exit_hook_registered_first],
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
        let answered =
            libc::poll(&mut end, 1, 10_000) == 1 && libc::read(ends[0], std::ptr::from_mut(&mut answer).cast(), 4) == 4;
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
struct Left {
    memory: *mut c_void,
    stream: cudaStream_t,
    link: *mut Link,
}

/// Leaked by the role, for the hooks.
static LEFT: AtomicPtr<Left> = AtomicPtr::new(null_mut());

extern "C" fn exit_hook() {
    // SAFETY: what a role left, before the process began to end; nobody else uses it then.
    let left = unsafe { &mut *LEFT.load(Ordering::Acquire) };
    let answer = cu!(cudaFreeAsync(left.memory, left.stream));
    // SAFETY: the role never returns, so its link lives until the process has ended.
    let link = unsafe { &mut *left.link };
    link.send(&answer.0.to_ne_bytes());
}

extern "C" fn destructor(_object: *mut c_void) {
    exit_hook();
}

extern "C" {
    /// How a C++ compiler has the destructor of a static object called.
    fn __cxa_atexit(destructor: extern "C" fn(*mut c_void), object: *mut c_void, library: *mut c_void) -> i32;
}

fn register_exit_hook() {
    // SAFETY: the hook may run once `leave_memory` was called, and the process ends only after that.
    assert_eq!(unsafe { libc::atexit(exit_hook) }, 0);
}

fn register_destructor() {
    // SAFETY: as for the exit hook; there is no object, and the destructor is of the program itself.
    assert_eq!(unsafe { __cxa_atexit(destructor, null_mut(), null_mut()) }, 0);
}

/// Leaves memory for the exit hook.
fn leave_memory(link: &mut Link) {
    let stream = Stream::new();
    let memory = Memory::new(100, &stream).release();
    let left = Left { memory, stream: stream.raw(), link };
    LEFT.store(Box::into_raw(Box::new(left)), Ordering::Release);
    std::mem::forget(stream);
}

fn free_in_an_exit_hook(link: &mut Link) {
    leave_memory(link);
    register_exit_hook();
    std::process::exit(0)
}

fn free_in_a_destructor(link: &mut Link) {
    leave_memory(link);
    register_destructor();
    std::process::exit(0)
}

fn free_in_an_exit_hook_registered_first(link: &mut Link) {
    register_exit_hook();
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

fn free_in_an_exit_hook_reaches_the_runtime() -> Outcome {
    assert_eq!(answer_at_exit("free_in_an_exit_hook"), cudaError_t::cudaSuccess);
    Ok(())
}

fn free_in_a_static_destructor_reaches_the_runtime() -> Outcome {
    assert_eq!(answer_at_exit("free_in_a_destructor"), cudaError_t::cudaSuccess);
    Ok(())
}

fn exit_hook_registered_before_the_first_call() -> Outcome {
    say!("{}", name(answer_at_exit("free_in_an_exit_hook_registered_first")));
    Ok(())
}
