//! What this crate offers.

use std::alloc::Layout;
use std::ffi::{c_void, CStr};
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;
use anyhow::anyhow;
use cuda_mempool::host::NumaAllocator;
use cuda_mempool::resource::{CudaAsyncMemoryResource, DeviceMemoryResource, StatisticsAdaptor};
use cuda_mempool::{BlockCache, Device, DeviceBuffer, Error, MemPool, Result, Stream};

use crate::subject::{table, Allocate, Subject};

pub const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => unreachable!(),
};

/// All of them.
pub const SUBJECTS: &[Subject] = &[
    table::<Pool>(),
    table::<Cache<{ BlockCache::DEFAULT_CAP }>>(),
    table::<Cache<0>>(),
    table::<Resource<CudaAsyncMemoryResource>>(),
    table::<Resource<StatisticsAdaptor<CudaAsyncMemoryResource>>>(),
    table::<NumaAllocator>(),
];

/// A pool that keeps what it has, as every subject's does.
fn pool() -> Result<MemPool> {
    MemPool::builder(Device::new(0)?).release_threshold(u64::MAX).build()
}

/// A worker's two streams.
fn streams() -> Result<[Stream; 2]> {
    let device = Device::new(0)?;
    Ok([Stream::new(device)?, Stream::new(device)?])
}

struct Pool(MemPool);

impl Allocate for Pool {
    const NAME: &'static CStr = c"DeviceBuffer";
    const VERSION: &'static CStr = VERSION;
    const MEMORY: &'static CStr = c"device";
    const HANDS_OVER: bool = true;

    type Worker = (MemPool, [Stream; 2]);
    type Block = DeviceBuffer<u8>;
    type Error = Error;

    fn open() -> Result<Self> {
        Ok(Self(pool()?))
    }

    fn start(&self) -> Result<Self::Worker> {
        Ok((self.0.clone(), streams()?))
    }

    #[inline]
    fn alloc((pool, [stream, _]): &Self::Worker, bytes: usize) -> Result<Self::Block> {
        pool.alloc(stream, bytes)
    }

    #[inline]
    fn free(_: &Self::Worker, block: Self::Block) -> Result<()> {
        drop(block);
        Ok(())
    }

    #[inline]
    fn hand_over((_, [_, other]): &Self::Worker, mut block: Self::Block) -> Result<()> {
        block.set_stream(other)
    }
}

/// A cache for each thread, with this cap. One that keeps nothing shows what a miss costs.
struct Cache<const CAP: usize>(MemPool);

impl<const CAP: usize> Allocate for Cache<CAP> {
    const NAME: &'static CStr = if CAP > 0 { c"BlockCache" } else { c"BlockCache that keeps nothing" };
    const VERSION: &'static CStr = VERSION;
    const MEMORY: &'static CStr = c"device";
    const HANDS_OVER: bool = true;

    type Worker = (BlockCache, Stream);
    type Block = DeviceBuffer<u8>;
    type Error = Error;

    fn open() -> Result<Self> {
        Ok(Self(pool()?))
    }

    fn start(&self) -> Result<Self::Worker> {
        let [stream, other] = streams()?;
        let cache = BlockCache::new(&self.0, &stream);
        cache.set_cap(CAP);
        Ok((cache, other))
    }

    #[inline]
    fn alloc((cache, _): &Self::Worker, bytes: usize) -> Result<Self::Block> {
        cache.alloc(bytes)
    }

    #[inline]
    fn free(_: &Self::Worker, block: Self::Block) -> Result<()> {
        drop(block);
        Ok(())
    }

    #[inline]
    fn hand_over((_, other): &Self::Worker, mut block: Self::Block) -> Result<()> {
        block.set_stream(other)
    }
}

/// A memory resource, called as RMM's are.
struct Resource<R>(R);

/// Those that are measured.
trait Made: DeviceMemoryResource + Sync + Sized + 'static {
    const NAME: &'static CStr;
    fn make() -> Result<Self>;
}

impl Made for CudaAsyncMemoryResource {
    const NAME: &'static CStr = c"CudaAsyncMemoryResource";

    /// With as much from the start as RMM's have here.
    fn make() -> Result<Self> {
        Self::new(Some(1 << 30), None, None)
    }
}

impl Made for StatisticsAdaptor<CudaAsyncMemoryResource> {
    const NAME: &'static CStr = c"CudaAsyncMemoryResource with statistics";

    fn make() -> Result<Self> {
        Ok(Self::new(CudaAsyncMemoryResource::make()?))
    }
}

impl<R: Made> Allocate for Resource<R> {
    const NAME: &'static CStr = R::NAME;
    const VERSION: &'static CStr = VERSION;
    const MEMORY: &'static CStr = c"device";

    type Worker = (&'static R, Stream);
    type Block = (NonNull<c_void>, usize);
    type Error = Error;

    fn open() -> Result<Self> {
        Ok(Self(R::make()?))
    }

    fn start(&self) -> Result<Self::Worker> {
        let resource = std::ptr::from_ref(&self.0);
        let [stream, _] = streams()?;
        // SAFETY: the harness closes what was opened after all workers are finished.
        Ok((unsafe { &*resource }, stream))
    }

    #[inline]
    fn alloc((resource, stream): &Self::Worker, bytes: usize) -> Result<Self::Block> {
        Ok((resource.allocate(bytes, stream)?, bytes))
    }

    #[inline]
    fn free((resource, stream): &Self::Worker, (pointer, bytes): Self::Block) -> Result<()> {
        // SAFETY: the block came from this resource on this stream with this length, and is given back once.
        unsafe { resource.deallocate(pointer, bytes, stream) }
    }
}

impl Allocate for NumaAllocator {
    const NAME: &'static CStr = c"NumaAllocator";
    const VERSION: &'static CStr = VERSION;
    const MEMORY: &'static CStr = c"host";

    type Worker = Self;
    type Block = (NonNull<u8>, Layout);
    type Error = anyhow::Error;

    fn open() -> Result<Self, anyhow::Error> {
        Ok(Self::builder().near(Device::new(0)?).build()?)
    }

    fn start(&self) -> Result<Self, anyhow::Error> {
        Ok(self.clone())
    }

    #[inline]
    fn alloc(allocator: &Self, bytes: usize) -> Result<Self::Block, anyhow::Error> {
        let layout = Layout::from_size_align(bytes, 16)?;
        let block = allocator.allocate(layout).map_err(|_| anyhow!("no memory"))?;
        Ok((block.cast(), layout))
    }

    #[inline]
    fn free(allocator: &Self, (block, layout): Self::Block) -> Result<(), anyhow::Error> {
        // SAFETY: the block came from this allocator with this layout, and is freed once.
        unsafe { allocator.deallocate(block, layout) };
        Ok(())
    }
}
