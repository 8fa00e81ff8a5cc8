// PyTorch's caching allocator, without Python and without tensors: bytes and a stream in, a pointer out.
#pragma once

#ifdef PEERS_TORCH

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#include "allocators.hpp"

namespace peers {

template <bool EXPANDABLE> class Torch {
  public:
    using Block = void *;

    explicit Torch(int device) : allocator_(c10::cuda::CUDACachingAllocator::get()) {
        device_ = static_cast<decltype(device_)>(device);
        int devices = 0;
        check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
        if (!allocator_->initialized()) allocator_->init(devices);
        expect_segments();
    }

    Block allocate(size_t bytes, cudaStream_t stream) { return allocator_->raw_alloc_with_stream(bytes, stream); }
    void free(Block block) { allocator_->raw_delete(block); }
    static void *address(Block block) { return block; }
    void settle() {}
    void empty() {
        c10::cuda::CUDACachingAllocator::emptyCache();
        allocator_->resetPeakStats(device_);
    }
    int64_t peak() { return allocator_->getDeviceStats(device_).reserved_bytes[0].peak; }
    std::string about() { return "torch " TORCH_VERSION ", " + cuda_versions(); }

  private:
    // The settings come from the environment, which it reads once. What it does tells whether it has read them.
    void expect_segments() {
        const Block block = allocate(64 << 20, nullptr);
        bool found = false, expandable = false;
        for (const auto &segment : c10::cuda::CUDACachingAllocator::snapshot().segments) {
            found = true;
            expandable = expandable || segment.is_expandable;
        }
        free(block);
        empty();
        if (!found || expandable != EXPANDABLE) {
            throw std::runtime_error(EXPANDABLE ? "PyTorch was told expandable_segments:True and made none"
                                                : "PyTorch makes expandable segments without having been told to");
        }
    }

    c10::cuda::CUDACachingAllocator::CUDAAllocator *allocator_;
    c10::DeviceIndex device_ = 0;
};

} // namespace peers

#endif
