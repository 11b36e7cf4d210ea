//! How things end: whatever is dropped first, wherever, and however the process or thread goes.
//!
//! What concerns a whole process runs in a child: this program started again for one role.

#[path = "support/driver.rs"]
#[allow(dead_code)] // What the kernels use of it.
mod driver;
#[path = "support/kernel.rs"]
#[allow(dead_code)] // Two of its kernels are used here.
mod kernel;
#[path = "safe/launcher.rs"]
#[allow(dead_code)] // One of its kernels is used here.
mod launcher;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

use std::cell::RefCell;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use cuda_mempool::resource::{CudaAsyncMemoryResource, DeviceMemoryResource, ResourceId};
use cuda_mempool::{
    on_drop_error, sys, Access, Device, DeviceBuffer, Error, ErrorKind, Event, Feature, Location, MemPool, Stream,
};
use launcher::Launcher;
use sim::{device, must, Live};
use suite::{assert_unused, in_child, Outcome, Skip};

fn stream_and_pool() -> (Stream, MemPool) {
    (must(Stream::new(device(0))), must(MemPool::builder(device(0)).build()))
}

fn handles_can_be_dropped_in_any_order() -> Outcome {
    let watch = suite::watch(1)?;
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
        watch.assert_gone();
    }
    Ok(())
}

/// Drivers crash when a pool is destroyed whose memory is not all back.
fn a_pool_ends_when_its_memory_is_back() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool();
    let destroyed = || sim.calls("cudaMemPoolDestroy");
    let buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
    drop(pool.clone());
    must(pool.close().map_err(|(_, error)| error));
    must(device(0).synchronize());
    assert_eq!(must(buffer.to_vec()), [0; 100], "the memory stays");
    assert_eq!(destroyed(), 0, "a buffer is alive");
    drop(buffer);
    drop(must(MemPool::builder(device(0)).build()));
    assert_eq!(destroyed(), 1, "nobody has waited for the free: it is the new pool, of which there is nothing");
    must(stream.synchronize());
    drop(must(MemPool::builder(device(0)).build()));
    assert_eq!(destroyed(), 3, "the next pool finds that it is over");
    drop(stream);
    assert_eq!(sim.new_live(), Live::default());
    Ok(())
}

fn the_default_pool_takes_the_place_of_one_that_is_dropped() -> Outcome {
    let watch = suite::watch(1)?;
    let (stream, pool) = stream_and_pool();
    must(MemPool::set_current_for(device(0), &pool));
    let buffer = must(pool.alloc::<u8>(&stream, 100));
    drop(pool);
    assert_eq!(must(MemPool::current_for(device(0))), must(MemPool::default_for(device(0))));
    drop((buffer, stream));
    watch.assert_gone();
    Ok(())
}

/// Else dropping a pool would lose memory until somebody waits.
fn memory_of_dropped_pools_is_there_when_it_is_needed() -> Outcome {
    let watch = suite::watch(1)?;
    let (stream, pool) = stream_and_pool();
    let most = must(device(0).memory()).free / 4 * 3;
    drop(must(pool.alloc::<u8>(&stream, most)));
    drop(pool);
    let pool = must(MemPool::builder(device(0)).build());
    drop(must(pool.alloc::<u8>(&stream, most)));
    drop(pool);
    drop(must(DeviceBuffer::<u8>::unpooled(&stream, most)));
    drop(stream);
    watch.assert_gone();
    Ok(())
}

fn many_buffers_dropped_leave_nothing_in_use() -> Outcome {
    let watch = suite::watch(1)?;
    let (stream, pool) = stream_and_pool();
    for length in 0..1000 {
        drop(must(pool.alloc::<u8>(&stream, length)));
    }
    must(stream.synchronize());
    assert_unused([&pool]);
    watch.assert_well();
    Ok(())
}

fn dropping_does_not_depend_on_the_current_device() -> Outcome {
    let watch = suite::watch(2)?;
    let (stream, pool) = stream_and_pool();
    let buffers = [&stream, &Stream::legacy(device(0))]
        .map(|stream| (must(pool.alloc::<u8>(stream, 100)), must(DeviceBuffer::<u8>::unpooled(stream, 100))));
    must(device(1).with_current(|| {
        drop(buffers);
        assert_unused([&pool]);
        drop((stream, pool));
        assert_eq!(must(Device::current()), device(1));
    }));
    watch.assert_gone();
    Ok(())
}

