// The functions of CUDA's runtime that move bytes and share memory, on the simulated driver of CUDA: preloaded in front of
// the runtime without a GPU, where tensors have bytes. scripts/torch-simulated.sh uses it. No kernel runs here either.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "driver.hpp"

namespace {

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
REPLACES cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  use_device();
  return driver("cuMemGetInfo_v2", free, total);
}
REPLACES cudaError_t cudaMalloc(void** address, size_t bytes) {
  use_device();
  return driver("cuMemAlloc_v2", address, bytes);
}
REPLACES cudaError_t cudaFree(void* address) {
  use_device();
  return address == nullptr ? cudaSuccess : driver("cuMemFree_v2", number(address));
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
