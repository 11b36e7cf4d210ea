//! What this crate offers.

use std::alloc::Layout;
use std::ffi::CStr;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;
use anyhow::anyhow;
use cuda_mempool::host::NumaAllocator;
use cuda_mempool::{Device, DeviceBuffer, Error, MemPool, Result, Stream};

use crate::subject::{table, Allocate, Subject};

pub const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => unreachable!(),
};

/// All of them.
pub const SUBJECTS: &[Subject] = &[table::<Buffer>(), table::<NumaAllocator>()];

/// A pool that keeps what it has, as every subject's does.
fn pool() -> Result<MemPool> {
    MemPool::builder(Device::new(0)?).release_threshold(u64::MAX).build()
}

/// A worker's two streams.
fn streams() -> Result<[Stream; 2]> {
    let device = Device::new(0)?;
    Ok([Stream::new(device)?, Stream::new(device)?])
}

pub struct Buffer {
    pool: MemPool,
}

impl Allocate for Buffer {
    const NAME: &'static CStr = c"DeviceBuffer";
    const VERSION: &'static CStr = VERSION;
    const MEMORY: &'static CStr = c"device";
    const HANDS_OVER: bool = true;

    type Worker = (MemPool, [Stream; 2]);
    type Block = DeviceBuffer<u8>;
    type Error = Error;

    fn open() -> Result<Self> {
        Ok(Self { pool: pool()? })
    }

    fn start(&self) -> Result<Self::Worker> {
        Ok((self.pool.clone(), streams()?))
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
