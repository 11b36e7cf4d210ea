//! Access to a pool's memory, by location.

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [
        host_pool_is_for_the_host_alone_at_first,
        host_numa_pool_is_for_the_host_alone_at_first,
        device_is_granted_host_memory_after_it_was_allocated,
        device_grant_can_be_revoked,
        host_cannot_be_revoked_from_its_pool,
        owner_cannot_be_revoked,
        owner_cannot_be_made_a_reader,
        owner_may_be_granted_what_it_has,
        owner_has_access_at_first,
        host_cannot_be_granted_a_device_pool,
        grant_to_a_device_that_is_not_there_is_refused,
        empty_list_is_accepted,
    ],
    questions: [host_locations, odd_lists, odd_locations, grant_before_allocating],
}

/// The pools of host memory that this machine has.
fn host_pools() -> Result<Vec<Pool>, Skip> {
    Ok(vec![Pool::host()?, Pool::host_numa(NO_HANDLE)?])
}

#[track_caller]
fn is_for_the_host_alone(pool: &Pool) {
    assert_eq!(pool.access(cudaMemLocation::device(0)), NO_ACCESS);
    assert_eq!(pool.access(cudaMemLocation::host()), READ_WRITE);
}

fn host_pool_is_for_the_host_alone_at_first() -> Outcome {
    is_for_the_host_alone(&Pool::host()?);
    Ok(())
}

fn host_numa_pool_is_for_the_host_alone_at_first() -> Outcome {
    is_for_the_host_alone(&Pool::host_numa(NO_HANDLE)?);
    Ok(())
}

fn device_is_granted_host_memory_after_it_was_allocated() -> Outcome {
    let stream = Stream::new();
    for pool in host_pools()? {
        let memory = pool.alloc(4096, &stream);
        stream.synchronize();
        pool.grant(0);
        assert_eq!(pool.access(cudaMemLocation::device(0)), READ_WRITE);
        ok!(cudaMemsetAsync(memory.ptr(), 9, 4096, stream.raw()));
        stream.synchronize();
        // SAFETY: host memory of that size, which the stream has done with.
        let bytes = unsafe { std::slice::from_raw_parts(memory.ptr().cast::<u8>(), 4096) };
        assert!(bytes.iter().all(|byte| *byte == 9));
    }
    Ok(())
}

fn device_grant_can_be_revoked() -> Outcome {
    for pool in host_pools()? {
        pool.grant(0);
        let revoked = pool.set_access(cudaMemLocation::device(0), NO_ACCESS);
        assert_eq!(revoked, cudaError_t::cudaSuccess);
        is_for_the_host_alone(&pool);
    }
    Ok(())
}

#[track_caller]
fn refuses(pool: &Pool, location: cudaMemLocation, flags: cudaMemAccessFlags, expected: cudaError_t) {
    let access = cudaMemAccessDesc::new(location, flags);
    let answer = cu!(cudaMemPoolSetAccess(pool.raw(), &access, 1));
    crate::support::answer::check("cudaMemPoolSetAccess", answer, &[expected]);
}

fn host_cannot_be_revoked_from_its_pool() -> Outcome {
    for pool in host_pools()? {
        refuses(&pool, cudaMemLocation::host(), NO_ACCESS, cudaError_t::cudaErrorNotSupported);
        is_for_the_host_alone(&pool);
    }
    Ok(())
}

fn owner_cannot_be_revoked() -> Outcome {
    refuses(&Pool::device(), cudaMemLocation::device(0), NO_ACCESS, cudaError_t::cudaErrorInvalidDevice);
    Ok(())
}

fn owner_cannot_be_made_a_reader() -> Outcome {
    refuses(&Pool::device(), cudaMemLocation::device(0), READ, cudaError_t::cudaErrorNotSupported);
    Ok(())
}

fn owner_may_be_granted_what_it_has() -> Outcome {
    Pool::device().grant(0);
    Ok(())
}

fn owner_has_access_at_first() -> Outcome {
    assert_eq!(Pool::device().access(cudaMemLocation::device(0)), READ_WRITE);
    Ok(())
}

fn host_cannot_be_granted_a_device_pool() -> Outcome {
    refuses(&Pool::device(), cudaMemLocation::host(), READ_WRITE, cudaError_t::cudaErrorNotSupported);
    Ok(())
}

fn grant_to_a_device_that_is_not_there_is_refused() -> Outcome {
    let nowhere = cudaMemLocation::device(NO_DEVICE);
    refuses(&Pool::device(), nowhere, READ_WRITE, cudaError_t::cudaErrorInvalidDevice);
    Ok(())
}

fn empty_list_is_accepted() -> Outcome {
    let pool = Pool::device();
    ok!(cudaMemPoolSetAccess(pool.raw(), null(), 0));
    Ok(())
}

