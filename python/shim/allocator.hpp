// The allocator that PyTorch calls.
#pragma once

#include "checkpoints.hpp"
#include "groups.hpp"
#include "settings.hpp"
#include "sources.hpp"
#include "uncached.hpp"

namespace {

class Millpond final : public CUDAAllocator {
 public:
  // Memory.

  DataPtr allocate(size_t bytes) override {
    const DeviceIndex device = current_device();
    const Device at(c10::kCUDA, device);
    if (C10_UNLIKELY(bytes == 0)) {
      return {nullptr, nullptr, raw_deleter(), at};
    }
    if (C10_UNLIKELY(is_disabled.load(std::memory_order_relaxed))) {
      void* address = allocate_uncached(bytes);
      return {address, address, &delete_uncached, at};
    }
    const millpond_core_block block = take(device, c10::cuda::getCurrentCUDAStream(device).stream(), bytes);
    return {block.address, block.context, &delete_block, at};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return is_disabled.load(std::memory_order_relaxed) ? &delete_uncached : &delete_block;
  }

  void* raw_alloc(size_t bytes) override {
    if (bytes == 0) {
      return nullptr;
    }
    const DeviceIndex device = current_device();
    return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(device).stream());
  }

  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    if (bytes == 0) {
      return nullptr;
    }
    if (C10_UNLIKELY(is_disabled.load(std::memory_order_relaxed))) {
      return uncached_addresses.allocate(bytes);
    }
    return take(current_device(), stream, bytes).address;
  }

  void raw_delete(void* address) override {
    if (address != nullptr && !uncached_addresses.give_back(address)) {
      check(free_block(address));
    }
  }

  bool is_simple_data_ptr(const DataPtr& data) const override {
    return data.get() == data.get_context() ||
        (data.get_deleter() == &delete_block && (reinterpret_cast<uintptr_t>(data.get_context()) & 1) != 0);
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  }

  // Memory of other deleters is not Millpond's, such as a tensor of another process: PyTorch ignores it, too.
  void recordStream(const DataPtr& data, c10::cuda::CUDAStream stream) override {
    if (data.get() != nullptr && data.get_deleter() == &delete_block) {
      if (C10_UNLIKELY(stream.device_index() != data.device().index())) {
        note_foreign(data.get_context(), stream);
        return;
      }
      millpond_core_pool pool{};
      if (C10_UNLIKELY(open_routes.load(std::memory_order_relaxed) != 0)) {
        find_route(stream.device_index(), stream.stream(), pool);
      }
      check(core->record_stream(data.get_context(), stream.stream()));
    }
  }

  void emptyCache(MempoolId_t id) override {
    const millpond_core_pool pool = pool_of(id);
    for (int device = 0; device < devices(); ++device) {
      check(core->empty_cache(device, if_private(pool)));
    }
  }

  void* getBaseAllocation(void* address, size_t* bytes) override {
    millpond_core_segment segment{};
    check(core->base_of(address, &segment));
    TORCH_CHECK(
        segment.is_expandable == 0,
        "millpond: memory of pages is no allocation of the driver's, so cudaIpcGetMemHandle does not take it, as with "
        "PyTorch's expandable segments. millpond.torch.export_pages and export_dma_buf give it to other processes and other "
        "drivers; or use policy:classic, as in millpond.torch.enable(\"policy:classic\")");
    if (bytes != nullptr) {
      *bytes = segment.bytes;
    }
    return reinterpret_cast<void*>(segment.address);
  }

  // Set-up.

  void init(int count) override {
    TORCH_CHECK(count <= kDevices, "millpond: there are ", count, " devices, and ", kDevices, " are the most");
    // CUDA's runtime has loaded the driver.
    if (void* driver = count > 1 ? dlopen("libcuda.so.1", RTLD_NOW) : nullptr) {
      get_context = reinterpret_cast<GetContext>(dlsym(driver, "cuCtxGetCurrent"));
    }
    if (device_count.load() < count) {
      device_count.store(count);
    }
  }

  bool initialized() override {
    return device_count.load() > 0;
  }

  std::string name() override {
    return "millpond";
  }

  void enable(bool value) override {
    is_disabled.store(!value);
  }

  bool isEnabled() const override {
    return !is_disabled.load();
  }

  // Limits.

  double getMemoryFraction(DeviceIndex device) override {
    double fraction = 1;
    check_device(device);
    check(core->get_fraction(device, &fraction));
    return fraction;
  }

  void setMemoryFraction(double fraction, DeviceIndex device) override {
    TORCH_CHECK(
        0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
    check_device(device);
    check(core->set_fraction(device, fraction));
  }

  void cacheInfo(DeviceIndex device, size_t* largest) override {
    if (*largest == 0) {
      millpond_core_limits limits{};
      check(core->limits(device, &limits));
      *largest = limits.free_bytes;
    }
    uint64_t free = 0;
    check(core->largest_free(device, &free));
    *largest = std::max<size_t>(*largest, free);
  }

  std::vector<allocators::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    std::map<std::pair<void*, bool>, size_t> sizes;
    for (const auto& segment : segments_of(device, nullptr)) {
      if (segment.is_expandable) {
        sizes[{segment.stream, !segment.is_large}] += segment.total_size;
      }
    }
    std::vector<allocators::StreamSegmentSize> result;
    for (const auto& [key, bytes] : sizes) {
      result.emplace_back(static_cast<cudaStream_t>(key.first), key.second, bytes);
    }
    return result;
  }

  // Statistics.

  DeviceStats getDeviceStats(DeviceIndex device) override {
    millpond_core_stats from{};
    check_device(device);
    check(core->stats(device, &from));
    DeviceStats to;
    copy_family(to.allocation, from.allocation);
    copy_family(to.segment, from.segment);
    copy_family(to.active, from.active);
    copy_family(to.inactive_split, from.inactive_split);
    copy_family(to.allocated_bytes, from.allocated_bytes);
    copy_family(to.reserved_bytes, from.reserved_bytes);
    copy_family(to.active_bytes, from.active_bytes);
    copy_family(to.inactive_split_bytes, from.inactive_split_bytes);
    copy_family(to.requested_bytes, from.requested_bytes);
    copy_stat(to.oversize_allocations, from.oversize_allocations);
    copy_stat(to.oversize_segments, from.oversize_segments);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
    to.max_split_size = from.max_split_size;
#if TORCH_VERSION_MINOR >= 12
    to.num_oom_rejections = from.num_oom_rejections;
#endif
#if TORCH_VERSION_MINOR >= 13
    const millpond_core_pools sink{&to, collect_pool};
    check(core->pools_stats(device, &sink));
#endif
    return to;
  }

  void resetAccumulatedStats(DeviceIndex device) override {
    check_device(device);
    check(core->reset_totals(device));
  }

  void resetPeakStats(DeviceIndex device) override {
    check_device(device);
    check(core->reset_peaks(device));
  }

  allocators::SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override {
    allocators::SnapshotInfo result;
    const millpond_core_pool pool = pool_of(id);
    for (int device = 0; device < devices(); ++device) {
      auto segments = segments_of(device, if_private(pool));
      std::lock_guard<std::recursive_mutex> lock(watch.mutex);
      std::move(segments.begin(), segments.end(), std::back_inserter(result.segments));
      result.device_traces.emplace_back();
      if (include_traces) {
        const auto& entries = watch.histories[device].entries;
        result.device_traces.back().assign(entries.begin(), entries.end());
      }
      record(TraceEntry::SNAPSHOT, device, 0, segments.size(), nullptr, id, nullptr);
    }
    {
      std::lock_guard<std::recursive_mutex> lock(watch.mutex);
      result.external_annotations.assign(watch.annotations.begin(), watch.annotations.end());
    }
    auto& settings = result.config_metadata;
    settings = allocators::AllocatorConfigInfo{};
    settings.max_split_size = SIZE_MAX;
#if TORCH_VERSION_MINOR >= 13
    settings.max_round_threshold = SIZE_MAX;
    settings.max_cached_size = SIZE_MAX;
#endif
    settings.roundup_power2_divisions.assign(16, 0);
    char* text = nullptr;
    if (core->configuration(&text) == MILLPOND_OK) {
      settings.last_allocator_settings = std::string("millpond: ") + text;
      core->string_free(text);
    }
    return result;
  }

  // Private pools and graphs.

  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override {
    open_pool(device, id);
    std::lock_guard<std::mutex> lock(routes.mutex);
    for (const auto& route : routes.open) {
      TORCH_CHECK(route.device != device || route.pool != id, "beginAllocateToPool: already recording to mempool_id");
    }
    routes.open.insert(routes.open.begin(), Route{device, id, std::move(filter)});
    open_routes.fetch_add(1);
  }

  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override {
    std::lock_guard<std::mutex> lock(routes.mutex);
    for (auto route = routes.open.begin(); route != routes.open.end(); ++route) {
      if (route->device == device && route->pool == id) {
        routes.open.erase(route);
        open_routes.fetch_sub(1);
        end_capture(device, id);
        return;
      }
    }
    TORCH_CHECK(false, "endAllocatePool: not currently recording to mempool_id");
  }

  void releasePool(DeviceIndex device, MempoolId_t id) override {
    check(core->pool_unref(device, pool_of(id)));
  }

  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override {
    int64_t uses = 0;
    check(core->pool_uses(device, pool_of(id), &uses));
    return static_cast<int>(uses);
  }

  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> source) override {
    create_pool(device, id, std::move(source));
  }

  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override {
    check(core->pool_flags(device, pool_of(id), MILLPOND_CORE_USE_ON_OOM, use_on_oom ? 1 : 0));
  }

  void setNoSplit(DeviceIndex device, MempoolId_t id) override {
    check(core->pool_flags(device, pool_of(id), MILLPOND_CORE_NO_SPLIT, 1));
  }

  bool checkPoolLiveAllocations(
      DeviceIndex device,
      MempoolId_t id,
      const std::unordered_set<void*>& expected) override {
    TORCH_CHECK(getPoolUseCount(device, id) != 0, "Could not find pool of id");
    const millpond_core_pool pool = pool_of(id);
    std::unordered_set<void*> live;
    for (const auto& segment : segments_of(device, if_private(pool))) {
      size_t address = segment.address;
      for (const auto& block : segment.blocks) {
        if (block.allocated) {
          live.insert(reinterpret_cast<void*>(address));
        }
        address += block.size;
      }
    }
    return live == expected;
  }

  std::shared_ptr<allocators::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override {
    return take_checkpoint(device, id);
  }

  allocators::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device,
      std::shared_ptr<allocators::AllocatorState> state) override {
    return set_checkpoint(device, state);
  }

  // Other processes and other devices.

  allocators::ShareableHandle shareIpcHandle(void* address) override {
    return share_handle(address);
  }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return import_handle(handle);
  }

  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override {
    // Pages are open to the devices that are named, and to no others: the driver's own switch is for what it allocates.
    check(core->open_to(other, device));
    c10::cuda::CUDAGuard guard(device);
    cudaError_t error = cudaDeviceEnablePeerAccess(other, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      C10_CUDA_CHECK(error);
    }
  }

  cudaError_t memcpyAsync(
      void* to,
      int to_device,
      const void* from,
      int from_device,
      size_t bytes,
      cudaStream_t stream,
      bool /*p2p_enabled*/) override {
    // A copy between devices names them, so that it does not need peer access.
    return to_device == from_device ? cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream)
                                    : cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }

  // Tools.

  bool isHistoryEnabled() override {
    return watch.is_recording;
  }

  void recordHistory(
      bool enabled,
      CreateContextFn recorder,
      size_t most_entries,
      RecordContext when,
      bool clear,
      const std::vector<std::string>& skip_actions) override {
    TORCH_CHECK(when == RecordContext::NEVER || recorder != nullptr);
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    watch.skipped.clear();
    for (const auto& action : skip_actions) {
      watch.skipped.insert(static_cast<int>(c10::CachingDeviceAllocator::parseTraceEntryAction(action)));
    }
    watch.is_recording = enabled;
    watch.recorder.store(enabled ? recorder : nullptr);
    watch.when = enabled ? when : RecordContext::NEVER;
    watch.most_entries = std::max<size_t>(1, most_entries);
    if (!enabled || clear) {
      watch.histories.clear();
      watch.annotations.clear();
      watch.taken.clear();
    }
    update();
  }

  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& pairs) override {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    if (!watch.is_recording) {
      return;
    }
    c10::CachingDeviceAllocator::AnnotationEntry entry(current_device(), c10::getApproximateTime());
    for (const auto& [name, value] : pairs) {
      entry.recordUserMetadata(name, value);
    }
    entry.time_.t_ = microseconds_now();
    watch.annotations.push_back(std::move(entry));
    while (watch.annotations.size() > watch.most_entries) {
      watch.annotations.pop_front();
    }
  }

  void pushCompileContext(std::string& context) override {
    compile_contexts.push_back(context);
  }

  void popCompileContext() override {
    if (!compile_contexts.empty()) {
      compile_contexts.pop_back();
    }
  }

  void setUserMetadata(const std::string& metadata) override {
    user_metadata = metadata;
  }

  std::string getUserMetadata() override {
    return user_metadata;
  }

  void attachOutOfMemoryObserver(allocators::OutOfMemoryObserver observer) override {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    watch.observers.push_back(std::move(observer));
  }

  void attachAllocatorTraceTracker(c10::CachingDeviceAllocator::AllocatorTraceTracker tracker) override {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    watch.trackers.push_back(std::move(tracker));
    update();
  }