fn a_per_thread_buffer_dropped_elsewhere_waits_for_its_stream() -> Outcome {
    if suite::sanitized() {
        return Skip::because("the order is that of cudaDeviceSynchronize, which compute-sanitizer does not know");
    }
    let watch = suite::watch(1)?;
    static DONE: AtomicBool = AtomicBool::new(false);
    let pool = must(MemPool::builder(device(0)).build());
    let (send, receive) = std::sync::mpsc::channel();
    let owner = std::thread::spawn({
        let pool = pool.clone();
        move || {
            let stream = Stream::per_thread(device(0));
            let buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
            must(stream.launch_host_fn(|| {
                std::thread::sleep(Duration::from_millis(50));
                DONE.store(true, Ordering::SeqCst);
            }));
            send.send(buffer).unwrap();
        }
    });
    let buffer = receive.recv().unwrap();
    assert_eq!(buffer.to_vec().unwrap_err().kind(), ErrorKind::WrongThread);
    drop(buffer);
    assert!(DONE.load(Ordering::SeqCst), "the drop waited");
    owner.join().unwrap();
    assert_unused([&pool]);
    watch.assert_well();
    Ok(())
}

fn a_per_thread_buffer_can_be_brought_to_another_stream() -> Outcome {
    if suite::sanitized() {
        return Skip::because("the order is that of cudaDeviceSynchronize, which compute-sanitizer does not know");
    }
    let watch = suite::watch(1)?;
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
    watch.assert_well();
    Ok(())
}

fn a_panic_while_visiting_another_stream_keeps_the_order() -> Outcome {
    let watch = suite::watch(1)?;
    let launcher = Launcher::new(watch.sim(), &[device(0)])?;
    let ((stream, pool), other) = (stream_and_pool(), must(Stream::new(device(0))));
    let mut buffer = must(pool.alloc::<u32>(&stream, 64));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        buffer.with_stream(&other, |pointer| {
            // SAFETY: the buffer has 64 elements, and was brought to the stream.
            unsafe { launcher.fill(&other, pointer, 64, 9) };
            panic!("after the launch")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(must(buffer.to_vec()), [9; 64]);
    watch.assert_well();
    Ok(())
}

fn host_functions_cannot_reach_cuda() -> Outcome {
    let _watch = suite::watch(1)?;
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.alloc::<u8>(&stream, 100));
    let event = must(Event::new(device(0)));
    let (send, receive) = std::sync::mpsc::channel();
    {
        let (device, stream, pool) = (device(0), stream.clone(), pool.clone());
        must(stream.clone().launch_host_fn(move || {
            let tried = [
                pool.alloc::<u8>(&stream, 1).map(drop),
                pool.usage().map(drop),
                pool.trim_to(0),
                pool.set_release_threshold(0),
                pool.access(device).map(drop),
                MemPool::default_for(device).map(drop),
                MemPool::set_current_for(device, &pool),
                MemPool::builder(device).build().map(drop),
                event.record(&stream),
                event.query().map(drop),
                event.synchronize(),
                event.elapsed_since(&event).map(drop),
                stream.synchronize(),
                Stream::new(device).map(drop),
                device.memory().map(drop),
                device.supports(Feature::MemoryPools).map(drop),
                device.synchronize(),
                device.trim_graph_memory(),
                Device::count().map(drop),
            ];
            send.send(tried.map(|refused| refused.unwrap_err().kind())).unwrap();
            drop(buffer);
            panic!("caught")
        }));
    }
    must(stream.synchronize());
    assert_eq!(receive.recv(), Ok([ErrorKind::NotPermitted; 19]));
    let heard: Vec<_> = sim::heard().into_iter().map(|(function, ..)| function).collect();
    assert_eq!(heard, ["cudaFreeAsync", "cudaEventDestroy"]);
    assert_eq!(must(pool.usage()).used, 100, "what it held is leaked, not freed where that may hang");
    Ok(())
}

/// What a capture does not let free is leaked and told: of its own stream, and of others if it is in global mode.
fn a_buffer_dropped_in_a_capture_is_leaked() -> Outcome {
    use sys::cudaStreamCaptureMode as Mode;
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool();
    let elsewhere = must(Stream::new(device(0)));
    for (mode, on, capturing) in [
        (Mode::cudaStreamCaptureModeThreadLocal, &stream, true),
        (Mode::cudaStreamCaptureModeGlobal, &elsewhere, false),
    ] {
        let buffer = must(pool.alloc::<u8>(on, 100));
        // SAFETY: the stream is alive, and the graph is never launched.
        let began = unsafe { sys::cudaStreamBeginCapture(stream.as_raw(), mode) };
        assert_eq!(began, sys::cudaError_t::cudaSuccess);
        assert_eq!(must(on.is_capturing()), capturing);
        std::thread::scope(|scope| scope.spawn(|| drop(buffer)).join().expect("dropping does not panic"));
        let told: Vec<_> = sim::heard().into_iter().map(|(function, ..)| function).collect();
        assert_eq!(told, ["cudaFreeAsync"], "{mode:?}");
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is alive, the out pointer valid, and the graph ours, if there is one.
        unsafe {
            sys::cudaStreamEndCapture(stream.as_raw(), &mut graph);
            if !graph.is_null() {
                sys::cudaGraphDestroy(graph);
            }
            sys::cudaGetLastError();
        }
    }
    assert_eq!(sim.new_live().bytes, 200);
    Ok(())
}

fn forgetting_is_only_a_leak() -> Outcome {
    let watch = suite::watch(1)?;
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
    std::mem::forget(stream.clone());
    assert_eq!(must(buffer.to_vec()), [0; 100]);
    std::mem::forget(buffer);
    assert_eq!(must(pool.usage()).used, 100);
    watch.assert_well();
    Ok(())
}

fn raw_handles_go_out_and_come_back() -> Outcome {
    let watch = suite::watch(1)?;
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
    assert_unused([&pool]);
    drop((stream, pool, event));
    watch.assert_gone();
    Ok(())
}

fn statics_and_thread_locals_end_with_the_process() -> Outcome {
    suite::device()?;
    let output = in_child("statics");
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("dropping failed"));
    Ok(())
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
    // Those of another thread end with it, and its own stream with them.
    std::thread::spawn({
        let pool = pool.clone();
        move || {
            let own = must(pool.alloc_zeroed(&Stream::per_thread(device(0)), 100));
            MINE.with(|list| list.borrow_mut().push(own));
        }
    })
    .join()
    .expect("the thread ends");
    must(device(0).synchronize());
    assert_eq!(must(pool.usage()).used, 200, "what that thread held is freed");
    // Its own destructors run at the end of the process, after main.
    std::mem::forget(stream);
}

