// The functions of CUDA's runtime that give a device work, for a machine without a GPU: kernels and copies do nothing, and
// events are over at once. So torch computes as it does on a GPU, with tensors that have no values. Part of the library
// that runtime.cpp makes; memory.cpp and captures.cpp stand in front of it on the simulated driver of CUDA.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define REPLACES extern "C" __attribute__((visibility("default")))

namespace {

// A handle that is like no other one.
template <typename Handle>
Handle handle() {
  static std::atomic<std::uintptr_t> last{0x100000};
  return reinterpret_cast<Handle>(last.fetch_add(16));
}

} // namespace

// ---- Streams and events ----

REPLACES cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
REPLACES cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t,
    cudaStreamCaptureStatus* status,
    unsigned long long* id,
    cudaGraph_t*,
    const cudaGraphNode_t**,
    const cudaGraphEdgeData**,
    size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) {
    *id = 0;
  }
  return cudaSuccess;
}
REPLACES cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = handle<cudaEvent_t>();
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
REPLACES cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}

// ---- Kernels ----

REPLACES cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
  *kernel = handle<cudaKernel_t>();
  return cudaSuccess;
}
REPLACES cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* user) {
  function(user);
  return cudaSuccess;
}
REPLACES cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}
REPLACES cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
REPLACES cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}

// ---- Copies, and memory of the host ----

REPLACES cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  *address = std::calloc(bytes, 1);
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
REPLACES cudaError_t cudaFreeHost(void* address) {
  std::free(address);
  return cudaSuccess;
}
REPLACES cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  return cudaSuccess;
}
