//! The tests of `rmm::mr::cuda_async_memory_resource` and of RMM's memory resources at large, under their names.
//!
//! Elsewhere: the failure callback and alignment through adaptors (`rmm_…` in `resource/adaptor/tests.rs` of the crate),
//! buffers moved, resized, and on other devices (`rmm_…` in `tests/resource/buffers.rs`), order at exit (`rmm_…` in
//! `tests/cache/lifetimes.rs`). Static and shared runtime: every test is built in each link kind. What RMM tests and Rust
//! does not let one write: copies from null pointers, and moves of a value to itself.

use std::ffi::c_void;
use std::ptr::{null_mut, NonNull};
use std::sync::mpsc;
use std::thread;

use cuda_mempool::resource::{
    AllocationHandleType, CudaAsyncMemoryResource, CudaAsyncViewMemoryResource, DeviceMemoryResource, ALIGNMENT,
};
use cuda_mempool::{BlockCache, Device, ErrorKind, Event, Feature, Location, MemPool, Result, Stream, Support};

use crate::apart::anywhere;
use crate::sim::device;
use crate::suite::Outcome;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn resource() -> CudaAsyncMemoryResource {
    CudaAsyncMemoryResource::new(Some(0), None, None).expect("a resource")
}

/// Runs a test with each kind of resource that RMM's parametrised tests name and this crate has.
fn with_each(test: impl Fn(&(dyn DeviceMemoryResource + Sync), &Stream) + Sync) -> Outcome {
    anywhere(1, |_machine| {
        let stream = Stream::new(device(0)).expect("a stream");
        let own = resource();
        test(&own, &stream);
        test(&CudaAsyncViewMemoryResource::new(own.pool()).expect("a view"), &stream);
        test(&BlockCache::new(own.pool(), &stream), &stream);
    })
}

pub fn explicit_initial_pool_size() -> Outcome {
    anywhere(1, |_machine| {
        let resource = CudaAsyncMemoryResource::new(Some(100), None, None).unwrap();
        assert!(resource.pool().usage().unwrap().reserved >= 100);
        let large = CudaAsyncMemoryResource::new(Some(100 * MIB), None, None).unwrap();
        let usage = large.pool().usage().unwrap();
        assert!(usage.reserved >= 100 * MIB as u64 && usage.used == 0, "{usage:?}");
    })
}

pub fn default_initial_pool_size_is_half_of_what_is_free() -> Outcome {
    anywhere(1, |_machine| {
        let device = device(0);
        let free = device.memory().unwrap().free as u64;
        let resource = CudaAsyncMemoryResource::new(None, None, None).unwrap();
        let reserved = resource.pool().usage().unwrap().reserved;
        // The rest of the process, and other processes of the machine, move the number a little.
        assert!((free / 2 - free / 16..free / 2 + free / 16).contains(&reserved), "{reserved} of {free}");
    })
}

pub fn explicit_release_threshold() -> Outcome {
    anywhere(1, |_machine| {
        let resource = CudaAsyncMemoryResource::new(Some(100), Some(1000), None).unwrap();
        assert_eq!(resource.pool().release_threshold().unwrap(), 1000);
    })
}

pub fn default_release_threshold_is_all_of_the_device() -> Outcome {
    anywhere(1, |_machine| {
        let device = device(0);
        let threshold = resource().pool().release_threshold().unwrap();
        assert_eq!(threshold, device.memory().unwrap().total as u64);
    })
}

pub fn different_pools_unequal() -> Outcome {
    anywhere(1, |_machine| {
        let (first, second) = (resource(), resource());
        assert!(first != second && !first.is_equal(&second));
        let itself = &first;
        assert!(first == *itself && first.is_equal(itself));
        assert_ne!(first.pool_handle(), second.pool_handle());
        let view = CudaAsyncViewMemoryResource::new(first.pool()).unwrap();
        assert!(first == view && view != second);
        assert!(view == first && first.is_equal(&view));
    })
}

pub fn export_handle_types() -> Outcome {
    anywhere(1, |_machine| {
        let device = device(0);
        let types = [
            (AllocationHandleType::None, 0, None),
            (AllocationHandleType::PosixFileDescriptor, 1, Some(Feature::PosixFdPools)),
            (AllocationHandleType::Win32, 2, Some(Feature::Win32Pools)),
            (AllocationHandleType::Win32Kmt, 4, Some(Feature::Win32KmtPools)),
            (AllocationHandleType::Fabric, 8, Some(Feature::FabricPools)),
        ];
        for (handle_type, number, feature) in types {
            assert_eq!(handle_type as u32, number);
            let made = CudaAsyncMemoryResource::new(Some(0), None, Some(handle_type));
            match feature.map_or(Support::Yes, |feature| device.supports(feature).unwrap()) {
                Support::Yes => drop(made.unwrap()),
                Support::No => {
                    let error = made.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Unsupported, "{handle_type:?}: {error}");
                    assert!(error.missing().is_some(), "{error}");
                }
                Support::Unknown => {}
            }
        }
    })
}

