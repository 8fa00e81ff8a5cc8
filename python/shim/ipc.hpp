// Memory of other processes.
#pragma once

#include "frees.hpp"

namespace {

#if TORCH_VERSION_MINOR >= 12
constexpr char kIpcVersion = 3;
#else
constexpr char kIpcVersion = 2;
#endif
constexpr char kIpcMalloc = 'c';

struct Imported {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<void>> open;
};
Imported& imported = *new Imported;

std::shared_ptr<void> import_handle(const std::string& handle) {
  TORCH_CHECK(
      handle.size() == 2 + sizeof(cudaIpcMemHandle_t) && handle[0] == kIpcVersion && handle[1] == kIpcMalloc,
      "millpond: the handle of a tensor of another process is not one of cudaMalloc's memory, as with "
      "expandable_segments, or comes from another version of torch");
  std::lock_guard<std::mutex> lock(imported.mutex);
  if (auto found = imported.open.find(handle); found != imported.open.end()) {
    if (auto memory = found->second.lock()) {
      return memory;
    }
  }
  cudaIpcMemHandle_t raw;
  std::memcpy(&raw, handle.data() + 2, sizeof raw);
  void* address = nullptr;
  C10_CUDA_CHECK(cudaIpcOpenMemHandle(&address, raw, cudaIpcMemLazyEnablePeerAccess));
  DeviceIndex device = ask_device();
  std::shared_ptr<void> memory(address, [device](void* open) {
    c10::cuda::OptionalCUDAGuard guard(Device(c10::kCUDA, device));
    C10_CUDA_CHECK_WARN(cudaIpcCloseMemHandle(open));
  });
  imported.open[handle] = memory;
  return memory;
}

} // namespace
