// Uses of memory by streams of other GPUs.
#pragma once

#include "routes.hpp"

namespace {

// The core of a GPU knows the streams of that GPU alone. A block that a stream of another one uses is noted here. When it
// is freed, a stream of the shim's own on the block's GPU waits for all work that is queued there, and the core is told
// that the block is used by that stream: so its memory is used again once that work is done, and no stream of the program
// waits for it.
struct Foreign {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::vector<c10::cuda::CUDAStream>> used;
  std::map<int, cudaStream_t> here;
  // Blocks that were freed while one of these streams was captured. An event in a capture says nothing about work that is
  // under way, so they are freed with a later one.
  std::vector<void*> put_off;
};
Foreign& foreign = *new Foreign;
// The number of blocks that are noted, which a free reads without the lock.
std::atomic<size_t> foreign_blocks{0};

// Makes a call that a capture of any thread would otherwise forbid.
template <typename Call>
void relaxed(Call call) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  C10_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  const cudaError_t error = call();
  C10_CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
  C10_CUDA_CHECK(error);
}

// Notes that a stream of another GPU uses a block.
void note_foreign(void* block, c10::cuda::CUDAStream stream) {
  millpond_core_place place{};
  check(core->find(block, &place));
  std::lock_guard<std::mutex> lock(foreign.mutex);
  auto [at, is_new] = foreign.used.try_emplace(place.address);
  if (std::find(at->second.begin(), at->second.end(), stream) == at->second.end()) {
    at->second.push_back(stream);
  }
  foreign_blocks.fetch_add(is_new);
}

// Has a stream on a GPU wait for what is queued on streams of others. Returns it, or nothing if one of them is captured.
cudaStream_t wait_here(int device, const std::vector<c10::cuda::CUDAStream>& streams) {
  for (const auto& stream : streams) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    C10_CUDA_CHECK(cudaStreamIsCapturing(stream.stream(), &status));
    if (status != cudaStreamCaptureStatusNone) {
      return nullptr;
    }
  }
  c10::cuda::CUDAGuard guard(static_cast<DeviceIndex>(device));
  cudaStream_t& here = foreign.here[device];
  if (here == nullptr) {
    relaxed([&here] { return cudaStreamCreateWithFlags(&here, cudaStreamNonBlocking); });
  }
  for (const auto& stream : streams) {
    guard.set_device(stream.device());
    cudaEvent_t event = nullptr;
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const cudaError_t recorded = cudaEventRecord(event, stream.stream());
    guard.set_index(static_cast<DeviceIndex>(device));
    const cudaError_t waited = recorded == cudaSuccess ? cudaStreamWaitEvent(here, event, 0) : recorded;
    (void)cudaEventDestroy(event);
    C10_CUDA_CHECK(waited);
  }
  return here;
}

// Settles the uses of a block that is about to be freed. Returns whether the free is put off.
bool settle_foreign(void* block) {
  millpond_core_place place{};
  if (core->find(block, &place) != MILLPOND_OK) {
    return false;
  }
  std::lock_guard<std::mutex> lock(foreign.mutex);
  const auto at = foreign.used.find(place.address);
  if (at == foreign.used.end()) {
    return false;
  }
  try {
    if (const cudaStream_t here = wait_here(place.device, at->second)) {
      check(core->record_stream(block, here));
      foreign.used.erase(at);
      foreign_blocks.fetch_sub(1);
      return false;
    }
  } catch (const std::exception& error) {
    // The memory may still be in use there, so it is not given to others.
    std::fprintf(stderr, "millpond: a free waits for another GPU, and is tried again later: %s\n", error.what());
  }
  foreign.put_off.push_back(block);
  return true;
}

// Returns the blocks whose free was put off, which are tried again.
std::vector<void*> take_put_off() {
  std::lock_guard<std::mutex> lock(foreign.mutex);
  return std::exchange(foreign.put_off, {});
}

} // namespace
