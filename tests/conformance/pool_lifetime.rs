//! Destruction of pools, and a device's current pool.

use crate::support::answer::name;
use crate::support::prelude::*;

area! {
    facts: [destroyed_pool_leaves_its_live_memory_usable, default_pool_cannot_be_destroyed],
    isolated: [
        current_pool_can_be_set,
        destroying_the_current_pool_puts_the_default_back,
        null_cannot_be_the_current_pool,
        host_pool_cannot_be_the_current_pool,
        malloc_async_takes_from_the_current_pool,
    ],
    questions: [destroy_twice, destroyed_pool_handle, current_pool_of_another_device, destroy_with_pending_work],
}

fn destroyed_pool_leaves_its_live_memory_usable() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let memory = pool.alloc(100, &stream);
    pool.destroy();
    ok!(cudaMemsetAsync(memory.ptr(), 1, 100, stream.raw()));
    let mut back = [0u8; 100];
    let to = back.as_mut_ptr().cast();
    ok!(cudaMemcpyAsync(to, memory.ptr(), 100, cudaMemcpyKind::cudaMemcpyDefault, stream.raw()));
    stream.synchronize();
    assert_eq!(back, [1; 100]);
    memory.free();
    stream.synchronize();
    Ok(())
}

fn default_pool() -> cudaMemPool_t {
    let mut pool = null_mut();
    ok!(cudaDeviceGetDefaultMemPool(&mut pool, 0));
    pool
}

fn current_pool() -> cudaMemPool_t {
    let mut pool = null_mut();
    ok!(cudaDeviceGetMemPool(&mut pool, 0));
    pool
}

fn default_pool_cannot_be_destroyed() -> Outcome {
    answers!(cudaMemPoolDestroy(default_pool()) => cudaErrorInvalidValue);
    Ok(())
}

fn current_pool_can_be_set() -> Outcome {
    let pool = Pool::device();
    ok!(cudaDeviceSetMemPool(0, pool.raw()));
    assert_eq!(current_pool(), pool.raw());
    ok!(cudaDeviceSetMemPool(0, default_pool()));
    assert_eq!(current_pool(), default_pool());
    Ok(())
}

fn destroying_the_current_pool_puts_the_default_back() -> Outcome {
    let pool = Pool::device();
    ok!(cudaDeviceSetMemPool(0, pool.raw()));
    pool.destroy();
    assert_eq!(current_pool(), default_pool());
    Ok(())
}

fn null_cannot_be_the_current_pool() -> Outcome {
    answers!(cudaDeviceSetMemPool(0, null_mut()) => cudaErrorInvalidValue);
    assert_eq!(current_pool(), default_pool());
    Ok(())
}

fn host_pool_cannot_be_the_current_pool() -> Outcome {
    let pool = Pool::host_numa(NO_HANDLE)?;
    answers!(cudaDeviceSetMemPool(0, pool.raw()) => cudaErrorInvalidValue);
    assert_eq!(current_pool(), default_pool());
    Ok(())
}

fn malloc_async_takes_from_the_current_pool() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    ok!(cudaDeviceSetMemPool(0, pool.raw()));
    let memory = Memory::new(1000, &stream);
    assert_eq!(pool.used(), 1000);
    memory.free();
    Ok(())
}

/// May end the process.
fn destroy_twice() -> Outcome {
    let pool = Pool::device();
    let gone = pool.raw();
    pool.destroy();
    say!("second destroy: {}", name(ask!(cudaMemPoolDestroy(gone))));
    Ok(())
}

/// May end the process.
fn destroyed_pool_handle() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let gone = pool.raw();
    let memory = pool.alloc(100, &stream);
    pool.destroy();
    let mut value = 0u64;
    let out = std::ptr::from_mut(&mut value).cast();
    say!("with live memory, used: {} {value}", name(ask!(cudaMemPoolGetAttribute(gone, USED, out))));
    let mut pointer = null_mut();
    say!("alloc: {}", name(ask!(cudaMallocFromPoolAsync(&mut pointer, 100, gone, stream.raw()))));
    memory.free();
    stream.synchronize();
    let out = std::ptr::from_mut(&mut value).cast();
    say!("without live memory, used: {}", name(ask!(cudaMemPoolGetAttribute(gone, USED, out))));
    say!("alloc: {}", name(ask!(cudaMallocFromPoolAsync(&mut pointer, 100, gone, stream.raw()))));
    Ok(())
}

fn current_pool_of_another_device() -> Outcome {
    let [_, other] = machine::two_peers()?;
    let pool = Pool::on_device(other, NO_HANDLE);
    say!("a pool of device 1 as current of device 0: {}", name(ask!(cudaDeviceSetMemPool(0, pool.raw()))));
    Ok(())
}

fn destroy_with_pending_work() -> Outcome {
    let stream = Stream::new();
    let pool = Pool::device();
    let gate = Gate::close(&stream);
    gate.open_after(Duration::from_millis(300));
    pool.alloc(MIB, &stream).free();
    let answer = ask!(cudaMemPoolDestroy(pool.raw()));
    std::mem::forget(pool);
    say!("freed on a stream that is held up, then destroyed: {}, gate open {}", name(answer), gate.is_open());
    stream.synchronize();
    Ok(())
}
