//! Faults, counters, leaks, devices, forks: what tests of other code lean on.

mod common;

use std::ffi::{c_int, c_void, CStr};
use std::process::Command;
use std::ptr::null_mut;

use common::*;
use cudart_sim::control::*;
use cudart_sim::cuda::*;

fn faults(rules: &CStr) -> cudaError {
    // SAFETY: a C string.
    unsafe { cudartSimAddFaults(rules.as_ptr()) }
}

fn calls(function: &CStr) -> u64 {
    // SAFETY: a C string.
    unsafe { cudartSimCalls(function.as_ptr()) }
}

fn device() -> cudaError {
    let mut device = 0;
    // SAFETY: the out pointer is valid.
    unsafe { cudaGetDevice(&mut device) }
}

#[test]
fn the_nth_call_fails_as_chosen() {
    let _alone = alone();
    ok(faults(c"cudaGetDevice#2=2,*#5=999"));
    let answers: Vec<u32> = (0..6).map(|_| device().0).collect();
    assert_eq!(answers, [0, 2, 0, 0, 999, 0]);
    // SAFETY: may be called at any time.
    unsafe {
        assert_eq!(cudaGetLastError(), cudaError::cudaErrorUnknown);
        assert_eq!(cudaGetLastError(), cudaError::cudaSuccess);
    }
    assert_eq!(calls(c"cudaGetDevice"), 6);
    assert_eq!(calls(c"cudaNothing"), u64::MAX);
    // SAFETY: null asks for all.
    assert!(unsafe { cudartSimCalls(std::ptr::null()) } >= 8);
}

#[test]
fn a_failed_call_does_nothing_else() {
    let _alone = alone();
    let stream = stream();
    let mut pointer = null_mut();
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        ok(faults(c"cudaMallocAsync#1=2,cudaFreeAsync#1=1"));
        assert_eq!(cudaMallocAsync(&mut pointer, 100, stream), cudaError::cudaErrorMemoryAllocation);
        assert!(pointer.is_null());
        ok(cudaMallocAsync(&mut pointer, 100, stream));
        assert_eq!(cudaFreeAsync(pointer, stream), cudaError::cudaErrorInvalidValue);
        assert_eq!(live().pool_allocations, 1);
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn a_sticky_fault_stays() {
    let _alone = alone();
    ok(faults(c"cudaStreamCreateWithFlags#1=719!"));
    let mut stream = null_mut();
    // SAFETY: the out pointer is valid.
    unsafe {
        let failed = cudaError::cudaErrorLaunchFailure;
        assert_eq!(cudaStreamCreateWithFlags(&mut stream, 0), failed);
        assert_eq!(cudaDeviceSynchronize(), failed);
        assert_eq!(cudaGetLastError(), failed);
        assert_eq!(cudaGetLastError(), failed);
        ok(device());
    }
}

#[test]
fn a_seeded_fraction_fails_the_same_each_time() {
    let _alone = alone();
    let mut runs = Vec::new();
    for _ in 0..2 {
        ok(faults(c"cudaGetDevice%0.25=3"));
        runs.push((0..1000).filter(|_| device() != cudaError::cudaSuccess).count());
        cudartSimClearFaults();
        ok(device());
    }
    assert_eq!(runs[0], runs[1]);
    assert!((150..350).contains(&runs[0]), "{} of 1000", runs[0]);
    for unreadable in [c"cudaNothing#1=2", c"cudaMalloc#0=2", c"cudaMalloc=2", c"cudaMalloc#1=x", c"*%1.5=2"] {
        assert_eq!(faults(unreadable), cudaError::cudaErrorInvalidValue);
    }
}

#[test]
fn functions_of_the_driver_fail_and_are_counted_by_name_alone() {
    let _alone = alone();
    let (mut address, mut found) = (std::ptr::null_mut(), cudaDriverEntryPointQueryResult(9));
    // SAFETY: the name is a C string and the out pointers are valid.
    ok(unsafe { cudaGetDriverEntryPointByVersion(c"cuDeviceGetCount".as_ptr(), &mut address, 12000, 0, &mut found) });
    // SAFETY: the driver's function of this name has this signature.
    let get_count: unsafe extern "C" fn(*mut i32) -> u32 = unsafe { std::mem::transmute(address) };
    let mut count = 0;
    // SAFETY: the out pointer is valid.
    let mut answer = || unsafe { get_count(&mut count) };
    ok(faults(c"cuDeviceGetCount#2=999,*%1=2"));
    assert_eq!([answer(), answer(), answer()], [0, 999, 0]);
    cudartSimClearFaults();
    assert_eq!(calls(c"cuDeviceGetCount"), 3);
    cudartSimReset();
    assert_eq!(calls(c"cuDeviceGetCount"), 0);
}

#[test]
fn what_is_not_given_back_is_counted_and_named() {
    let _alone = alone();
    let before = live();
    let (stream, event, pool) = (stream(), event(), pool(&device_props()));
    let pointer = allocate(pool, 1234, stream);
    let now = live();
    assert_eq!(now.objects() - before.objects(), 4);
    assert_eq!(now.bytes - before.bytes, 1234);
    let mut text = vec![0_u8; 4096];
    // SAFETY: the buffer has as many bytes; the handles are live.
    unsafe {
        cudartSimLeakReport(text.as_mut_ptr().cast(), text.len());
        let text = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap();
        assert!(text.contains("1234 bytes"), "{text}");
        assert!(text.contains("stream") && text.contains("event") && text.contains("pool"), "{text}");
        assert!(text.contains("1234 bytes in use"), "{text}");
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaMemPoolDestroy(pool));
        ok(cudaEventDestroy(event));
        ok(cudaStreamDestroy(stream));
    }
    assert_eq!(live(), before);
}

