// How the libraries of tests call the simulated driver of CUDA, which is preloaded after them.
#pragma once

#include <cuda_runtime_api.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#define REPLACES extern "C" __attribute__((visibility("default")))

namespace {

// Calls a function of the driver with the primary context current.
template <typename... Arguments>
cudaError_t driver(const char* name, Arguments... arguments) {
  void* function = dlsym(RTLD_DEFAULT, name);
  if (function == nullptr) {
    std::fprintf(stderr, "the simulated driver has no %s\n", name);
    std::abort();
  }
  return static_cast<cudaError_t>(reinterpret_cast<int (*)(Arguments...)>(function)(arguments...));
}

inline void use_device() {
  static void* const context = [] {
    void* primary = nullptr;
    driver("cuInit", 0U);
    driver("cuDevicePrimaryCtxRetain", &primary, 0);
    return primary;
  }();
  driver("cuCtxSetCurrent", context);
}

} // namespace
