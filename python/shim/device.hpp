// The current device, without the driver's lock.
#pragma once

#include "errors.hpp"

namespace {

// cudaGetDevice takes a lock of the driver's, which threads wait for. With one device there is nothing to ask. With more
// the driver's current context is asked, which does not lock, and the device that it meant last is remembered. That holds
// once every device was used: before, PyTorch keeps a device that was only named to itself, without a context.
using GetContext = int (*)(void**);
GetContext get_context = nullptr;
std::atomic<int> devices_used{0};
std::atomic<bool> was_used[kDevices];

struct Remembered {
  void* context;
  DeviceIndex device;
};
thread_local Remembered remembered{nullptr, -1};

DeviceIndex ask_device() {
  DeviceIndex device = -1;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

DeviceIndex ask_and_remember() {
  DeviceIndex device = ask_device();
  void* context = nullptr;
  if (devices_used.load() == device_count.load() && get_context != nullptr && get_context(&context) == 0) {
    remembered = Remembered{context, device};
  }
  return device;
}

inline DeviceIndex current_device() {
  if (C10_LIKELY(device_count.load(std::memory_order_relaxed) == 1)) {
    return 0;
  }
  void* context = nullptr;
  if (remembered.context != nullptr && get_context(&context) == 0 && context == remembered.context) {
    return remembered.device;
  }
  return ask_and_remember();
}

void note_use(int device) {
  if (!was_used[device].exchange(true)) {
    devices_used.fetch_add(1);
  }
}

} // namespace
