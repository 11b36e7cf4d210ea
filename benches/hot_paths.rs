//! What is called most, a given number of times, for `cargo xtask test counts` to count the instructions of.
//!
//! `hot_paths NAME TIMES`; without arguments it lists the names.

use std::alloc::Layout;
use std::hint::black_box;

use allocator_api2::alloc::Allocator;
use anyhow::{anyhow, bail, Result};
use cuda_mempool::host::NumaAllocator;
use cuda_mempool::resource::{CudaAsyncMemoryResource, DeviceMemoryResource, StatisticsAdaptor};
use cuda_mempool::{sys, BlockCache, Device, MemPool, Stream};

type Path = fn(usize) -> Result<()>;

const PATHS: &[(&str, Path)] = &[
    ("DeviceBuffer: alloc and drop", alloc_and_drop),
    ("BlockCache: hit and drop", hit),
    ("CudaAsyncMemoryResource: allocate and deallocate", |times| resource(&new_resource()?, times)),
    ("StatisticsAdaptor on it", |times| resource(&StatisticsAdaptor::new(new_resource()?), times)),
    ("DeviceBuffer: set_stream", set_stream),
    ("MemPool: read an attribute", attribute),
    ("NumaAllocator: alloc and free of 64 B", |times| numa(times, 64)),
    ("NumaAllocator: alloc and free of 64 KiB", |times| numa(times, 64 << 10)),
    ("a call", call),
];

fn main() -> Result<()> {
    // cargo bench adds --bench.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [] => PATHS.iter().for_each(|(name, _)| println!("{name}")),
        [name, times] => {
            let path = PATHS.iter().find(|(known, _)| known == name).ok_or_else(|| anyhow!("no path {name}"))?;
            path.1(times.parse()?)?;
        }
        _ => bail!("usage: hot_paths [NAME TIMES]"),
    }
    Ok(())
}

fn alloc_and_drop(times: usize) -> Result<()> {
    let (pool, stream) = pool_and_stream()?;
    for _ in 0..times {
        drop(black_box(pool.alloc::<u8>(black_box(&stream), 4096)?));
    }
    Ok(())
}

fn hit(times: usize) -> Result<()> {
    let (pool, stream) = pool_and_stream()?;
    let cache = BlockCache::new(&pool, &stream);
    for _ in 0..times {
        drop(black_box(black_box(&cache).alloc::<u8>(4096)?));
    }
    Ok(())
}

fn new_resource() -> Result<CudaAsyncMemoryResource> {
    Ok(CudaAsyncMemoryResource::new(Some(0), None, None)?)
}

fn resource(resource: &impl DeviceMemoryResource, times: usize) -> Result<()> {
    let stream = Stream::new(resource.device())?;
    for _ in 0..times {
        let block = black_box(black_box(resource).allocate(4096, black_box(&stream))?);
        // SAFETY: given back once, as it was handed out.
        unsafe { resource.deallocate(block, 4096, &stream) }?;
    }
    Ok(())
}

fn set_stream(times: usize) -> Result<()> {
    let (pool, one) = pool_and_stream()?;
    let other = Stream::new(one.device())?;
    let mut buffer = pool.alloc::<u8>(&one, 4096)?;
    for _ in 0..times / 2 {
        buffer.set_stream(black_box(&other))?;
        buffer.set_stream(black_box(&one))?;
    }
    Ok(())
}

fn attribute(times: usize) -> Result<()> {
    let (pool, _stream) = pool_and_stream()?;
    for _ in 0..times {
        black_box(black_box(&pool).release_threshold()?);
    }
    Ok(())
}

fn numa(times: usize, bytes: usize) -> Result<()> {
    let allocator = NumaAllocator::builder().near(Device::new(0)?).build()?;
    let layout = Layout::from_size_align(bytes, 16)?;
    for _ in 0..times {
        let block = black_box(&allocator).allocate(black_box(layout)).map_err(|_| anyhow!("no memory"))?;
        // SAFETY: the block came from this allocator with this layout, and is freed once.
        unsafe { allocator.deallocate(block.cast(), layout) };
    }
    Ok(())
}

fn call(times: usize) -> Result<()> {
    for _ in 0..times {
        // SAFETY: the function has no requirement.
        black_box(unsafe { sys::cudaGetLastError() });
    }
    Ok(())
}

fn pool_and_stream() -> Result<(MemPool, Stream)> {
    let device = Device::new(0)?;
    Ok((MemPool::builder(device).release_threshold(u64::MAX).build()?, Stream::new(device)?))
}
