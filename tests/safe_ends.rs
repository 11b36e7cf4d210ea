//! How things end: whatever is dropped first, wherever, and however the process or thread goes.
//!
//! What concerns a whole process runs in a child: this program started again for one test.

#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use cuda_mempool::{on_drop_error, sys, Access, Device, DeviceBuffer, ErrorKind, Event, Location, MemPool, Stream};
use sim::{device, must, Live};

fn stream_and_pool() -> (Stream, MemPool) {
    (must(Stream::new(device(0))), must(MemPool::builder(device(0)).build()))
}

#[test]
fn handles_can_be_dropped_in_any_order() {
    let Some(sim) = sim::alone(1) else { return };
    for order in 0..6 {
        let (stream, pool) = stream_and_pool();
        let buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
        let (mut stream, mut pool, mut buffer) = (Some(stream), Some(pool), Some(buffer));
        for step in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][order] {
            match step {
                0 => drop(stream.take()),
                1 => drop(pool.take()),
                _ => drop(buffer.take()),
            }
            // What is left goes on working.
            if let Some(buffer) = &buffer {
                assert_eq!(must(buffer.to_vec()), [0; 100]);
            }
        }
        assert_eq!(sim.new_live(), Live::default());
    }
    assert_eq!(sim::heard(), []);
}

#[test]
fn many_buffers_dropped_leave_nothing_in_use() {
    let Some(_sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    for length in 0..1000 {
        drop(must(pool.alloc::<u8>(&stream, length)));
    }
    must(stream.synchronize());
    assert_eq!(must(pool.usage()).used, 0);
}

#[test]
fn dropping_does_not_depend_on_the_current_device() {
    let Some(sim) = sim::alone(2) else { return };
    let (stream, pool) = stream_and_pool();
    let buffers = [&stream, &Stream::legacy(device(0))].map(|stream| must(pool.alloc::<u8>(stream, 100)));
    must(device(1).with_current(|| {
        drop(buffers);
        drop((stream, pool));
        assert_eq!(must(Device::current()), device(1));
    }));
    assert_eq!(sim::heard(), []);
    assert_eq!(sim.new_live(), Live::default());
}

#[test]
fn a_per_thread_buffer_dropped_elsewhere_waits_for_its_stream() {
    let Some(sim) = sim::alone(1) else { return };
    static DONE: AtomicBool = AtomicBool::new(false);
    let pool = must(MemPool::default_for(device(0)));
    let (send, receive) = std::sync::mpsc::channel();
    let owner = std::thread::spawn(move || {
        let stream = Stream::per_thread(device(0));
        let buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
        must(stream.launch_host_fn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            DONE.store(true, Ordering::SeqCst);
        }));
        send.send(buffer).unwrap();
    });
    let buffer = receive.recv().unwrap();
    assert_eq!(buffer.to_vec().unwrap_err().kind(), ErrorKind::WrongThread);
    drop(buffer);
    assert!(DONE.load(Ordering::SeqCst), "the drop waited");
    owner.join().unwrap();
    assert_eq!((sim.races(), sim::heard()), (0, vec![]));
}

