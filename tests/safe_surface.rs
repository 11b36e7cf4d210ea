//! What the safe layer promises, call by call. On the simulated runtime and on GPUs alike; what needs two devices or real
//! kernels is skipped where they are missing.

#[path = "support/driver.rs"]
#[allow(dead_code)] // What the kernels use of it.
mod driver;
#[path = "support/kernel.rs"]
#[allow(dead_code)] // Two of its kernels are used here.
mod kernel;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

use std::time::Duration;

use cuda_mempool::bytemuck::{Pod, Zeroable};
use cuda_mempool::{
    sys, Access, Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Error, ErrorKind, Event, HandleTypes, Location,
    MemPool, ReusePolicy, Stream, Version,
};
use kernel::Kernels;
use sim::must;
use suite::{Outcome, Skip};

fn stream_and_pool(device: Device) -> (Stream, MemPool) {
    (must(Stream::new(device)), must(MemPool::builder(device).build()))
}

fn fails<T>(result: Result<T, Error>) -> Error {
    result.err().expect("this must fail")
}

fn no_bytes_take_no_memory() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    let mut empty = must(pool.alloc_zeroed::<u64>(&stream, 0));
    assert_eq!(empty.as_ptr() as usize % 8, 0, "dangling, but aligned");
    must(empty.fill(3));
    must(empty.copy_from_host(&[]));
    assert_eq!(must(empty.to_vec()), []);
    let mut units = must(pool.from_slice(&stream, &[(); 5]));
    must(units.fill(()));
    assert_eq!((units.len(), must(units.to_vec()).len()), (5, 5));
    let endless = must(pool.alloc::<()>(&stream, usize::MAX));
    assert_eq!((endless.len(), endless.size_in_bytes()), (usize::MAX, 0));
    assert_eq!(must(pool.usage()).used_high, 0);
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

// SAFETY: plain bytes without padding.
unsafe impl Zeroable for Page {}
// SAFETY: as above.
unsafe impl Pod for Page {}

fn large_alignments_are_met() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    let small: Vec<_> = (0..5).map(|_| must(pool.alloc::<u8>(&stream, 1))).collect();
    let pages: Vec<_> = (0..5).map(|n| must(pool.from_slice(&stream, &[Page([n; 4096]); 2]))).collect();
    for (n, buffer) in (0..).zip(&pages) {
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
        assert_eq!(must(buffer.to_vec()), [Page([n; 4096]); 2]);
    }
    assert!(small.iter().all(|buffer| buffer.as_ptr() as usize % 256 == 0));
    drop((small, pages));
    must(stream.synchronize());
    assert_eq!(must(pool.usage()).used, 0, "freed by the pointer that was allocated");
    Ok(())
}

fn too_much_is_a_typed_error_and_leaves_no_last_error() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    for length in [usize::MAX, usize::MAX / 8 + 1, isize::MAX as usize] {
        let error = fails(pool.alloc::<u64>(&stream, length));
        assert_eq!((error.kind(), error.function()), (ErrorKind::SizeOverflow, "cudaMallocFromPoolAsync"));
    }
    let twice = 2 * must(device.memory()).total;
    for bytes in [twice, 1 << 50, isize::MAX as usize] {
        let error = fails(pool.alloc::<u8>(&stream, bytes));
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        let numbers = error.out_of_memory().expect("the numbers");
        assert_eq!((numbers.requested, numbers.pool_used), (bytes, Some(0)));
        assert_eq!(numbers.device_total, Some(must(device.memory()).total));
        assert_eq!(sim::last_error(), sys::cudaError_t::cudaSuccess);
        assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::OutOfMemory);
    }
    must(pool.alloc::<u8>(&stream, 100));
    Ok(())
}

fn success_leaves_the_last_error_of_others() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    // SAFETY: a null pointer is refused.
    unsafe { sys::cudaGetDeviceCount(std::ptr::null_mut()) };
    let theirs = sim::last_error();
    assert_ne!(theirs, sys::cudaError_t::cudaSuccess);
    must(must(pool.alloc_zeroed::<u8>(&stream, 100)).to_vec());
    assert_eq!(sim::last_error(), theirs);
    // SAFETY: takes nothing.
    unsafe { sys::cudaGetLastError() };
    Ok(())
}

