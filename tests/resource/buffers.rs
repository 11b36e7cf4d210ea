//! Buffers that come from resources.

use std::sync::Arc;

use cuda_mempool::resource::{
    CudaAsyncMemoryResource, DeviceMemoryResource, LimitAdaptor, RetryAdaptor, StatisticsAdaptor,
};
use cuda_mempool::{BlockCache, DeviceBuffer, ErrorKind, Home, Stream};

use crate::apart::{anywhere, simulated};
use crate::sim::{self, must};
use crate::suite::Outcome;

type Shared = Arc<dyn DeviceMemoryResource + Send + Sync>;

/// RMM: buffers moved, resized and shrunk.
pub fn rmm_device_buffer_moved_and_resized() -> Outcome {
    anywhere(1, |_machine| {
        let stream = must(Stream::new(sim::device(0)));
        let counted = Arc::new(StatisticsAdaptor::new(must(CudaAsyncMemoryResource::new(Some(0), None, None))));
        let resource: Shared = counted.clone();

        let mut buffer = must(DeviceBuffer::<u32>::from_resource(resource.clone(), &stream, 100));
        must(buffer.fill(5));
        let mut moved = buffer;
        assert_eq!((moved.len(), counted.blocks().current), (100, 1));

        let mut larger = must(DeviceBuffer::from_resource(resource.clone(), &stream, 200));
        must(larger.slice_mut(..100).copy_from(moved.as_slice()));
        moved = larger;
        assert_eq!(counted.bytes().current, 800, "the smaller one was given back when it was replaced");
        assert_eq!(must(moved.slice(..100).to_vec()), [5; 100]);

        let mut smaller = must(DeviceBuffer::from_resource(resource, &stream, 10));
        must(smaller.copy_from(moved.slice(..10)));
        drop(moved);
        assert_eq!(must(smaller.to_vec()), [5; 10]);
        drop(smaller);
        assert_eq!(counted.blocks().current, 0);
    })
}

/// RMM: a buffer is made and dropped with another device current.
pub fn rmm_device_buffer_on_another_device() -> Outcome {
    anywhere(2, |_machine| {
        let [first, second] = [sim::device(0), sim::device(1)];
        let resource =
            must(second.with_current(|| CudaAsyncMemoryResource::new(Some(0), None, None)).and_then(|made| made));
        assert_eq!(resource.device(), second);
        let stream = must(Stream::new(second));
        let mut buffer = must(DeviceBuffer::<u32>::from_resource(Arc::new(resource), &stream, 100));
        must(buffer.fill(1));
        assert_eq!(must(must(first.with_current(|| buffer.to_vec()))), [1; 100]);
        must(first.with_current(|| drop(buffer)));
        must(stream.synchronize());
    })
}

pub fn a_buffer_keeps_its_resource() -> Outcome {
    anywhere(1, |_machine| {
        let stream = must(Stream::new(sim::device(0)));
        let resource: Shared = Arc::new(must(CudaAsyncMemoryResource::new(Some(0), None, None)));
        let kept = Arc::downgrade(&resource);
        let mut buffer = must(DeviceBuffer::<u8>::from_resource(resource, &stream, 100));
        must(buffer.fill(1));
        assert!(kept.upgrade().is_some());
        assert_eq!(must(buffer.to_vec()), [1; 100]);
        drop(buffer);
        assert!(kept.upgrade().is_none());
    })
}

pub fn no_bytes_are_never_asked_for() -> Outcome {
    anywhere(1, |_machine| {
        let stream = must(Stream::new(sim::device(0)));
        let counted = Arc::new(StatisticsAdaptor::new(must(CudaAsyncMemoryResource::new(Some(0), None, None))));
        drop(must(DeviceBuffer::<u32>::from_resource(counted.clone(), &stream, 0)));
        let error = DeviceBuffer::<u64>::from_resource(counted.clone(), &stream, usize::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SizeOverflow);
        assert_eq!(counted.blocks().total, 0);
    })
}

pub fn taken_apart_and_put_together_a_buffer_still_goes_home() -> Outcome {
    anywhere(1, |_machine| {
        let stream = must(Stream::new(sim::device(0)));
        let counted = Arc::new(StatisticsAdaptor::new(must(CudaAsyncMemoryResource::new(Some(0), None, None))));
        let cache = BlockCache::new(counted.upstream().pool(), &stream);
        let buffers = [
            must(DeviceBuffer::<u8>::from_resource(counted.clone(), &stream, 100)),
            must(cache.alloc(100)),
            must(counted.upstream().pool().alloc(&stream, 100)),
        ];
        let homes = buffers.map(|buffer| {
            let raw = buffer.into_raw();
            let home = raw.home.clone();
            // SAFETY: taken apart above.
            drop(unsafe { DeviceBuffer::from_raw(raw) });
            home
        });
        assert_eq!(homes.map(|home| home.is_runtime()), [false, false, true]);
        assert!(Home::default().is_runtime());
        assert_eq!(counted.blocks().current, 0);
        assert_eq!(cache.stats().cached_blocks, 1);
    })
}

pub fn a_resource_that_refuses_leaves_the_buffer_with_close() -> Outcome {
    simulated(1, |sim| {
        let stream = must(Stream::new(sim::device(0)));
        let counted = Arc::new(StatisticsAdaptor::new(must(CudaAsyncMemoryResource::new(Some(0), None, None))));
        let mut buffer = must(DeviceBuffer::<u8>::from_resource(counted.clone(), &stream, 100));
        must(buffer.fill(3));
        sim.add_fault("cudaFreeAsync#1=999");
        let (buffer, error) = buffer.close().unwrap_err();
        assert_eq!(error.function(), "cudaFreeAsync");
        assert_eq!(must(buffer.to_vec()), [3; 100]);
        assert_eq!(counted.blocks().current, 1);
        assert!(buffer.close().is_ok());
        assert_eq!(counted.blocks().current, 0);
    })
}

pub fn adaptors_nest_over_a_pool() -> Outcome {
    anywhere(1, |machine| {
        let stream = must(Stream::new(sim::device(0)));
        let pool = must(CudaAsyncMemoryResource::new(Some(0), None, None));
        let resource = Arc::new(StatisticsAdaptor::new(RetryAdaptor::new(LimitAdaptor::new(pool, 1000))));
        let first = must(DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, 600));
        machine.count_calls();
        let error = DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, 600).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        // It made room.
        machine.assert_calls("cudaStreamSynchronize", 1);
        machine.assert_calls("cudaMemPoolTrimTo", 1);
        assert_eq!(resource.bytes().current, 600);
        drop(first);
        assert_eq!(resource.bytes().current, 0);
    })
}
