// What the core may call: PyTorch's free-memory callbacks and the events that it tells.
#pragma once

#include "watch.hpp"

namespace {

int32_t host_free_memory(int32_t) noexcept {
  bool freed = false;
  try {
    for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    }
  } catch (...) {
    keep_exception();
  }
  return freed ? 1 : 0;
}

void host_event(const millpond_core_event* event) noexcept {
  try {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    record(
        static_cast<TraceEntry::Action>(event->kind),
        event->device,
        event->address,
        event->bytes,
        event->stream,
        {0, 0},
        nullptr);
  } catch (...) {
    keep_exception();
  }
}

millpond_core_host host = {sizeof(millpond_core_host), 0, host_free_memory, host_event};

} // namespace
