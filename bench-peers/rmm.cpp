// RAPIDS RMM's resources and its buffer, as a library that the comparison loads.
#include "../benches/compare/subject.h"

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/pinned_host_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <optional>

namespace {

constexpr std::size_t alignment = 256;
// What the pools have from the start, so that they do not take half of the device each.
constexpr std::size_t initial_size = std::size_t{1} << 30;

struct async {
    static constexpr char const *name = "RMM cuda_async", *memory = "device";
    rmm::mr::cuda_async_memory_resource resource{initial_size};
};

struct pool {
    static constexpr char const *name = "RMM pool", *memory = "device";
    rmm::mr::cuda_async_memory_resource upstream{initial_size};
    rmm::mr::pool_memory_resource resource{upstream, initial_size};
};

struct pinned {
    static constexpr char const *name = "RMM pinned_host", *memory = "host";
    rmm::mr::pinned_host_memory_resource resource;
};

// A resource called by itself.
template <class Shared> struct bare : Shared {
    struct block {
        void *pointer;
        std::size_t bytes;
    };
    block take(rmm::cuda_stream const &stream, std::size_t bytes) {
        return {this->resource.allocate(stream, bytes, alignment), bytes};
    }
    void give_back(rmm::cuda_stream const &stream, block b) {
        this->resource.deallocate(stream, b.pointer, b.bytes, alignment);
    }
};

// The buffer that owns what it has.
struct buffer : async {
    static constexpr char const *name = "RMM device_buffer";
    using block = rmm::device_buffer;
    block take(rmm::cuda_stream const &stream, std::size_t bytes) { return block{bytes, stream, this->resource}; }
    void give_back(rmm::cuda_stream const &, block) {}
};

template <class Way> struct worker {
    Way &way;
    rmm::cuda_stream stream, other;
    cudaEvent_t event;
};

// What throws answers 1.
template <class Way, class Work> int answer(Work work) {
    try {
        work();
        return 0;
    } catch (std::exception const &why) {
        std::fprintf(stderr, "%s: %s\n", Way::name, why.what());
        return 1;
    }
}

template <class Way> bench_subject subject() {
    bench_subject s{};
    s.name = Way::name;
    s.version = RMM_VERSION;
    s.memory = Way::memory;
    s.open = []() -> void * {
        void *made = nullptr;
        answer<Way>([&] { made = new Way; });
        return made;
    };
    s.close = [](void *shared) { delete static_cast<Way *>(shared); };
    s.start = [](void *shared) -> void * {
        void *made = nullptr;
        answer<Way>([&] {
            auto *w = new worker<Way>{*static_cast<Way *>(shared), {}, {}, {}};
            cudaEventCreateWithFlags(&w->event, cudaEventDisableTiming);
            made = w;
        });
        return made;
    };
    s.finish = [](void *w) {
        cudaEventDestroy(static_cast<worker<Way> *>(w)->event);
        delete static_cast<worker<Way> *>(w);
    };
    s.pairs = [](void *p, std::size_t bytes, std::size_t count) {
        auto &w = *static_cast<worker<Way> *>(p);
        return answer<Way>([&] {
            while (count-- > 0) w.way.give_back(w.stream, w.way.take(w.stream, bytes));
        });
    };
    s.bursts = [](void *p, std::size_t bytes, std::size_t count) {
        auto &w = *static_cast<worker<Way> *>(p);
        return answer<Way>([&] {
            std::array<std::optional<typename Way::block>, BENCH_BURST> blocks;
            while (count-- > 0) {
                for (auto &block : blocks) block.emplace(w.way.take(w.stream, bytes));
                for (auto &block : blocks) {
                    w.way.give_back(w.stream, std::move(*block));
                    block.reset();
                }
            }
        });
    };
    s.steps = [](void *p, bench_step const *steps, std::size_t length, std::size_t count) {
        auto &w = *static_cast<worker<Way> *>(p);
        return answer<Way>([&] {
            std::array<std::optional<typename Way::block>, BENCH_SLOTS> slots;
            while (count-- > 0) {
                for (auto const *step = steps; step != steps + length; ++step) {
                    auto &slot = slots[step->slot];
                    if (slot) {
                        w.way.give_back(w.stream, std::move(*slot));
                        slot.reset();
                    } else {
                        slot.emplace(w.way.take(w.stream, step->bytes));
                    }
                }
            }
        });
    };
    return s;
}

// Resources can be given a block back on another stream than it was taken on.
template <class Shared> bench_subject with_handovers() {
    using Way = bare<Shared>;
    auto s = subject<Way>();
    s.handovers = [](void *p, std::size_t bytes, std::size_t count) {
        auto &w = *static_cast<worker<Way> *>(p);
        return answer<Way>([&] {
            while (count-- > 0) {
                auto block = w.way.take(w.stream, bytes);
                cudaEventRecord(w.event, w.stream.value());
                cudaStreamWaitEvent(w.other.value(), w.event, 0);
                w.way.give_back(w.other, block);
            }
        });
    };
    return s;
}

}  // namespace

extern "C" bench_subject const *bench_subjects(std::size_t *count) {
    static std::array const subjects{with_handovers<async>(), with_handovers<pool>(), subject<buffer>(),
                                     subject<bare<pinned>>()};
    *count = subjects.size();
    return subjects.data();
}
