/* An ordinary C program of the CUDA runtime, compiled against NVIDIA's headers. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <cudart_sim.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t error = (call);                                              \
        if (error != cudaSuccess) {                                              \
            printf("%s: %s\n", #call, cudaGetErrorName(error));                  \
            return 1;                                                            \
        }                                                                        \
    } while (0)

int main(void) {
    enum { SIZE = 1 << 16 };
    static unsigned char bytes[SIZE];
    int version = 0;
    void *pointer = NULL;
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    cudaMemPool_t pool = NULL;
    struct cudaMemPoolProps props;
    unsigned long long used = 0;
    struct cudartSimLiveObjects objects;
    uint64_t (*live)(struct cudartSimLiveObjects *) = NULL;

    *(void **)&live = dlsym(RTLD_DEFAULT, "cudartSimLive");
    if (live == NULL) {
        printf("not the simulator\n");
        return 1;
    }
    CHECK(cudaRuntimeGetVersion(&version));
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    CHECK(cudaMemPoolCreate(&pool, &props));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));

    /* Stream 0 is the legacy or the thread's own stream, as the program was compiled. */
    CHECK(cudaMallocFromPoolAsync(&pointer, SIZE, pool, 0));
    CHECK(cudaMemsetAsync(pointer, 7, SIZE, 0));
    CHECK(cudaEventRecord(event, 0));
    CHECK(cudaStreamWaitEvent(stream, event, 0));
    CHECK(cudaMemcpyAsync(bytes, pointer, SIZE, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    memset(&objects, 0xff, sizeof objects);
    unsigned long long count = live(&objects);
    printf("live %llu: streams %llu events %llu pools %llu allocations %llu bytes %llu graphs %llu in %zu\n",
           count, (unsigned long long)objects.streams, (unsigned long long)objects.events,
           (unsigned long long)objects.pools, (unsigned long long)objects.pool_allocations,
           (unsigned long long)objects.bytes, (unsigned long long)objects.graphs, sizeof objects);
    CHECK(cudaFreeAsync(pointer, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CHECK(cudaMallocAsync(&pointer, SIZE, 0));
    CHECK(cudaFreeAsync(pointer, 0));
    CHECK(cudaMalloc(&pointer, SIZE));
    CHECK(cudaMemset(pointer, 9, SIZE));
    CHECK(cudaMemcpy(bytes + 1, pointer, 1, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(pointer));
    CHECK(cudaStreamQuery(0));
    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaMemPoolDestroy(pool));
    printf("runtime %d bytes %d %d %d used %llu\n", version, bytes[0], bytes[1], bytes[SIZE - 1], used);
    return 0;
}