/// Runs a test of this program in a process of its own, with settings.
fn alone_with(test: &str, settings: &[(&str, &str)]) -> (bool, String) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["--exact", test, "--ignored", "--nocapture"]).envs(settings.iter().copied());
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
#[ignore = "runs in a process of its own"]
fn leaks_a_stream() {
    stream();
}

#[test]
fn leaks_are_reported_at_the_end() {
    let (good, said) = alone_with("leaks_a_stream", &[("CUDART_SIM_LEAKS", "1")]);
    assert!(good && said.contains("1 objects were never given back"), "{said}");
    let (good, said) = alone_with("leaks_a_stream", &[]);
    assert!(good && !said.contains("never given back"), "{said}");
}

#[test]
#[ignore = "runs in a process of its own"]
fn sees_the_settings() {
    let (mut count, mut version, mut total) = (0, 0, 0);
    // SAFETY: the out pointers are valid.
    unsafe {
        ok(cudaGetDeviceCount(&mut count));
        assert_eq!(count, 3);
        ok(cudaRuntimeGetVersion(&mut version));
        assert_eq!(version, 12040);
        ok(cudaDriverGetVersion(&mut version));
        assert_eq!(version, 13000);
        ok(cudaMemGetInfo(&mut 0, &mut total));
        assert_eq!(total, 64 << 20);
        let mut can = 1;
        ok(cudaDeviceCanAccessPeer(&mut can, 0, 1));
        assert_eq!(can, 0);
        assert_eq!(cudaDeviceEnablePeerAccess(1, 0), cudaError::cudaErrorPeerAccessUnsupported);
        assert_eq!(cudaSetDevice(3), cudaError::cudaErrorInvalidDevice);
        let mut pointer = null_mut();
        assert_eq!(cudaMalloc(&mut pointer, 1), cudaError::cudaErrorMemoryAllocation, "the fault of the settings");
        assert_eq!(cudaMalloc(&mut pointer, 65 << 20), cudaError::cudaErrorMemoryAllocation);
        ok(cudaMalloc(&mut pointer, 60 << 20));
        ok(cudaFree(pointer));
    }
}

#[test]
fn the_environment_sets_devices_memory_versions_and_faults() {
    let settings = [
        ("CUDART_SIM_DEVICES", "3"),
        ("CUDART_SIM_RUNTIME_VERSION", "12040"),
        ("CUDART_SIM_MEMORY", "64M"),
        ("CUDART_SIM_PEERS", "0"),
        ("CUDART_SIM_FAULTS", "cudaMalloc#1=2"),
    ];
    let (good, said) = alone_with("sees_the_settings", &settings);
    assert!(good, "{said}");
    let (good, said) = alone_with("sees_the_settings", &[("CUDART_SIM_MEMORY", "much")]);
    assert!(!good && said.contains("CUDART_SIM_MEMORY cannot be"), "{said}");
}

#[test]
#[ignore = "runs in a process of its own"]
fn has_no_device() {
    let mut count = 7;
    // SAFETY: the out pointers are valid.
    unsafe {
        assert_eq!(cudaGetDeviceCount(&mut count), cudaError::cudaErrorNoDevice);
        assert_eq!(count, 0);
        assert_eq!(cudaMalloc(&mut null_mut(), 1), cudaError::cudaErrorNoDevice);
    }
}

#[test]
fn there_may_be_no_device() {
    let (good, said) = alone_with("has_no_device", &[("CUDART_SIM_DEVICES", "0")]);
    assert!(good, "{said}");
}

#[test]
#[ignore = "runs in a process of its own"]
fn makes_a_race() {
    let stream = stream();
    let mut pointer = null_mut();
    // SAFETY: the freed address is only looked up.
    unsafe {
        ok(cudaMallocAsync(&mut pointer, 100, stream));
        ok(cudaFreeAsync(pointer, stream));
        cudaMemsetAsync(pointer, 0, 100, stream);
    }
}

#[test]
fn a_race_can_end_the_process() {
    let (good, said) = alone_with("makes_a_race", &[("CUDART_SIM_RACES", "abort")]);
    assert!(!good && said.contains("race: use after free"), "{said}");
    let (good, said) = alone_with("makes_a_race", &[("CUDART_SIM_RACES", "count")]);
    assert!(good && !said.contains("race:"), "{said}");
}

