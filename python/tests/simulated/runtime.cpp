// The functions of CUDA's runtime that torch calls before and beside memory, for a machine without a GPU: preloaded, they
// take the place of the real ones. There is one device, and nothing runs on it. scripts/torch-simulated.sh uses it.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#define REPLACES extern "C" __attribute__((visibility("default")))

namespace {
constexpr std::size_t kTotal = std::size_t{8} << 30;
}

REPLACES cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
REPLACES cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
REPLACES cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaInitDevice(int, unsigned, unsigned) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
REPLACES cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
REPLACES cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "simulated");
  properties->major = 9;
  properties->totalGlobalMem = kTotal;
  properties->multiProcessorCount = 1;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  return cudaSuccess;
}
REPLACES cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;
  return cudaSuccess;
}
REPLACES cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -3;
  return cudaSuccess;
}
REPLACES cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  static std::atomic<std::uintptr_t> last{0x1000};
  *stream = reinterpret_cast<cudaStream_t>(last.fetch_add(16));
  return cudaSuccess;
}
REPLACES cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
REPLACES cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
REPLACES cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
REPLACES cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kTotal;
  return cudaSuccess;
}
REPLACES cudaError_t cudaFree(void*) {
  return cudaSuccess;
}
REPLACES cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
REPLACES cudaError_t cudaPeekAtLastError() {
  return cudaSuccess;
}
REPLACES const char* cudaGetErrorString(cudaError_t) {
  return "an error of the simulated runtime";
}
REPLACES const char* cudaGetErrorName(cudaError_t) {
  return "cudaErrorSimulated";
}
REPLACES cudaError_t cudaGetDriverEntryPointByVersion(
    const char*, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  if (found != nullptr) {
    *found = cudaDriverEntryPointSymbolNotFound;
  }
  return cudaErrorUnknown;
}
