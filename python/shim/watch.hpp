// What is watched: the history of events with its frames, observers, trackers, and notes of blocks.
#pragma once

#include "common.hpp"

namespace {

// What is kept of a live block while the history is recorded.
struct Note {
  size_t requested;
  std::shared_ptr<GatheredContext> context;
};

// What is kept of memory that was taken from the driver while the history is recorded.
struct Taken {
  size_t bytes;
  std::shared_ptr<GatheredContext> context;
};

// The history of a device, as PyTorch has it: the last entries in order.
struct History {
  std::deque<TraceEntry> entries;
};

// What goes beside memory. Leaked. Lock order: `mutex` last of all; no call into the core and none that may take the GIL
// is made under it, but trackers are, as PyTorch promises them a lock.
struct Watch {
  std::recursive_mutex mutex;
  std::unordered_map<uintptr_t, Note> notes;
  // By its first address.
  std::map<uintptr_t, Taken> taken;
  // The private pools of segments, by their addresses. The segments of the default pool are not here.
  std::unordered_map<uintptr_t, MempoolId_t> pools;
  std::map<int, History> histories;
  size_t most_entries = 1;
  bool is_recording = false;
  RecordContext when = RecordContext::NEVER;
  std::atomic<CreateContextFn> recorder{nullptr};
  std::set<int> skipped;
  std::vector<c10::CachingDeviceAllocator::AllocatorTraceTracker> trackers;
  std::vector<allocators::OutOfMemoryObserver> observers;
#if TORCH_VERSION_MINOR >= 12
  std::vector<allocators::OomRejectionObserver> rejection_observers;
#endif
  // What the program itself wrote into the history, such as the spans of the profiler: the last ones.
  std::deque<c10::CachingDeviceAllocator::AnnotationEntry> annotations;
};
Watch& watch = *new Watch;

// Whether an allocation and a free have anything to tell: a recorder, a tracker, or a note that is left.
std::atomic<bool> is_watched{false};

// The private pool in which this thread allocates just now.
thread_local MempoolId_t pool_in_use{0, 0};

thread_local std::vector<std::string> compile_contexts;
thread_local std::string user_metadata;

// An exception of a tracker, which must not cross the core: it is thrown once the core has returned.
thread_local std::exception_ptr* caught = nullptr;

void keep_exception() noexcept {
  if (caught == nullptr) {
    caught = new std::exception_ptr(std::current_exception());
  }
}

void drop_exception() noexcept {
  delete caught;
  caught = nullptr;
}

void throw_caught() {
  if (C10_UNLIKELY(caught != nullptr)) {
    std::exception_ptr exception = *caught;
    drop_exception();
    std::rethrow_exception(exception);
  }
}

// Returns the frames of the caller if they are recorded at this level. It may take the GIL: no lock is held.
std::shared_ptr<GatheredContext> gather(RecordContext level) {
  if (watch.when < level) {
    return nullptr;
  }
  CreateContextFn recorder = watch.recorder.load();
  return recorder == nullptr ? nullptr : recorder();
}

// Native history converts the processor's clock when it is exported; here the time is taken as such.
int64_t microseconds_now() {
  using namespace std::chrono;
  return duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
}

void update_watched() {
  is_watched.store(watch.is_recording || !watch.trackers.empty() || !watch.notes.empty());
}

// Tells an event to the trackers, and enters it in the history. The caller holds the lock.
void record(
    TraceEntry::Action action,
    int device,
    size_t address,
    size_t bytes,
    void* stream,
    MempoolId_t pool,
    std::shared_ptr<GatheredContext> context) {
  if (!watch.is_recording && watch.trackers.empty()) {
    return;
  }
  TraceEntry entry(
      action,
      static_cast<DeviceIndex>(device),
      address,
      bytes,
      stream,
      pool,
      c10::getApproximateTime(),
      watch.when >= RecordContext::ALLOC ? std::move(context) : nullptr,
      // As PyTorch says it where nothing is being compiled.
      compile_contexts.empty() ? "N/A" : compile_contexts.back(),
      user_metadata);
  for (const auto& tracker : watch.trackers) {
    tracker(entry);
  }
  if (!watch.is_recording || watch.skipped.count(static_cast<int>(action)) != 0) {
    return;
  }
  entry.time_.t_ = microseconds_now();
  auto& entries = watch.histories[device].entries;
  entries.push_back(std::move(entry));
  while (entries.size() > watch.most_entries) {
    entries.pop_front();
  }
}

void told_alloc(int device, void* address, size_t bytes, void* stream, MempoolId_t pool) {
  auto context = gather(RecordContext::STATE);
  std::lock_guard<std::recursive_mutex> lock(watch.mutex);
  if (watch.is_recording) {
    watch.notes[reinterpret_cast<uintptr_t>(address)] = Note{bytes, context};
  }
  record(TraceEntry::ALLOC, device, reinterpret_cast<size_t>(address), bytes, stream, pool, std::move(context));
}

// Notes who took memory from the driver. The caller holds the lock.
void note_taken(size_t address, size_t bytes, const std::shared_ptr<GatheredContext>& context) {
  if (watch.is_recording) {
    watch.taken[address] = Taken{bytes, context};
  }
}

bool is_private(const MempoolId_t& pool) {
  return pool.first != 0 || pool.second != 0;
}

// Returns the pool of memory of which an event tells. NCCL registers the segments of a pool as they come, and ends the
// registration as they go: torch.distributed asks each event for its pool. The caller holds the lock.
MempoolId_t pool_of_event(TraceEntry::Action action, size_t address) {
  MempoolId_t pool = pool_in_use;
  if (action == TraceEntry::SEGMENT_ALLOC && is_private(pool)) {
    watch.pools[address] = pool;
  } else if (action == TraceEntry::SEGMENT_ALLOC || action == TraceEntry::SEGMENT_FREE) {
    pool = {0, 0};
    if (auto known = watch.pools.find(address); known != watch.pools.end()) {
      pool = action == TraceEntry::SEGMENT_FREE ? known->second : pool;
      watch.pools.erase(known);
    }
  } else if (action == TraceEntry::SEGMENT_UNMAP) {
    pool = {0, 0};
  }
  return pool;
}

// Returns the frames of whoever took the memory at an address, and forgets those of all memory that goes back with it.
// The caller holds the lock.
std::shared_ptr<GatheredContext> take_note_of_taken(size_t address, size_t bytes) {
  std::shared_ptr<GatheredContext> context;
  auto behind = watch.taken.upper_bound(address);
  if (behind != watch.taken.begin()) {
    const auto& [begin, taken] = *std::prev(behind);
    if (address - begin < taken.bytes) {
      context = taken.context;
    }
  }
  watch.taken.erase(watch.taken.lower_bound(address), watch.taken.lower_bound(address + bytes));
  return context;
}

// The streams and the pools of live blocks are the core's. A free is told with stream 0. As in PyTorch, a free whose
// own frames are not recorded has those of the allocation.
void told_free(const millpond_core_place& place) {
  auto context = gather(RecordContext::ALL);
  std::lock_guard<std::recursive_mutex> lock(watch.mutex);
  size_t bytes = place.bytes;
  auto note = watch.notes.find(place.address);
  if (note != watch.notes.end()) {
    bytes = note->second.requested;
    if (context == nullptr) {
      context = std::move(note->second.context);
    }
    watch.notes.erase(note);
    if (watch.notes.empty()) {
      update_watched();
    }
  }
  record(TraceEntry::FREE_REQUESTED, place.device, place.address, bytes, nullptr, {0, 0}, context);
  record(TraceEntry::FREE_COMPLETED, place.device, place.address, bytes, nullptr, {0, 0}, context);
}

} // namespace
