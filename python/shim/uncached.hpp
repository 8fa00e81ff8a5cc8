// Memory from the driver itself, while torch.cuda.memory.caching_allocator_disabled() holds, as with PyTorch's allocator.
#pragma once

#include "common.hpp"

#include <mutex>
#include <unordered_set>

namespace {

std::atomic<bool> is_disabled{false};

inline void* allocate_uncached(size_t bytes) {
  void* address = nullptr;
  C10_CUDA_CHECK(cudaMalloc(&address, bytes));
  return address;
}

void delete_uncached(void* address) noexcept {
  (void)cudaFree(address);
}

// What raw_alloc() has from the driver. raw_delete() may come for it after caching began again, so it is remembered
// here, where a tensor's memory has its own deleter.
class UncachedAddresses {
 public:
  void* allocate(size_t bytes) {
    void* address = allocate_uncached(bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    addresses_.insert(address);
    count_.fetch_add(1, std::memory_order_release);
    return address;
  }

  // Gives the memory at an address back to the driver if it is from there. Returns whether it is.
  bool give_back(void* address) {
    if (C10_LIKELY(count_.load(std::memory_order_acquire) == 0)) {
      return false;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (addresses_.erase(address) == 0) {
        return false;
      }
      count_.fetch_sub(1, std::memory_order_release);
    }
    C10_CUDA_CHECK(cudaFree(address));
    return true;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<void*> addresses_;
  std::atomic<size_t> count_{0};
};

// Leaked, as all that is global here.
UncachedAddresses& uncached_addresses = *new UncachedAddresses;

} // namespace
