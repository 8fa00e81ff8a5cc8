// What only C++ asks of PyTorch's allocator, for tests in Python: the base of an allocation, the events that
// torch.distributed watches to register memory with NCCL, and what throw_on_cudamalloc_oom refuses.
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

namespace {

struct Event {
  int action;
  size_t address, bytes;
  c10::MempoolId_t pool;
};

std::mutex mutex;
std::vector<Event> events;
std::string error;
[[maybe_unused]] size_t rejected[4];

} // namespace

extern "C" {

// Keeps the events of segments from now on.
__attribute__((visibility("default"))) void calls_watch() {
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const auto& entry) {
    std::lock_guard<std::mutex> lock(mutex);
    if (entry.action_ >= entry.SEGMENT_ALLOC && entry.action_ <= entry.SEGMENT_UNMAP) {
      events.push_back({static_cast<int>(entry.action_), static_cast<size_t>(entry.addr_), entry.size_, entry.mempool_});
    }
  });
}

// Writes the next event, which is forgotten: its action, address, bytes and pool. Returns 0 if there is none.
__attribute__((visibility("default"))) int calls_next(size_t* out) {
  std::lock_guard<std::mutex> lock(mutex);
  if (events.empty()) {
    return 0;
  }
  const Event event = events.front();
  events.erase(events.begin());
  const size_t values[] = {
      static_cast<size_t>(event.action), event.address, event.bytes, event.pool.first, event.pool.second};
  std::copy(std::begin(values), std::end(values), out);
  return 1;
}

// Returns the base of the allocation of an address, and its bytes. 0 is an error, which calls_error has.
__attribute__((visibility("default"))) void* calls_base(void* address, size_t* bytes) {
  try {
    return c10::cuda::CUDACachingAllocator::getBaseAllocation(address, bytes);
  } catch (const c10::Error& caught) {
    error = caught.what_without_backtrace();
    return nullptr;
  }
}

__attribute__((visibility("default"))) const char* calls_error() {
  return error.c_str();
}

#if TORCH_VERSION_MINOR >= 12
// Keeps the last request that throw_on_cudamalloc_oom refuses from now on. The observer behind throws.
__attribute__((visibility("default"))) void calls_watch_rejections() {
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  allocator->attachOomRejectionObserver([](int64_t, size_t asked, size_t reserved, size_t total) {
    std::lock_guard<std::mutex> lock(mutex);
    const size_t values[] = {rejected[0] + 1, asked, reserved, total};
    std::copy(std::begin(values), std::end(values), rejected);
  });
  allocator->attachOomRejectionObserver(
      [](int64_t, size_t, size_t, size_t) { throw std::runtime_error("an observer that throws"); });
}

// Writes how many there were, and the bytes that the last would have reserved, those reserved before and the device's.
__attribute__((visibility("default"))) void calls_rejections(size_t* out) {
  std::lock_guard<std::mutex> lock(mutex);
  std::copy(std::begin(rejected), std::end(rejected), out);
}
#endif
}
