//! A cache for each thread.

use std::cell::RefCell;
use std::rc::Rc;

use super::BlockCache;
use crate::{MemPool, Stream};

thread_local! {
    static CACHES: RefCell<Vec<Rc<BlockCache>>> = const { RefCell::new(Vec::new()) };
}

impl BlockCache {
    /// The calling thread's own cache for a pool and a stream. It is made on the first call, and dropped when the thread
    /// ends or [forgets](Self::forget_thread) it.
    ///
    /// ```
    /// # cuda_mempool::example::run(|device| {
    /// # use cuda_mempool::{BlockCache, MemPool, Stream};
    /// let pool = MemPool::default_for(device)?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| -> cuda_mempool::Result<()> {
    ///             let stream = Stream::new(device)?;
    ///             for _ in 0..10 {
    ///                 let mut scratch = BlockCache::of_thread(&pool, &stream).alloc::<u8>(1000)?;
    ///                 scratch.zero()?;
    ///             }
    ///             Ok(())
    ///         });
    ///     }
    /// });
    /// # Ok(()) });
    /// ```
    #[must_use]
    pub fn of_thread(pool: &MemPool, stream: &Stream) -> Rc<Self> {
        let found = CACHES.try_with(|caches| {
            let mut caches = caches.borrow_mut();
            let known = caches.iter().find(|cache| cache.stream() == stream && cache.pool() == pool);
            known.cloned().unwrap_or_else(|| {
                let cache = Rc::new(Self::new(pool, stream));
                caches.push(cache.clone());
                cache
            })
        });
        // While the thread ends: a cache that it does not keep.
        found.unwrap_or_else(|_| Rc::new(Self::new(pool, stream)))
    }

    /// Drops the calling thread's own caches, as far as nothing else holds them.
    pub fn forget_thread() {
        let caches = CACHES.try_with(RefCell::take);
        // Outside the borrow: what a drop reports goes to a hook, which may be anybody's code.
        drop(caches);
    }
}
