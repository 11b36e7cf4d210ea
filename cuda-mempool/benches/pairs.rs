//! Allocate and free, by every way that the crate has, for whoever works on it: `cargo bench -p cuda-mempool` tells what
//! a change did. Beside the C calls and other libraries, `cargo xtask bench` measures.

use criterion::{criterion_group, criterion_main, Criterion};
use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::resource::{CudaAsyncMemoryResource, DeviceMemoryResource};
use cuda_mempool::{BlockCache, Device, MemPool, Result, Stream};

const BYTES: usize = 64 << 10;

fn device_memory(criterion: &mut Criterion, device: Device) -> Result<()> {
    let stream = Stream::new(device)?;
    let pool = MemPool::builder(device).release_threshold(u64::MAX).build()?;
    let cache = BlockCache::new(&pool, &stream);
    let resource = CudaAsyncMemoryResource::new(Some(BYTES), None, None)?;

    let mut group = criterion.benchmark_group("64 KiB on the device");
    group.bench_function("DeviceBuffer", |bencher| bencher.iter(|| pool.alloc::<u8>(&stream, BYTES)));
    group.bench_function("BlockCache", |bencher| bencher.iter(|| cache.alloc::<u8>(BYTES)));
    group.bench_function("CudaAsyncMemoryResource", |bencher| {
        bencher.iter(|| {
            let block = resource.allocate(BYTES, &stream)?;
            // SAFETY: given back once, as it was handed out.
            unsafe { resource.deallocate(block, BYTES, &stream) }
        });
    });
    group.finish();
    Ok(())
}

fn host_memory(criterion: &mut Criterion, device: Device) -> Result<()> {
    let pinned = NumaAllocator::builder().near(device).build()?;
    let mut group = criterion.benchmark_group("64 B on the host");
    group.bench_function("NumaAllocator", |bencher| bencher.iter(|| PinnedBox::new(&pinned, [0_u8; 64])));
    group.bench_function("malloc", |bencher| bencher.iter(|| Box::new([0_u8; 64])));
    group.finish();
    Ok(())
}

fn all(criterion: &mut Criterion) {
    match Device::new(0) {
        Ok(device) => {
            device_memory(criterion, device).expect("pools of the device");
            host_memory(criterion, device).expect("pools of the host");
        }
        Err(why) => eprintln!("skipped, as there is no device: {why}"),
    }
}

criterion_group!(pairs, all);
criterion_main!(pairs);