#if TORCH_VERSION_MINOR >= 12
  void attachOomRejectionObserver(allocators::OomRejectionObserver observer) override {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    watch.rejection_observers.push_back(std::move(observer));
  }

  std::shared_ptr<GatheredContext> getContextForPointer(const void* address) override {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    auto note = watch.notes.find(reinterpret_cast<uintptr_t>(address));
    return note == watch.notes.end() ? nullptr : note->second.context;
  }
#endif

#if TORCH_VERSION_MINOR >= 13
  // Just the memory at an address, or an error: UntypedStorage._resize_with_addr_. It is looked for on the current stream
  // in the pool that a request would be served in.
  DataPtr allocateWithAddress(size_t bytes, void* address) override {
    const DeviceIndex device = current_device();
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device).stream();
    millpond_core_pool pool{};
    const bool is_routed = open_routes.load() != 0 && find_route(device, stream, pool);
    const millpond_core_block block = core->alloc_at(device, stream, bytes, address, is_routed ? &pool : nullptr);
    throw_caught();
    TORCH_CHECK(
        bytes == 0 || block.address != nullptr,
        "Could not allocate CUDA storage at exact address ",
        address,
        ". millpond: ",
        core->last_error());
    if (block.address != nullptr) {
      taken(device, stream, bytes, block, {pool.first, pool.second});
    }
    return {block.address, block.context, &delete_block, Device(c10::kCUDA, device)};
  }