fn a_forked_child_drops_without_a_call() -> Outcome {
    suite::device()?;
    assert!(in_child("fork").status.success());
    Ok(())
}

fn fork() {
    let watch = suite::watch(1).expect("the parent saw a device");
    let all_calls = || watch.sim().map(sim::Sim::all_calls);
    let (stream, pool) = stream_and_pool();
    let device = device(0);
    let event = must(Event::new(device));
    let mut buffer = Some(must(pool.from_slice(&stream, &[1_u8, 2, 3])));
    let mut output = [0; 3];
    let mut handles = Some((event, pool, stream.clone()));
    // SAFETY: the child only drops and leaves.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let before = all_calls();
        let refused = |error: Error| error.kind() == ErrorKind::NotPermitted;
        let wrong = [
            (!buffer.as_ref().is_some_and(|it| it.copy_to_host(&mut output).is_err_and(refused)), 1),
            (!stream.scope(|_| Ok(())).is_err_and(refused), 2),
            (!device.synchronize().is_err_and(refused), 4),
            (!buffer.take().is_some_and(|it| it.close().is_ok()), 8),
            (
                {
                    drop((handles.take(), stream));
                    all_calls() != before
                },
                16,
            ),
            (!sim::heard().is_empty(), 32),
        ];
        let code = wrong.iter().filter(|(wrong, _)| *wrong).map(|(_, bit)| bit).sum();
        // SAFETY: ends the child without the parent's hooks.
        unsafe { libc::_exit(code) };
    }
    assert_eq!(exit_code_of(pid), 0, "the sum of what the child found wrong");
    must(buffer.as_ref().expect("the parent's own").copy_to_host(&mut output));
    assert_eq!(output, [1, 2, 3], "the parent goes on");
    watch.assert_well();
}

fn exit_code_of(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the child is ours and the out pointer valid.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert!(libc::WIFEXITED(status), "the child ended with {status}");
    libc::WEXITSTATUS(status)
}

fn a_child_forked_where_a_device_was_made_current_puts_none_back() -> Outcome {
    suite::watch(2)?;
    assert!(in_child("fork_with_a_device").status.success());
    Ok(())
}

