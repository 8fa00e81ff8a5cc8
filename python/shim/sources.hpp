// Allocators that supply the memory of private pools: MemPool(allocator=...).
#pragma once

#include "frees.hpp"

namespace {

using Source = std::shared_ptr<CUDAAllocator>;

// As PyTorch does, the allocator is asked for segments as any program would ask it: on the current stream of the
// device, and during a capture with calls allowed that are not captured.
void* source_alloc(void* user, uint64_t bytes, int32_t device, void*) noexcept {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  void* address = nullptr;
  try {
    c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
    address = (*static_cast<Source*>(user))->raw_alloc(bytes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millpond: the allocator of a pool failed: %s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "millpond: the allocator of a pool failed\n");
  }
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (address == nullptr) {
    // What it may have asked of the driver has failed, and is no error of the program's next call.
    (void)cudaGetLastError();
  }
  return address;
}

void source_free(void* user, void* address, uint64_t, int32_t device, void*) noexcept {
  try {
    c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
    (*static_cast<Source*>(user))->raw_delete(address);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "millpond: the allocator of a pool failed: %s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "millpond: the allocator of a pool failed\n");
  }
}

void source_end(void* user) noexcept {
  delete static_cast<Source*>(user);
}

// Adds a reference to a pool, or creates it, with the allocator of its memory if it has one. The core keeps the
// allocator until the pool has neither references nor segments.
void create_pool(DeviceIndex device, const MempoolId_t& id, Source allocator) {
  if (allocator == nullptr) {
    check(core->pool_ref(device, pool_of(id), nullptr));
    return;
  }
  auto held = std::make_unique<Source>(std::move(allocator));
  const millpond_core_source source{held.get(), source_alloc, source_free, source_end};
  check(core->pool_ref(device, pool_of(id), &source));
  held.release();
}

} // namespace
