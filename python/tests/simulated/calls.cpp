// What only C++ asks of PyTorch's allocator, for tests in Python: the base of an allocation, and the events that
// torch.distributed watches to register memory with NCCL.
#include <mutex>
#include <string>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>

namespace {

struct Event {
  int action;
  size_t address, bytes;
  c10::MempoolId_t pool;
};

std::mutex mutex;
std::vector<Event> events;
std::string error;

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
}