fn fork_with_a_device() {
    let watch = suite::watch(2).expect("the parent saw the devices");
    let all_calls = || watch.sim().map(sim::Sim::all_calls);
    let (mut pid, mut before) = (0, None);
    must(device(1).with_current(|| {
        // SAFETY: the child only drops and leaves.
        pid = unsafe { libc::fork() };
        before = all_calls();
    }));
    if pid == 0 {
        let quiet = all_calls() == before && sim::heard().is_empty();
        // SAFETY: ends the child without the parent's hooks.
        unsafe { libc::_exit(if quiet { 0 } else { 1 }) };
    }
    assert_eq!(exit_code_of(pid), 0, "the child called, or was told of an error");
    assert_eq!(must(Device::current()), device(0));
}

/// What is enqueued is done in the parent alone.
fn a_child_forked_in_a_scope_is_told_that_nothing_came_of_it() -> Outcome {
    suite::device()?;
    assert!(in_child("fork_in_a_scope").status.success());
    Ok(())
}

fn fork_in_a_scope() {
    let watch = suite::watch(1).expect("the parent saw a device");
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.from_slice(&stream, &[1_u8, 2, 3]));
    let (mut output, mut pid) = ([0; 3], 0);
    let answer = stream.scope(|s| {
        // SAFETY: the child only leaves the scope.
        pid = unsafe { libc::fork() };
        match pid {
            0 => Ok(()),
            _ => s.copy_to_host(&buffer, &mut output),
        }
    });
    if pid == 0 {
        let refused = answer.is_err_and(|error| error.kind() == ErrorKind::NotPermitted);
        // SAFETY: ends the child without the parent's hooks.
        unsafe { libc::_exit(if refused && sim::heard().is_empty() { 0 } else { 1 }) };
    }
    assert_eq!(exit_code_of(pid), 0, "the child took it for done");
    must(answer);
    assert_eq!(output, [1, 2, 3]);
    watch.assert_well();
}

fn a_pool_gives_its_peers_up_when_nothing_uses_it() -> Outcome {
    let sim = suite::simulated(2)?;
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
    // New pools start with nothing, whatever the driver gave them: here that is nothing, so who asks is counted.
    for (location, others) in [(Location::Device(device(0)), 1), (Location::HostNuma(0), 2)] {
        sim.reset();
        let pool = must(MemPool::builder(location).build());
        assert_eq!(sim.calls("cudaMemPoolGetAccess"), others, "each device but the owner");
        assert_eq!(must(pool.access(device(1))), Access::None);
    }
    Ok(())
}

fn a_hook_that_panics_stays_inside() -> Outcome {
    let sim = suite::simulated(1)?;
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
    assert_eq!((sim.new_live().pool_allocations, sim.new_live().bytes), (1, 100));
    Ok(())
}

/// Nor does the panic of a memory resource, which may be anybody's code, come out of a drop.
fn a_resource_that_panics_stays_inside() -> Outcome {
    struct Panicking(CudaAsyncMemoryResource);
    // SAFETY: blocks are those of the resource within, which it never gets back.
    unsafe impl DeviceMemoryResource for Panicking {
        fn allocate_async_aligned(
            &self,
            bytes: usize,
            alignment: usize,
            stream: &Stream,
        ) -> Result<NonNull<c_void>, Error> {
            self.0.allocate_async_aligned(bytes, alignment, stream)
        }
        unsafe fn deallocate_async_aligned(
            &self,
            _pointer: NonNull<c_void>,
            _bytes: usize,
            _alignment: usize,
            _stream: &Stream,
        ) -> Result<(), Error> {
            panic!("in a drop")
        }
        fn id(&self) -> ResourceId {
            self.0.id()
        }
        fn device(&self) -> Device {
            self.0.device()
        }
        fn trim(&self) -> Result<(), Error> {
            self.0.trim()
        }
    }
    impl Drop for Panicking {
        fn drop(&mut self) {
            panic!("in its own drop")
        }
    }
    suite::watch(1)?;
    let stream = must(Stream::new(device(0)));
    let resource = Arc::new(Panicking(must(CudaAsyncMemoryResource::new(Some(0), None, None))));
    let [dropped, closed] = [0; 2].map(|_: u8| must(DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, 100)));
    drop(dropped);
    let heard = sim::heard();
    assert!(heard.len() == 1 && heard[0].2.contains("the memory resource panicked"), "{heard:?}");
    let (closed, error) = closed.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    drop(resource);
    sim::heard();
    drop(closed);
    let heard = sim::heard();
    assert!(heard.len() == 2 && heard[1].2.contains("the memory resource panicked when it ended"), "{heard:?}");
    Ok(())
}

