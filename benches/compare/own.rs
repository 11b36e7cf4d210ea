//! What this crate offers.

use std::ffi::CStr;

use cuda_mempool::{Device, DeviceBuffer, Error, MemPool, Result, Stream};

use crate::subject::{table, Allocate, Subject};

pub const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => unreachable!(),
};

/// All of them.
pub const SUBJECTS: &[Subject] = &[table::<Buffer>()];

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
