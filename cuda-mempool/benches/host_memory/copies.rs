//! The speed of copies.

use std::ffi::c_void;
use std::time::Instant;

use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::{NumaAllocator, NumaAllocatorBuilder};
use cuda_mempool::sys::{cudaMemcpyAsync, cudaMemcpyKind, cudaStreamSynchronize};
use cuda_mempool::{Device, Result, Stream};

use crate::measure::{interleave, report, since};
use crate::raw::{check, DeviceMemory, HostMemory};
use crate::MIB;

pub fn run(device: Device, bytes: usize) -> Result<()> {
    println!("copying {} MiB", bytes / MIB);
    let stream = Stream::new(device)?;
    let mut ours = filled(NumaAllocator::builder().near(device), bytes)?;
    let mut without_access = filled(NumaAllocator::builder().near_without_access(device), bytes)?;
    let mut ordinary = vec![1_u8; bytes];
    let registered = HostMemory::new(bytes);
    let target = DeviceMemory::new(bytes);
    for (name, kind) in
        [("to the device", cudaMemcpyKind::cudaMemcpyHostToDevice), ("from it", cudaMemcpyKind::cudaMemcpyDeviceToHost)]
    {
        let copy = |host: *mut c_void| {
            let (to, from) = match kind {
                cudaMemcpyKind::cudaMemcpyHostToDevice => (target.0, host),
                _ => (host, target.0),
            };
            let start = Instant::now();
            // SAFETY: both are `bytes` long, and the copy is waited for.
            unsafe {
                check(cudaMemcpyAsync(to, from, bytes, kind, stream.as_raw()));
                check(cudaStreamSynchronize(stream.as_raw()));
            }
            since(start)
        };
        let [ours, without_access, ordinary] =
            [&mut ours[..], &mut without_access[..], &mut ordinary[..]].map(|host| host.as_mut_ptr().cast());
        let [ours, registered, ordinary, without_access] =
            interleave(15, [&|| copy(ours), &|| copy(registered.0), &|| copy(ordinary), &|| copy(without_access)]);
        report(&format!("{name} beside cudaHostAlloc's memory"), ours, registered, 0.99);
        report(&format!("{name} beside ordinary memory"), ours, ordinary, 5.0);
        println!("    {:.1} GB/s", bytes as f64 / ours);
        println!("  {name} without access for it: {:.1} GB/s", bytes as f64 / without_access);
    }
    Ok(())
}

fn filled(builder: NumaAllocatorBuilder, bytes: usize) -> Result<PinnedVec<u8, NumaAllocator>> {
    let mut memory = PinnedVec::new_in(builder.build()?);
    memory.resize(bytes, 1);
    Ok(memory)
}
