/* A piece of C code that owns pools, streams and memory, gives them away and takes others over. */
#ifndef OWNER_H
#define OWNER_H

#include "wrapper.h"

#include <stddef.h>
#include <stdint.h>

struct owner {
    int device;
    cudaMemPool_t pool;
    cudaStream_t stream;
};

/* Makes a pool that keeps its memory, and a stream, on a device. */
cudaError_t owner_create(struct owner *owner, int device);

/* Each handle that is not null is destroyed: whoever gives one away sets it to null. */
cudaError_t owner_destroy(struct owner *owner);

/* Memory in the order of the stream, every byte of it set to `byte`. */
cudaError_t owner_alloc(cudaMemPool_t pool, cudaStream_t stream, size_t size, int byte, void **memory);

cudaError_t owner_free(void *memory, cudaStream_t stream);

/* Waits for the stream, and says whether every byte is `byte`. */
cudaError_t owner_is_filled(const void *memory, size_t size, int byte, cudaStream_t stream, int *is_filled);

/* Waits for the stream, and says how many bytes of the pool are in use. */
cudaError_t owner_used(cudaMemPool_t pool, cudaStream_t stream, uint64_t *used);

/* Asks for a device that does not exist. As after any failed call, the error stays with the thread until it is read. */
cudaError_t owner_fail(void);

/* The thread's last error as C code sees it: left where it is, or cleared. */
cudaError_t owner_peek(void);
cudaError_t owner_take(void);

/* The file of the runtime library that this code calls. */
const char *owner_runtime_file(void);

#endif