fn fills_set_every_element() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    for length in [1, 2, 3, 64, 1000] {
        let mut words = must(pool.alloc::<u32>(&stream, length));
        for value in [0, 0x0101_0101, 0xDEAD_BEEF, 1] {
            must(words.fill(value));
            assert_eq!(must(words.to_vec()), vec![value; length]);
        }
        let mut triples = must(pool.alloc::<[u8; 3]>(&stream, length));
        must(triples.fill([1, 2, 3]));
        assert_eq!(must(triples.to_vec()), vec![[1, 2, 3]; length]);
        must(triples.fill_bytes(9));
        must(triples.zero());
        assert_eq!(must(triples.to_vec()), vec![[0; 3]; length]);
    }
    Ok(())
}

fn parts_are_parts() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    let mut buffer = must(pool.from_slice(&stream, &[0_u16, 1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(must(buffer.slice(2..4).to_vec()), [2, 3]);
    assert_eq!(must(buffer.slice(..=1).to_vec()), [0, 1]);
    assert_eq!(must(buffer.slice(6..).slice(1..).to_vec()), [7]);
    assert_eq!(must(buffer.slice(8..).to_vec()), []);
    let (left, right) = buffer.as_slice().split_at(3);
    assert_eq!((left.len(), right.len(), right.is_empty()), (3, 5, false));
    let (mut left, mut right) = buffer.as_slice_mut().split_at_mut(4);
    must(left.copy_from(&right));
    must(right.reborrow().slice_mut(..1).zero());
    must(right.copy_from_host(&[9, 9, 9, 9]));
    assert_eq!(must(buffer.to_vec()), [4, 5, 6, 7, 9, 9, 9, 9]);
    let error = fails(buffer.slice_mut(..3).copy_from_host(&[1, 2]));
    assert_eq!(error.kind(), ErrorKind::LengthMismatch);
    for (from, to) in [(0, 9), (5, 4), (9, 9)] {
        let panics = std::panic::AssertUnwindSafe(|| buffer.slice(from..to).len());
        assert!(std::panic::catch_unwind(panics).is_err(), "{from}..{to}");
    }
    Ok(())
}

fn views_of_foreign_memory_work_like_buffers() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    let buffer = must(pool.alloc::<u32>(&stream, 4));
    let raw = buffer.into_raw();
    // SAFETY: the memory is ours, on this stream, and lives until it is taken over again below.
    unsafe {
        must(DeviceSliceMut::from_raw(raw.pointer, 4, &stream).copy_from_host(&[1, 2, 3, 4]));
        assert_eq!(must(DeviceSlice::from_raw(raw.pointer, 4, &stream).to_vec()), [1, 2, 3, 4]);
        drop(DeviceBuffer::from_raw(raw));
    }
    Ok(())
}

fn unsafe_copies_return_at_once() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    let mut buffer = must(pool.alloc::<u8>(&stream, 3));
    let (input, mut output) = ([1, 2, 3], [0; 3]);
    // SAFETY: both arrays outlive the synchronisation below, and are not used before it.
    unsafe {
        must(buffer.copy_from_host_async(&input));
        must(buffer.copy_to_host_async(&mut output));
    }
    must(stream.synchronize());
    assert_eq!(output, input);
    Ok(())
}

fn memory_of_no_pool_is_a_buffer_like_others() -> Outcome {
    let device = suite::device()?;
    let (first, pool) = stream_and_pool(device);
    let second = must(Stream::new(device));
    let mut numbers = must(DeviceBuffer::<u32>::unpooled(&first, 1000));
    assert_eq!((numbers.as_ptr() as usize % 256, numbers.device()), (0, device));
    must(numbers.fill(7));
    let mut copy = must(pool.alloc::<u32>(&second, 1000));
    must(copy.copy_from(&numbers));
    must(numbers.set_stream(&second));
    must(numbers.slice_mut(..999).zero());
    assert_eq!((must(copy.to_vec()), must(numbers.to_vec())[998..].to_vec()), (vec![7; 1000], vec![0, 7]));
    let raw = numbers.into_raw();
    assert!(raw.home.is_runtime());
    // SAFETY: it was just taken apart.
    must(unsafe { DeviceBuffer::from_raw(raw) }.close().map_err(|(_, error)| error));

    let mut pages = must(DeviceBuffer::<Page>::unpooled(&first, 2));
    assert_eq!(pages.as_ptr() as usize % 4096, 0);
    must(pages.copy_from_host(&[Page([9; 4096]); 2]));
    assert_eq!(must(pages.to_vec()), [Page([9; 4096]); 2]);
    assert_eq!(must(must(DeviceBuffer::<u64>::unpooled(&first, 0)).to_vec()), []);
    assert_eq!(must(DeviceBuffer::<()>::unpooled(&first, usize::MAX)).len(), usize::MAX);
    Ok(())
}

