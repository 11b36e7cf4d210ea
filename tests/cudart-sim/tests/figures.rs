//! Figures that the simulator keeps so that suites run on it stay quick. They say nothing of CUDA.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use cudart_sim::cuda::*;

#[test]
#[cfg_attr(debug_assertions, ignore = "a figure of the release build")]
fn a_million_allocations_take_less_than_two_seconds() {
    // SAFETY: the pointers are valid for the calls, and nothing uses the memory.
    unsafe {
        let (mut stream, mut pointer) = (null_mut(), null_mut());
        assert_eq!(cudaStreamCreateWithFlags(&mut stream, cudaStreamNonBlocking), cudaError::cudaSuccess);
        let start = Instant::now();
        for _ in 0..1_000_000 {
            assert_eq!(cudaMallocAsync(&mut pointer, 65536, stream), cudaError::cudaSuccess);
            assert_eq!(cudaFreeAsync(pointer, stream), cudaError::cudaSuccess);
        }
        let took = start.elapsed();
        println!("1,000,000 pairs: {took:?}");
        assert!(took < Duration::from_secs(2), "took {took:?}");
    }
}
