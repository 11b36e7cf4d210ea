/* The CUDA headers behind the bindings: bindgen's input, and included by the C side of the tests. */
#include <cuda_runtime_api.h>