#[test]
fn a_forked_child_is_refused() {
    let _alone = alone();
    let stream = stream();
    let mut pointer = null_mut();
    // SAFETY: the pointers are valid; the child only makes calls that touch nothing but a flag.
    unsafe {
        ok(cudaMallocAsync(&mut pointer, 100, stream));
        let child = libc::fork();
        if child == 0 {
            let mut number: c_int = 0;
            let good = cudaFreeAsync(pointer, stream) == cudaError::cudaSuccess
                && cudaGetDevice(&mut number) == cudaError::cudaErrorInitializationError
                && cudaMalloc(&mut pointer, 1) == cudaError::cudaErrorInitializationError;
            libc::_exit(if good { 0 } else { 1 });
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaStreamDestroy(stream));
    }
}

#[test]
fn devices_tell_what_they_are() {
    let _alone = alone();
    let attribute = |attribute| {
        let mut value = 99;
        // SAFETY: the out pointer is valid.
        let answer = unsafe { cudaDeviceGetAttribute(&mut value, attribute, 0) };
        (answer, value)
    };
    let expected = [
        (cudaDeviceAttr::cudaDevAttrMemoryPoolsSupported, 1),
        (cudaDeviceAttr::cudaDevAttrMemoryPoolSupportedHandleTypes, 9),
        (cudaDeviceAttr::cudaDevAttrHostNumaId, 0),
        (cudaDeviceAttr::cudaDevAttrNumaId, -1),
        (cudaDeviceAttr::cudaDevAttrHostMemoryPoolsSupported, 1),
        (cudaDeviceAttr::cudaDevAttrHostNumaMemoryPoolsSupported, 1),
        (cudaDeviceAttr::cudaDevAttrHostNumaMultinodeIpcSupported, 0),
        (cudaDeviceAttr::cudaDevAttrConcurrentManagedAccess, 1),
        (cudaDeviceAttr::cudaDevAttrPageableMemoryAccess, 0),
        (cudaDeviceAttr::cudaDevAttrIpcEventSupport, 1),
    ];
    for (asked, value) in expected {
        assert_eq!(attribute(asked), (cudaError::cudaSuccess, value), "{asked:?}");
    }
    assert_eq!(attribute(cudaDeviceAttr(5000)).0, cudaError::cudaErrorInvalidValue);
    let (mut id, mut least, mut greatest) = ([0; 16], 9, 9);
    // SAFETY: the out pointers are valid; the texts live for ever.
    unsafe {
        ok(cudaDeviceGetPCIBusId(id.as_mut_ptr(), 16, 0));
        assert_eq!(CStr::from_ptr(id.as_ptr()).to_bytes(), b"0000:01:00.0");
        assert_eq!(cudaDeviceGetPCIBusId(id.as_mut_ptr(), 5, 0), cudaError::cudaErrorInvalidValue);
        ok(cudaDeviceGetStreamPriorityRange(&mut least, &mut greatest));
        assert_eq!((least, greatest), (0, -5));
        let name = |error| CStr::from_ptr(cudaGetErrorName(error)).to_str().unwrap();
        assert_eq!(name(cudaError::cudaErrorInvalidValue), "cudaErrorInvalidValue");
        assert_eq!(name(cudaError::cudaSuccess), "cudaSuccess");
        assert_eq!(name(cudaError(12345)), "unrecognized error code");
        let text = CStr::from_ptr(cudaGetErrorString(cudaError::cudaErrorInvalidResourceHandle));
        assert_eq!(text.to_str().unwrap(), "invalid resource handle");
    }
}

#[test]
fn the_driver_tells_the_range_of_a_pointer() {
    type GetAttribute = unsafe extern "C" fn(*mut c_void, u32, u64) -> u32;
    const RANGE_START: u32 = 11;
    const RANGE_SIZE: u32 = 12;
    let _alone = alone();
    let stream = stream();
    // SAFETY: the function has this type; the pointers are valid for the calls.
    unsafe {
        let (mut pointer, mut address, mut found) = (null_mut(), null_mut(), cudaDriverEntryPointQueryResult(9));
        ok(cudaMallocAsync(&mut pointer, 100_000, stream));
        let name = c"cuPointerGetAttribute".as_ptr();
        ok(cudaGetDriverEntryPointByVersion(name, &mut address, 12000, 0, &mut found));
        let get = std::mem::transmute::<*mut c_void, GetAttribute>(address);
        let (mut start, mut size) = (0_u64, 0_usize);
        assert_eq!(get(std::ptr::addr_of_mut!(start).cast(), RANGE_START, pointer as u64 + 5000), 0);
        assert_eq!(get(std::ptr::addr_of_mut!(size).cast(), RANGE_SIZE, pointer as u64), 0);
        assert_eq!((start, size), (pointer as u64, 100_000));
        assert_eq!(get(std::ptr::addr_of_mut!(size).cast(), RANGE_SIZE, 0x1000), 1);
        ok(cudaFreeAsync(pointer, stream));
        ok(cudaStreamDestroy(stream));
    }
}