fn memory_of_no_pool_is_freed_in_the_order_of_its_stream() -> Outcome {
    let watch = suite::watch(1)?;
    let device = suite::device()?;
    let stream = must(Stream::new(device));
    let mut buffer = must(DeviceBuffer::<u8>::unpooled(&stream, 1 << 20));
    must(stream.launch_host_fn(|| std::thread::sleep(Duration::from_millis(300))));
    must(buffer.fill_bytes(1));
    drop(buffer);
    assert!(!must(stream.query()), "to drop it waits for nothing");
    must(stream.synchronize());
    // Were they not freed, there would be too little memory for the last.
    let third = must(device.memory()).free / 3;
    for _ in 0..8 {
        drop(must(DeviceBuffer::<u8>::unpooled(&stream, third)));
        must(stream.synchronize());
    }
    drop(stream);
    watch.assert_gone();
    Ok(())
}

fn memory_of_no_pool_is_refused_with_the_devices_numbers() -> Outcome {
    let device = suite::device()?;
    let stream = must(Stream::new(device));
    let error = fails(DeviceBuffer::<u64>::unpooled(&stream, usize::MAX / 8 + 1));
    assert_eq!((error.kind(), error.function()), (ErrorKind::SizeOverflow, "cudaMalloc"));
    let error = fails(DeviceBuffer::<u8>::unpooled(&stream, 1 << 50));
    assert_eq!((error.kind(), error.function()), (ErrorKind::OutOfMemory, "cudaMalloc"));
    let numbers = error.out_of_memory().expect("the numbers");
    assert_eq!((numbers.requested, numbers.pool_used, numbers.pool_reserved), (1 << 50, None, None));
    assert_eq!(numbers.device_total, Some(must(device.memory()).total));
    assert!(!error.to_string().contains("pool"), "{error}");
    assert_eq!(sim::last_error(), sys::cudaError_t::cudaSuccess);
    Ok(())
}

fn attributes_of_a_pool_are_what_was_asked_for() -> Outcome {
    let device = suite::device()?;
    let policy = ReusePolicy { follow_event_dependencies: false, ..ReusePolicy::default() };
    let pool = must(MemPool::builder(device).release_threshold(123 << 20).reuse(policy).build());
    assert_eq!(must(pool.release_threshold()), 123 << 20);
    assert_eq!(must(pool.reuse_policy()), policy);
    assert_eq!(must(must(MemPool::builder(device).build()).reuse_policy()), ReusePolicy::default());
    must(pool.set_reuse_policy(ReusePolicy { allow_opportunistic: false, ..policy }));
    assert!(!must(pool.reuse_policy()).allow_opportunistic);
    assert_eq!(pool.location(), Location::Device(device));
    // The driver tells these from 13.2 on; before, the error says so.
    for error in [pool.max_size().err(), pool.handle_types().err(), pool.hw_decompress().err()].into_iter().flatten() {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.missing().is_some_and(|what| what.contains("13.2")), "{error}");
    }
    Ok(())
}

fn statistics_count_what_was_asked_for() -> Outcome {
    let device = suite::device()?;
    let stream = must(Stream::new(device));
    let pool = must(MemPool::builder(device).release_threshold(u64::MAX).build());
    let buffer = must(pool.alloc::<u8>(&stream, 1000));
    let usage = must(pool.usage());
    assert_eq!((usage.used, usage.used_high), (1000, 1000));
    assert!(usage.reserved >= 1000 && usage.reserved_high >= usage.reserved);
    drop(buffer);
    must(stream.synchronize());
    assert_eq!(must(pool.usage()).used, 0);
    must(pool.reset_high_marks());
    assert_eq!(must(pool.usage()).used_high, 0);
    must(pool.sync_and_trim(&stream, 0));
    assert_eq!(must(pool.usage()).reserved, 0);
    Ok(())
}