fn host_locations() -> Outcome {
    let stream = Stream::new();
    for (what, pool) in [
        ("device", Ok(Pool::device())),
        ("host", Pool::host()),
        ("host-NUMA", Pool::host_numa(NO_HANDLE)),
        ("managed", managed()),
    ] {
        let Ok(pool) = pool else { continue };
        let _memory = pool.alloc(100, &stream);
        stream.synchronize();
        for (where_, mut location) in [
            ("host", cudaMemLocation::host()),
            ("host-NUMA 0", cudaMemLocation::host_numa(0)),
            ("host-NUMA 999", cudaMemLocation::host_numa(NO_NODE)),
            ("host-NUMA current", cudaMemLocation::host_numa_current()),
            ("none", cudaMemLocation::none()),
            ("device 0", cudaMemLocation::device(0)),
            ("device 77", cudaMemLocation::device(NO_DEVICE)),
        ] {
            let mut flags = cudaMemAccessFlags(99);
            let read = ask!(cudaMemPoolGetAccess(&mut flags, pool.raw(), &mut location));
            let grant = cudaMemAccessDesc::new(location, READ_WRITE);
            let granted = ask!(cudaMemPoolSetAccess(pool.raw(), &grant, 1));
            let revoke = cudaMemAccessDesc::new(location, NO_ACCESS);
            let revoked = ask!(cudaMemPoolSetAccess(pool.raw(), &revoke, 1));
            say!(
                "{what} pool, {where_}: get {} {}, grant {}, revoke {}",
                name(read),
                flags.0,
                name(granted),
                name(revoked)
            );
        }
    }
    Ok(())
}

fn managed() -> Result<Pool, Skip> {
    machine::has_managed_pools()?;
    Ok(Pool::create(&cudaMemPoolProps::new(MANAGED, cudaMemLocation::device(0), NO_HANDLE)))
}

fn odd_lists() -> Outcome {
    let pool = Pool::device();
    let read_write = cudaMemAccessDesc::new(cudaMemLocation::device(0), READ_WRITE);
    say!("null list of one: {}", name(ask!(cudaMemPoolSetAccess(pool.raw(), null(), 1))));
    say!("empty list by pointer: {}", name(ask!(cudaMemPoolSetAccess(pool.raw(), &read_write, 0))));
    let twice = [read_write; 2];
    say!("the owner twice: {}", name(ask!(cudaMemPoolSetAccess(pool.raw(), twice.as_ptr(), 2))));
    let odd = cudaMemAccessDesc::new(cudaMemLocation::device(0), cudaMemAccessFlags(2));
    say!("flags 2: {}", name(ask!(cudaMemPoolSetAccess(pool.raw(), &odd, 1))));
    let odd = cudaMemAccessDesc::new(cudaMemLocation::device(0), cudaMemAccessFlags(7));
    say!("flags 7: {}", name(ask!(cudaMemPoolSetAccess(pool.raw(), &odd, 1))));
    say!("null pool: {}", name(ask!(cudaMemPoolSetAccess(null_mut(), &read_write, 1))));
    if let Ok(pool) = Pool::host_numa(NO_HANDLE) {
        let read = cudaMemAccessDesc::new(cudaMemLocation::device(0), READ);
        say!("READ of a host-NUMA pool: {}", name(ask!(cudaMemPoolSetAccess(pool.raw(), &read, 1))));
        say!("    access then {:?}", pool.access(cudaMemLocation::device(0)));
        let list = [read_write, cudaMemAccessDesc::new(cudaMemLocation::device(NO_DEVICE), READ_WRITE)];
        let answer = ask!(cudaMemPoolSetAccess(pool.raw(), list.as_ptr(), 2));
        say!("a good and a bad entry: {}, access then {:?}", name(answer), pool.access(cudaMemLocation::device(0)));
    }
    Ok(())
}

fn odd_locations() -> Outcome {
    let pool = Pool::device();
    let mut flags = cudaMemAccessFlags(99);
    let mut location = cudaMemLocation::device(0);
    say!("null flags: {}", name(ask!(cudaMemPoolGetAccess(null_mut(), pool.raw(), &mut location))));
    say!("null location: {}", name(ask!(cudaMemPoolGetAccess(&mut flags, pool.raw(), null_mut()))));
    say!("null pool: {}", name(ask!(cudaMemPoolGetAccess(&mut flags, null_mut(), &mut location))));
    Ok(())
}

/// Does memory that is allocated after a grant, and after its revocation, follow.
fn grant_before_allocating() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::host_numa(NO_HANDLE)?;
    pool.grant(0);
    let memory = pool.alloc(4096, &stream);
    say!("memset after the grant: {}", name(ask!(cudaMemsetAsync(memory.ptr(), 1, 4096, stream.raw()))));
    stream.synchronize();
    say!("revoke: {}", name(pool.set_access(cudaMemLocation::device(0), NO_ACCESS)));
    say!("memset then: {}", name(ask!(cudaMemsetAsync(memory.ptr(), 1, 4096, stream.raw()))));
    let later = pool.alloc(4096, &stream);
    stream.synchronize();
    say!("memset of later memory: {}", name(ask!(cudaMemsetAsync(later.ptr(), 1, 4096, stream.raw()))));
    Ok(())
}
