// Frees, by a tensor's context and by address.
#pragma once

#include "foreign.hpp"

namespace {

void profile(void* address, int64_t bytes, int device) {
  millpond_usage usage{};
  core->usage(device, &usage);
  c10::reportMemoryUsageToProfiler(
      address, bytes, usage.allocated_bytes, usage.reserved_bytes, Device(c10::kCUDA, static_cast<DeviceIndex>(device)));
}

millpond_status free_and_tell(void* block) {
  millpond_core_place place{};
  millpond_status status = core->find(block, &place);
  if (status != MILLPOND_OK) {
    return status;
  }
  if (is_watched.load(std::memory_order_relaxed)) {
    told_free(place);
  }
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (interpreter != nullptr) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, static_cast<uintptr_t>(place.address));
  }
  status = core->free(block);
  if (c10::memoryProfilingEnabled()) {
    profile(reinterpret_cast<void*>(place.address), -static_cast<int64_t>(place.bytes), place.device);
  }
  return status;
}

inline millpond_status free_settled(void* block) {
  if (C10_LIKELY(
          !is_watched.load(std::memory_order_relaxed) && c10::impl::GPUTrace::get_trace() == nullptr &&
          !c10::memoryProfilingEnabled())) {
    return core->free(block);
  }
  return free_and_tell(block);
}

// Frees a block that streams of other GPUs may use, and those whose free was put off.
millpond_status free_foreign(void* block) {
  millpond_status status = MILLPOND_OK;
  std::vector<void*> blocks = take_put_off();
  blocks.push_back(block);
  for (void* each : blocks) {
    const millpond_status freed = settle_foreign(each) ? MILLPOND_OK : free_settled(each);
    status = freed == MILLPOND_OK ? status : freed;
  }
  return status;
}

inline millpond_status free_block(void* block) {
  return C10_LIKELY(foreign_blocks.load(std::memory_order_relaxed) == 0) ? free_settled(block) : free_foreign(block);
}

// The deleter of every tensor, for a context as for an address: the lowest bit tells them apart in the core.
void delete_block(void* block) noexcept {
  try {
    if (C10_UNLIKELY(free_block(block) != MILLPOND_OK)) {
      std::fprintf(stderr, "millpond: %s\n", core->last_error());
    }
  } catch (...) {
    // A recorder or a tracker failed, and a destructor has no one to tell.
  }
  drop_exception();
}

} // namespace
