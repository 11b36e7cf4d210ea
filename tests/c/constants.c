/* What the C compiler makes of the casts in macros that the bindings repeat by hand. */
#include "wrapper.h"

#include <stdint.h>

uintptr_t cuda_mempool_c_stream_legacy(void) { return (uintptr_t)cudaStreamLegacy; }

uintptr_t cuda_mempool_c_stream_per_thread(void) { return (uintptr_t)cudaStreamPerThread; }

unsigned cuda_mempool_c_version_of_headers(void) { return CUDART_VERSION; }
