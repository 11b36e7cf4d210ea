//! A race on purpose: what the safe layer cannot express, for the sanitizer (and the simulator) to find.
//!
//! Memory allocated on one stream is filled and freed on another that never waited for the first.

use std::ptr::null_mut;

use cuda_mempool_sys::{
    cudaDeviceSynchronize, cudaError_t, cudaFreeAsync, cudaMallocAsync, cudaMemsetAsync, cudaStreamCreateWithFlags,
    cudaStreamNonBlocking,
};

fn main() {
    let (mut first, mut second, mut memory) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the handles and the out pointers are valid. The order of the streams is wrong on purpose; the memory is
    // the program's own all the same, and nothing else uses it.
    unsafe {
        check(cudaStreamCreateWithFlags(&mut first, cudaStreamNonBlocking));
        check(cudaStreamCreateWithFlags(&mut second, cudaStreamNonBlocking));
        check(cudaMallocAsync(&mut memory, 1 << 20, first));
        check(cudaMemsetAsync(memory, 0, 1 << 20, second));
        check(cudaFreeAsync(memory, second));
        check(cudaDeviceSynchronize());
    }
    println!("nobody noticed");
}

fn check(answer: cudaError_t) {
    if answer != cudaError_t::cudaSuccess {
        println!("the runtime answers {}", answer.0);
        std::process::exit(1);
    }
}
