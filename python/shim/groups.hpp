// Groups: which private pools are paused together.
#pragma once

#include "snapshots.hpp"

namespace {

// The group in whose scope this thread is; empty outside of all. A pool that it opens there becomes part of the group.
thread_local std::string group_name;

// Adds a reference to a pool of a device, and makes it part of the group in whose scope the thread is. Throws if it
// cannot, such as for a pool of another group; the pool has no new reference then.
void open_pool(DeviceIndex device, const MempoolId_t& id) {
  check(core->pool_ref(device, pool_of(id), nullptr));
  if (C10_LIKELY(group_name.empty())) {
    return;
  }
  try {
    check(core->group_add_pool(device, group_name.c_str(), pool_of(id)));
  } catch (...) {
    core->pool_unref(device, pool_of(id));
    throw;
  }
}

} // namespace
