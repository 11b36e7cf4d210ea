//! The ordinary life of a stream-ordered allocation.

use std::ptr::null_mut;

use cudart_sim::cuda::*;

#[test]
fn bytes_come_back_from_a_pool_allocation() {
    // SAFETY: the pointers are valid for the calls, and the stream is synchronised before the host looks.
    unsafe {
        let mut stream = null_mut();
        assert_eq!(cudaStreamCreateWithFlags(&mut stream, cudaStreamNonBlocking), cudaError::cudaSuccess);
        let mut device = null_mut();
        assert_eq!(cudaMallocAsync(&mut device, 1000, stream), cudaError::cudaSuccess);
        let source = [7_u8; 1000];
        let mut target = [0_u8; 1000];
        let kind = cudaMemcpyKind::cudaMemcpyDefault;
        assert_eq!(cudaMemcpyAsync(device, source.as_ptr().cast(), 1000, kind, stream), cudaError::cudaSuccess);
        assert_eq!(cudaMemsetAsync(device, 9, 10, stream), cudaError::cudaSuccess);
        assert_eq!(cudaMemcpyAsync(target.as_mut_ptr().cast(), device, 1000, kind, stream), cudaError::cudaSuccess);
        assert_eq!(cudaFreeAsync(device, stream), cudaError::cudaSuccess);
        assert_eq!(cudaFreeAsync(device, stream), cudaError::cudaErrorInvalidValue);
        assert_eq!(cudaPeekAtLastError(), cudaError::cudaErrorInvalidValue);
        assert_eq!(cudaGetLastError(), cudaError::cudaErrorInvalidValue);
        assert_eq!(cudaGetLastError(), cudaError::cudaSuccess);
        assert_eq!(cudaStreamSynchronize(stream), cudaError::cudaSuccess);
        assert_eq!(cudaStreamDestroy(stream), cudaError::cudaSuccess);
        assert!(target[..10].iter().all(|byte| *byte == 9) && target[10..].iter().all(|byte| *byte == 7));
    }
}
