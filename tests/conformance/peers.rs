//! Two devices that reach each other's memory.

use crate::support::guards::CurrentDevice;
use crate::support::prelude::*;

area! {
    facts: [
        peer_has_no_access_at_first,
        granted_peer_writes_the_pool_by_a_kernel,
        granted_peer_writes_the_pool_by_memset,
        grant_to_a_peer_can_be_revoked,
        list_that_revokes_the_owner_is_rejected_whole,
        malloc_async_takes_the_device_of_the_stream,
        pool_memory_on_a_stream_of_another_device,
        pool_of_another_device_can_be_made_and_used,
    ],
    questions: [peer_without_grant, handles_used_again, copies_between_devices],
}

fn peer_has_no_access_at_first() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let pool = Pool::on_device(owner, NO_HANDLE);
    assert_eq!(pool.access(cudaMemLocation::device(peer)), NO_ACCESS);
    Ok(())
}

/// Memory on the owner, and a stream of the peer that may use it.
fn on_both(test: impl FnOnce(&Memory<'_>, &Stream) -> Outcome) -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let owners = Stream::new();
    let pool = Pool::on_device(owner, NO_HANDLE);
    let memory = pool.alloc(4096, &owners);
    owners.synchronize();
    let _current = CurrentDevice::set(peer);
    let peers = Stream::new();
    pool.grant(peer);
    test(&memory, &peers)?;
    peers.synchronize();
    let mut back = [0u8; 4096];
    let to = back.as_mut_ptr().cast();
    ok!(cudaMemcpy(to, memory.ptr(), 4096, cudaMemcpyKind::cudaMemcpyDefault));
    assert_eq!(back, [4; 4096]);
    Ok(())
}

fn granted_peer_writes_the_pool_by_a_kernel() -> Outcome {
    on_both(|memory, peers| {
        let kernels = machine::kernels()?;
        // SAFETY: memory of that size, ready before, which the peer may write.
        unsafe { kernels.fill(peers.raw(), memory.ptr().cast(), 1024, 0x0404_0404) }?;
        peers.synchronize();
        Ok(())
    })
}

fn granted_peer_writes_the_pool_by_memset() -> Outcome {
    on_both(|memory, peers| {
        ok!(cudaMemsetAsync(memory.ptr(), 4, 4096, peers.raw()));
        Ok(())
    })
}

fn grant_to_a_peer_can_be_revoked() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let pool = Pool::on_device(owner, NO_HANDLE);
    pool.grant(peer);
    assert_eq!(pool.access(cudaMemLocation::device(peer)), READ_WRITE);
    let revoked = pool.set_access(cudaMemLocation::device(peer), NO_ACCESS);
    assert_eq!(revoked, cudaError_t::cudaSuccess);
    assert_eq!(pool.access(cudaMemLocation::device(peer)), NO_ACCESS);
    Ok(())
}

fn list_that_revokes_the_owner_is_rejected_whole() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let pool = Pool::on_device(owner, NO_HANDLE);
    pool.grant(peer);
    for order in [[owner, peer], [peer, owner]] {
        let list = order.map(|device| cudaMemAccessDesc::new(cudaMemLocation::device(device), NO_ACCESS));
        answers!(cudaMemPoolSetAccess(pool.raw(), list.as_ptr(), 2) => cudaErrorInvalidDevice);
        assert_eq!(pool.access(cudaMemLocation::device(peer)), READ_WRITE);
    }
    Ok(())
}

#[track_caller]
fn device_of(pointer: *mut c_void) -> i32 {
    let mut attributes = cudaPointerAttributes::default();
    ok!(cudaPointerGetAttributes(&mut attributes, pointer));
    attributes.device
}

fn malloc_async_takes_the_device_of_the_stream() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let peers = {
        let _current = CurrentDevice::set(peer);
        Stream::new()
    };
    let _current = CurrentDevice::set(owner);
    let memory = Memory::new(100, &peers);
    assert_eq!(device_of(memory.ptr()), peer);
    memory.free();
    peers.synchronize();
    Ok(())
}

fn pool_memory_on_a_stream_of_another_device() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let pool = Pool::on_device(owner, NO_HANDLE);
    let peers = {
        let _current = CurrentDevice::set(peer);
        Stream::new()
    };
    let _current = CurrentDevice::set(owner);
    let memory = pool.alloc(100, &peers);
    assert_eq!(device_of(memory.ptr()), owner);
    memory.free();
    peers.synchronize();
    assert_eq!(pool.used(), 0);
    Ok(())
}

