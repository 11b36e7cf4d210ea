//! What is kept, what is handed out, and what goes.

use cuda_mempool::resource::{DeviceMemoryResource, ALIGNMENT};
use cuda_mempool::{bytemuck, BlockCache, DeviceBuffer, ErrorKind, Stream};

use crate::apart::apart;
use crate::cache;
use crate::sim::must;

const KIB: usize = 1 << 10;

#[test]
fn a_hit_makes_no_call() {
    apart(1, |sim| {
        let (_pool, _stream, cache) = cache();
        let first = must(cache.alloc::<u32>(1000)).into_raw();
        let pointer = first.pointer;
        // SAFETY: taken apart above.
        drop(unsafe { DeviceBuffer::from_raw(first) });
        sim.reset();
        for _ in 0..1000 {
            assert_eq!(must(cache.alloc::<u32>(1000)).as_ptr(), pointer);
        }
        assert_eq!(sim.all_calls(), 0);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (1000, 1));
        assert_eq!((stats.cached_blocks, stats.cached_bytes, stats.waste), (1, 4 * KIB, 0));
    });
}

#[test]
fn blocks_are_reused_by_size() {
    apart(1, |_sim| {
        let (_pool, _stream, cache) = cache();
        drop(must(cache.alloc::<u8>(100 * KIB)));
        assert_eq!(cache.stats().cached_bytes, 112 * KIB);
        let waste = [(97, 15), (112, 0)].map(|(size, waste)| {
            let buffer = must(cache.alloc::<u8>(size * KIB));
            assert_eq!(cache.stats().waste, waste * KIB);
            drop(buffer);
            cache.stats().waste
        });
        assert_eq!(waste, [0, 0]);
        assert_eq!((cache.stats().hits, cache.stats().misses), (2, 1));
        drop((must(cache.alloc::<u8>(96 * KIB)), must(cache.alloc::<u8>(113 * KIB))));
        assert_eq!((cache.stats().hits, cache.stats().misses), (2, 3));
    });
}

#[test]
fn no_bytes_take_no_block() {
    apart(1, |sim| {
        let (_pool, _stream, cache) = cache();
        sim.reset();
        let none = must(cache.alloc::<u64>(0));
        assert!(none.is_empty());
        drop(none);
        assert_eq!(cache.alloc::<u64>(usize::MAX).unwrap_err().kind(), ErrorKind::SizeOverflow);
        assert_eq!(sim.all_calls(), 0);
        assert_eq!(cache.stats(), Default::default());
    });
}

#[test]
fn large_alignments_are_met() {
    #[derive(Clone, Copy)]
    #[repr(C, align(4096))]
    struct Page([u8; 4096]);
    // SAFETY: bytes without padding, of which any pattern will do.
    unsafe impl bytemuck::Zeroable for Page {}
    // SAFETY: as above.
    unsafe impl bytemuck::Pod for Page {}

    apart(1, |sim| {
        let (_pool, _stream, cache) = cache();
        for _ in 0..3 {
            let mut pages = must(cache.alloc::<Page>(3));
            assert_eq!(pages.as_ptr() as usize % 4096, 0);
            must(pages.fill(Page([9; 4096])));
            assert!(must(pages.to_vec()).iter().all(|page| page.0 == [9; 4096]));
        }
        assert_eq!((cache.stats().hits, sim.races()), (2, 0));
    });
}

