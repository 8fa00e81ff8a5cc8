// The errors of the core, as PyTorch's.
#pragma once

#include "host.hpp"

namespace {

// Throws what a call of the core has returned, and what a tracker has thrown meanwhile.
void check(millpond_status status) {
  throw_caught();
  TORCH_CHECK(status == MILLPOND_OK, "millpond: ", core->last_error());
}

[[noreturn]] void throw_too_large() {
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  std::abort();
}

// Throws PyTorch's error for what throw_on_cudamalloc_oom refuses, and tells those who watch for that. As in PyTorch it is
// no event of the history or of the profiler, and the observers of other errors are not called.
[[noreturn]] void throw_rejected(const millpond_core_oom& oom, const std::string& explanation) {
#if TORCH_VERSION_MINOR >= 12
  std::vector<allocators::OomRejectionObserver> observers;
  {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    observers = watch.rejection_observers;
  }
  for (const auto& observer : observers) {
    try {
      observer(oom.device, oom.tried_bytes, oom.reserved_bytes, oom.total_bytes);
    } catch (const std::exception& caught) {
      TORCH_WARN("Exception in OOM rejection observer: ", caught.what());
    } catch (...) {
      TORCH_WARN("Unknown exception in OOM rejection observer");
    }
  }
#endif
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction "
      "limit. Requested size: ",
      format_size(oom.requested_bytes),
      "\nMillpond:\n  ",
      format_size(oom.tried_bytes),
      " would be reserved in addition to ",
      format_size(oom.reserved_bytes),
      ", of which ",
      format_size(oom.allocated_bytes),
      " is allocated. The GPU has ",
      format_size(oom.total_bytes),
      ".\n",
      explanation);
  std::abort();
}

// Throws PyTorch's error with PyTorch's text, and Millpond's explanation behind it.
[[noreturn]] void throw_out_of_memory(int device) {
  millpond_core_oom oom{};
  check(core->oom(&oom));
  std::string explanation = oom.explanation;
  if (oom.rejected != 0) {
    throw_rejected(oom, explanation);
  }
  std::string allowed = oom.limit_bytes == UINT64_MAX ? "" : format_size(oom.limit_bytes) + " allowed; ";
  size_t total = oom.limit_bytes == UINT64_MAX ? oom.total_bytes : oom.limit_bytes;
  std::vector<allocators::OutOfMemoryObserver> observers;
  {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    record(TraceEntry::OOM, device, oom.free_bytes, oom.requested_bytes, nullptr, {0, 0}, nullptr);
    observers = watch.observers;
  }
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(oom.requested_bytes),
      oom.allocated_bytes,
      oom.reserved_bytes,
      Device(c10::kCUDA, static_cast<DeviceIndex>(device)));
  for (const auto& observer : observers) {
    observer(device, oom.tried_bytes, total, oom.free_bytes);
  }
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "CUDA out of memory. Tried to allocate ",
      format_size(oom.tried_bytes),
      ". GPU ",
      device,
      " has a total capacity of ",
      format_size(oom.total_bytes),
      " of which ",
      format_size(oom.free_bytes),
      " is free. ",
      allowed,
      "Of the allocated memory ",
      format_size(oom.allocated_bytes),
      " is allocated by PyTorch, and ",
      format_size(oom.reserved_bytes > oom.allocated_bytes ? oom.reserved_bytes - oom.allocated_bytes : 0),
      " is reserved by PyTorch but unallocated.",
      explanation.empty() ? "" : "\nMillpond:\n",
      explanation);
  std::abort();
}

[[noreturn]] void throw_failed(int device, const millpond_core_block& block) {
  throw_caught();
  auto status = static_cast<millpond_status>(reinterpret_cast<intptr_t>(block.context));
  if (status == MILLPOND_OUT_OF_MEMORY) {
    throw_out_of_memory(device);
  }
  TORCH_CHECK(false, "millpond: ", core->last_error());
  std::abort();
}

} // namespace
