// Routes to private pools: which requests belong to which.
#pragma once

#include "device.hpp"

namespace {

struct Route {
  DeviceIndex device;
  MempoolId_t pool;
  std::function<bool(cudaStream_t)> filter;
};

// The scopes of allocation that are open, the last one first. The first whose filter takes the stream counts.
struct Routes {
  std::mutex mutex;
  std::vector<Route> open;
  // The streams that are known to be captured, with the pool of the capture.
  std::map<std::pair<DeviceIndex, cudaStream_t>, MempoolId_t> captured;
};
Routes& routes = *new Routes;
std::atomic<int> open_routes{0};

// Returns whether a request on a stream belongs to a private pool. PyTorch opens a scope before it begins a capture, and
// opens others that are none, so a stream is asked whether it is captured when it is used.
bool find_route(DeviceIndex device, cudaStream_t stream, millpond_core_pool& pool) {
  std::lock_guard<std::mutex> lock(routes.mutex);
  for (const auto& route : routes.open) {
    if (route.device != device || !route.filter(stream)) {
      continue;
    }
    pool = millpond_core_pool{route.pool.first, route.pool.second};
    if (routes.captured.count({device, stream}) == 0) {
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
      if (status != cudaStreamCaptureStatusNone) {
        check(core->capture_begin(device, pool, stream));
        routes.captured.emplace(std::make_pair(device, stream), route.pool);
      }
    }
    return true;
  }
  return false;
}

// Tells the core that a capture in a pool has ended, if there was one. The caller holds the lock.
void end_capture(DeviceIndex device, const MempoolId_t& id) {
  bool was_captured = false;
  for (auto at = routes.captured.begin(); at != routes.captured.end();) {
    const bool is_its = at->first.first == device && at->second == id;
    was_captured |= is_its;
    at = is_its ? routes.captured.erase(at) : std::next(at);
  }
  if (was_captured) {
    check(core->capture_end(device, millpond_core_pool{id.first, id.second}));
  }
}

} // namespace
