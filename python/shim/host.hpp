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
    const auto action = static_cast<TraceEntry::Action>(event->kind);
    const bool is_taken = action == TraceEntry::SEGMENT_ALLOC || action == TraceEntry::SEGMENT_MAP;
    // As in PyTorch: memory that is taken is part of the state, and memory that goes back is not. It has the frames of
    // whoever took it, unless its own are recorded.
    auto context = gather(is_taken ? RecordContext::STATE : RecordContext::ALL);
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    if (is_taken) {
      note_taken(event->address, event->bytes, context);
    } else if (auto before = take_note_of_taken(event->address, event->bytes); context == nullptr) {
      context = std::move(before);
    }
    record(
        action,
        event->device,
        event->address,
        event->bytes,
        event->stream,
        pool_of_event(action, event->address),
        std::move(context));
  } catch (...) {
    keep_exception();
  }
}

millpond_core_host host = {sizeof(millpond_core_host), 0, host_free_memory, host_event};

} // namespace
