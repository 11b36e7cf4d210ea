//! How few calls the safe layer makes, counted by the simulated runtime.

#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

use cuda_mempool::{Device, DeviceBuffer, MemPool, Stream};
use sim::{must, Sim};
use suite::Outcome;

fn stream_and_pool(device: Device) -> (Stream, MemPool) {
    (must(Stream::new(device)), must(MemPool::builder(device).build()))
}

/// The calls that `work` makes, by function, and all of them together.
fn calls<const N: usize>(sim: &Sim, functions: [&str; N], work: impl FnOnce()) -> ([u64; N], u64) {
    let before = (functions.map(|function| sim.calls(function)), sim.all_calls());
    work();
    let mut counts = functions.map(|function| sim.calls(function));
    for (count, before) in counts.iter_mut().zip(before.0) {
        *count -= before;
    }
    (counts, sim.all_calls() - before.1)
}

fn a_buffer_takes_one_call_to_make_and_one_to_free() -> Outcome {
    let sim = suite::simulated(2)?;
    let (stream, pool) = stream_and_pool(sim::device(1));
    let functions = ["cudaMallocFromPoolAsync", "cudaFreeAsync"];
    let work = || drop(must(pool.alloc::<u8>(&stream, 64 << 10)));
    assert_eq!(calls(&sim, functions, work), ([1, 1], 2), "whatever device is current");
    // Whoever has the raw handle may have begun a capture.
    let _ = stream.as_raw();
    let functions = ["cudaMallocFromPoolAsync", "cudaFreeAsync", "cudaStreamIsCapturing"];
    let work = || drop(must(pool.alloc::<u8>(&stream, 64 << 10)));
    assert_eq!(calls(&sim, functions, work), ([1, 1, 1], 3));
    Ok(())
}

fn a_buffer_of_no_pool_takes_three_calls() -> Outcome {
    let sim = suite::simulated(1)?;
    let stream = must(Stream::new(sim::device(0)));
    let functions = ["cudaGetDevice", "cudaMalloc", "cudaFreeAsync"];
    let work = || drop(must(DeviceBuffer::<u8>::unpooled(&stream, 64 << 10)));
    assert_eq!(calls(&sim, functions, work), ([1, 1, 1], 3));
    Ok(())
}

fn a_move_takes_a_record_and_a_wait() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool(sim::device(0));
    let other = must(Stream::new(sim::device(0)));
    let mut buffer = must(pool.alloc::<u8>(&stream, 100));
    must(buffer.set_stream(&other)); // this thread's event is made
    let functions = ["cudaEventRecord", "cudaStreamWaitEvent"];
    assert_eq!(calls(&sim, functions, || must(buffer.set_stream(&stream))), ([1, 1], 2));
    assert_eq!(calls(&sim, functions, || must(buffer.set_stream(&stream))), ([0, 0], 0), "it is there already");
    assert_eq!(calls(&sim, functions, || must(buffer.with_stream(&stream, drop))), ([0, 0], 0));
    assert_eq!(calls(&sim, functions, || must(buffer.with_stream(&other, drop))), ([2, 2], 4));
    Ok(())
}

fn a_copy_on_one_stream_takes_no_event() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool(sim::device(0));
    let source = must(pool.alloc_zeroed::<u8>(&stream, 100));
    let mut target = must(pool.alloc::<u8>(&stream, 100));
    assert_eq!(calls(&sim, ["cudaMemcpyAsync"], || must(target.copy_from(&source))), ([1], 1));
    Ok(())
}

fn no_bytes_take_no_call() -> Outcome {
    let sim = suite::simulated(1)?;
    let (stream, pool) = stream_and_pool(sim::device(0));
    let before = sim.all_calls();
    let mut empty = must(pool.alloc_zeroed::<u64>(&stream, 0));
    must(empty.copy_from_host(&[]));
    must(empty.to_vec());
    drop(must(pool.from_slice(&stream, &[(); 5])));
    drop(must(DeviceBuffer::<u64>::unpooled(&stream, 0)));
    must(stream.scope(|s| {
        let _ = s;
        Ok(())
    }));
    drop(empty);
    assert_eq!(sim.all_calls(), before + 1, "only the scope waited");
    Ok(())
}

suite! {
    tests: [
        a_buffer_takes_one_call_to_make_and_one_to_free,
        a_buffer_of_no_pool_takes_three_calls,
        a_move_takes_a_record_and_a_wait,
        a_copy_on_one_stream_takes_no_event,
        no_bytes_take_no_call,
    ],
    roles: [],
}