pub fn view_of_a_foreign_pool_does_not_own_it() -> Outcome {
    anywhere(1, |_machine| {
        let device = device(0);
        let pool = MemPool::builder(Location::Device(device)).build().unwrap();
        let stream = Stream::new(device).unwrap();
        // SAFETY: the pool outlives the view.
        let view = unsafe { CudaAsyncViewMemoryResource::from_raw(pool.as_raw()) }.unwrap();
        assert_eq!(view.pool_handle(), pool.as_raw());
        let pointer = view.allocate(1000, &stream).unwrap();
        drop(view);
        let view = CudaAsyncViewMemoryResource::new(&pool).unwrap();
        // SAFETY: handed out by an equal resource, and not used.
        unsafe { view.deallocate(pointer, 1000, &stream) }.unwrap();
        drop(view);
        assert!(pool.alloc::<u8>(&stream, 1000).is_ok(), "the pool is still there");
    })
}

pub fn view_of_null_is_refused() -> Outcome {
    anywhere(1, |_machine| {
        // SAFETY: null is what may be given.
        let refused = unsafe { CudaAsyncViewMemoryResource::from_raw(null_mut()) };
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidValue);
    })
}

pub fn self_equality() -> Outcome {
    with_each(|resource, _| assert!(resource.is_equal(resource)))
}

pub fn allocate_each_size() -> Outcome {
    with_each(|resource, stream| {
        for bytes in [0, 4, KIB, MIB, GIB] {
            let pointer = resource.allocate(bytes, stream).unwrap();
            assert_eq!(pointer.as_ptr() as usize % ALIGNMENT, 0);
            // SAFETY: given back as it was handed out, here and below.
            unsafe { resource.deallocate(pointer, bytes, stream) }.unwrap();

            let pointer = resource.allocate_async(bytes, stream).unwrap();
            // SAFETY: as above.
            unsafe { resource.deallocate_async(pointer, bytes, stream) }.unwrap();

            for alignment in [1, 64, 256, 512, 4096] {
                let pointer = resource.allocate_async_aligned(bytes, alignment, stream).unwrap();
                assert_eq!(pointer.as_ptr() as usize % alignment, 0);
                // SAFETY: as above.
                unsafe { resource.deallocate_async_aligned(pointer, bytes, alignment, stream) }.unwrap();

                let pointer = resource.allocate_aligned(bytes, alignment).unwrap();
                assert_eq!(pointer.as_ptr() as usize % alignment, 0);
                // SAFETY: as above.
                unsafe { resource.deallocate_aligned(pointer, bytes, alignment) }.unwrap();
            }
        }
    })
}