fn a_pool_keeps_to_its_maximum() -> Outcome {
    let device = suite::device()?;
    if must(Version::of_driver()) < Some(Version::new(12, 2)) {
        return Skip::because("the driver knows no maximum");
    }
    let (stream, pool) = (must(Stream::new(device)), must(MemPool::builder(device).max_size(32 << 20).build()));
    let full = must(pool.alloc::<u8>(&stream, 32 << 20));
    let error = fails(pool.alloc::<u8>(&stream, 32 << 20));
    let numbers = error.out_of_memory().expect("the numbers");
    assert_eq!((numbers.pool_used, numbers.pool_reserved), (Some(32 << 20), Some(32 << 20)));
    drop(full);
    must(pool.alloc::<u8>(&stream, 32 << 20));
    Ok(())
}

fn events_keep_marks_and_time() -> Outcome {
    let device = suite::device()?;
    let stream = must(Stream::new(device));
    let [start, end] = [0; 2].map(|_: u8| must(Event::builder(device).timing(true).build()));
    assert!(must(end.query()), "never recorded");
    must(start.record(&stream));
    must(stream.launch_host_fn(|| std::thread::sleep(Duration::from_millis(30))));
    must(end.record(&stream));
    if let Some(early) = must(end.elapsed_since(&start)) {
        assert!(early >= Duration::from_millis(29), "{early:?}");
    }
    must(end.synchronize());
    let elapsed = must(end.elapsed_since(&start)).expect("both are done");
    assert!(elapsed >= Duration::from_millis(29), "{elapsed:?}");
    let untimed = must(Event::new(device));
    must(untimed.record(&stream));
    assert_eq!(fails(untimed.elapsed_since(&start)).kind(), ErrorKind::InvalidHandle);
    let timed_and_shared = Event::builder(device).interprocess(true).timing(true).build();
    assert_eq!(fails(timed_and_shared).kind(), ErrorKind::InvalidValue);
    must(Event::builder(device).interprocess(true).blocking_sync(true).build());
    Ok(())
}

fn streams_are_queried_and_joined() -> Outcome {
    let device = suite::device()?;
    let (first, second) = (must(Stream::new(device)), must(Stream::builder(device).blocking(true).build()));
    let (least, greatest) = must(device.stream_priorities());
    assert!(greatest <= least);
    must(Stream::builder(device).priority(greatest - 100).build());
    must(first.launch_host_fn(|| std::thread::sleep(Duration::from_millis(30))));
    must(second.join(&first));
    assert!(!must(second.query()) || must(first.query()));
    must(second.synchronize());
    assert!(must(first.query()));
    assert_ne!(first, second);
    assert_eq!(first, first.clone());
    assert_eq!(Stream::legacy(device), Stream::legacy(device));
    assert_eq!(sim::last_error(), sys::cudaError_t::cudaSuccess, "not ready is no error");
    Ok(())
}

fn default_streams_work() -> Outcome {
    let device = suite::device()?;
    let pool = must(MemPool::default_for(device));
    for stream in [Stream::legacy(device), Stream::per_thread(device)] {
        let mut buffer = must(pool.from_slice(&stream, &[1_u8, 2, 3]));
        must(buffer.set_stream(&must(Stream::new(device))));
        must(buffer.set_stream(&stream));
        assert_eq!(must(buffer.to_vec()), [1, 2, 3]);
        let mut output = [0; 3];
        must(stream.scope(|s| s.copy_to_host(&buffer, &mut output)));
        assert_eq!(output, [1, 2, 3]);
    }
    Ok(())
}

