/* What everything is compared with: the C calls, and nothing around them. */
#include "subject.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t error = (call);                                                                                    \
        if (error != cudaSuccess) {                                                                                    \
            fprintf(stderr, "raw C: %s: %s\n", #call, cudaGetErrorName(error));                                        \
            return (int)error;                                                                                         \
        }                                                                                                              \
    } while (0)

/* What a thread has: streams, an event, and the pool that it shares. */
typedef struct {
    cudaMemPool_t pool;
    cudaStream_t stream, other;
    cudaEvent_t event;
} thread;

static int begin(cudaMemPool_t pool, thread *t) {
    t->pool = pool;
    TRY(cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&t->other, cudaStreamNonBlocking));
    TRY(cudaEventCreateWithFlags(&t->event, cudaEventDisableTiming));
    return 0;
}

static void *start(void *shared) {
    thread *t = malloc(sizeof *t);
    if (begin(shared, t) != 0) {
        free(t);
        return NULL;
    }
    return t;
}

static void finish(void *worker) {
    thread *t = worker;
    cudaStreamDestroy(t->stream);
    cudaStreamDestroy(t->other);
    cudaEventDestroy(t->event);
    free(t);
}

static int make_pool(enum cudaMemLocationType type, int id, cudaMemPool_t *pool) {
    struct cudaMemPoolProps props;
    uint64_t keep_all = UINT64_MAX;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = type;
    props.location.id = id;
    TRY(cudaMemPoolCreate(pool, &props));
    TRY(cudaMemPoolSetAttribute(*pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
    return 0;
}

static void *open_device(void) {
    cudaMemPool_t pool;
    return make_pool(cudaMemLocationTypeDevice, 0, &pool) == 0 ? pool : NULL;
}

static void close_pool(void *shared) { cudaMemPoolDestroy(shared); }

/* The four loops over `<way>_alloc` and `<way>_free`. */
#define LOOPS(way)                                                                                                     \
    static int way##_pairs(void *worker, size_t bytes, size_t count) {                                                 \
        while (count-- > 0) {                                                                                          \
            void *block;                                                                                               \
            TRY(way##_alloc(worker, bytes, &block));                                                                   \
            TRY(way##_free(worker, block));                                                                            \
        }                                                                                                              \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static int way##_bursts(void *worker, size_t bytes, size_t count) {                                                \
        void *blocks[BENCH_BURST];                                                                                     \
        while (count-- > 0) {                                                                                          \
            for (size_t i = 0; i < BENCH_BURST; i++) TRY(way##_alloc(worker, bytes, &blocks[i]));                      \
            for (size_t i = 0; i < BENCH_BURST; i++) TRY(way##_free(worker, blocks[i]));                               \
        }                                                                                                              \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static int way##_steps(void *worker, const bench_step *steps, size_t length, size_t count) {                       \
        void *slots[BENCH_SLOTS] = {0};                                                                                \
        while (count-- > 0) {                                                                                          \
            for (size_t i = 0; i < length; i++) {                                                                      \
                void **slot = &slots[steps[i].slot];                                                                   \
                if (*slot == NULL) {                                                                                   \
                    TRY(way##_alloc(worker, steps[i].bytes, slot));                                                    \
                } else {                                                                                               \
                    TRY(way##_free(worker, *slot));                                                                    \
                    *slot = NULL;                                                                                      \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        return 0;                                                                                                      \
    }

static inline cudaError_t device_alloc(thread *t, size_t bytes, void **block) {
    return cudaMallocFromPoolAsync(block, bytes, t->pool, t->stream);
}
static inline cudaError_t device_free(thread *t, void *block) { return cudaFreeAsync(block, t->stream); }
LOOPS(device)

static int device_handovers(void *worker, size_t bytes, size_t count) {
    thread *t = worker;
    while (count-- > 0) {
        void *block;
        TRY(cudaMallocFromPoolAsync(&block, bytes, t->pool, t->stream));
        TRY(cudaEventRecord(t->event, t->stream));
        TRY(cudaStreamWaitEvent(t->other, t->event, 0));
        TRY(cudaFreeAsync(block, t->other));
    }
    return 0;
}

/* Device memory without a pool. */
static inline cudaError_t plain_alloc(thread *t, size_t bytes, void **block) {
    (void)t;
    return cudaMalloc(block, bytes);
}
static inline cudaError_t plain_free(thread *t, void *block) {
    (void)t;
    return cudaFree(block);
}
LOOPS(plain)

/* A pool of pinned memory on the host. The host may touch a block only once its stream got there. */
#if CUDART_VERSION >= 12020
static void *open_host_pool(void) {
    int node = -1;
    cudaMemPool_t pool;
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, 0) != cudaSuccess || node < 0) return NULL;
    return make_pool(cudaMemLocationTypeHostNuma, node, &pool) == 0 ? pool : NULL;
}
static inline cudaError_t host_pool_alloc(thread *t, size_t bytes, void **block) {
    cudaError_t error = cudaMallocFromPoolAsync(block, bytes, t->pool, t->stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(t->stream);
}
static inline cudaError_t host_pool_free(thread *t, void *block) { return cudaFreeAsync(block, t->stream); }
LOOPS(host_pool)
#endif

/* No pool is shared by those that need none, and what is shared must not be null. */
static void *open_nothing(void) {
    static char nothing;
    return &nothing;
}
static void close_nothing(void *shared) { (void)shared; }

static inline cudaError_t pinned_alloc(thread *t, size_t bytes, void **block) {
    (void)t;
    return cudaHostAlloc(block, bytes, cudaHostAllocDefault);
}
static inline cudaError_t pinned_free(thread *t, void *block) {
    (void)t;
    return cudaFreeHost(block);
}
LOOPS(pinned)

static inline cudaError_t system_alloc(thread *t, size_t bytes, void **block) {
    (void)t;
    /* Volatile, so that the compiler does not leave out what is freed unused. */
    void *volatile got = malloc(bytes);
    *block = got;
    return got != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t system_free(thread *t, void *block) {
    (void)t;
    free(block);
    return cudaSuccess;
}
LOOPS(system)

#define SUBJECT(name, memory, open, close, way, handovers)                                                             \
    {name, "", memory, open, close, start, finish, way##_pairs, way##_bursts, way##_steps, handovers, NULL}

const bench_subject *bench_subjects(size_t *count) {
    static const bench_subject subjects[] = {
        SUBJECT("raw C", "device", open_device, close_pool, device, device_handovers),
        SUBJECT("cudaMalloc", "device", open_nothing, close_nothing, plain, NULL),
        SUBJECT("malloc", "host", open_nothing, close_nothing, system, NULL),
#if CUDART_VERSION >= 12020
        SUBJECT("raw C pool", "host", open_host_pool, close_pool, host_pool, NULL),
#endif
        SUBJECT("cudaHostAlloc", "host", open_nothing, close_nothing, pinned, NULL),
    };
    *count = sizeof subjects / sizeof *subjects;
    return subjects;
}
