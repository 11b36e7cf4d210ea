//! Figures that the simulator keeps so that suites run on it stay quick. They say nothing of CUDA.

use std::ptr::null_mut;
use std::time::Duration;

use cudart_sim::cuda::*;

/// How long this process has computed: unlike the clock on the wall, no business of other processes.
fn processor_time() -> Duration {
    // SAFETY: a zeroed time is valid, and the call fills it.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time), 0);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a figure of the release build")]
fn a_million_allocations_take_less_than_two_seconds() {
    // SAFETY: the pointers are valid for the calls, and nothing uses the memory.
    unsafe {
        let (mut stream, mut pointer) = (null_mut(), null_mut());
        assert_eq!(cudaStreamCreateWithFlags(&mut stream, cudaStreamNonBlocking), cudaError::cudaSuccess);
        let start = processor_time();
        for _ in 0..1_000_000 {
            assert_eq!(cudaMallocAsync(&mut pointer, 65536, stream), cudaError::cudaSuccess);
            assert_eq!(cudaFreeAsync(pointer, stream), cudaError::cudaSuccess);
        }
        let took = processor_time() - start;
        println!("1,000,000 pairs: {took:?}");
        assert!(took < Duration::from_secs(2), "took {took:?}");
    }
}

#[test]
fn at_rest_it_takes_little_memory() {
    // SAFETY: the pointers are valid for the calls, and nothing uses the memory.
    unsafe {
        let (mut stream, mut pointer) = (null_mut(), null_mut());
        assert_eq!(cudaStreamCreateWithFlags(&mut stream, cudaStreamNonBlocking), cudaError::cudaSuccess);
        assert_eq!(cudaMallocAsync(&mut pointer, 4 << 30, stream), cudaError::cudaSuccess);
        assert_eq!(cudaMemsetAsync(pointer, 1, 100 << 20, stream), cudaError::cudaSuccess);
        assert_eq!(cudaFreeAsync(pointer, stream), cudaError::cudaSuccess);
        assert_eq!(cudaStreamSynchronize(stream), cudaError::cudaSuccess);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
    println!("resident: {kilobytes} kB");
    assert!(kilobytes < 50 << 10, "{kilobytes} kB stay after 100 MiB were used and freed");
}