#[test]
fn a_per_thread_buffer_can_be_brought_to_another_stream() {
    let Some(sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let mut buffer = {
        let pool = pool.clone();
        std::thread::spawn(move || must(pool.from_slice(&Stream::per_thread(device(0)), &[1_u8, 2, 3]))).join().unwrap()
    };
    must(buffer.set_stream(&stream));
    assert_eq!(must(buffer.to_vec()), [1, 2, 3]);
    // Another thread's stream is no place to go to.
    let theirs = std::thread::spawn(|| Stream::per_thread(device(0))).join().unwrap();
    assert_eq!(buffer.set_stream(&theirs).unwrap_err().kind(), ErrorKind::WrongThread);
    assert_eq!(must(buffer.to_vec()), [1, 2, 3]);
    assert_eq!(sim.races(), 0);
}

#[test]
fn a_panic_in_a_scope_waits_for_the_stream() {
    let Some(_sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope::<(), _>(|s| {
            s.launch_host_fn(|| std::thread::sleep(std::time::Duration::from_millis(20)))?;
            s.copy_to_host(&buffer, &mut output)?;
            panic!("in the middle of it")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(output, [7; 64], "the copy was done when the panic left the scope");
}

#[test]
fn a_panic_while_visiting_another_stream_keeps_the_order() {
    let Some(sim) = sim::alone(1) else { return };
    let ((stream, pool), other) = (stream_and_pool(), must(Stream::new(device(0))));
    let mut buffer = must(pool.alloc::<u32>(&stream, 64));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        buffer.with_stream(&other, |pointer| {
            // SAFETY: the buffer has 64 elements, and was brought to the stream.
            unsafe { sim.launch_fill(&other, pointer, 64, 9) };
            panic!("after the launch")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(must(buffer.to_vec()), [9; 64]);
    assert_eq!(sim.races(), 0, "{}", sim.last_race());
}

#[test]
fn host_functions_cannot_reach_cuda() {
    let Some(sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.alloc::<u8>(&stream, 100));
    let (send, receive) = std::sync::mpsc::channel();
    {
        let (stream, pool) = (stream.clone(), pool.clone());
        must(stream.clone().launch_host_fn(move || {
            send.send(pool.alloc::<u8>(&stream, 1).unwrap_err().kind()).unwrap();
            drop(buffer);
            panic!("caught")
        }));
    }
    must(stream.synchronize());
    assert_eq!(receive.recv(), Ok(ErrorKind::NotPermitted));
    let heard = sim::heard();
    assert!(heard.len() == 1 && heard[0].0 == "cudaFreeAsync", "{heard:?}");
    assert_eq!(sim.new_live().pool_allocations, 1, "what it held is leaked, not freed where that may hang");
}

#[test]
fn forgetting_is_only_a_leak() {
    let Some(sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
    std::mem::forget(stream.clone());
    assert_eq!(must(buffer.to_vec()), [0; 100]);
    std::mem::forget(buffer);
    assert_eq!((sim.races(), sim.new_live().pool_allocations), (0, 1));
}

#[test]
fn raw_handles_go_out_and_come_back() {
    let Some(sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let clone = stream.clone();
    let stream = stream.into_raw().expect_err("there is a clone");
    drop(clone);
    let buffer = must(pool.from_slice(&stream, &[1_u8, 2, 3]));
    let raw = buffer.into_raw();
    // SAFETY: it was just taken apart.
    let buffer = unsafe { DeviceBuffer::from_raw(raw) };
    assert_eq!(must(buffer.to_vec()), [1, 2, 3]);
    drop(buffer);

    let raw = stream.into_raw().expect("the only handle");
    // SAFETY: the stream is alive and ours.
    let borrowed = unsafe { Stream::from_raw_borrowed(raw, device(0)) };
    must(borrowed.synchronize());
    drop(borrowed);
    // SAFETY: as above.
    let stream = unsafe { Stream::from_raw(raw, device(0)) };
    let raw = pool.into_raw().expect("the only handle");
    // SAFETY: the pool is alive and ours.
    let pool = unsafe { MemPool::from_raw(raw, device(0)) };
    let event = must(Event::new(device(0)));
    let raw = event.into_raw().expect("the only handle");
    // SAFETY: the event is alive and ours.
    let event = unsafe { Event::from_raw(raw, device(0)) };
    drop((stream, pool, event));
    assert_eq!(sim.new_live(), Live::default());
}

/// Runs `child` of this program in a process of its own.
fn in_child(name: &str) -> Output {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", "child", "--nocapture", "--include-ignored"])
        .env("SAFE_ENDS_CHILD", name)
        .output()
        .expect("the child starts");
    println!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
#[ignore = "run by the others in a process of its own"]
fn child() {
    match std::env::var("SAFE_ENDS_CHILD").as_deref() {
        Ok("statics") => statics(),
        Ok("fork") => fork(),
        Ok("cannot wait") => cannot_wait(),
        _ => panic!("not called by a test"),
    }
}

#[test]
fn statics_and_thread_locals_end_with_the_process() {
    let Some(_sim) = sim::alone(1) else { return };
    let output = in_child("statics");
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("dropping failed"));
}

fn statics() {
    static HELD: OnceLock<Mutex<DeviceBuffer<u8>>> = OnceLock::new();
    thread_local! {
        static MINE: RefCell<Vec<DeviceBuffer<u8>>> = const { RefCell::new(Vec::new()) };
    }
    on_drop_error(|error| eprintln!("dropping failed: {error}"));
    let (stream, pool) = stream_and_pool();
    HELD.get_or_init(|| Mutex::new(must(pool.alloc(&stream, 100))));
    let mut mine = must(pool.alloc(&stream, 100));
    // Keeps an event in this thread, whose end may come before or after the buffer's.
    must(mine.set_stream(&must(Stream::new(device(0)))));
    MINE.with(|list| list.borrow_mut().push(mine));
    // Its own destructors run at the end of the process, after main.
    std::mem::forget(stream);
}

#[test]
fn a_forked_child_drops_without_a_call() {
    let Some(_sim) = sim::alone(1) else { return };
    assert!(in_child("fork").status.success());
}

fn fork() {
    let sim = sim::alone(1).expect("the parent saw it");
    let (stream, pool) = stream_and_pool();
    let event = must(Event::new(device(0)));
    let buffer = must(pool.from_slice(&stream, &[1_u8, 2, 3]));
    let mut output = [0; 3];
    // SAFETY: the child only drops and leaves.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let before = sim.all_calls();
        let refused = buffer.copy_to_host(&mut output).unwrap_err().kind() == ErrorKind::NotPermitted;
        let scoped = stream.scope(|_| Ok(())).is_ok();
        let closed = buffer.close().is_ok();
        drop((event, pool, stream));
        let quiet = sim.all_calls() == before && sim::heard().is_empty();
        // SAFETY: ends the child without the parent's hooks.
        unsafe { libc::_exit(if refused && scoped && closed && quiet { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is ours and the out pointer valid.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert!(libc::WIFEXITED(status), "the child ended with {status}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child called, or was told of an error");
    must(buffer.copy_to_host(&mut output));
    assert_eq!(output, [1, 2, 3], "the parent goes on");
}

/// When no way of waiting works, the process ends rather than give the memory back.
#[test]
fn a_scope_that_cannot_wait_ends_the_process() {
    let Some(_sim) = sim::alone(1) else { return };
    let output = in_child("cannot wait");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot wait for work that uses borrowed memory"), "{text}");
    assert!(!text.contains("returned"), "{text}");
}

fn cannot_wait() {
    let sim = sim::alone(1).expect("the parent saw it");
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    sim.add_fault("cudaStreamSynchronize%1=999,cudaDeviceSynchronize%1=999");
    let _ = stream.scope(|s| s.copy_to_host(&buffer, &mut output));
    eprintln!("returned");
}

/// A context that is broken runs nothing any more: the scope returns its error.
#[test]
fn a_scope_on_a_broken_device_returns() {
    let Some(sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    let result = stream.scope(|s| {
        s.copy_to_host(&buffer, &mut output)?;
        sim.add_fault("cudaStreamQuery#1=700!");
        s.stream().query().map(drop)
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::DeviceFault);
    drop((buffer, pool, stream));
    assert!(sim::heard().iter().all(|told| told.1 == 700), "drops are told of the fault");
}

#[test]
fn a_pool_gives_its_peers_up_when_nothing_uses_it() {
    let Some(sim) = sim::alone(2) else { return };
    let pool = must(MemPool::builder(device(0)).grant(device(1), Access::ReadWrite).build());
    let stream = must(Stream::new(device(0)));
    let buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
    let calls = sim.calls("cudaMemPoolSetAccess");
    drop(pool);
    assert_eq!(sim.calls("cudaMemPoolSetAccess"), calls, "the buffer may be in use by the peer");
    drop(buffer);

    let pool = must(MemPool::builder(device(0)).grant(device(1), Access::ReadWrite).build());
    let calls = sim.calls("cudaMemPoolSetAccess");
    drop(pool);
    assert_eq!(sim.calls("cudaMemPoolSetAccess"), calls + 1);
    // New pools start with nothing, whatever the driver gave them.
    for location in [Location::Device(device(0)), Location::HostNuma(0)] {
        assert_eq!(must(must(MemPool::builder(location).build()).access(device(1))), Access::None);
    }
}

#[test]
fn a_hook_that_panics_stays_inside() {
    let Some(sim) = sim::alone(1) else { return };
    static PANIC: AtomicBool = AtomicBool::new(false);
    on_drop_error(|error| {
        assert!(!PANIC.load(Ordering::SeqCst), "{error}");
    });
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.alloc::<u8>(&stream, 100));
    sim.add_fault("cudaFreeAsync#1=999");
    PANIC.store(true, Ordering::SeqCst);
    drop(buffer);
    PANIC.store(false, Ordering::SeqCst);
    sim::tell_the_tests();
    assert_eq!(sim.new_live().pool_allocations, 1);
}

/// The end of the process is no failure: `cudaErrorCudartUnloading` is not told to anybody.
#[test]
fn an_unloading_runtime_is_success() {
    let Some(sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let buffers = [0; 2].map(|_: u8| must(pool.alloc::<u8>(&stream, 100)));
    let [first, second] = buffers;
    sim.add_fault(&format!("cudaFreeAsync%1={}", sys::cudaError_t::cudaErrorCudartUnloading.0));
    drop(first);
    assert!(second.close().is_ok());
    assert_eq!(sim::heard(), []);
}

/// Late in the end of the process, where nothing can be enqueued any more, nothing is waited for either.
#[test]
fn an_unloading_runtime_stops_nobody() {
    let Some(sim) = sim::alone(1) else { return };
    let (stream, pool) = stream_and_pool();
    let mut buffer = must(pool.from_slice(&stream, &[7_u8; 64]));
    let mut output = [0; 64];
    let own = Stream::per_thread(device(0));
    sim.add_fault("*%1=4");
    let copied = buffer.copy_to_host(&mut output);
    let scoped = stream.scope(|s| s.copy_to_host(&buffer, &mut output));
    let empty = stream.scope(|_| Ok(()));
    let moved = buffer.set_stream(&own);
    sim.clear_faults();
    for answer in [copied, scoped, empty, moved] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unloading);
    }
}
