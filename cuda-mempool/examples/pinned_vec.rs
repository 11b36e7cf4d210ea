//! A `Vec` streamed to the GPU and back, in pinned memory and in ordinary memory, with both speeds.

use std::time::Instant;

use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::NumaAllocator;
use cuda_mempool::{Device, DeviceBuffer, MemPool, Result, Stream};

const WORDS: usize = 64 << 20;

fn main() -> Result<()> {
    let device = Device::new(0)?;
    let stream = Stream::new(device)?;
    let mut buffer = MemPool::default_for(device)?.alloc_zeroed(&stream, WORDS)?;

    // The memory is on the NUMA node nearest to the device, which has access to it. Getting it from the system is slow,
    // and done ahead.
    let pinned = NumaAllocator::builder().near(device).build()?;
    let bytes = WORDS * std::mem::size_of::<u32>();
    pinned.prime(2 * bytes)?;

    let mut input = PinnedVec::with_capacity_in(WORDS, pinned.clone());
    input.extend(0..WORDS as u32);
    let mut output = PinnedVec::new_in(pinned.clone());
    output.resize(WORDS, 0);
    let fast = round_trip(&stream, &mut buffer, &input, &mut output)?;

    let ordinary_input: Vec<u32> = (0..WORDS as u32).collect();
    let mut ordinary_output = vec![0; WORDS];
    let slow = round_trip(&stream, &mut buffer, &ordinary_input, &mut ordinary_output)?;

    println!("{} MiB to {device} and back:", bytes >> 20);
    println!("  pinned memory {fast:.1} GB/s, ordinary memory {slow:.1} GB/s: {:.1} times as fast", fast / slow);
    println!("  the allocator: {:?}", pinned.stats());
    Ok(())
}

/// Copies there and back, asynchronously, and gives the speed of the second time.
fn round_trip(stream: &Stream, buffer: &mut DeviceBuffer<u32>, input: &[u32], output: &mut [u32]) -> Result<f64> {
    let mut seconds = 0.0;
    for _ in 0..2 {
        let start = Instant::now();
        // Both copies are enqueued at once; the scope waits for them before the borrows end.
        stream.scope(|s| {
            s.copy_from_host(&mut *buffer, input)?;
            s.copy_to_host(&*buffer, &mut *output)
        })?;
        seconds = start.elapsed().as_secs_f64();
    }
    assert_eq!(input, output, "what came back");
    Ok(2.0 * std::mem::size_of_val(input) as f64 / 1e9 / seconds)
}
