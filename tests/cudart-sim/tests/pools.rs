//! Pools answer as an H200 was seen to answer: creation, sizes, statistics, thresholds, reuse, access.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::*;
use cudart_sim::control::*;
use cudart_sim::cuda::*;

const MIB: usize = 1 << 20;
const INVALID: cudaError = cudaError::cudaErrorInvalidValue;
const OUT_OF_MEMORY: cudaError = cudaError::cudaErrorMemoryAllocation;
const PINNED: cudaMemAllocationType = cudaMemAllocationType::cudaMemAllocationTypePinned;
const MANAGED: cudaMemAllocationType = cudaMemAllocationType::cudaMemAllocationTypeManaged;

fn create(props: &cudaMemPoolProps) -> cudaError {
    let mut pool = null_mut();
    // SAFETY: the pointers are valid; what was made is destroyed.
    unsafe {
        let answer = cudaMemPoolCreate(&mut pool, props);
        if answer == cudaError::cudaSuccess {
            ok(cudaMemPoolDestroy(pool));
        }
        answer
    }
}

fn reserved(pool: cudaMemPool_t) -> usize {
    attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReservedMemCurrent) as usize
}

fn used(pool: cudaMemPool_t) -> usize {
    attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrUsedMemCurrent) as usize
}

fn keep_all(pool: cudaMemPool_t) {
    set_attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold, u64::MAX);
}

fn free(pointer: *mut c_void, stream: cudaStream_t) {
    // SAFETY: the callers free what they allocated.
    ok(unsafe { cudaFreeAsync(pointer, stream) });
}

fn synchronise(stream: cudaStream_t) {
    // SAFETY: the callers' handles are live.
    ok(unsafe { cudaStreamSynchronize(stream) });
}

fn end(pool: cudaMemPool_t, streams: &[cudaStream_t]) {
    // SAFETY: the callers' handles are live.
    unsafe {
        ok(cudaMemPoolDestroy(pool));
        for stream in streams {
            ok(cudaStreamDestroy(*stream));
        }
    }
}

#[test]
fn creation_is_checked() {
    let _alone = alone();
    let at = |kind, id| cudaMemPoolProps { location: location(kind, id), ..device_props() };
    let with = |props, types| cudaMemPoolProps { handleTypes: cudaMemAllocationHandleType(types), ..props };
    let device = device_props();
    let host = at(cudaMemLocationType::cudaMemLocationTypeHost, 0);
    let numa = host_numa_props();
    let managed = |props| cudaMemPoolProps { allocType: MANAGED, ..props };
    let good = [
        device,
        with(device, 1),
        with(device, 8),
        with(device, 9),
        host,
        numa,
        with(numa, 1),
        managed(device),
        managed(at(cudaMemLocationType::cudaMemLocationTypeNone, 0)),
    ];
    for props in good {
        ok(create(&props));
    }
    let reserved = cudaMemPoolProps { reserved1: 1, ..device };
    let bad = [
        with(device, 2),
        at(cudaMemLocationType::cudaMemLocationTypeDevice, 9),
        with(host, 1),
        at(cudaMemLocationType::cudaMemLocationTypeHostNuma, 1),
        at(cudaMemLocationType::cudaMemLocationTypeHostNuma, 99),
        at(cudaMemLocationType::cudaMemLocationTypeHostNumaCurrent, 0),
        reserved,
    ];
    for (index, props) in bad.iter().enumerate() {
        assert_eq!(create(props), INVALID, "the bad one at {index}");
    }
}