fn refuses_what_would_get_into_a_graph() -> Outcome {
    let device = suite::device()?;
    let (stream, pool) = stream_and_pool(device);
    // Its raw handle is never seen by anybody: it joins the capture through an event.
    let hidden = must(Stream::new(device));
    let mut buffer = must(pool.alloc_zeroed::<u8>(&stream, 16));
    let mut host = [1; 16];
    let mut graph = std::ptr::null_mut();
    let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
    // SAFETY: the stream is alive, and the graph is never launched.
    let began = unsafe { sys::cudaStreamBeginCapture(stream.as_raw(), mode) };
    assert_eq!(began, sys::cudaError_t::cudaSuccess);
    must(hidden.join(&stream));
    let refused = [
        fails(pool.alloc::<u8>(&stream, 16)),
        fails(pool.alloc::<u8>(&hidden, 16)),
        fails(DeviceBuffer::<u8>::unpooled(&stream, 16)),
        fails(DeviceBuffer::<u8>::unpooled(&hidden, 16)),
        fails(buffer.copy_from_host(&host)),
        fails(buffer.copy_to_host(&mut host)),
        fails(stream.launch_host_fn(|| panic!("this must not run"))),
    ];
    must(buffer.fill_bytes(7));
    must(stream.join(&hidden));
    // SAFETY: as above.
    let ended = unsafe { sys::cudaStreamEndCapture(stream.as_raw(), &mut graph) };
    assert_eq!(ended, sys::cudaError_t::cudaSuccess, "nothing that was refused spoiled the capture");
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Capture), "{refused:?}");
    assert_eq!(must(buffer.to_vec()), [0; 16], "the fill was captured, not run");
    // SAFETY: the graph is ours.
    unsafe { sys::cudaGraphDestroy(graph) };
    Ok(())
}

fn while_another_stream_is_captured_malloc_is_refused() -> Outcome {
    let device = suite::device()?;
    let [captured, stream] = [0; 2].map(|_: u8| must(Stream::new(device)));
    let mut graph = std::ptr::null_mut();
    let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeGlobal;
    // SAFETY: the stream is alive.
    assert_eq!(unsafe { sys::cudaStreamBeginCapture(captured.as_raw(), mode) }, sys::cudaError_t::cudaSuccess);
    let error = fails(DeviceBuffer::<u8>::unpooled(&stream, 16));
    assert_eq!((error.kind(), error.function()), (ErrorKind::Capture, "cudaMalloc"));
    assert_eq!(sim::last_error(), sys::cudaError_t::cudaSuccess);
    // SAFETY: as above. It was spoiled, and there is no graph.
    let ended = unsafe { sys::cudaStreamEndCapture(captured.as_raw(), &mut graph) };
    assert_eq!((ended, graph.is_null()), (sys::cudaError_t::cudaErrorStreamCaptureInvalidated, true));
    // SAFETY: takes nothing.
    unsafe { sys::cudaGetLastError() };
    must(DeviceBuffer::<u8>::unpooled(&stream, 16));
    Ok(())
}

fn graph_memory_is_counted_and_trimmed() -> Outcome {
    let device = suite::device()?;
    must(device.trim_graph_memory());
    must(device.reset_graph_memory_high_marks());
    let usage = must(device.graph_memory());
    assert!(usage.reserved >= usage.used && usage.reserved_high >= usage.reserved);
    Ok(())
}

fn the_owner_needs_no_grant() -> Outcome {
    let device = suite::device()?;
    let pool = must(MemPool::builder(device).grant(device, Access::ReadWrite).build());
    assert_eq!(must(pool.access(device)), Access::ReadWrite);
    for access in [Access::None, Access::Read] {
        let error = fails(pool.set_access(device, access));
        assert_eq!((error.kind(), error.function()), (ErrorKind::InvalidValue, "cudaMemPoolSetAccess"));
    }
    assert_eq!(must(pool.access(device)), Access::ReadWrite);
    Ok(())
}

fn access_is_asked_of_the_runtime() -> Outcome {
    let [owner, peer] = suite::peers()?;
    let pool = must(MemPool::builder(owner).build());
    // SAFETY: the pool outlives this second handle.
    let same = unsafe { MemPool::from_raw_borrowed(pool.as_raw(), owner) };
    assert_eq!(must(pool.access(peer)), Access::None);
    must(pool.set_access(peer, Access::ReadWrite));
    assert_eq!(must(same.access(peer)), Access::ReadWrite);
    must(same.revoke_access(peer));
    assert_eq!(must(pool.access(peer)), Access::None);
    Ok(())
}

