//! A stream's own cache of blocks in front of a pool.

mod class;
mod local;
mod registry;
mod resource;
mod shelf;
mod store;

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::buffer::{Block, Home, FROM_POOL};
use crate::resource::ResourceId;
use crate::{DeviceBuffer, MemPool, Result, Stream};

pub use store::CacheStats;
pub(crate) use store::{Lease, Store};

/// A cache of blocks for one stream, in front of a pool.
///
/// The driver takes about a microsecond for an allocation and its free, and many times that when several threads call
/// it at once. A cache keeps what its buffers give back, and hands it out again without a CUDA call: a block whose work
/// was enqueued on the cache's stream is ready for whatever comes next on that stream.
///
/// ```
/// # cuda_mempool::example::run(|device| {
/// use cuda_mempool::{BlockCache, MemPool, Stream};
///
/// let stream = Stream::new(device)?;
/// let cache = BlockCache::new(&MemPool::default_for(device)?, &stream);
/// for step in 0..10 {
///     let mut scratch = cache.alloc::<f32>(1000)?; // asks the pool once
///     scratch.zero()?;
/// }
/// assert_eq!(cache.stats().hits, 9);
/// # Ok(()) });
/// ```
///
/// # Order
///
/// Blocks are reused on the cache's stream alone. A buffer that was moved to another stream brings its block back by an
/// event for which the cache's stream waits. Buffers can be dropped on any thread, and after the cache: then, and where
/// the wait cannot be had, the block goes to the pool in the order of the buffer's stream.
///
/// # Threads
///
/// A cache can be shared, but every hit then takes turns. What scales is a cache, and a stream, for each thread:
/// [`BlockCache::of_thread`]. Misses of all threads meet in the driver.
///
/// # Memory
///
/// Blocks come in sizes that are at most a quarter above what was asked for (beyond the 512 bytes in which pools count
/// anyway), so that they fit more than one request. A cache keeps at most its [cap](Self::set_cap) and gives the pool
/// first what has been unused for longest; a block that is larger than the cap goes to the pool at once. When the pool
/// is out of memory the cache gives back all it has and tries again, and if that is not enough, so do all caches of the
/// pool. What is cached counts as used in the pool's [`usage`](MemPool::usage).
///
/// Do not use a cache whose stream is being captured into a graph. Other caches of the pool can be used meanwhile, and
/// leave it what it has.
pub struct BlockCache {
    store: Arc<Store>,
    id: ResourceId,
}

impl BlockCache {
    /// The most bytes that a new cache keeps, 1 GiB.
    pub const DEFAULT_CAP: usize = 1 << 30;

    /// A cache for `stream`, empty, in front of `pool`.
    #[must_use]
    pub fn new(pool: &MemPool, stream: &Stream) -> Self {
        let store = Store::open(pool.clone(), stream.clone(), Self::DEFAULT_CAP);
        Self { store, id: ResourceId::unique() }
    }

    /// Allocates `length` elements, for use in the order of the cache's stream. Their contents are unspecified: they
    /// may be what an earlier buffer left.
    ///
    /// # Errors
    /// As [`MemPool::alloc`], when no block of the size is cached.
    #[inline]
    pub fn alloc<T: Pod>(&self, length: usize) -> Result<DeviceBuffer<T>> {
        // SAFETY: the store hands out a block that nobody else has, of at least the bytes, ready for its stream.
        unsafe {
            DeviceBuffer::allocate(FROM_POOL, self.stream(), length, |bytes| {
                let Lease { base, stream, store } = Store::take(&self.store, bytes)?;
                Ok(Block { base: base.as_ptr(), stream, home: Home::cache(store, bytes) })
            })
        }
    }

    /// Allocates `length` elements whose bytes are zero.
    ///
    /// # Errors
    /// As [`MemPool::alloc_zeroed`].
    pub fn alloc_zeroed<T: Pod>(&self, length: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(length)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// Allocates a copy of `elements`, and waits for the copy.
    ///
    /// # Errors
    /// As [`MemPool::from_slice`].
    pub fn from_slice<T: Pod>(&self, elements: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(elements.len())?;
        buffer.copy_from_host(elements)?;
        Ok(buffer)
    }

    /// Gives the pool blocks, those unused for longest first, until at most `bytes_to_keep` are cached.
    ///
    /// That memory is the pool's when the stream gets there. The pool keeps it as it keeps any: see
    /// [`MemPool::sync_and_trim`]. A failure goes to the [hook](crate::on_drop_error).
    pub fn trim(&self, bytes_to_keep: usize) {
        Store::trim(&self.store, bytes_to_keep);
    }

    /// Sets the most bytes that it keeps, and trims to that. [`DEFAULT_CAP`](Self::DEFAULT_CAP) at first; with 0 nothing
    /// is cached.
    pub fn set_cap(&self, bytes: usize) {
        Store::set_cap(&self.store, bytes);
    }

    /// What it has done, and what it holds. In a forked child, which has nothing of that, all is zero.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.store.stats()
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &MemPool {
        self.store.pool()
    }

    /// The stream on which blocks are reused.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.store.stream()
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        Store::close(&self.store);
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("pool", self.pool()).field("stream", self.stream()).finish_non_exhaustive()
    }
}