#[test]
fn sizes_and_errors_of_allocation() {
    let _alone = alone();
    let (pool, stream) = (pool(&device_props()), stream());
    // SAFETY: the pointers are valid for the calls, or meant to be refused.
    unsafe {
        let mut pointer = 0x1234 as *mut c_void;
        ok(cudaMallocFromPoolAsync(&mut pointer, 0, pool, stream));
        assert!(pointer.is_null());
        free(null_mut(), stream);
        let (first, second) = (allocate(pool, 1, stream), allocate(pool, 1, stream));
        assert_eq!(second as usize - first as usize, 512);
        assert_eq!((used(pool), reserved(pool)), (2, 32 * MIB));
        for size in [1 << 38, 1 << 45, 1 << 60, isize::MAX as usize, usize::MAX - 511, usize::MAX] {
            pointer = 0x1234 as *mut c_void;
            assert_eq!(cudaMallocFromPoolAsync(&mut pointer, size, pool, stream), OUT_OF_MEMORY);
            assert!(pointer.is_null());
            assert_eq!(cudaPeekAtLastError(), OUT_OF_MEMORY);
            assert_eq!(cudaGetLastError(), OUT_OF_MEMORY);
            assert_eq!(cudaGetLastError(), cudaError::cudaSuccess);
        }
        assert_eq!(cudaMallocFromPoolAsync(null_mut(), 1, pool, stream), INVALID);
        assert_eq!(cudaMallocFromPoolAsync(&mut pointer, 1, null_mut(), stream), INVALID);
        assert_eq!(cudaFreeAsync(first.cast::<u8>().add(256).cast(), stream), INVALID);
        let mut own = [0_u8; 16];
        assert_eq!(cudaFreeAsync(own.as_mut_ptr().cast(), stream), INVALID);
        let mut pinned = null_mut();
        ok(cudaHostAlloc(&mut pinned, 100, 0));
        assert_eq!(cudaFreeAsync(pinned, stream), INVALID);
        ok(cudaFreeHost(pinned));
        free(first, stream);
        assert_eq!(cudaFreeAsync(first, stream), INVALID);
        synchronise(stream);
        assert_eq!(cudaFreeAsync(first, stream), INVALID);
        free(second, stream);
        let mut plain = null_mut();
        ok(cudaMalloc(&mut plain, 100));
        free(plain, stream);
        end(pool, &[stream]);
        assert_eq!(live().objects(), 0);
    }
}

#[test]
fn thresholds_apply_when_the_host_synchronises() {
    let _alone = alone();
    let (pool, stream) = (pool(&device_props()), stream());
    let pair = || free(allocate(pool, 100 * MIB, stream), stream);
    let trim = |keep| {
        // SAFETY: the pool is live.
        ok(unsafe { cudaMemPoolTrimTo(pool, keep) });
        reserved(pool) / MIB
    };
    pair();
    assert_eq!((reserved(pool), used(pool)), (128 * MIB, 0));
    synchronise(stream);
    assert_eq!((reserved(pool), used(pool)), (0, 0));
    assert_eq!(attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReservedMemHigh), 128 << 20);
    assert_eq!(attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrUsedMemHigh), 100 << 20);
    keep_all(pool);
    pair();
    assert_eq!(trim(0), 128, "before the host has synchronised nothing goes");
    synchronise(stream);
    assert_eq!(trim(50 * MIB), 64);
    assert_eq!(trim(0), 0);
    set_attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReservedMemHigh, 0);
    assert_eq!(attribute(pool, cudaMemPoolAttr::cudaMemPoolAttrReservedMemHigh), 0);
    let set = |attribute, mut value: u64| {
        // SAFETY: a word is wide enough for every attribute.
        unsafe { cudaMemPoolSetAttribute(pool, attribute, std::ptr::addr_of_mut!(value).cast()) }
    };
    assert_eq!(set(cudaMemPoolAttr::cudaMemPoolAttrUsedMemHigh, 5), INVALID);
    assert_eq!(set(cudaMemPoolAttr::cudaMemPoolAttrUsedMemCurrent, 0), INVALID);
    assert_eq!(set(cudaMemPoolAttr(0x7fff_ffff), 0), INVALID);
    for unknown in [0, 9, 10, 11, 12, 13, 14, 15, 0x7fff_ffff] {
        let mut value = 0_u64;
        // SAFETY: a word is wide enough for every attribute.
        let answer =
            unsafe { cudaMemPoolGetAttribute(pool, cudaMemPoolAttr(unknown), std::ptr::addr_of_mut!(value).cast()) };
        assert_eq!(answer, INVALID, "attribute {unknown}");
    }
    end(pool, &[stream]);
}

