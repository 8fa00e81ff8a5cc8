// Groups: which private pools are paused together.
#pragma once

#include <cstddef>

#include "snapshots.hpp"

namespace {

struct Group;

// The entries of the table for groups. They follow those that millpond_core.h has.
struct GroupEntries {
  millpond_status (*create)(int32_t device, const char* name, Group** out);
  millpond_status (*add_pool)(Group* group, millpond_core_pool pool);
};
static_assert(
    offsetof(millpond_core_v1, header_check) + sizeof(void*) == sizeof(millpond_core_v1),
    "millpond_core.h has more entries: GroupEntries follows them, or is among them");

// The group in whose scope this thread is; empty outside of all. A pool that it opens there becomes part of the group.
thread_local std::string group_name;

// Adds a reference to a pool of a device, and makes it part of the group in whose scope the thread is. Throws if it
// cannot, such as for a pool of another group; the pool has no new reference then.
void open_pool(DeviceIndex device, const MempoolId_t& id) {
  check(core->pool_ref(device, pool_of(id), nullptr));
  if (C10_LIKELY(group_name.empty())) {
    return;
  }
  // Python has found out that the table is long enough before it named a group.
  const auto* entries = reinterpret_cast<const GroupEntries*>(core + 1);
  try {
    Group* group = nullptr;
    check(entries->create(device, group_name.c_str(), &group));
    check(entries->add_pool(group, pool_of(id)));
  } catch (...) {
    core->pool_unref(device, pool_of(id));
    throw;
  }
}

} // namespace
