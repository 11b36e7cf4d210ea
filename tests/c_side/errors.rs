//! Both sides use one runtime, and neither meets the errors of the other.

use cuda_mempool::example::run;
use cuda_mempool::{ErrorKind, MemPool, Stream};
use cuda_mempool_sys::{self as sys, cudaError_t};

use crate::owner;

#[test]
fn both_sides_use_one_runtime() {
    let ours = sys::runtime().unwrap().path().unwrap();
    assert_eq!(owner::runtime_file().canonicalize().unwrap(), ours.canonicalize().unwrap());

    // And one copy of it: its last error is kept by the library, for each thread.
    let failed = owner::fail();
    assert_ne!(failed, cudaError_t::cudaSuccess);
    // SAFETY: takes nothing.
    assert_eq!(unsafe { sys::cudaGetLastError() }, failed);
    assert_eq!(owner::peek(), cudaError_t::cudaSuccess);
}

#[test]
fn c_does_not_meet_an_error_of_rust() {
    run(|device| {
        let (pool, stream) = (MemPool::builder(device).build()?, Stream::new(device)?);
        let error = pool.alloc::<u8>(&stream, isize::MAX as usize).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(owner::peek(), cudaError_t::cudaSuccess);
        Ok(())
    });
}

#[test]
fn rust_does_not_meet_an_error_of_c() {
    run(|device| {
        let failed = owner::fail();
        assert_eq!(failed, cudaError_t::cudaErrorInvalidDevice);

        // What succeeds says so, and leaves the error for the C code that has not read it yet.
        let (pool, stream) = (MemPool::builder(device).build()?, Stream::new(device)?);
        let buffer = pool.from_slice(&stream, &[1_u8, 2, 3])?;
        assert_eq!(buffer.to_vec()?, [1, 2, 3]);
        assert_eq!(owner::take(), failed);

        // What fails has its own error.
        owner::fail();
        let error = pool.alloc::<u8>(&stream, isize::MAX as usize).unwrap_err();
        assert_eq!(error.raw(), cudaError_t::cudaErrorMemoryAllocation);
        Ok(())
    });
}