fn access_is_taken_away_when_the_device_is_done() -> Outcome {
    let device = suite::device()?;
    let stream = must(Stream::new(device));
    let node = must(device.host_numa_node()).unwrap_or(0);
    let pool = match MemPool::builder(Location::HostNuma(node)).grant(device, Access::ReadWrite).build() {
        Ok(pool) => pool,
        Err(why) => return Skip::because(why.to_string()),
    };
    must(stream.launch_host_fn(|| std::thread::sleep(Duration::from_millis(100))));
    must(pool.revoke_access(device));
    assert!(must(stream.query()), "what runs may use it");
    Ok(())
}

fn buffers_are_copied_between_devices() -> Outcome {
    let [first, second] = suite::peers()?;
    let ((here, near), (there, far)) = (stream_and_pool(first), stream_and_pool(second));
    let numbers: Vec<u32> = (0..100_000).collect();
    let source = must(near.from_slice(&here, &numbers));
    let mut target = must(far.alloc::<u32>(&there, numbers.len()));
    let current = must(Device::current());
    must(target.copy_from(&source));
    drop(source);
    assert_eq!(must(target.to_vec()), numbers);
    assert_eq!(must(Device::current()), current);
    // From a pool of one device on a stream of another.
    let mut mixed = must(near.alloc::<u32>(&there, numbers.len()));
    must(mixed.copy_from(&target));
    must(mixed.set_stream(&here));
    assert_eq!(must(mixed.to_vec()), numbers);
    // A driver (590.48.01, on Turing) was seen to copy nothing, without a word, once there was a grant.
    must(near.set_access(second, Access::ReadWrite));
    must(target.zero());
    must(target.copy_from(&mixed));
    assert_eq!(must(target.to_vec()), numbers);
    Ok(())
}

fn the_current_device_stays() -> Outcome {
    let [first, second] = suite::peers()?;
    for current in [first, second] {
        must(current.with_current(|| {
            for device in [first, second] {
                let (stream, pool) = stream_and_pool(device);
                let mut buffer = must(pool.alloc_zeroed::<u8>(&stream, 100));
                must(buffer.set_stream(&Stream::legacy(device)));
                must(buffer.to_vec());
                must(device.memory());
                fails(pool.alloc::<u8>(&stream, 1 << 60));
                let unpooled = must(DeviceBuffer::<u8>::unpooled(&stream, 100));
                fails(DeviceBuffer::<u8>::unpooled(&stream, 1 << 60));
                drop((buffer, unpooled, pool, stream));
                assert_eq!(must(Device::current()), current);
            }
        }));
    }
    let panicked = std::panic::catch_unwind(|| second.with_current(|| panic!("inside")));
    assert!(panicked.is_err());
    assert_eq!(must(Device::current()), first);
    Ok(())
}

fn devices_that_are_not_there_are_refused() -> Outcome {
    suite::device()?;
    let error = fails(Device::new(4096));
    assert_eq!(error.kind(), ErrorKind::InvalidDevice);
    assert!(error.to_string().contains("4096"), "{error}");
    Ok(())
}

fn pools_on_the_host() -> Outcome {
    let device = suite::device()?;
    let stream = must(Stream::new(device));
    for node in [4096, u32::MAX] {
        let error = fails(MemPool::builder(Location::HostNuma(node)).build());
        assert!(matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::Unsupported), "{error}");
    }
    let node = must(device.host_numa_node()).unwrap_or(0);
    let pool = match MemPool::builder(Location::HostNuma(node)).build() {
        Ok(pool) => pool,
        Err(why) => return Skip::because(why.to_string()),
    };
    let mut buffer = must(pool.from_slice(&stream, &[1_u8, 2, 3]));
    assert_eq!(must(buffer.to_vec()), [1, 2, 3], "copies need no grant");
    assert_eq!(must(pool.access(device)), Access::None);
    let error = fails(buffer.fill(7));
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    assert!(error.to_string().contains("MemPool::set_access"), "{error}");
    must(pool.set_access(device, Access::ReadWrite));
    must(buffer.fill(7));
    assert_eq!(must(buffer.to_vec()), [7; 3]);
    must(pool.revoke_access(device));
    let shared_host_pool = MemPool::builder(Location::Host).handle_types(HandleTypes::POSIX_FD).build();
    assert_eq!(fails(shared_host_pool).kind(), ErrorKind::Unsupported);
    Ok(())
}