/// The end of the process is no failure: `cudaErrorCudartUnloading` is not told to anybody.
fn an_unloading_runtime_is_success() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool();
    let buffers = [0; 2].map(|_: u8| must(pool.alloc::<u8>(&stream, 100)));
    let [first, second] = buffers;
    sim.add_fault(&format!("cudaFreeAsync%1={}", sys::cudaError_t::cudaErrorCudartUnloading.0));
    drop(first);
    assert!(second.close().is_ok());
    assert_eq!(sim::heard(), []);
    Ok(())
}

fn a_borrowed_handle_gives_nothing_away() -> Outcome {
    let watch = suite::watch(1)?;
    let pool = must(MemPool::builder(device(0)).build());
    must(MemPool::set_current_for(device(0), &pool));
    // SAFETY: the pool outlives it.
    let borrowed = unsafe { MemPool::from_raw_borrowed(pool.as_raw(), device(0)) };
    assert_eq!(borrowed.into_raw().unwrap(), pool.as_raw());
    assert_eq!(must(MemPool::current_for(device(0))), pool, "it is still known to be ours");
    drop(pool);
    watch.assert_gone();
    Ok(())
}

/// A pool that can never end any more is given up.
fn a_broken_context_is_told_once_for_each_pool() -> Outcome {
    let sim = suite::simulated(1)?;
    let stream = must(Stream::new(device(0)));
    let pools = [0; 4].map(|_: u8| must(MemPool::builder(device(0)).build()));
    let buffers = pools.each_ref().map(|pool| must(pool.alloc::<u8>(&stream, 100)));
    let [first, second, third, fourth] = pools;
    drop((first, second));
    sim.add_fault("cudaMemPoolGetAttribute%1=719");
    sim.add_fault("cudaMemPoolTrimTo%1=719");
    must(device(0).synchronize());
    assert!(sim::heard().len() >= 2, "these, and what earlier tests have leaked");
    let (third, error) = third.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault);
    assert_eq!(sim::heard(), [], "close has returned it");
    for pool in [third, fourth] {
        drop(pool);
        must(device(0).synchronize());
        assert_eq!(sim::heard().len(), 1);
    }
    drop(buffers);
    Ok(())
}

/// Nor is what goes wrong with a pool, but may still come right, told again and again.
fn a_pool_that_cannot_end_yet_is_told_of_once() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool();
    let buffer = must(pool.alloc::<u8>(&stream, 100));
    drop((pool, buffer));
    sim.add_fault("cudaMemPoolTrimTo%1=900");
    for told in [1, 0] {
        must(device(0).synchronize());
        assert_eq!(sim::heard().len(), told);
    }
    sim.clear_faults();
    drop(stream);
    assert_eq!(sim.new_live(), Live::default(), "it has ended");
    assert_eq!(sim::heard(), []);
    Ok(())
}

/// Wherever it is freed and needed: to wait for the stream's device alone would not bring it back.
fn memory_of_dropped_pools_is_found_where_it_was_freed() -> Outcome {
    let watch = suite::watch(2)?;
    let streams = [0, 1].map(|ordinal| must(Stream::new(device(ordinal))));
    let most = must(device(0).memory()).free / 4 * 3;
    for (freed_on, needed_on) in [(0, 1), (1, 0), (1, 1)] {
        let pool = must(MemPool::builder(device(0)).build());
        let freed_on: &Stream = &streams[freed_on];
        must(freed_on.launch_host_fn(|| std::thread::sleep(Duration::from_millis(50))));
        drop(must(pool.alloc::<u8>(freed_on, most)));
        drop(pool);
        let pool = must(MemPool::builder(device(0)).build());
        drop(must(pool.alloc::<u8>(&streams[needed_on], most)));
        drop(pool);
        for stream in &streams {
            must(stream.synchronize());
        }
        must(device(0).synchronize());
    }
    drop(streams);
    watch.assert_gone();
    Ok(())
}

