// Snapshots: segments and blocks, as PyTorch's tools read them.
#pragma once

#include "ipc.hpp"

namespace {

struct Collected {
  int device;
  std::vector<SegmentInfo>* segments;
};

void collect_segment(void* user, const millpond_core_segment* segment) {
  auto* collected = static_cast<Collected*>(user);
  SegmentInfo info;
  info.device = static_cast<DeviceIndex>(collected->device);
  info.registration_counter = static_cast<int32_t>(segment->id);
  info.address = segment->address;
  info.total_size = segment->bytes;
  info.stream = segment->stream;
  info.is_large = segment->is_large != 0;
  info.is_expandable = segment->is_expandable != 0;
  info.owner_private_pool_id = {segment->pool.first, segment->pool.second};
  collected->segments->push_back(std::move(info));
}

void collect_tile(void* user, const millpond_core_tile* tile) {
  SegmentInfo& segment = static_cast<Collected*>(user)->segments->back();
  BlockInfo block;
  block.size = tile->bytes;
  block.requested_size = tile->requested_bytes;
  block.allocated = tile->state == MILLPOND_CORE_LIVE;
  block.active = tile->state != MILLPOND_CORE_FREE;
  if (block.active) {
    segment.active_size += block.size;
    segment.requested_size += block.requested_size;
  }
  if (block.allocated) {
    segment.allocated_size += block.size;
    if (auto note = watch.notes.find(tile->address); note != watch.notes.end()) {
      block.context_when_allocated = note->second.context;
    }
  }
  segment.blocks.push_back(std::move(block));
}

std::vector<SegmentInfo> segments_of(int device, const millpond_core_pool* pool) {
  std::vector<SegmentInfo> segments;
  Collected collected{device, &segments};
  millpond_core_sink sink{&collected, collect_segment, collect_tile};
  std::lock_guard<std::recursive_mutex> lock(watch.mutex);
  check(core->layout(device, pool, &sink));
  std::sort(segments.begin(), segments.end(), [](const SegmentInfo& a, const SegmentInfo& b) {
    return a.address < b.address;
  });
  return segments;
}

int devices() {
  return device_count.load(std::memory_order_relaxed);
}

// Throws what PyTorch's own allocator throws for a device that there is not.
void check_device(int device) {
  TORCH_CHECK(0 <= device && device < devices(), "Invalid device argument ", device, ": did you call init?");
}

millpond_core_pool pool_of(const MempoolId_t& id) {
  return millpond_core_pool{id.first, id.second};
}

const millpond_core_pool* if_private(const millpond_core_pool& pool) {
  return pool.first == 0 && pool.second == 0 ? nullptr : &pool;
}

void copy_stat(c10::CachingAllocator::Stat& to, const millpond_core_stat& from) {
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
}

void copy_family(c10::CachingAllocator::StatArray& to, const millpond_core_stat (&from)[3]) {
  for (size_t at = 0; at < 3; ++at) {
    copy_stat(to[at], from[at]);
  }
}

#if TORCH_VERSION_MINOR >= 13
void collect_pool(void* user, millpond_core_pool pool, const millpond_core_stat* reserved) {
  auto& family = static_cast<DeviceStats*>(user)->reserved_bytes_by_private_pools[{pool.first, pool.second}];
  for (size_t at = 0; at < family.size(); ++at) {
    copy_stat(family[at], reserved[at]);
  }
}
#endif

} // namespace