#[test]
fn the_largest_size_is_rounded_to_whole_steps() {
    let _alone = alone();
    for (max_size, blocks) in [(1, 32), (2048, 32), (MIB, 32), (40 * MIB, 64)] {
        let (pool, stream) = (pool(&cudaMemPoolProps { maxSize: max_size, ..device_props() }), stream());
        let mut pointers = Vec::new();
        loop {
            let mut pointer = null_mut();
            // SAFETY: the out pointer is valid.
            match unsafe { cudaMallocFromPoolAsync(&mut pointer, MIB, pool, stream) } {
                cudaError::cudaSuccess => pointers.push(pointer),
                error => break assert_eq!(error, OUT_OF_MEMORY),
            }
        }
        assert_eq!(pointers.len(), blocks, "with at most {max_size} bytes");
        pointers.into_iter().for_each(|pointer| free(pointer, stream));
        end(pool, &[stream]);
    }
}

/// What a stream gets when another stream has freed a block of the same size.
fn reuse(follow: bool, opportunistic: bool, internal: bool, max_size: usize, busy: bool, waits: bool) -> &'static str {
    let pool = pool(&cudaMemPoolProps { maxSize: max_size, ..device_props() });
    keep_all(pool);
    set_attribute(pool, cudaMemPoolAttr::cudaMemPoolReuseFollowEventDependencies, follow.into());
    set_attribute(pool, cudaMemPoolAttr::cudaMemPoolReuseAllowOpportunistic, opportunistic.into());
    set_attribute(pool, cudaMemPoolAttr::cudaMemPoolReuseAllowInternalDependencies, internal.into());
    let (one, other) = (stream(), stream());
    let first = allocate(pool, 32 * MIB, one);
    let gate = busy.then(|| Gate::on(one));
    free(first, one);
    if waits {
        order(one, other);
    }
    let mut second = null_mut();
    // SAFETY: the out pointer and the handles are valid.
    unsafe {
        let answer = cudaMallocFromPoolAsync(&mut second, 32 * MIB, pool, other);
        let is_busy = cudaStreamQuery(other) == cudaError::cudaErrorNotReady;
        let outcome = match answer {
            OUT_OF_MEMORY => "out of memory",
            _ if second != first => "new block",
            _ if is_busy => "same block, waits",
            _ => "same block",
        };
        drop(gate);
        ok(cudaDeviceSynchronize());
        if answer == OUT_OF_MEMORY {
            second = allocate(pool, 32 * MIB, other);
            assert_eq!(second, first, "free for all when the host has synchronised");
        }
        free(second, other);
        end(pool, &[one, other]);
        outcome
    }
}

#[test]
fn reuse_between_streams_follows_the_policy() {
    let _alone = alone();
    assert_eq!(reuse(false, false, false, 0, true, false), "new block");
    assert_eq!(reuse(false, false, false, 32 * MIB, true, false), "out of memory");
    assert_eq!(reuse(true, false, false, 0, true, true), "same block, waits");
    assert_eq!(reuse(true, false, false, 0, true, false), "new block");
    assert_eq!(reuse(false, true, false, 0, false, false), "same block");
    assert_eq!(reuse(false, true, false, 0, true, false), "new block");
    assert_eq!(reuse(false, false, true, 0, true, false), "new block");
    assert_eq!(reuse(false, false, true, 32 * MIB, true, false), "same block, waits");
    assert_eq!(cudartSimRaces(), 0, "{}", last_race());
}

