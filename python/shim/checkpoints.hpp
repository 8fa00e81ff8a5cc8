// Checkpoints of private pools, which the trees of graphs of torch.compile take.
#pragma once

#include "snapshots.hpp"

namespace {

struct Checkpoint final : allocators::AllocatorState {
  Checkpoint(DeviceIndex of, MempoolId_t in) : device(of), pool(std::move(in)) {}
  Checkpoint(const Checkpoint&) = delete;
  ~Checkpoint() override {
    core->checkpoint_drop(taken);
  }

  DeviceIndex device;
  MempoolId_t pool;
  millpond_core_checkpoint* taken = nullptr;
};

std::shared_ptr<allocators::AllocatorState> take_checkpoint(DeviceIndex device, const MempoolId_t& id) {
  int64_t uses = 0;
  check(core->pool_uses(device, pool_of(id), &uses));
  TORCH_CHECK(uses != 0, "Could not find pool of id");
  auto checkpoint = std::make_shared<Checkpoint>(device, id);
  check(core->checkpoint_take(device, pool_of(id), &checkpoint->taken));
  return checkpoint;
}

struct Changes {
  std::vector<millpond_core_place> freed;
  std::vector<millpond_core_block> made;
};

void note_freed(void* user, const millpond_core_place* place) {
  static_cast<Changes*>(user)->freed.push_back(*place);
}

void note_made(void* user, const millpond_core_block* block) {
  static_cast<Changes*>(user)->made.push_back(*block);
}

// A block that is live before and after is told as freed and as made, as PyTorch's allocator does. Its context stays the
// same, so whoever has its DataPtr frees the block that is made.
allocators::CheckpointDelta set_checkpoint(DeviceIndex device, const std::shared_ptr<allocators::AllocatorState>& state) {
  auto checkpoint = std::dynamic_pointer_cast<Checkpoint>(state);
  TORCH_CHECK(checkpoint != nullptr, "millpond: the checkpoint is one of another allocator");
  Changes changes;
  millpond_core_delta delta{&changes, note_freed, note_made};
  check(core->checkpoint_set(device, checkpoint->taken, &delta));
  const bool is_told = is_watched.load(std::memory_order_relaxed);
  allocators::CheckpointDelta result;
  for (const auto& place : changes.freed) {
    if (is_told) {
      told_free(place);
    }
    result.ptrs_freed.push_back(reinterpret_cast<void*>(place.address));
  }
  for (const auto& block : changes.made) {
    if (is_told) {
      millpond_core_place place{};
      check(core->find(block.context, &place));
      told_alloc(device, block.address, place.bytes, nullptr, checkpoint->pool);
    }
    result.dataptrs_allocd.emplace_back(
        block.address, block.context, &delete_block, Device(c10::kCUDA, device));
  }
  return result;
}

} // namespace
