//! Resources that cannot be made, and others than that of a device pool.

use std::sync::Arc;

use cuda_mempool::resource::{
    AllocationHandleType, CudaAsyncManagedMemoryResource, CudaAsyncMemoryResource, CudaAsyncPinnedMemoryResource,
    DeviceMemoryResource,
};
use cuda_mempool::{DeviceBuffer, ErrorKind, Location, Stream};

use crate::apart::apart;
use crate::sim::{self, must};

/// Fails each call of the construction once: the error comes out and nothing is left.
#[test]
fn nothing_leaks_when_construction_fails_half_way() {
    apart(1, |sim| {
        let make =
            || CudaAsyncMemoryResource::new(Some(1 << 20), None, Some(AllocationHandleType::PosixFileDescriptor));
        drop(must(make()));
        let mut before = sim.live();
        let mut failed = 0;
        for call in 1.. {
            sim.reset();
            sim.add_fault(&format!("*#{call}=2"));
            let made = make();
            if sim.all_calls() < call {
                break;
            }
            sim.clear_faults();
            failed += usize::from(made.is_err());
            drop(made);
            // Frees that no stream was waited for are done then. What could not be destroyed was told.
            must(sim::device(0).synchronize());
            if sim::heard().is_empty() {
                assert_eq!(sim.live(), before, "after a failure of call {call}");
            }
            before = sim.live();
        }
        assert!(failed > 5, "{failed} calls failed");
    });
}

#[test]
fn unsupported_handle_types_are_refused_before_a_pool_is_made() {
    apart(1, |sim| {
        for handle_type in [AllocationHandleType::Win32, AllocationHandleType::Win32Kmt] {
            sim.reset();
            let error = CudaAsyncMemoryResource::new(Some(0), None, Some(handle_type)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("cudaDevAttrMemoryPoolSupportedHandleTypes"), "{error}");
            assert_eq!(sim.calls("cudaMemPoolCreate"), 0);
        }
    });
}

#[test]
fn an_initial_size_that_cannot_be_had_is_out_of_memory() {
    apart(1, |sim| {
        let before = sim.live();
        let error = CudaAsyncMemoryResource::new(Some(1 << 50), None, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(sim.live(), before);
    });
}

#[test]
fn managed_memory_is_a_resource() {
    apart(1, |_sim| {
        let resource = must(CudaAsyncManagedMemoryResource::new(None));
        assert_eq!(resource.pool().location(), Location::Managed);
        assert_eq!(must(resource.pool().release_threshold()), u64::MAX);
        serves_buffers(resource);
    });
}

#[test]
fn pinned_memory_of_the_host_is_a_resource() {
    apart(1, |_sim| {
        for node in [None, Some(0)] {
            let resource = must(CudaAsyncPinnedMemoryResource::new(node, Some(1 << 20)));
            assert_eq!(must(resource.pool().release_threshold()), 1 << 20);
            serves_buffers(resource);
        }
        assert!(CudaAsyncPinnedMemoryResource::new(Some(99), None).is_err(), "there is no such node");
    });
}

fn serves_buffers(resource: impl DeviceMemoryResource + Send + Sync + 'static) {
    let stream = must(Stream::new(resource.device()));
    let mut buffer = must(DeviceBuffer::<u32>::from_resource(Arc::new(resource), &stream, 100));
    must(buffer.fill(7));
    assert_eq!(must(buffer.to_vec()), [7; 100]);
}
