/* What the guide's samples in C use without declaring it. The build script puts each sample into a function below. */
#include "wrapper.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#if CUDART_VERSION < 12020 /* older headers lack the name; whether there are such pools, the driver decides */
#define cudaMemLocationTypeHostNuma ((enum cudaMemLocationType)3)
#endif

static int device, peer, node;
static size_t size, sizes[10];
static void *memory, *again, *parts[10];
static cudaStream_t stream, first, second, third;
static cudaEvent_t event, allocated, used;
static cudaMemPool_t pool;
static struct cudaMemPoolProps properties;

/* Stands for the launch of a kernel: the C compiler cannot read `<<<>>>`. */
static void kernel(void *target, cudaStream_t on) { cudaMemsetAsync(target, 7, 512, on); }

/* How a sample that is a function is called. */
#define CALL_grant() grant(pool, device, peer)

static void before(int first_device, int last_device, int host_node) {
    device = first_device;
    peer = last_device;
    node = host_node;
    size = 512;
    for (int k = 0; k < 10; k++) sizes[k] = (size_t)(k + 1) << 10;
    cudaSetDevice(device);
    cudaStreamCreate(&stream);
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    cudaEventCreate(&allocated);
    cudaEventCreate(&used);
    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    cudaMemPoolCreate(&pool, &properties);
}

/* Whether all calls since `before` succeeded: a failure stays with the thread until it is read. */
static cudaError_t after(void) {
    cudaError_t done = cudaDeviceSynchronize();
    cudaError_t last = cudaGetLastError();
    cudaStreamDestroy(stream);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaStreamDestroy(third);
    cudaEventDestroy(event);
    cudaEventDestroy(allocated);
    cudaEventDestroy(used);
    cudaMemPoolDestroy(pool);
    return done == cudaSuccess ? last : done;
}
