//! What is kept, what is handed out, and what goes.

use cuda_mempool::resource::{DeviceMemoryResource, ALIGNMENT};
use cuda_mempool::{bytemuck, BlockCache, DeviceBuffer, ErrorKind, Stream};

use crate::apart::{anywhere, elsewhere, with_kernels};
use crate::cache;
use crate::sim::must;
use crate::suite::Outcome;

const KIB: usize = 1 << 10;

pub fn a_hit_makes_no_call() -> Outcome {
    anywhere(1, |machine| {
        let (_pool, _stream, cache) = cache();
        let first = must(cache.alloc::<u32>(1000)).into_raw();
        let pointer = first.pointer;
        // SAFETY: taken apart above.
        drop(unsafe { DeviceBuffer::from_raw(first) });
        machine.count_calls();
        for _ in 0..1000 {
            assert_eq!(must(cache.alloc::<u32>(1000)).as_ptr(), pointer);
        }
        machine.assert_all_calls(0);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (1000, 1));
        assert_eq!((stats.cached_blocks, stats.cached_bytes, stats.waste), (1, 4 * KIB, 0));
    })
}

pub fn blocks_are_reused_by_size() -> Outcome {
    anywhere(1, |_machine| {
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
    })
}

pub fn no_bytes_take_no_block() -> Outcome {
    anywhere(1, |machine| {
        let (_pool, _stream, cache) = cache();
        machine.count_calls();
        let none = must(cache.alloc::<u64>(0));
        assert!(none.is_empty());
        drop(none);
        assert_eq!(cache.alloc::<u64>(usize::MAX).unwrap_err().kind(), ErrorKind::SizeOverflow);
        machine.assert_all_calls(0);
        assert_eq!(cache.stats(), Default::default());
    })
}

pub fn large_alignments_are_met() -> Outcome {
    #[derive(Clone, Copy)]
    #[repr(C, align(4096))]
    struct Page([u8; 4096]);
    // SAFETY: bytes without padding, of which any pattern will do.
    unsafe impl bytemuck::Zeroable for Page {}
    // SAFETY: as above.
    unsafe impl bytemuck::Pod for Page {}

    anywhere(1, |_machine| {
        let (_pool, _stream, cache) = cache();
        for _ in 0..3 {
            let mut pages = must(cache.alloc::<Page>(3));
            assert_eq!(pages.as_ptr() as usize % 4096, 0);
            must(pages.fill(Page([9; 4096])));
            assert!(must(pages.to_vec()).iter().all(|page| page.0 == [9; 4096]));
        }
        assert_eq!(cache.stats().hits, 2);
    })
}

pub fn what_is_above_the_cap_goes_oldest_first() -> Outcome {
    anywhere(1, |machine| {
        let (_pool, _stream, cache) = cache();
        cache.set_cap(100 * KIB);
        let buffers = [1, 2, 4, 8, 16, 32].map(|size| must(cache.alloc::<u8>(size * KIB)));
        buffers.into_iter().for_each(drop);
        assert_eq!((cache.stats().cached_blocks, cache.stats().cached_bytes), (6, 63 * KIB));

        drop(must(cache.alloc::<u8>(40 * KIB)));
        assert_eq!(cache.stats().cached_bytes, 100 * KIB, "1 and 2 KiB were the oldest");
        machine.assert_calls("cudaFreeAsync", 2);

        cache.trim(60 * KIB);
        assert_eq!(cache.stats().cached_bytes, 40 * KIB, "4, 8, 16 and 32 KiB were older than what came last");
        drop(must(cache.alloc::<u8>(101 * KIB)));
        assert_eq!(cache.stats().cached_bytes, 40 * KIB, "what is larger than the cap is not kept, and no other goes");
    })
}

pub fn a_cap_of_nothing_caches_nothing() -> Outcome {
    anywhere(1, |machine| {
        let (pool, _stream, cache) = cache();
        drop(must(cache.alloc::<u8>(1000)));
        cache.set_cap(0);
        drop(must(cache.alloc::<u8>(1000)));
        assert_eq!(must(pool.usage()).used, 0);
        machine.assert_calls("cudaMallocFromPoolAsync", 2);
        machine.assert_calls("cudaFreeAsync", 2);
    })
}

pub fn a_buffer_that_moved_comes_back_by_one_event() -> Outcome {
    anywhere(1, |machine| {
        let (_pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        let mut buffer = must(cache.alloc::<u32>(100));
        must(buffer.set_stream(&other));
        must(buffer.fill(1));
        machine.count_calls();
        drop(buffer);
        machine.assert_calls("cudaEventRecord", 1);
        machine.assert_calls("cudaStreamWaitEvent", 1);
        machine.assert_all_calls(2);

        let mut again = must(cache.alloc::<u32>(100));
        assert_eq!(*again.stream(), stream);
        must(again.fill(2));
        assert_eq!(must(again.to_vec()), [2; 100]);
        assert_eq!(cache.stats().hits, 1);
    })
}

pub fn contents_can_be_asked_for() -> Outcome {
    anywhere(1, |_machine| {
        let (_pool, _stream, cache) = cache();
        assert_eq!(must(must(cache.from_slice(&[7_u8; 50])).to_vec()), [7; 50]);
        assert_eq!(must(must(cache.alloc_zeroed::<u8>(50)).to_vec()), [0; 50]);
        assert_eq!(cache.stats().hits, 1);
    })
}

pub fn as_a_resource_it_orders_other_streams() -> Outcome {
    with_kernels(|_machine, launcher| {
        let (_pool, stream, cache) = cache();
        let other = must(Stream::new(stream.device()));
        for round in 0..3 {
            for stream in [&stream, &other] {
                let pointer = must(cache.allocate(4000, stream));
                assert_eq!(pointer.as_ptr() as usize % ALIGNMENT, 0);
                // SAFETY: the block has that many bytes, in the order of the stream.
                unsafe { launcher.fill(stream, pointer.as_ptr().cast(), 1000, round) };
                // SAFETY: given back as it was handed out, in the order of its last use.
                must(unsafe { cache.deallocate(pointer, 4000, stream) });
            }
        }
        assert_eq!(cache.stats().misses, 1);
        assert_eq!(cache.stats().waste, 0);
    })
}

pub fn each_thread_has_its_own() -> Outcome {
    anywhere(1, |_machine| {
        let (pool, stream, _cache) = cache();
        let cache = BlockCache::of_thread(&pool, &stream);
        drop(must(cache.alloc::<u8>(10)));
        assert_eq!(BlockCache::of_thread(&pool, &stream).stats().misses, 1);
        let other = must(Stream::new(stream.device()));
        assert_eq!(BlockCache::of_thread(&pool, &other).stats().misses, 0);
        elsewhere(|| assert_eq!(BlockCache::of_thread(&pool, &stream).stats().misses, 0));

        drop(cache);
        BlockCache::forget_thread();
        assert_eq!(must(pool.usage()).used, 0);
        assert_eq!(BlockCache::of_thread(&pool, &stream).stats().misses, 0);
        BlockCache::forget_thread();
    })
}
