//! Every call of the safe layer is made to fail once: the caller or the drop hook hears of it, nothing leaks, nothing is
//! left in the thread's last error, and the next run is as if nothing had been.

#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

use std::collections::BTreeSet;

use cuda_mempool::{
    sys, Access, Device, DeviceBuffer, Error, ErrorKind, Event, Feature, HandleTypes, Location, MemPool, Result,
    ReusePolicy, Stream,
};
use sim::{device, Live, Sim};
use suite::Outcome;

/// Functions that read errors.
const READ_ERRORS: &[&str] = &["cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError", "cudaPeekAtLastError"];

/// The functions that the layer calls but for those, and for what it calls after a failure alone.
const FUNCTIONS: &[&str] = &[
    "cudaDeviceCanAccessPeer",
    "cudaDeviceGetAttribute",
    "cudaDeviceGetDefaultMemPool",
    "cudaDeviceGetGraphMemAttribute",
    "cudaDeviceGetMemPool",
    "cudaDeviceGetPCIBusId",
    "cudaDeviceGetStreamPriorityRange",
    "cudaDeviceGraphMemTrim",
    "cudaDeviceSetGraphMemAttribute",
    "cudaDeviceSetMemPool",
    "cudaDeviceSynchronize",
    "cudaDriverGetVersion",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventSynchronize",
    "cudaFreeAsync",
    "cudaGetDevice",
    "cudaGetDeviceCount",
    "cudaLaunchHostFunc",
    "cudaMalloc",
    "cudaMallocFromPoolAsync",
    "cudaMemGetDefaultMemPool",
    "cudaMemGetInfo",
    "cudaMemGetMemPool",
    "cudaMemPoolCreate",
    "cudaMemPoolDestroy",
    "cudaMemPoolGetAccess",
    "cudaMemPoolGetAttribute",
    "cudaMemPoolSetAccess",
    "cudaMemPoolSetAttribute",
    "cudaMemPoolTrimTo",
    "cudaMemSetMemPool",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "cudaRuntimeGetVersion",
    "cudaSetDevice",
    "cudaStreamCreateWithFlags",
    "cudaStreamCreateWithPriority",
    "cudaStreamDestroy",
    "cudaStreamIsCapturing",
    "cudaStreamQuery",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
];

/// Those of them that bindings before 13.0 do not have.
const NEW_IN_13: &[&str] = &["cudaMemGetDefaultMemPool", "cudaMemGetMemPool", "cudaMemSetMemPool"];

/// What a failure leaves behind, because it is the release that failed. An allocation is one, of a pool or not.
fn may_leak(function: &str) -> Live {
    let mut live = Live::default();
    match function {
        "cudaFreeAsync" => live.pool_allocations = 1,
        "cudaStreamDestroy" => live.streams = 1,
        "cudaEventDestroy" => live.events = 1,
        "cudaMemPoolDestroy" => live.pools = 1,
        // What a release needs before it.
        "cudaGetDevice" | "cudaSetDevice" | "cudaDeviceSynchronize" => live.pool_allocations = 1,
        _ => {}
    }
    live
}