fn pools_of_managed_memory() -> Outcome {
    let device = suite::device()?;
    let stream = must(Stream::new(device));
    for location in [Location::Managed, Location::ManagedOn(device)] {
        let pool = match MemPool::builder(location).build() {
            Ok(pool) => pool,
            Err(why) => return Skip::because(why.to_string()),
        };
        let mut buffer = must(pool.from_slice(&stream, &[1_u8, 2, 3]));
        must(buffer.slice_mut(..1).fill(9));
        assert_eq!(must(buffer.to_vec()), [9, 2, 3]);
        assert_eq!(must(pool.usage()).used, 3);
    }
    Ok(())
}

fn default_pools_are_not_only_on_devices() -> Outcome {
    let device = suite::device()?;
    let locations = [Location::Host, Location::HostNuma(0), Location::ManagedOn(device)];
    for location in locations {
        match MemPool::default_for(location) {
            Ok(pool) => assert_eq!(pool, must(MemPool::current_for(location))),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                assert!(error.missing().is_some(), "{error}");
            }
        }
    }
    Ok(())
}

fn other_pools_of_other_code_are_not_lent() -> Outcome {
    let device = suite::device()?;
    let raw = must(MemPool::builder(device).build()).into_raw().expect("the only handle");
    // SAFETY: the pool is alive; at the end it is destroyed, and the default pool takes its place.
    unsafe { sys::cudaDeviceSetMemPool(device.ordinal(), raw) };
    let error = fails(MemPool::current_for(device));
    // SAFETY: the pool is ours.
    unsafe { sys::cudaMemPoolDestroy(raw) };
    assert_eq!(error.kind(), ErrorKind::Foreign);
    assert_eq!(must(MemPool::current_for(device)), must(MemPool::default_for(device)));
    let error = fails(MemPool::set_current_for(
        device,
        &match MemPool::builder(Location::HostNuma(0)).build() {
            Ok(pool) => pool,
            Err(why) => return Skip::because(why.to_string()),
        },
    ));
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    Ok(())
}

/// Real kernels, where they can be loaded.
fn kernels(device: Device) -> Result<Kernels, Skip> {
    must(device.with_current(Kernels::load)).map_err(|why| Skip(format!("no kernels here: {why}")))
}

fn a_kernel_runs_while_its_buffers_free_is_queued() -> Outcome {
    let device = suite::device()?;
    let kernels = kernels(device)?;
    let stream = must(Stream::new(device));
    let pool = must(MemPool::builder(device).release_threshold(u64::MAX).build());
    let length = 1 << 20;
    must(device.with_current(|| {
        for round in 0..20 {
            let mut buffer = must(pool.alloc::<u32>(&stream, length));
            kernels.spin(stream.as_raw(), 2_000_000).expect("launched");
            // SAFETY: the buffer has this many words, on its stream.
            unsafe { kernels.fill(stream.as_raw(), buffer.as_mut_ptr(), length as u64, round) }.expect("launched");
            let mut copy = must(pool.alloc::<u32>(&stream, length));
            must(copy.copy_from(&buffer));
            drop(buffer);
            assert_eq!(must(copy.to_vec()), vec![round; length]);
        }
    }));
    Ok(())
}

/// The driver's own functions, by which kernels are loaded and launched here, want a context.
fn a_new_thread_has_the_context_of_the_device_that_it_works_with() -> Outcome {
    let device = suite::device()?;
    drop(kernels(device)?);
    let filled = std::thread::spawn(move || {
        let kernels = must(device.with_current(Kernels::load)).expect("loaded elsewhere");
        let (stream, pool) = stream_and_pool(device);
        let mut buffer = must(pool.alloc::<u32>(&stream, 100));
        // SAFETY: the buffer has this many words, on its stream.
        let launch = || unsafe { kernels.fill(stream.as_raw(), buffer.as_mut_ptr(), 100, 7) };
        must(device.with_current(launch)).expect("launched");
        must(buffer.to_vec())
    });
    assert_eq!(filled.join().expect("no panic"), [7; 100]);
    Ok(())
}