#[test]
fn a_destroyed_pool_lasts_as_long_as_its_memory() {
    let _alone = alone();
    let (mine, stream) = (pool(&device_props()), stream());
    // SAFETY: the handles are live, or meant to be refused.
    unsafe {
        let (mut before, mut after) = (0, 0);
        ok(cudaMemGetInfo(&mut before, &mut 0));
        let pointer = allocate(mine, 100, stream);
        ok(cudaMemPoolDestroy(mine));
        assert_eq!(cudaMemPoolDestroy(mine), INVALID);
        ok(cudaMemsetAsync(pointer, 1, 100, stream));
        free(pointer, stream);
        synchronise(stream);
        ok(cudaMemGetInfo(&mut after, &mut 0));
        assert_eq!(before, after);
        let (mut default, mut current) = (null_mut(), null_mut());
        ok(cudaDeviceGetDefaultMemPool(&mut default, 0));
        assert_eq!(cudaMemPoolDestroy(default), INVALID);
        let mine = pool(&device_props());
        ok(cudaDeviceSetMemPool(0, mine));
        ok(cudaDeviceGetMemPool(&mut current, 0));
        assert_eq!(current, mine);
        ok(cudaMemPoolDestroy(mine));
        ok(cudaDeviceGetMemPool(&mut current, 0));
        assert_eq!(current, default);
        assert_eq!(cudaDeviceSetMemPool(0, null_mut()), INVALID);
        let host = pool(&host_numa_props());
        assert_eq!(cudaDeviceSetMemPool(0, host), INVALID);
        end(host, &[stream]);
    }
}

#[test]
fn every_location_has_a_default_pool() {
    let _alone = alone();
    let locations = [
        (cudaMemLocationType::cudaMemLocationTypeDevice, PINNED),
        (cudaMemLocationType::cudaMemLocationTypeHost, PINNED),
        (cudaMemLocationType::cudaMemLocationTypeHostNuma, PINNED),
        (cudaMemLocationType::cudaMemLocationTypeDevice, MANAGED),
    ];
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        for (kind, memory) in locations {
            let (mut at, mut default, mut current) = (location(kind, 0), null_mut(), null_mut());
            ok(cudaMemGetDefaultMemPool(&mut default, &mut at, memory));
            ok(cudaMemGetMemPool(&mut current, &mut at, memory));
            assert_eq!(default, current);
            let mine = pool(&cudaMemPoolProps { allocType: memory, location: at, ..device_props() });
            ok(cudaMemSetMemPool(&mut at, memory, mine));
            ok(cudaMemGetMemPool(&mut current, &mut at, memory));
            assert_eq!(mine, current);
            ok(cudaMemPoolDestroy(mine));
            ok(cudaMemGetMemPool(&mut current, &mut at, memory));
            assert_eq!(default, current);
        }
    }
}

#[test]
fn host_pools_must_be_granted_to_devices() {
    let _alone = alone();
    let host =
        cudaMemPoolProps { location: location(cudaMemLocationType::cudaMemLocationTypeHost, 0), ..device_props() };
    for props in [host, host_numa_props()] {
        let (pool, stream) = (pool(&props), stream());
        let pointer = allocate(pool, 4096, stream);
        synchronise(stream);
        // SAFETY: host memory of so many bytes; the pointers are valid for the calls.
        unsafe {
            std::ptr::write_bytes(pointer.cast::<u8>(), 1, 4096);
            let (mut flags, mut device) = (cudaMemAccessFlags(9), device_props().location);
            ok(cudaMemPoolGetAccess(&mut flags, pool, &mut device));
            assert_eq!(flags.0, 0);
            let mut at = props.location;
            ok(cudaMemPoolGetAccess(&mut flags, pool, &mut at));
            assert_eq!(flags.0, 3);
            let mut attributes = cudaPointerAttributes::default();
            ok(cudaPointerGetAttributes(&mut attributes, pointer));
            assert_eq!(attributes.type_, cudaMemoryType::cudaMemoryTypeHost);
            assert!(attributes.devicePointer.is_null());
            let mut copy = [0_u8; 4096];
            let kind = cudaMemcpyKind::cudaMemcpyDefault;
            ok(cudaMemcpyAsync(copy.as_mut_ptr().cast(), pointer, 4096, kind, stream));
            synchronise(stream);
            assert_eq!(copy[4095], 1);
            assert_eq!(cudaMemsetAsync(pointer, 2, 4096, stream), INVALID);
            assert_eq!(fill(stream, pointer, 4096, 2), cudaError::cudaErrorIllegalAddress);
            assert_eq!(cudaGetLastError(), cudaError::cudaErrorIllegalAddress);
            cudartSimReset();
            let grant = |flags| {
                let grant = cudaMemAccessDesc { location: device_props().location, flags: cudaMemAccessFlags(flags) };
                cudaMemPoolSetAccess(pool, &grant, 1)
            };
            ok(grant(3));
            ok(fill(stream, pointer, 4096, 2));
            synchronise(stream);
            assert_eq!(*pointer.cast::<u8>().add(7), 2);
            ok(grant(0));
            assert_eq!(cudaMemsetAsync(pointer, 2, 4096, stream), INVALID);
            let own = cudaMemAccessDesc { location: props.location, flags: cudaMemAccessFlags(0) };
            assert_eq!(cudaMemPoolSetAccess(pool, &own, 1), cudaError::cudaErrorNotSupported);
            assert_eq!(cudaFreeHost(pointer), INVALID);
        }
        free(pointer, stream);
        end(pool, &[stream]);
    }
}