/// Buffers that live on do not keep what was freed beside them.
fn memory_beside_living_buffers_is_there_when_it_is_needed() -> Outcome {
    let watch = suite::watch(1)?;
    let (stream, pool) = stream_and_pool();
    let most = must(device(0).memory()).free / 4 * 3;
    let living = [100, most, 100].map(|length| must(pool.alloc::<u8>(&stream, length)));
    let [first, between, last] = living;
    drop((between, pool));
    let pool = must(MemPool::builder(device(0)).build());
    drop(must(pool.alloc::<u8>(&stream, most)));
    // But it is waited for once, and not whenever memory is short.
    if let Some(sim) = watch.sim() {
        let waits = || sim.calls("cudaDeviceSynchronize");
        let before = waits();
        for waited in [1, 1] {
            assert!(pool.alloc::<u8>(&stream, 1 << 50).is_err());
            assert_eq!(waits() - before, waited);
        }
    }
    drop((first, last, pool, stream));
    watch.assert_gone();
    Ok(())
}

/// Else it would be without end where what it drops fails, too.
fn a_hook_is_not_called_from_within_itself() -> Outcome {
    let sim = suite::simulated(1)?;
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    on_drop_error(|_| {
        if CALLS.fetch_add(1, Ordering::SeqCst) < 10 {
            drop(Event::new(device(0)));
        }
    });
    let event = must(Event::new(device(0)));
    sim.add_fault("cudaEventDestroy%1=999");
    drop(event);
    assert_eq!(CALLS.swap(0, Ordering::SeqCst), 1);
    drop(must(Event::new(device(0))));
    assert_eq!(CALLS.load(Ordering::SeqCst), 1, "it is called again");
    sim::tell_the_tests();
    Ok(())
}

/// Also when the stream's device, of which it is a default stream, could not be made current again.
fn memory_is_allocated_on_its_stream_after_waiting_for_other_devices() -> Outcome {
    let sim = suite::simulated(2)?;
    let (stream, elsewhere) = (Stream::legacy(device(0)), must(Stream::new(device(1))));
    let most = must(device(0).memory()).free / 4 * 3;
    let [dropped, pool] = [0; 2].map(|_: u8| must(MemPool::builder(device(0)).build()));
    must(elsewhere.launch_host_fn(|| std::thread::sleep(Duration::from_millis(50))));
    drop(must(dropped.alloc::<u8>(&elsewhere, most)));
    drop(dropped);
    sim.reset();
    sim.add_fault("cudaSetDevice#2=999");
    let mut buffer = must(pool.alloc::<u8>(&stream, most));
    assert_eq!(sim::heard().len(), 1, "of the device");
    must(buffer.zero());
    drop(buffer);
    assert_eq!(sim.races(), 0, "{}", sim.last_race());
    // SAFETY: any number may be given.
    assert_eq!(unsafe { sys::cudaSetDevice(0) }, sys::cudaError_t::cudaSuccess);
    Ok(())
}

suite! {
    tests: [
        handles_can_be_dropped_in_any_order,
        a_pool_ends_when_its_memory_is_back,
        the_default_pool_takes_the_place_of_one_that_is_dropped,
        memory_of_dropped_pools_is_there_when_it_is_needed,
        many_buffers_dropped_leave_nothing_in_use,
        dropping_does_not_depend_on_the_current_device,
        a_per_thread_buffer_dropped_elsewhere_waits_for_its_stream,
        a_per_thread_buffer_can_be_brought_to_another_stream,
        a_panic_while_visiting_another_stream_keeps_the_order,
        host_functions_cannot_reach_cuda,
        a_buffer_dropped_in_a_capture_is_leaked,
        forgetting_is_only_a_leak,
        raw_handles_go_out_and_come_back,
        statics_and_thread_locals_end_with_the_process,
        a_forked_child_drops_without_a_call,
        a_child_forked_where_a_device_was_made_current_puts_none_back,
        a_child_forked_in_a_scope_is_told_that_nothing_came_of_it,
        a_pool_gives_its_peers_up_when_nothing_uses_it,
        a_hook_that_panics_stays_inside,
        a_resource_that_panics_stays_inside,
        an_unloading_runtime_is_success,
        a_borrowed_handle_gives_nothing_away,
        a_broken_context_is_told_once_for_each_pool,
        a_pool_that_cannot_end_yet_is_told_of_once,
        memory_of_dropped_pools_is_found_where_it_was_freed,
        memory_beside_living_buffers_is_there_when_it_is_needed,
        a_hook_is_not_called_from_within_itself,
        memory_is_allocated_on_its_stream_after_waiting_for_other_devices,
    ],
    roles: [statics, fork, fork_with_a_device, fork_in_a_scope],
}
