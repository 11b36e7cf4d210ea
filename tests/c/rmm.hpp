// What the guide's samples in C++ use without declaring it, and what runs them.
#undef NDEBUG
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_view_memory_resource.hpp>

#include <cassert>
#include <cstdio>
#include <cstdlib>

// RMM's resources are in its headers, and so call the runtime that this program is linked with. The rest of it is a library
// that has a runtime inside. What that would ask of it is answered here instead, by the same runtime as everything else.
namespace rmm {
cuda_device_id get_current_cuda_device() {
    int device;
    RMM_CUDA_TRY(cudaGetDevice(&device));
    return cuda_device_id{device};
}

std::pair<std::size_t, std::size_t> available_device_memory() {
    std::size_t free, total;
    RMM_CUDA_TRY(cudaMemGetInfo(&free, &total));
    return {free, total};
}
}  // namespace rmm

using Resource = rmm::mr::cuda_async_memory_resource;

#define SAMPLE(name) static void name(Resource &resource, Resource &other, rmm::cuda_stream_view stream)

// Fails when the sample does, or leaves anything in use.
static void run(const char *place, void (*sample)(Resource &, Resource &, rmm::cuda_stream_view)) {
    std::puts(place);
    cudaStream_t stream;
    RMM_CUDA_TRY(cudaStreamCreate(&stream));
    {
        Resource resource{0}, other{0};
        sample(resource, other, stream);
        RMM_CUDA_TRY(cudaDeviceSynchronize());
        std::uint64_t used;
        RMM_CUDA_TRY(cudaMemPoolGetAttribute(resource.pool_handle(), cudaMemPoolAttrUsedMemCurrent, &used));
        assert(used == 0);
    }
    RMM_CUDA_TRY(cudaStreamDestroy(stream));
    assert(cudaGetLastError() == cudaSuccess);
}
