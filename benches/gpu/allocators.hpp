// The peers, each by the cheapest way that it offers to C++. An allocator has
//   Block                     what its user keeps to give a block back,
//   allocate(bytes, stream)   throws where there is no memory,
//   free(block)               on the stream that it was allocated on,
//   address(block)            for the check that blocks are apart,
//   settle()                  waits for what the driver still has queued; never on the clock,
//   empty()                   gives everything cached back and counts peaks anew,
//   peak()                    the most bytes reserved since then, -1 where nobody counts,
//   about()                   versions, for the record.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace peers {

inline void check(cudaError_t result, const char *call) {
    if (result != cudaSuccess) {
        throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(result) + ", " +
                                 cudaGetErrorString(result));
    }
}

inline std::string cuda_versions() {
    int driver = 0, runtime = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return "CUDA runtime " + std::to_string(runtime) + ", driver " + std::to_string(driver);
}

// A driver call for every allocation and every free.
struct Plain {
    using Block = void *;

    explicit Plain(int) {}

    Block allocate(size_t bytes, cudaStream_t) {
        void *block = nullptr;
        check(cudaMalloc(&block, bytes), "cudaMalloc");
        return block;
    }
    void free(Block block) { check(cudaFree(block), "cudaFree"); }
    static void *address(Block block) { return block; }
    void settle() {}
    void empty() {}
    int64_t peak() { return -1; }
    std::string about() { return cuda_versions(); }
};

// The driver's default pool, told to keep what it has.
class Async {
  public:
    struct Block {
        void *address;
        cudaStream_t stream;
    };

    explicit Async(int device) {
        check(cudaDeviceGetDefaultMemPool(&pool_, device), "cudaDeviceGetDefaultMemPool");
        uint64_t all = UINT64_MAX;
        check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
    }

    Block allocate(size_t bytes, cudaStream_t stream) {
        void *block = nullptr;
        check(cudaMallocAsync(&block, bytes, stream), "cudaMallocAsync");
        return {block, stream};
    }
    void free(Block block) { check(cudaFreeAsync(block.address, block.stream), "cudaFreeAsync"); }
    static void *address(Block block) { return block.address; }
    void settle() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
    void empty() {
        settle();
        check(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
        uint64_t none = 0;
        check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &none), "cudaMemPoolSetAttribute");
    }
    int64_t peak() {
        uint64_t high = 0;
        check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &high), "cudaMemPoolGetAttribute");
        return static_cast<int64_t>(high);
    }
    std::string about() { return cuda_versions(); }

  private:
    cudaMemPool_t pool_ = nullptr;
};

} // namespace peers