#[test]
fn access_of_devices_to_a_device_pool() {
    let _alone = alone();
    let mut devices = 0;
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        ok(cudaGetDeviceCount(&mut devices));
        let peer = if devices > 1 { 1 } else { cudartSimAddDevice() };
        let pool = pool(&device_props());
        let describe = |device, flags| cudaMemAccessDesc {
            location: location(cudaMemLocationType::cudaMemLocationTypeDevice, device),
            flags: cudaMemAccessFlags(flags),
        };
        let set = |device, flags| cudaMemPoolSetAccess(pool, &describe(device, flags), 1);
        assert_eq!(set(0, 0), cudaError::cudaErrorInvalidDevice);
        assert_eq!(set(0, 1), cudaError::cudaErrorNotSupported);
        ok(set(0, 3));
        assert_eq!(set(77, 3), cudaError::cudaErrorInvalidDevice);
        let host = location(cudaMemLocationType::cudaMemLocationTypeHost, 0);
        let host = cudaMemAccessDesc { location: host, flags: cudaMemAccessFlags(3) };
        assert_eq!(cudaMemPoolSetAccess(pool, &host, 1), cudaError::cudaErrorNotSupported);
        ok(cudaMemPoolSetAccess(pool, std::ptr::null(), 0));
        let peer_access = || {
            let (mut flags, mut at) = (cudaMemAccessFlags(9), describe(peer, 0).location);
            ok(cudaMemPoolGetAccess(&mut flags, pool, &mut at));
            flags.0
        };
        assert_eq!(peer_access(), 0);
        ok(set(peer, 3));
        assert_eq!(peer_access(), 3);
        let both = [describe(0, 0), describe(peer, 0)];
        assert_eq!(cudaMemPoolSetAccess(pool, both.as_ptr(), 2), cudaError::cudaErrorInvalidDevice);
        assert_eq!(peer_access(), 3, "rejected whole");

        let mut can = 0;
        ok(cudaDeviceCanAccessPeer(&mut can, peer, 0));
        assert_eq!(can, 1);
        ok(cudaSetDevice(peer));
        let stream = stream();
        let pointer = allocate(pool, 4096, stream);
        ok(fill(stream, pointer, 4096, 4));
        let mut elsewhere = null_mut();
        ok(cudaSetDevice(0));
        ok(cudaMallocAsync(&mut elsewhere, 100, stream));
        let mut attributes = cudaPointerAttributes::default();
        ok(cudaPointerGetAttributes(&mut attributes, elsewhere));
        assert_eq!(attributes.device, peer, "the stream's device decides");
        free(pointer, stream);
        free(elsewhere, stream);
        ok(set(peer, 0));
        assert_eq!(peer_access(), 0);
        end(pool, &[stream]);
    }
}
