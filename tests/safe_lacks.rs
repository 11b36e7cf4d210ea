//! What the safe layer does where the machine lacks something, as the simulated runtime can be told to.

#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

use std::path::Path;
use std::process::Command;

use cuda_mempool::{
    sys, Access, Device, Error, ErrorKind, Event, Feature, HandleTypes, Location, MemPool, Stream, Support, Version,
};
use sim::must;
use suite::{Outcome, Skip};

fn fails<T>(result: Result<T, Error>) -> Error {
    result.err().expect("this must fail")
}

fn no_way_to_a_peer_names_both_devices() -> Outcome {
    let sim = suite::simulated(2)?;
    let [owner, peer] = [0, 1].map(sim::device);
    sim.set_peer_access(1, 0, false);
    let error = fails(MemPool::builder(owner).grant(peer, Access::ReadWrite).build());
    sim.set_peer_access(1, 0, true);
    assert_eq!((error.kind(), error.peers()), (ErrorKind::PeerAccess, Some((peer, owner))));
    assert!(error.to_string().contains("device 1 cannot reach the memory of device 0"), "{error}");
    Ok(())
}

fn old_drivers_are_told_from_devices_that_cannot() -> Outcome {
    let sim = suite::simulated(1)?;
    let device = sim::device(0);
    let answers = |driver| {
        sim.set_versions(13000, driver);
        let features = [Feature::MemoryPools, Feature::HostNumaPools, Feature::HostPools, Feature::ManagedPools];
        features.map(|feature| must(device.supports(feature)))
    };
    assert_eq!(answers(11080), [Support::Yes, Support::No, Support::No, Support::No]);
    let error = fails(MemPool::builder(Location::HostNuma(0)).build());
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.missing().is_some_and(|what| what.contains("12.2")), "{error}");
    let error = fails(MemPool::builder(device).handle_types(HandleTypes::FABRIC).build());
    assert!(error.missing().is_some_and(|what| what.contains("12.4")), "{error}");
    assert_eq!(answers(13000), [Support::Yes; 4]);
    sim.add_fault("cudaDeviceGetAttribute#1=1");
    assert_eq!(must(device.supports(Feature::MemoryPools)), Support::Unknown, "an unknown question is no no");
    sim.add_fault("cudaDeviceGetAttribute#1=1");
    must(MemPool::builder(device).build());
    Ok(())
}

/// Drivers for CUDA 12.2 to 12.8 have pools on NUMA nodes, and no attribute that says so.
fn host_pools_are_tried_where_the_driver_does_not_tell() -> Outcome {
    let sim = suite::simulated(1)?;
    let device = sim::device(0);
    let stream = must(Stream::new(device));
    sim.add_fault("cudaDeviceGetAttribute%1=1");
    assert_eq!(must(device.supports(Feature::HostNumaPools)), Support::Unknown);
    let pool = must(MemPool::builder(Location::HostNuma(0)).build());
    let buffer = must(pool.from_slice(&stream, &[1_u8, 2, 3]));
    assert_eq!(must(buffer.to_vec()), [1, 2, 3]);
    Ok(())
}

/// The runtime says no more than that something is invalid.
fn properties_that_a_driver_does_not_take_are_named() -> Outcome {
    let sim = suite::simulated(1)?;
    let on_device = || MemPool::builder(sim::device(0));
    for (builder, driver, since) in
        [(on_device().max_size(1 << 20), 12010, "12.2"), (on_device().hw_decompress(true), 12060, "12.8")]
    {
        sim.set_versions(13000, driver);
        sim.add_fault("cudaMemPoolCreate#1=1");
        let error = fails(builder.build());
        sim.set_versions(13000, 13000);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.missing().is_some_and(|what| what.contains(since)), "{error}");
    }
    sim.add_fault("cudaMemPoolCreate#1=1");
    let error = fails(MemPool::builder(Location::Managed).max_size(1 << 20).build());
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    assert!(error.to_string().contains("maximal size"), "{error}");
    Ok(())
}

/// Devices were seen to allocate host memory that they cannot use, and to fail at the first copy.
fn host_memory_is_not_allocated_for_a_device_that_cannot_use_it() -> Outcome {
    let sim = suite::simulated(1)?;
    let stream = must(Stream::new(sim::device(0)));
    for (location, driver, since) in [(Location::HostNuma(0), 12010, "12.2"), (Location::Host, 12090, "13.0")] {
        let pool = must(MemPool::builder(location).build());
        sim.set_versions(13000, driver);
        let error = fails(pool.alloc::<u8>(&stream, 100));
        sim.set_versions(13000, 13000);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.missing().is_some_and(|what| what.contains(since)), "{error}");
        assert_eq!(sim.calls("cudaMallocFromPoolAsync"), 0);
    }
    Ok(())
}

/// A runtime that has next to nothing: calls answer which function is missing, and since when it is there.
fn a_missing_function_is_a_typed_error() -> Outcome {
    if sys::LinkKind::CURRENT != sys::LinkKind::Dlopen {
        return Skip::because("the linker has found every function");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libcudart_poor.so");
    build_poor_runtime(folder.path(), &library);
    let status = suite::child("on_a_poor_runtime").env("CUDA_MEMPOOL_CUDART", &library).status();
    assert!(status.expect("the child starts").success());
    Ok(())
}

fn build_poor_runtime(folder: &Path, library: &Path) {
    const SOURCE: &str = "
        int cudaRuntimeGetVersion(int *version) { *version = 12040; return 0; }
        int cudaDriverGetVersion(int *version) { *version = 12040; return 0; }
        int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
        int cudaGetLastError(void) { return 0; }
    ";
    let source = folder.join("poor.c");
    std::fs::write(&source, SOURCE).expect("the source is written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).arg(library).arg(&source).status();
    assert!(status.expect("a C compiler").success());
}

fn on_a_poor_runtime() {
    let device = must(Device::new(0));
    let error = fails(MemPool::default_for(Location::Host));
    assert_eq!((error.kind(), error.function()), (ErrorKind::Unsupported, "cudaMemGetDefaultMemPool"));
    let what = error.missing().expect("it says what is missing");
    let of_what = if cfg!(cuda_since_13_0) { "runtime 12.4" } else { "this program" };
    for part in [of_what, "cudaMemGetDefaultMemPool", "CUDA 13.0"] {
        assert!(what.contains(part), "{what}");
    }
    let error = fails(Event::new(device));
    assert_eq!((error.kind(), error.function()), (ErrorKind::Unsupported, "cudaGetDevice"));
    assert_eq!(error.raw(), sys::cudaError_t::cudaErrorSharedObjectSymbolNotFound);
    assert_eq!(must(Version::of_runtime()), Version::new(12, 4));
    // No name can be asked for: the number is in the text.
    assert!(error.to_string().contains("cudaGetDevice"), "{error}");
}

suite! {
    tests: [
        no_way_to_a_peer_names_both_devices,
        old_drivers_are_told_from_devices_that_cannot,
        host_pools_are_tried_where_the_driver_does_not_tell,
        properties_that_a_driver_does_not_take_are_named,
        host_memory_is_not_allocated_for_a_device_that_cannot_use_it,
        a_missing_function_is_a_typed_error,
    ],
    roles: [on_a_poor_runtime],
}
