// What the guide's samples in C++ use without declaring it.
#include <rmm/device_uvector.hpp>
#include <rmm/mr/device/cuda_async_memory_resource.hpp>
#include <rmm/mr/device/cuda_async_view_memory_resource.hpp>

#define SAMPLE(name)                                                                                            \
    void name(rmm::mr::cuda_async_memory_resource &resource, rmm::mr::cuda_async_memory_resource &other,        \
              rmm::cuda_stream_view stream)