#[test]
fn what_is_above_the_cap_goes_oldest_first() {
    apart(1, |sim| {
        let (_pool, _stream, cache) = cache();
        cache.set_cap(100 * KIB);
        let buffers = [1, 2, 4, 8, 16, 32].map(|size| must(cache.alloc::<u8>(size * KIB)));
        buffers.into_iter().for_each(drop);
        assert_eq!((cache.stats().cached_blocks, cache.stats().cached_bytes), (6, 63 * KIB));

        drop(must(cache.alloc::<u8>(40 * KIB)));
        assert_eq!(cache.stats().cached_bytes, 100 * KIB, "1 and 2 KiB were the oldest");
        assert_eq!(sim.calls("cudaFreeAsync"), 2);

        cache.trim(60 * KIB);
        assert_eq!(cache.stats().cached_bytes, 40 * KIB, "4, 8, 16 and 32 KiB were older than what came last");
        drop(must(cache.alloc::<u8>(101 * KIB)));
        assert_eq!(cache.stats().cached_bytes, 40 * KIB, "what is larger than the cap is not kept, and no other goes");
    });
}

#[test]
fn a_cap_of_nothing_caches_nothing() {
    apart(1, |sim| {
        let (pool, _stream, cache) = cache();
        drop(must(cache.alloc::<u8>(1000)));
        cache.set_cap(0);
        drop(must(cache.alloc::<u8>(1000)));
        assert_eq!(must(pool.usage()).used, 0);
        assert_eq!((sim.calls("cudaMallocFromPoolAsync"), sim.calls("cudaFreeAsync")), (2, 2));
    });
}

#[test]
fn a_buffer_that_moved_comes_back_by_one_event() {
    apart(1, |sim| {
        let (_pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        let mut buffer = must(cache.alloc::<u32>(100));
        must(buffer.set_stream(&other));
        must(buffer.fill(1));
        sim.reset();
        drop(buffer);
        let calls = ["cudaEventRecord", "cudaStreamWaitEvent"].map(|function| sim.calls(function));
        assert_eq!((calls, sim.all_calls()), ([1, 1], 2));

        let mut again = must(cache.alloc::<u32>(100));
        assert_eq!(*again.stream(), stream);
        must(again.fill(2));
        assert_eq!(must(again.to_vec()), [2; 100]);
        assert_eq!((cache.stats().hits, sim.races()), (1, 0));
    });
}

#[test]
fn contents_can_be_asked_for() {
    apart(1, |_sim| {
        let (_pool, _stream, cache) = cache();
        assert_eq!(must(must(cache.from_slice(&[7_u8; 50])).to_vec()), [7; 50]);
        assert_eq!(must(must(cache.alloc_zeroed::<u8>(50)).to_vec()), [0; 50]);
        assert_eq!(cache.stats().hits, 1);
    });
}

#[test]
fn as_a_resource_it_orders_other_streams() {
    apart(1, |sim| {
        let (_pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        for round in 0..3 {
            for stream in [&stream, &other] {
                let pointer = must(cache.allocate(4000, stream));
                assert_eq!(pointer.as_ptr() as usize % ALIGNMENT, 0);
                // SAFETY: the block has that many bytes, in the order of the stream.
                unsafe { sim.launch_fill(stream, pointer.as_ptr().cast(), 1000, round) };
                // SAFETY: given back as it was handed out, in the order of its last use.
                must(unsafe { cache.deallocate(pointer, 4000, stream) });
            }
        }
        assert_eq!((cache.stats().misses, sim.races()), (1, 0), "{}", sim.last_race());
        assert_eq!(cache.stats().waste, 0);
    });
}

#[test]
fn each_thread_has_its_own() {
    apart(1, |_sim| {
        let (pool, stream, _cache) = cache();
        let cache = BlockCache::of_thread(&pool, &stream);
        drop(must(cache.alloc::<u8>(10)));
        assert_eq!(BlockCache::of_thread(&pool, &stream).stats().misses, 1);
        let other = must(Stream::new(stream.device()));
        assert_eq!(BlockCache::of_thread(&pool, &other).stats().misses, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(BlockCache::of_thread(&pool, &stream).stats().misses, 0));
        });

        drop(cache);
        BlockCache::forget_thread();
        assert_eq!(must(pool.usage()).used, 0);
        assert_eq!(BlockCache::of_thread(&pool, &stream).stats().misses, 0);
        BlockCache::forget_thread();
    });
}
