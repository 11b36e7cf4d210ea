#define _GNU_SOURCE
#include "owner.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                              \
    do {                                       \
        cudaError_t answer = (call);           \
        if (answer != cudaSuccess) return answer; \
    } while (0)

cudaError_t owner_create(struct owner *owner, int device) {
    struct cudaMemPoolProps properties;
    uint64_t everything = UINT64_MAX;
    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    owner->device = device;
    TRY(cudaSetDevice(device));
    TRY(cudaMemPoolCreate(&owner->pool, &properties));
    TRY(cudaMemPoolSetAttribute(owner->pool, cudaMemPoolAttrReleaseThreshold, &everything));
    return cudaStreamCreateWithFlags(&owner->stream, cudaStreamNonBlocking);
}

cudaError_t owner_destroy(struct owner *owner) {
    if (owner->stream) TRY(cudaStreamDestroy(owner->stream));
    if (owner->pool) TRY(cudaMemPoolDestroy(owner->pool));
    owner->stream = NULL;
    owner->pool = NULL;
    return cudaSuccess;
}

cudaError_t owner_alloc(cudaMemPool_t pool, cudaStream_t stream, size_t size, int byte, void **memory) {
    TRY(cudaMallocFromPoolAsync(memory, size, pool, stream));
    return cudaMemsetAsync(*memory, byte, size, stream);
}

cudaError_t owner_free(void *memory, cudaStream_t stream) { return cudaFreeAsync(memory, stream); }

cudaError_t owner_is_filled(const void *memory, size_t size, int byte, cudaStream_t stream, int *is_filled) {
    unsigned char *bytes = malloc(size);
    cudaError_t answer = cudaMemcpyAsync(bytes, memory, size, cudaMemcpyDeviceToHost, stream);
    if (answer == cudaSuccess) answer = cudaStreamSynchronize(stream);
    *is_filled = 1;
    for (size_t i = 0; i < size && *is_filled; i++) *is_filled = bytes[i] == byte;
    free(bytes);
    return answer;
}

cudaError_t owner_used(cudaMemPool_t pool, cudaStream_t stream, uint64_t *used) {
    TRY(cudaStreamSynchronize(stream));
    return cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, used);
}

cudaError_t owner_fail(void) { return cudaSetDevice(1000); }

cudaError_t owner_peek(void) { return cudaPeekAtLastError(); }

cudaError_t owner_take(void) { return cudaGetLastError(); }

const char *owner_runtime_file(void) {
    Dl_info info;
    return dladdr((void *)(uintptr_t)cudaMallocFromPoolAsync, &info) ? info.dli_fname : NULL;
}