#endif

#if TORCH_VERSION_MINOR >= 14
  bool supportsUserMetadata() override {
    return true;
  }

  void annotateMemory(const void* address, const std::string& metadata) override {
    if (!watch.is_recording) {
      return;
    }
    millpond_core_place place{};
    check(core->at(address, &place));
    auto context = gather(RecordContext::ALLOC);
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    const auto note = watch.notes.find(place.address);
    const size_t bytes = note == watch.notes.end() ? place.bytes : note->second.requested;
    std::string before = std::exchange(user_metadata, metadata);
    record(TraceEntry::ANNOTATE, place.device, place.address, bytes, nullptr, {0, 0}, std::move(context));
    user_metadata = std::move(before);
  }
#endif

 private:
  // Events of segments are told by the core while there is anyone to tell.
  static void update() {
    update_watched();
    const bool is_told = watch.is_recording || !watch.trackers.empty();
    core->trace(is_told ? 1 : 0);
    if (is_told) {
      find_pools();
    }
  }

  // Notes the pools of the segments that there are. Those that come are told with theirs. The caller holds the lock.
  static void find_pools() {
    watch.pools.clear();
    for (int device = 0; device < devices(); ++device) {
      for (const auto& segment : segments_of(device, nullptr)) {
        if (!segment.is_expandable && is_private(segment.owner_private_pool_id)) {
          watch.pools[segment.address] = segment.owner_private_pool_id;
        }
      }
    }
  }

  // Allocates in a private pool.
  C10_NOINLINE static millpond_core_block take_in(
      const millpond_core_pool& pool,
      DeviceIndex device,
      cudaStream_t stream,
      size_t bytes) {
    pool_in_use = {pool.first, pool.second};
    const millpond_core_block block = core->alloc(device, stream, bytes, &pool);
    pool_in_use = {0, 0};
    return block;
  }

  C10_ALWAYS_INLINE static millpond_core_block take(DeviceIndex device, cudaStream_t stream, size_t bytes) {
    millpond_core_pool pool{};
    const bool is_routed =
        C10_UNLIKELY(open_routes.load(std::memory_order_relaxed) != 0) && find_route(device, stream, pool);
    if (C10_UNLIKELY(bytes >= kTooLarge)) {
      throw_too_large();
    }
    const millpond_core_block block =
        is_routed ? take_in(pool, device, stream, bytes) : core->alloc(device, stream, bytes, nullptr);
    if (C10_UNLIKELY(block.address == nullptr)) {
      throw_failed(device, block);
    }
    if (C10_UNLIKELY(
            is_watched.load(std::memory_order_relaxed) || c10::impl::GPUTrace::get_trace() != nullptr ||
            c10::memoryProfilingEnabled() || !was_used[device].load(std::memory_order_relaxed))) {
      taken(device, stream, bytes, block, {pool.first, pool.second});
    }
    return block;
  }

  // Tells all who want to know of a block that was allocated.
  static void taken(
      DeviceIndex device,
      cudaStream_t stream,
      size_t bytes,
      const millpond_core_block& block,
      const MempoolId_t& pool) {
    note_use(device);
    try {
      throw_caught();
      if (is_watched.load(std::memory_order_relaxed)) {
        told_alloc(device, block.address, bytes, stream, pool);
      }
    } catch (...) {
      core->free(block.context);
      throw;
    }
    const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
    if (interpreter != nullptr) {
      (*interpreter)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(block.address));
    }
    if (c10::memoryProfilingEnabled()) {
      millpond_core_place place{};
      core->find(block.context, &place);
      profile(block.address, static_cast<int64_t>(place.bytes), device);
    }
  }
};

} // namespace
