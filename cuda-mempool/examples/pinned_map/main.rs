//! A hash map in pinned memory whose values a kernel reads in place: nothing is copied to the device.

mod kernel;

use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::{Device, Result, Stream};
use hashbrown::{DefaultHashBuilder, HashMap};

/// What the map holds for each key.
type Row = [u32; 1024];

fn main() -> Result<()> {
    let device = Device::new(0)?;
    let stream = Stream::new(device)?;

    // An allocator near a device gives it access, so its kernels reach the memory.
    let pinned = NumaAllocator::builder().near(device).build()?;
    let mut rows: HashMap<String, Row, _, _> = HashMap::with_hasher_in(DefaultHashBuilder::default(), pinned.clone());
    for (number, name) in ["north", "east", "south", "west"].into_iter().enumerate() {
        rows.insert(name.to_owned(), [number as u32 + 1; 1024]);
    }

    let mut totals = PinnedBox::<[u64]>::zeroed(&pinned, 1)?;
    match device.with_current(kernel::Sum::load)? {
        Ok(sum) => {
            for row in [&rows["east"], &rows["west"]] {
                let words = pinned.device_ptr(device, row)?;
                let total = pinned.device_mut_ptr(device, &mut totals)?;
                // SAFETY: the device may read the row and write the total, and both stay until the stream is done.
                unsafe { sum.launch(&stream, words, row.len(), total) };
            }
            stream.synchronize()?;
            println!("{device} added up two rows of the map: {}", totals[0]);
            assert_eq!(totals[0], 1024 * (2 + 4));
        }
        Err(why) => println!("no kernel runs here: {why}"),
    }
    println!("the map's rows are in pinned memory: {}", rows.values().all(|row| pinned.contains(row)));
    Ok(())
}
