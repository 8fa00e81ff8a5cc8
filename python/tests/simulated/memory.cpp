// The functions of CUDA's runtime that move bytes and share memory, on the simulated driver of CUDA: preloaded in front of
// the runtime without a GPU, where tensors have bytes. scripts/torch-simulated.sh uses it. No kernel runs here either.
#include <cuda_runtime_api.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

void use_device() {
  static void* const context = [] {
    void* primary = nullptr;
    driver("cuInit", 0U);
    driver("cuDevicePrimaryCtxRetain", &primary, 0);
    return primary;
  }();
  driver("cuCtxSetCurrent", context);
}

std::uint64_t number(const void* address) {
  return reinterpret_cast<std::uint64_t>(address);
}

} // namespace

REPLACES cudaError_t cudaSetDevice(int) {
  use_device();
  return cudaSuccess;
}
REPLACES cudaError_t cudaGetDevice(int* device) {
  use_device();
  *device = 0;
  return cudaSuccess;
}
REPLACES cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  use_device();
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return driver("cuMemcpyHtoDAsync_v2", number(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return driver("cuMemcpyDtoHAsync_v2", to, number(from), bytes, stream);
    default:
      return driver("cuMemcpyAsync", number(to), number(from), bytes, stream);
  }
}
REPLACES cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  use_device();
  return driver("cuStreamSynchronize", stream);
}
REPLACES cudaError_t cudaDeviceSynchronize() {
  use_device();
  return driver("cuCtxSynchronize");
}
REPLACES cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  return cudaSuccess;
}
REPLACES cudaError_t cudaMalloc(void** address, size_t bytes) {
  use_device();
  return driver("cuMemAlloc_v2", address, bytes);
}
REPLACES cudaError_t cudaFree(void* address) {
  use_device();
  return address == nullptr ? cudaSuccess : driver("cuMemFree_v2", number(address));
}

// An event of several processes is one that is over when it is sent.
REPLACES cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  static int some;
  *event = reinterpret_cast<cudaEvent_t>(&some);
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaDeviceSynchronize();
}
REPLACES cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t) {
  std::memset(handle, 0, sizeof *handle);
  return cudaSuccess;
}
REPLACES cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t) {
  return cudaEventCreateWithFlags(event, 0);
}

// PyTorch's own allocator asks here for the driver's functions.
REPLACES cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* found) {
  char versioned[128];
  std::snprintf(versioned, sizeof versioned, "%s_v2", name);
  *function = dlsym(RTLD_DEFAULT, versioned);
  if (*function == nullptr) {
    *function = dlsym(RTLD_DEFAULT, name);
  }
  static int (*const missing)() = [] { return 801; }; // CUDA_ERROR_NOT_SUPPORTED.
  if (*function == nullptr) {
    *function = reinterpret_cast<void*>(missing);
  }
  if (found != nullptr) {
    *found = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