/// A part of the layer's surface. Whatever fails must come out as its error.
type Scenario = (&'static str, fn() -> Result<()>);

const SCENARIOS: &[Scenario] = &[
    ("devices", devices),
    ("streams and events", streams_and_events),
    ("pools", pools),
    ("current pools", current_pools),
    ("buffers", buffers),
    ("buffers across streams", buffers_across_streams),
    ("buffers of no pool", buffers_of_no_pool),
    ("scopes", scopes),
    ("default streams", default_streams),
    ("out of memory", out_of_memory),
    ("graph memory", graph_memory),
];

fn devices() -> Result<()> {
    for device in Device::all()? {
        device.memory()?;
        device.pci_bus_id()?;
        device.host_numa_node()?;
        for &feature in Feature::ALL {
            device.supports(feature)?;
        }
    }
    Device::new(1)?.with_current(Device::current)??;
    Device::new(1)?.can_access(Device::new(0)?)?;
    cuda_mempool::Version::of_runtime()?;
    Ok(())
}

fn streams_and_events() -> Result<()> {
    let stream = Stream::new(Device::new(1)?)?;
    let (_, greatest) = Device::new(1)?.stream_priorities()?;
    let urgent = Stream::builder(Device::new(1)?).priority(greatest).build()?;
    let (start, end) =
        (Event::builder(Device::new(1)?).timing(true).build()?, Event::builder(Device::new(1)?).timing(true).build()?);
    start.record(&stream)?;
    urgent.wait(&start)?;
    urgent.join(&stream)?;
    end.record(&urgent)?;
    end.synchronize()?;
    end.query()?;
    end.elapsed_since(&start)?;
    stream.launch_host_fn(|| ())?;
    stream.synchronize()?;
    stream.query()?;
    stream.is_capturing()?;
    closed(stream.close())?;
    closed(start.close())
}

fn pools() -> Result<()> {
    let pool = MemPool::builder(Device::new(0)?)
        .handle_types(HandleTypes::POSIX_FD)
        .max_size(64 << 20)
        .release_threshold(1 << 20)
        .reuse(ReusePolicy { allow_opportunistic: false, ..ReusePolicy::default() })
        .grant(Device::new(1)?, Access::ReadWrite)
        .build()?;
    pool.usage()?;
    pool.release_threshold()?;
    pool.reuse_policy()?;
    pool.reset_high_marks()?;
    pool.access(Device::new(1)?)?;
    pool.revoke_access(Device::new(1)?)?;
    let stream = Stream::new(Device::new(0)?)?;
    drop(pool.alloc::<u8>(&stream, 100)?);
    pool.sync_and_trim(&stream, 0)?;
    let host = MemPool::builder(Location::HostNuma(0)).grant(Device::new(0)?, Access::ReadWrite).build()?;
    drop(host.alloc_zeroed::<u8>(&stream, 100)?);
    closed(pool.close())
}

fn current_pools() -> Result<()> {
    let pool = MemPool::builder(Device::new(0)?).build()?;
    MemPool::set_current_for(Device::new(0)?, &pool)?;
    assert!(MemPool::current_for(Device::new(0)?)? == pool);
    if cfg!(cuda_since_13_0) {
        MemPool::default_for(Location::Host)?;
        let host = MemPool::builder(Location::HostNuma(0)).build()?;
        MemPool::set_current_for(Location::HostNuma(0), &host)?;
        assert!(MemPool::current_for(Location::HostNuma(0))? == host);
    }
    Ok(())
}

fn buffers() -> Result<()> {
    let (stream, pool) = (Stream::new(Device::new(0)?)?, MemPool::default_for(Device::new(0)?)?);
    let mut buffer = pool.from_slice(&stream, &[1_u32, 2, 3])?;
    buffer.slice_mut(1..).fill(0x0102_0304)?;
    buffer.slice_mut(2..).zero()?;
    assert_eq!(buffer.to_vec()?, [1, 0x0102_0304, 0]);
    let mut copy = pool.alloc(&stream, 3)?;
    copy.copy_from(&buffer)?;
    closed(buffer.close())
}

fn buffers_across_streams() -> Result<()> {
    let (first, second) = (Stream::new(Device::new(0)?)?, Stream::new(Device::new(1)?)?);
    let pool = MemPool::default_for(Device::new(0)?)?;
    let mut source = pool.alloc_zeroed::<u32>(&first, 3)?;
    let mut target = pool.alloc::<u32>(&second, 3)?;
    target.copy_from(&source)?;
    source.with_stream(&second, |_| ())?;
    source.read_with_stream(&second, |_| ())?;
    source.set_stream(&second)?;
    drop(source);
    assert_eq!(target.to_vec()?, [0; 3]);
    Ok(())
}

fn buffers_of_no_pool() -> Result<()> {
    let (first, second) = (Stream::new(Device::new(0)?)?, Stream::new(Device::new(1)?)?);
    let mut buffer = DeviceBuffer::<u32>::unpooled(&second, 3)?;
    buffer.fill(0x0102_0304)?;
    buffer.set_stream(&first)?;
    assert_eq!(buffer.to_vec()?, [0x0102_0304; 3]);
    closed(buffer.close())?;
    drop(DeviceBuffer::<u32>::unpooled(&Stream::legacy(Device::new(1)?), 3)?);
    Ok(())
}

fn scopes() -> Result<()> {
    let (first, second) = (Stream::new(Device::new(0)?)?, Stream::new(Device::new(1)?)?);
    let pool = MemPool::default_for(Device::new(0)?)?;
    let mut buffer = pool.alloc::<u32>(&first, 3)?;
    let input = [1, 2, 3];
    let mut output = [0; 3];
    let mut ran = false;
    second.scope(|s| {
        s.copy_from_host(&mut buffer, &input)?;
        s.copy_to_host(&buffer, &mut output)?;
        s.launch_host_fn(|| ran = true)
    })?;
    assert_eq!((output, ran), (input, true));
    Ok(())
}

fn default_streams() -> Result<()> {
    let pool = MemPool::default_for(Device::new(1)?)?;
    let mut buffer = pool.alloc_zeroed::<u32>(&Stream::legacy(Device::new(1)?), 3)?;
    buffer.set_stream(&Stream::per_thread(Device::new(1)?))?;
    assert_eq!(buffer.to_vec()?, [0; 3]);
    // Its stream cannot be reached from there: the drop waits.
    std::thread::spawn(move || drop(buffer)).join().expect("dropped on another thread");
    Ok(())
}

fn out_of_memory() -> Result<()> {
    let (stream, pool) = (Stream::new(Device::new(1)?)?, MemPool::default_for(Device::new(1)?)?);
    let refused = |answer: Result<DeviceBuffer<u8>>| match answer {
        Err(error) if error.out_of_memory().is_some() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => panic!("an exabyte was allocated"),
    };
    refused(pool.alloc(&stream, 1 << 60))?;
    refused(DeviceBuffer::unpooled(&stream, 1 << 60))
}

fn graph_memory() -> Result<()> {
    Device::new(0)?.graph_memory()?;
    Device::new(0)?.reset_graph_memory_high_marks()?;
    Device::new(0)?.trim_graph_memory()
}

/// A close that failed gives the value back, and then it can be closed.
fn closed<T: Close>(answer: Result<(), (T, Error)>) -> Result<()> {
    let Err((value, error)) = answer else { return Ok(()) };
    assert!(value.try_close(), "closing again works");
    Err(error)
}

trait Close: Sized {
    fn try_close(self) -> bool;
}

macro_rules! close {
    ($($type:ty),*) => {
        $(impl Close for $type {
            fn try_close(self) -> bool {
                self.close().is_ok()
            }
        })*
    };
}
close!(Stream, Event, MemPool, DeviceBuffer<u32>);

/// Runs on a thread of its own, so that what a thread keeps is gone too. Returns the answer, and the last error then.
fn run(scenario: fn() -> Result<()>) -> (Result<()>, sys::cudaError_t) {
    std::thread::spawn(move || (scenario(), sim::last_error())).join().expect("no failure is a panic")
}

/// Some failures are not the caller's: they only make an answer less exact.
fn is_absorbed(scenario: &str, function: &str) -> bool {
    // The numbers in an out-of-memory error are what could be had.
    scenario == "out of memory"
        && matches!(function, "cudaMemPoolGetAttribute" | "cudaMemGetInfo" | "cudaGetDevice" | "cudaSetDevice")
}

fn every_call_may_fail_once() -> Outcome {
    let sim = suite::simulated(2)?;
    let mut called = BTreeSet::new();
    let mut failures = 0;
    for &(name, scenario) in SCENARIOS {
        let before = sim.settled();
        sim.reset();
        let (answer, last) = run(scenario);
        answer.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(last, sys::cudaError_t::cudaSuccess, "{name}");
        let known = FUNCTIONS.iter().chain(READ_ERRORS).map(|function| sim.calls(function)).sum();
        assert_eq!(sim.all_calls(), known, "{name} calls a function that is in no list");
        let calls: Vec<(&str, u64)> = FUNCTIONS.iter().map(|&function| (function, sim.calls(function))).collect();
        assert_eq!(sim.settled(), before, "{name} leaks");
        for (function, count) in calls {
            for nth in 1..=count {
                // One that this layer knows nothing of, and one that it has names for.
                for code in [999, 400] {
                    fail_once(&sim, name, scenario, function, nth, code);
                    failures += 1;
                }
                called.insert(function);
            }
        }
    }
    let bound = |function: &&&str| cfg!(cuda_since_13_0) || !NEW_IN_13.contains(*function);
    let missed: Vec<_> = FUNCTIONS.iter().filter(bound).filter(|function| !called.contains(*function)).collect();
    assert!(missed.is_empty(), "no scenario calls {missed:?}");
    println!("{failures} failures injected");
    Ok(())
}

fn fail_once(sim: &Sim, name: &str, scenario: fn() -> Result<()>, function: &str, nth: u64, code: u32) {
    let what = format!("{name}: {function}, call {nth}, answers {code}");
    sim::heard();
    let before = sim.settled();
    sim.reset();
    sim.add_fault(&format!("{function}#{nth}={code}"));
    let (answer, last) = run(scenario);
    sim.clear_faults();
    let heard = sim::heard();

    let told = heard.iter().any(|&(who, raw, _)| who == function && raw == code);
    match answer {
        Ok(()) => assert!(told || is_absorbed(name, function), "{what}: nobody was told"),
        Err(error) => {
            let own = error.function() == function && error.raw().0 == code;
            assert!(own || told || is_absorbed(name, function), "{what}: the caller gets {error}, the hook {heard:?}");
        }
    }
    assert_eq!(last, sys::cudaError_t::cudaSuccess, "{what}: left in the thread's last error");
    assert_eq!(sim.races(), 0, "{what}: {}", sim.last_race());

    let mut leaked = Live { bytes: 0, ..sim::since(before, sim.settled()) };
    leaked.pool_allocations += std::mem::take(&mut leaked.plain_allocations);
    if leaked.pool_allocations > 0 {
        // Memory that was not freed keeps its pool.
        leaked.pools = 0;
    }
    if leaked != Live::default() {
        assert_eq!(leaked, may_leak(function), "{what}: leaks");
        assert!(told, "{what}: leaks, and nobody was told");
    }
    let (again, _) = run(scenario);
    again.unwrap_or_else(|error| panic!("{what}: afterwards {error}"));
}

fn kinds_are_as_documented() -> Outcome {
    let sim = suite::simulated(2)?;
    for (code, kind) in [
        (1, ErrorKind::InvalidValue),
        (2, ErrorKind::OutOfMemory),
        (100, ErrorKind::NoDevice),
        (101, ErrorKind::InvalidDevice),
        (217, ErrorKind::PeerAccess),
        (302, ErrorKind::Unsupported),
        (400, ErrorKind::InvalidHandle),
        (700, ErrorKind::DeviceFault),
        (800, ErrorKind::NotPermitted),
        (801, ErrorKind::Unsupported),
        (900, ErrorKind::Capture),
        (999, ErrorKind::Other),
        (54321, ErrorKind::Other),
    ] {
        sim.add_fault(&format!("cudaStreamSynchronize#1={code}"));
        let error = Stream::new(device(0)).and_then(|stream| stream.synchronize()).unwrap_err();
        assert_eq!((error.kind(), error.raw().0, error.function()), (kind, code, "cudaStreamSynchronize"));
    }
    Ok(())
}

suite! {
    tests: [every_call_may_fail_once, kinds_are_as_documented],
    roles: [],
}
