//! Buffers that come from resources.

use std::sync::Arc;

use cuda_mempool::resource::{
    CudaAsyncMemoryResource, DeviceMemoryResource, LimitAdaptor, RetryAdaptor, StatisticsAdaptor,
};
use cuda_mempool::{BlockCache, DeviceBuffer, ErrorKind, Home, Stream};

use crate::apart::apart;
use crate::sim::{self, must};

type Shared = Arc<dyn DeviceMemoryResource + Send + Sync>;

/// RMM: buffers moved, resized and shrunk.
#[test]
fn rmm_device_buffer_moved_and_resized() {
    apart(1, |sim| {
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
        assert_eq!(sim.races(), 0, "{}", sim.last_race());
    });
}

/// RMM: a buffer is made and dropped with another device current.
#[test]
fn rmm_device_buffer_on_another_device() {
    apart(2, |sim| {
        let [first, second] = [sim::device(0), sim::device(1)];
        let resource =
            must(second.with_current(|| CudaAsyncMemoryResource::new(Some(0), None, None)).and_then(|made| made));
        assert_eq!(resource.device(), second);
        let stream = must(Stream::new(second));
        let mut buffer = must(DeviceBuffer::<u32>::from_resource(Arc::new(resource), &stream, 100));
        must(buffer.fill(1));
        must(first.with_current(|| drop(buffer)));
        must(stream.synchronize());
        assert_eq!((sim.races(), sim::heard()), (0, vec![]));
    });
}

#[test]
fn a_buffer_keeps_its_resource() {
    apart(1, |sim| {
        let stream = must(Stream::new(sim::device(0)));
        let before = sim.live();
        let resource: Shared = Arc::new(must(CudaAsyncMemoryResource::new(Some(0), None, None)));
        let mut buffer = must(DeviceBuffer::<u8>::from_resource(resource, &stream, 100));
        must(buffer.zero());
        assert_eq!(sim.live().pools, before.pools + 1);
        drop(buffer);
        assert_eq!(sim.live(), before);
    });
}

#[test]
fn no_bytes_are_never_asked_for() {
    apart(1, |_sim| {
        let stream = must(Stream::new(sim::device(0)));
        let counted = Arc::new(StatisticsAdaptor::new(must(CudaAsyncMemoryResource::new(Some(0), None, None))));
        drop(must(DeviceBuffer::<u32>::from_resource(counted.clone(), &stream, 0)));
        let error = DeviceBuffer::<u64>::from_resource(counted.clone(), &stream, usize::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SizeOverflow);
        assert_eq!(counted.blocks().total, 0);
    });
}

#[test]
fn taken_apart_and_put_together_a_buffer_still_goes_home() {
    apart(1, |_sim| {
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
    });
}

#[test]
fn a_resource_that_refuses_leaves_the_buffer_with_close() {
    apart(1, |sim| {
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
    });
}

#[test]
fn adaptors_nest_over_a_pool() {
    apart(1, |sim| {
        let stream = must(Stream::new(sim::device(0)));
        let pool = must(CudaAsyncMemoryResource::new(Some(0), None, None));
        let resource = Arc::new(StatisticsAdaptor::new(RetryAdaptor::new(LimitAdaptor::new(pool, 1000))));
        let first = must(DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, 600));
        sim.reset();
        let error = DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, 600).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!((sim.calls("cudaStreamSynchronize"), sim.calls("cudaMemPoolTrimTo")), (1, 1), "it made room");
        assert_eq!(resource.bytes().current, 600);
        drop(first);
        assert_eq!(resource.bytes().current, 0);
    });
}