fn a_kernel_on_another_stream_is_brought_into_order() -> Outcome {
    let device = suite::device()?;
    let kernels = kernels(device)?;
    let ((stream, pool), other) = (stream_and_pool(device), must(Stream::new(device)));
    let length = 1 << 20;
    must(device.with_current(|| {
        let mut buffer = must(pool.alloc_zeroed::<u32>(&stream, length));
        for _ in 0..20 {
            must(buffer.with_stream(&other, |pointer| {
                kernels.spin(other.as_raw(), 1_000_000).expect("launched");
                // SAFETY: the buffer has this many words, and was brought to the stream.
                unsafe { kernels.increment(other.as_raw(), pointer, length as u64) }.expect("launched");
            }));
            // SAFETY: the buffer has this many words, on its stream.
            unsafe { kernels.increment(stream.as_raw(), buffer.as_mut_ptr(), length as u64) }.expect("launched");
        }
        assert_eq!(must(buffer.to_vec()), vec![40; length]);
    }));
    Ok(())
}

fn a_kernel_of_a_peer_reaches_granted_memory() -> Outcome {
    let [owner, peer] = suite::peers()?;
    let kernels = kernels(peer)?;
    let pool = must(MemPool::builder(owner).grant(peer, Access::ReadWrite).build());
    let (home, theirs) = (must(Stream::new(owner)), must(Stream::new(peer)));
    let mut buffer = must(pool.alloc_zeroed::<u32>(&home, 1000));
    must(buffer.with_stream(&theirs, |pointer| {
        must(peer.with_current(|| {
            // SAFETY: the buffer has this many words, the peer was granted access, and it was brought to the stream.
            unsafe { kernels.fill(theirs.as_raw(), pointer, 1000, 5) }.expect("launched");
        }));
    }));
    assert_eq!(must(buffer.to_vec()), vec![5; 1000]);
    Ok(())
}

fn an_event_of_another_device_is_named() -> Outcome {
    let [first, second] = suite::peers()?;
    let error = fails(must(Event::new(first)).record(&must(Stream::new(second))));
    assert_eq!(error.kind(), ErrorKind::InvalidHandle);
    assert!(error.to_string().contains(&format!("the event is of {first} and the stream of {second}")), "{error}");
    Ok(())
}

/// What a type may be sent or shared as is part of its promise.
fn handles_and_buffers_can_be_sent_and_shared() -> Outcome {
    fn sent_and_shared<T: Send + Sync>() {}
    sent_and_shared::<Stream>();
    sent_and_shared::<Event>();
    sent_and_shared::<MemPool>();
    sent_and_shared::<DeviceBuffer<f32>>();
    sent_and_shared::<DeviceSlice<'_, f32>>();
    sent_and_shared::<DeviceSliceMut<'_, f32>>();
    sent_and_shared::<Error>();
    Ok(())
}

suite! {
    tests: [
        no_bytes_take_no_memory,
        large_alignments_are_met,
        too_much_is_a_typed_error_and_leaves_no_last_error,
        success_leaves_the_last_error_of_others,
        fills_set_every_element,
        parts_are_parts,
        views_of_foreign_memory_work_like_buffers,
        unsafe_copies_return_at_once,
        memory_of_no_pool_is_a_buffer_like_others,
        memory_of_no_pool_is_freed_in_the_order_of_its_stream,
        memory_of_no_pool_is_refused_with_the_devices_numbers,
        attributes_of_a_pool_are_what_was_asked_for,
        statistics_count_what_was_asked_for,
        a_pool_keeps_to_its_maximum,
        events_keep_marks_and_time,
        streams_are_queried_and_joined,
        default_streams_work,
        refuses_what_would_get_into_a_graph,
        while_another_stream_is_captured_malloc_is_refused,
        graph_memory_is_counted_and_trimmed,
        the_owner_needs_no_grant,
        access_is_asked_of_the_runtime,
        access_is_taken_away_when_the_device_is_done,
        buffers_are_copied_between_devices,
        the_current_device_stays,
        devices_that_are_not_there_are_refused,
        pools_on_the_host,
        pools_of_managed_memory,
        default_pools_are_not_only_on_devices,
        other_pools_of_other_code_are_not_lent,
        a_kernel_runs_while_its_buffers_free_is_queued,
        a_new_thread_has_the_context_of_the_device_that_it_works_with,
        a_kernel_on_another_stream_is_brought_into_order,
        a_kernel_of_a_peer_reaches_granted_memory,
        an_event_of_another_device_is_named,
        handles_and_buffers_can_be_sent_and_shared,
    ],
    roles: [],
}