fn pool_of_another_device_can_be_made_and_used() -> Outcome {
    let [_, other] = machine::two_peers()?;
    let pool = Pool::on_device(other, NO_HANDLE);
    let stream = Stream::new();
    let memory = pool.alloc(100, &stream);
    assert_eq!(device_of(memory.ptr()), other);
    Ok(())
}

fn peer_without_grant() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let pool = Pool::on_device(owner, NO_HANDLE);
    let owners = Stream::new();
    let memory = pool.alloc(4096, &owners);
    owners.synchronize();
    let _current = CurrentDevice::set(peer);
    let peers = Stream::new();
    let answer = ask!(cudaMemsetAsync(memory.ptr(), 1, 4096, peers.raw()));
    say!("memset: {:?}, then {:?}", answer, ask!(cudaStreamSynchronize(peers.raw())));
    let mut back = [0u8; 4096];
    let to = back.as_mut_ptr().cast();
    let answer = ask!(cudaMemcpyAsync(to, memory.ptr(), 4096, cudaMemcpyKind::cudaMemcpyDefault, peers.raw()));
    say!("copy to the host on the peer's stream: {:?}, then {:?}", answer, ask!(cudaStreamSynchronize(peers.raw())));
    let theirs = Malloced::new(4096);
    let any = cudaMemcpyKind::cudaMemcpyDefault;
    let answer = ask!(cudaMemcpyAsync(theirs.ptr(), memory.ptr(), 4096, any, peers.raw()));
    say!("copy to the peer: {:?}, then {:?}", answer, ask!(cudaStreamSynchronize(peers.raw())));
    say!("free on the peer's stream: {:?}", ask!(cudaFreeAsync(memory.release(), peers.raw())));
    Ok(())
}

/// Does a new pool at a destroyed one's address have its access.
fn handles_used_again() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let pool = Pool::on_device(owner, NO_HANDLE);
    pool.grant(peer);
    let old = pool.raw();
    pool.destroy();
    let next = Pool::on_device(owner, NO_HANDLE);
    say!("same handle {}, access of the peer {:?}", next.raw() == old, next.access(cudaMemLocation::device(peer)));
    Ok(())
}

fn copies_between_devices() -> Outcome {
    let [owner, peer] = machine::two_peers()?;
    let pool = Pool::on_device(owner, NO_HANDLE);
    let stream = Stream::new();
    let memory = pool.alloc(4096, &stream);
    let theirs = {
        let _current = CurrentDevice::set(peer);
        Malloced::new(4096)
    };
    ok!(cudaMemsetAsync(memory.ptr(), 6, 4096, stream.raw()));
    let answer = ask!(cudaMemcpyPeerAsync(theirs.ptr(), peer, memory.ptr(), owner, 4096, stream.raw()));
    say!("cudaMemcpyPeerAsync without a grant: {answer:?}, then {:?}", ask!(cudaStreamSynchronize(stream.raw())));
    let mut back = [0u8; 4096];
    let to = back.as_mut_ptr().cast();
    ok!(cudaMemcpy(to, theirs.ptr(), 4096, cudaMemcpyKind::cudaMemcpyDefault));
    say!("bytes arrived: {}", back == [6; 4096]);
    for (device, other) in [(owner, peer), (owner, owner), (owner, NO_DEVICE)] {
        let _current = CurrentDevice::set(device);
        say!("enable {device} to {other}: {:?}", ask!(cudaDeviceEnablePeerAccess(other, 0)));
        say!("again: {:?}", ask!(cudaDeviceEnablePeerAccess(other, 0)));
        say!("with flags 1: {:?}", ask!(cudaDeviceEnablePeerAccess(other, 1)));
        say!("access of the pool: {:?}", pool.access(cudaMemLocation::device(peer)));
        say!("disable: {:?}", ask!(cudaDeviceDisablePeerAccess(other)));
        say!("again: {:?}", ask!(cudaDeviceDisablePeerAccess(other)));
    }
    for (device, other) in [(0, 0), (0, NO_DEVICE), (NO_DEVICE, 0)] {
        let mut can = -5;
        let answer = ask!(cudaDeviceCanAccessPeer(&mut can, device, other));
        say!("can {device} access {other}: {answer:?}, {can}");
    }
    Ok(())
}
