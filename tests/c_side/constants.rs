//! What the C compiler makes of the headers is what the bindings say.

use cuda_mempool_sys::{cudaStreamLegacy, cudaStreamPerThread, CUDART_VERSION};

extern "C" {
    fn cuda_mempool_c_stream_legacy() -> usize;
    fn cuda_mempool_c_stream_per_thread() -> usize;
    fn cuda_mempool_c_version_of_headers() -> u32;
}

#[test]
fn the_stream_constants_are_those_of_the_headers() {
    // SAFETY: the C functions take nothing and answer a number.
    let (legacy, per_thread) = unsafe { (cuda_mempool_c_stream_legacy(), cuda_mempool_c_stream_per_thread()) };
    assert_eq!(cudaStreamLegacy as usize, legacy);
    assert_eq!(cudaStreamPerThread as usize, per_thread);
}

/// The headers that the metadata points at are those that the bindings were chosen by.
#[test]
fn the_bindings_are_those_of_the_headers() {
    // With `dlopen` the two are chosen apart.
    if cuda_mempool_sys::LinkKind::CURRENT != cuda_mempool_sys::LinkKind::Dlopen {
        // SAFETY: the C function takes nothing and answers a number.
        assert_eq!(CUDART_VERSION, unsafe { cuda_mempool_c_version_of_headers() });
    }
}
