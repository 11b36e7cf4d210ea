//! How resources are made, or not, and what kernels find in their memory.

use std::mem::size_of;
use std::sync::Arc;

use cuda_mempool::resource::{
    AllocationHandleType, CudaAsyncManagedMemoryResource, CudaAsyncMemoryResource, CudaAsyncPinnedMemoryResource,
    DeviceMemoryResource,
};
use cuda_mempool::{DeviceBuffer, ErrorKind, Feature, Location, MemPool, Stream, Support};

use crate::apart::{anywhere, simulated, with_kernels};
use crate::launcher::Launcher;
use crate::sim::{self, must};
use crate::suite::{self, Outcome, Skip};

const MIB: usize = 1 << 20;

/// What a construction and its end call, but for what only reads.
const FUNCTIONS: &[&str] = &[
    "cudaFreeAsync",
    "cudaGetDevice",
    "cudaMallocFromPoolAsync",
    "cudaMemGetInfo",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolTrimTo",
    "cudaSetDevice",
    "cudaStreamCreateWithFlags",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
];

/// Fails each call of the construction once: the error comes out and nothing is left.
pub fn nothing_leaks_when_construction_fails_half_way() -> Outcome {
    simulated(1, |sim| {
        let make =
            || CudaAsyncMemoryResource::new(Some(1 << 20), None, Some(AllocationHandleType::PosixFileDescriptor));
        let mut failed = 0;
        for function in FUNCTIONS {
            for call in 1.. {
                let before = sim.settled();
                sim.reset();
                sim.add_fault(&format!("{function}#{call}=2"));
                let made = make();
                failed += usize::from(made.is_err());
                drop(made);
                let met = sim.calls(function) >= call;
                sim.clear_faults();
                // What could not be destroyed was told.
                if sim::heard().is_empty() {
                    assert_eq!(sim.settled(), before, "after a failure of call {call} of {function}");
                }
                if !met {
                    break;
                }
            }
        }
        assert!(failed > 5, "{failed} calls failed");
    })
}

pub fn unsupported_handle_types_are_refused_before_a_pool_is_made() -> Outcome {
    anywhere(1, |machine| {
        for handle_type in [AllocationHandleType::Win32, AllocationHandleType::Win32Kmt] {
            machine.count_calls();
            let error = CudaAsyncMemoryResource::new(Some(0), None, Some(handle_type)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("cudaDevAttrMemoryPoolSupportedHandleTypes"), "{error}");
            machine.assert_calls("cudaMemPoolCreate", 0);
        }
    })
}

pub fn an_initial_size_that_cannot_be_had_is_out_of_memory() -> Outcome {
    anywhere(1, |_machine| {
        let free = || must(sim::device(0).memory()).free;
        let before = free();
        let error = CudaAsyncMemoryResource::new(Some(1 << 50), None, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(free() + MIB * 64 >= before, "{} bytes are gone", before - free());
    })
}

/// Half of what is free is the resource's from the start, and the device's again in the end.
pub fn all_defaults() -> Outcome {
    with_kernels(|_machine, launcher| {
        let free = || must(sim::device(0).memory()).free;
        let before = free();
        let resource = Arc::new(must(CudaAsyncMemoryResource::new(None, None, None)));
        let reserved = || must(resource.pool().usage()).reserved;
        let primed = reserved();
        assert!(free() < before / 2 + before / 16, "{} bytes free of {before}", free());

        // Any stream gets that memory, and takes no more from the device.
        let buffers = [16, 64].map(|size| serves_kernels(resource.clone(), launcher, size * MIB / size_of::<u32>()));
        assert_eq!(reserved(), primed);
        drop(buffers);
        must(sim::device(0).synchronize());
        assert_eq!(reserved(), primed, "the threshold is the device's total memory");
        drop(resource);
        assert!(free() + before / 16 >= before, "{} bytes free of {before}", free());
    })
}

pub fn managed_memory_is_a_resource() -> Outcome {
    needs(Feature::ManagedPools)?;
    with_kernels(|_machine, launcher| {
        let resource = must(CudaAsyncManagedMemoryResource::new(None));
        assert_eq!(resource.pool().location(), Location::Managed);
        assert_eq!(must(resource.pool().release_threshold()), u64::MAX);
        serves_kernels(Arc::new(resource), launcher, MIB);
    })
}

pub fn pinned_memory_of_the_host_is_a_resource() -> Outcome {
    needs(Feature::HostPools)?;
    with_kernels(|_machine, launcher| {
        let resource = must(CudaAsyncPinnedMemoryResource::new(None, None));
        assert_eq!(resource.pool().location(), Location::Host);
        assert_eq!(must(resource.pool().release_threshold()), u64::MAX);
        serves_kernels(Arc::new(resource), launcher, MIB);
    })
}

pub fn pinned_memory_of_a_node_is_a_resource() -> Outcome {
    needs(Feature::HostNumaPools)?;
    with_kernels(|_machine, launcher| {
        let node = must(sim::device(0).host_numa_node()).unwrap_or(0);
        let resource = must(CudaAsyncPinnedMemoryResource::new(Some(node), Some(MIB)));
        assert_eq!(resource.pool().location(), Location::HostNuma(node));
        assert_eq!(must(resource.pool().release_threshold()), MIB as u64);
        serves_kernels(Arc::new(resource), launcher, MIB);
        assert!(CudaAsyncPinnedMemoryResource::new(Some(4096), None).is_err(), "there is no such node");
    })
}

fn needs(feature: Feature) -> Outcome {
    match must(suite::device()?.supports(feature)) {
        Support::No => Skip::because(format!("the device has no {feature:?}")),
        _ => Ok(()),
    }
}

/// A buffer of the resource, written by a kernel and read by the host.
fn serves_kernels(
    resource: Arc<dyn DeviceMemoryResource + Send + Sync>,
    launcher: &Launcher<'_>,
    length: usize,
) -> DeviceBuffer<u32> {
    let stream = must(Stream::new(resource.device()));
    let mut buffer = must(DeviceBuffer::<u32>::from_resource(resource, &stream, length));
    // SAFETY: the buffer has that many elements, on that stream.
    unsafe { launcher.fill(&stream, buffer.as_mut_ptr(), length, 7) };
    // Its other end by way of another pool's memory.
    let mut end = must(must(MemPool::default_for(stream.device())).alloc::<u32>(&stream, 100));
    must(end.copy_from(buffer.slice(length - 100..)));
    assert_eq!(must(end.to_vec()), [7; 100]);
    must(buffer.slice_mut(..100).fill(8));
    assert_eq!(must(buffer.slice(..101).to_vec()), [[8; 100].as_slice(), &[7]].concat());
    buffer
}