pub fn allocate_too_much() -> Outcome {
    with_each(|resource, stream| {
        let too_much = [
            resource.allocate(1 << 50, stream),
            resource.allocate_async(1 << 50, stream),
            resource.allocate_aligned(1 << 50, 256),
            resource.allocate_async_aligned(1 << 50, 256, stream),
        ];
        for answer in too_much {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
        assert!(resource.allocate(KIB, stream).is_ok_and(|pointer| {
            // SAFETY: given back as it was handed out.
            unsafe { resource.deallocate(pointer, KIB, stream) }.is_ok()
        }));
    })
}

pub fn alignment_that_is_no_power_of_two_or_too_large() -> Outcome {
    with_each(|resource, stream| {
        let refused = |bytes, alignment| resource.allocate_async_aligned(bytes, alignment, stream).unwrap_err().kind();
        assert_eq!(refused(100, 0), ErrorKind::InvalidValue);
        assert_eq!(refused(100, 3), ErrorKind::InvalidValue);
        assert_eq!(refused(1000, 1 << 63), ErrorKind::SizeOverflow);
        assert_eq!(refused(usize::MAX, 256), ErrorKind::SizeOverflow);
    })
}

pub fn two_live_pointers_differ() -> Outcome {
    with_each(|resource, stream| {
        let [first, second] = [(); 2].map(|()| resource.allocate(8, stream).unwrap());
        assert_ne!(first, second);
        for pointer in [first, second] {
            // SAFETY: given back as it was handed out.
            unsafe { resource.deallocate(pointer, 8, stream) }.unwrap();
        }
    })
}

pub fn random_allocations() -> Outcome {
    with_each(|resource, stream| {
        let mut random = fastrand::Rng::with_seed(1);
        let blocks: Vec<_> = (0..100).map(|_| Block::new(resource, random.usize(1..=5 * MIB), stream)).collect();
        blocks.into_iter().for_each(|block| block.give_back(resource, stream));
    })
}

pub fn mixed_random_allocation_free() -> Outcome {
    with_each(|resource, stream| mixed(resource, stream, 7))
}

pub fn multi_threaded_mixed_random_allocation_free() -> Outcome {
    with_each(|resource, stream| {
        thread::scope(|scope| {
            for seed in 1..=4 {
                scope.spawn(move || mixed(resource, stream, seed));
            }
        });
    })
}

/// 500 steps, of which 53 % allocate up to 5 MiB and the others free any of what is there.
fn mixed(resource: &dyn DeviceMemoryResource, stream: &Stream, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..500 {
        if random.usize(0..100) < 53 || blocks.is_empty() {
            blocks.push(Block::new(resource, random.usize(1..=5 * MIB), stream));
        } else {
            let index = random.usize(0..blocks.len());
            blocks.swap_remove(index).give_back(resource, stream);
        }
    }
    blocks.into_iter().for_each(|block| block.give_back(resource, stream));
}

struct Block {
    pointer: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: device memory belongs to no thread.
unsafe impl Send for Block {}

impl Block {
    fn new(resource: &dyn DeviceMemoryResource, bytes: usize, stream: &Stream) -> Self {
        let pointer = resource.allocate(bytes, stream).unwrap();
        assert_eq!(pointer.as_ptr() as usize % ALIGNMENT, 0);
        Self { pointer, bytes }
    }

    fn give_back(self, resource: &dyn DeviceMemoryResource, stream: &Stream) {
        // SAFETY: handed out in `new`, and not used.
        unsafe { resource.deallocate(self.pointer, self.bytes, stream) }.unwrap();
    }
}

pub fn allocate_on_one_thread_free_on_another_same_stream() -> Outcome {
    with_each(|resource, stream| {
        produce_and_consume(resource, stream, stream, |_| Ok(()));
    })
}

pub fn allocate_on_one_thread_free_on_another_other_stream() -> Outcome {
    with_each(|resource, stream| {
        let other = Stream::new(stream.device()).unwrap();
        let event = Event::new(stream.device()).unwrap();
        produce_and_consume(
            resource,
            stream,
            &other,
            |produced| {
                if produced {
                    event.record(stream)
                } else {
                    other.wait(&event)
                }
            },
        );
    })
}

/// One thread allocates, another frees, one block after the other. `order` is called after each allocation, with true,
/// and before each free.
fn produce_and_consume(
    resource: &(dyn DeviceMemoryResource + Sync),
    stream: &Stream,
    other: &Stream,
    order: impl Fn(bool) -> Result<()> + Sync,
) {
    let (send, receive) = mpsc::sync_channel::<Block>(0);
    let (done, wait) = mpsc::sync_channel::<()>(0);
    let order = &order;
    thread::scope(|scope| {
        scope.spawn(move || {
            for bytes in (1..=100).map(|count| count * KIB) {
                let block = Block::new(resource, bytes, stream);
                order(true).unwrap();
                send.send(block).unwrap();
                wait.recv().unwrap();
            }
        });
        scope.spawn(move || {
            for block in receive {
                order(false).unwrap();
                block.give_back(resource, other);
                done.send(()).unwrap();
            }
        });
    });
}

pub fn works_on_each_kind_of_default_stream() -> Outcome {
    anywhere(1, |_machine| {
        let device = device(0);
        let resource = resource();
        for stream in [Stream::legacy(device), Stream::per_thread(device)] {
            mixed(&resource, &stream, 3);
        }
    })
}

pub fn trim_gives_back_what_nobody_uses() -> Outcome {
    anywhere(1, |_machine| {
        let device = device(0);
        let resource = CudaAsyncMemoryResource::new(Some(64 * MIB), None, None).unwrap();
        assert!(resource.pool().usage().unwrap().reserved >= 64 * MIB as u64);
        resource.trim().unwrap();
        assert_eq!(resource.pool().usage().unwrap().reserved, 0);
        assert_eq!(resource.device(), device);
        assert_eq!(Device::current().unwrap(), device);
    })
}
