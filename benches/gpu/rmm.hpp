// RMM's pool over cudaMalloc. It starts empty and grows as it is asked, so that a first pass pays for its memory as
// everybody's does.
#pragma once

#ifdef PEERS_RMM

#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>

#include <algorithm>
#include <optional>

#include "allocators.hpp"

namespace peers {

class Rmm {
  public:
    // It wants the size and the stream of a block back.
    struct Block {
        void *address;
        size_t bytes;
        cudaStream_t stream;
    };

    explicit Rmm(int) { empty(); }

    Block allocate(size_t bytes, cudaStream_t stream) {
        return {pool_->allocate(cuda::stream_ref{stream}, bytes, ALIGNMENT), bytes, stream};
    }
    void free(Block block) { pool_->deallocate(cuda::stream_ref{block.stream}, block.address, block.bytes, ALIGNMENT); }
    static void *address(Block block) { return block.address; }
    void settle() {}
    void empty() {
        pool_.reset();
        pool_.emplace(rmm::mr::cuda_memory_resource{}, 0);
    }
    // It never shrinks.
    int64_t peak() { return static_cast<int64_t>(pool_->pool_size()); }
    std::string about() {
        const auto number = [](int part) { return std::to_string(part); };
        return "RMM " + number(RMM_VERSION_MAJOR) + "." + number(RMM_VERSION_MINOR) + "." + number(RMM_VERSION_PATCH) +
               ", " + cuda_versions();
    }

  private:
    static constexpr size_t ALIGNMENT = 256;

    std::optional<rmm::mr::pool_memory_resource> pool_;
};

} // namespace peers

#endif
