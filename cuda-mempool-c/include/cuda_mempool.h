/* Pinned memory of a chosen NUMA node: an allocator over the host pools of the CUDA runtime.
 *
 * Copies between such memory and a device that has access to it run at the full speed of the bus, and most
 * allocations call nothing of CUDA's. Link with what `pkg-config cuda-mempool-c` says. */
/* Made by `cargo xtask header`; do not edit. */

#ifndef CUDA_MEMPOOL_H
#define CUDA_MEMPOOL_H

#include <stddef.h>
#include <stdint.h>

// An allocator of pinned memory on one NUMA node of the host. Its functions may be called from all threads at once.
//
// A forked child has neither the blocks nor new ones: there it may only free blocks and destroy allocators, which does
// nothing.
struct cuda_mempool_allocator;

// Which allocator is wanted. All zero: one on the node nearest to device 0, to which that device has access.
struct cuda_mempool_options {
    // The CUDA device whose stream the allocator's calls go to.
    int device;
    // Whether `node` counts: 0 puts the memory on the node nearest to `device`, which has access to it then.
    int on_node;
    // The NUMA node of the memory.
    uint32_t node;
    // How many devices `granted` lists.
    uint32_t granted_count;
    // Devices, or more of them, that have access: their kernels may read and write the memory, and their copies are
    // fast. Without access copies are staged, at a fraction of the speed. May be null if there are none.
    const int *granted;
    // How many bytes to take from the system at a time. 0: 32 MiB.
    size_t chunk_size;
    // How many bytes to take from the system at most. 0: no bound.
    size_t cap;
    // Whether the memory is the kernel's, registered with CUDA, rather than that of a pool: it comes several times as
    // fast, and all devices have access. Linux alone. As with ordinary memory, a process that takes more than the node
    // has is ended: set a cap.
    int registered;
};

// What an allocator holds, in bytes unless it says otherwise.
//
// While other threads go on, the numbers are each right for some moment, not all for the same one.
struct cuda_mempool_statistics {
    // Blocks that callers hold: a count.
    uint64_t live_blocks;
    // What they take, each with its head and what was added to round it up.
    uint64_t live_bytes;
    // Pinned memory taken from the system for them and for what is kept free.
    uint64_t taken_bytes;
    // The most that the former has come to.
    uint64_t peak_taken_bytes;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes an allocator. Returns 0, or a CUDA error code: `*allocator` is null then.
//
// There is no fallback to other memory: where the driver has no pinned pools on the node, this fails and
// `cuda_mempool_last_error` names what is missing.
int cuda_mempool_create(const struct cuda_mempool_options *options, struct cuda_mempool_allocator **allocator);

// Destroys an allocator. All its blocks go with it, so nothing may use them any more, on a device neither. Null is
// nothing to do. Returns 0, or a CUDA error code.
int cuda_mempool_destroy(struct cuda_mempool_allocator *allocator);

// A block of `size` bytes, aligned to 16. Their contents are unspecified; a size of 0 is a block too. Null on failure.
void *cuda_mempool_malloc(struct cuda_mempool_allocator *allocator, size_t size);

// A block of `size` bytes at a multiple of `alignment`, which must be a power of two. Null on failure.
void *cuda_mempool_aligned_malloc(struct cuda_mempool_allocator *allocator, size_t alignment, size_t size);

// Makes a block longer or shorter, in another place if need be; the contents and the alignment stay. A null block is
// allocated. Null on failure, and the old block is then as it was.
void *cuda_mempool_realloc(struct cuda_mempool_allocator *allocator, void *block, size_t size);

// Frees a block of this allocator, on any thread. It may be handed out again at once, so a device must be done with it.
// A null block is nothing to do.
void cuda_mempool_free(struct cuda_mempool_allocator *allocator, void *block);

// How many bytes of a block may be used: what was asked for or more. Of a null block 0.
size_t cuda_mempool_usable_size(const void *block);

// Fills in what the allocator holds. Returns 0, or a CUDA error code.
int cuda_mempool_stats(struct cuda_mempool_allocator *allocator, struct cuda_mempool_statistics *statistics);

// Gives memory that is free back to the system. Returns 0, or a CUDA error code.
int cuda_mempool_trim(struct cuda_mempool_allocator *allocator);

// Sets `*bytes` to what it has from the system, in use or kept. Returns 0, or a CUDA error code.
int cuda_mempool_reserved(struct cuda_mempool_allocator *allocator, size_t *bytes);

// Gets memory from the system ahead of time, on several threads at once, and keeps it until it is trimmed: the next
// allocations, up to so many bytes that are free in all, find it there. Returns 0, or a CUDA error code; some may be there
// then.
int cuda_mempool_prime(struct cuda_mempool_allocator *allocator,
                       size_t bytes);

// The text of the last failure on this thread, empty if there was none. It stays until the thread's next failure.
const char *cuda_mempool_last_error(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CUDA_MEMPOOL_H */
