// PyTorch's CUDA allocator, served by Millpond: a subclass of c10's CUDAAllocator that translates each call into one of
// the table in millpond_core.h, and its errors into PyTorch's. It decides nothing about memory. What PyTorch's tools
// want beside memory is here: the history of events with their Python frames, observers, trackers and the profiler.
//
// One source for torch 2.11 to 2.15. It is compiled for one version and checked against it before it is installed: the
// class has another table of virtual functions in most versions.
//
// Everything global is leaked on purpose. This library is loaded after torch, so its static destructors would run before
// torch's, which still free memory.

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/headeronly/version.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include <dlfcn.h>

#include "millpond_core.h"

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11 || TORCH_VERSION_MINOR > 15
#error "millpond: this shim is for torch 2.11 to 2.15"
#endif

namespace {

namespace allocators = c10::cuda::CUDACachingAllocator;
using allocators::CUDAAllocator;
using c10::DataPtr;
using c10::Device;
using c10::DeviceIndex;
using c10::GatheredContext;
using c10::MempoolId_t;
using c10::CachingAllocator::format_size;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

constexpr int kDevices = 64;
constexpr size_t kTooLarge = 1152921504606846976; // 2^60: what PyTorch refuses at once.

const millpond_core_v1* core = nullptr;

// How many devices there are, once CUDA is initialised; 0 before.
std::atomic<int> device_count{0};

// ---- What is watched ------------------------------------------------------------------------------------------------

// What is kept of a live block while the history is recorded.
struct Note {
  size_t requested;
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
  std::vector<c10::CachingDeviceAllocator::AnnotationEntry> annotations;
};
Watch& watch = *new Watch;

// Whether an allocation and a free have anything to tell: a recorder, a tracker, or a note that is left.
std::atomic<bool> is_watched{false};

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
      compile_contexts.empty() ? std::string() : compile_contexts.back(),
      user_metadata);
  for (const auto& tracker : watch.trackers) {
    tracker(entry);
  }
  if (!watch.is_recording || watch.skipped.count(static_cast<int>(action)) != 0) {
    return;
  }
  // Native history converts the processor's clock when it is exported; here the time is taken as such.
  using namespace std::chrono;
  entry.time_.t_ = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
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

// The streams and the pools of live blocks are the core's. A free is told with stream 0.
void told_free(const millpond_core_place& place) {
  auto context = gather(RecordContext::ALL);
  std::lock_guard<std::recursive_mutex> lock(watch.mutex);
  size_t bytes = place.bytes;
  auto note = watch.notes.find(place.address);
  if (note != watch.notes.end()) {
    bytes = note->second.requested;
    watch.notes.erase(note);
    if (watch.notes.empty()) {
      update_watched();
    }
  }
  record(TraceEntry::FREE_REQUESTED, place.device, place.address, bytes, nullptr, {0, 0}, context);
  record(TraceEntry::FREE_COMPLETED, place.device, place.address, bytes, nullptr, {0, 0}, context);
}

// ---- The host of the core ---------------------------------------------------------------------------------------------

int32_t host_free_memory(int32_t) noexcept {
  bool freed = false;
  try {
    for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    }
  } catch (...) {
    keep_exception();
  }
  return freed ? 1 : 0;
}

void host_event(const millpond_core_event* event) noexcept {
  try {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    record(
        static_cast<TraceEntry::Action>(event->kind),
        event->device,
        event->address,
        event->bytes,
        event->stream,
        {0, 0},
        nullptr);
  } catch (...) {
    keep_exception();
  }
}

millpond_core_host host = {sizeof(millpond_core_host), 0, host_free_memory, host_event};

// ---- Errors -------------------------------------------------------------------------------------------------------------

// Throws what a call of the core has returned, and what a tracker has thrown meanwhile.
void check(millpond_status status) {
  throw_caught();
  TORCH_CHECK(status == MILLPOND_OK, "millpond: ", core->last_error());
}

[[noreturn]] void throw_too_large() {
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  std::abort();
}

// Throws PyTorch's error with PyTorch's text, and Millpond's explanation behind it.
[[noreturn]] void throw_out_of_memory(int device) {
  millpond_core_oom oom{};
  check(core->oom(&oom));
  std::string explanation = oom.explanation;
  std::string allowed = oom.limit_bytes == UINT64_MAX ? "" : format_size(oom.limit_bytes) + " allowed; ";
  size_t total = oom.limit_bytes == UINT64_MAX ? oom.total_bytes : oom.limit_bytes;
  std::vector<allocators::OutOfMemoryObserver> observers;
  {
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    record(TraceEntry::OOM, device, oom.free_bytes, oom.requested_bytes, nullptr, {0, 0}, nullptr);
    observers = watch.observers;
  }
#if TORCH_VERSION_MINOR >= 12
  if (oom.rejected != 0) {
    for (const auto& observer : watch.rejection_observers) {
      observer(device, oom.tried_bytes, oom.allocated_bytes, oom.total_bytes);
    }
    observers.clear();
  }
#endif
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(oom.requested_bytes),
      oom.allocated_bytes,
      oom.reserved_bytes,
      Device(c10::kCUDA, static_cast<DeviceIndex>(device)));
  for (const auto& observer : observers) {
    observer(device, oom.tried_bytes, total, oom.free_bytes);
  }
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "CUDA out of memory. Tried to allocate ",
      format_size(oom.tried_bytes),
      ". GPU ",
      device,
      " has a total capacity of ",
      format_size(oom.total_bytes),
      " of which ",
      format_size(oom.free_bytes),
      " is free. ",
      allowed,
      "Of the allocated memory ",
      format_size(oom.allocated_bytes),
      " is allocated by PyTorch, and ",
      format_size(oom.reserved_bytes > oom.allocated_bytes ? oom.reserved_bytes - oom.allocated_bytes : 0),
      " is reserved by PyTorch but unallocated.",
      oom.rejected != 0 ? " Allocation was preemptively rejected because it would exceed "
                          "per_process_memory_fraction limit."
                        : "",
      explanation.empty() ? "" : "\nMillpond:\n",
      explanation);
  std::abort();
}

[[noreturn]] void throw_failed(int device, const millpond_core_block& block) {
  throw_caught();
  auto status = static_cast<millpond_status>(reinterpret_cast<intptr_t>(block.context));
  if (status == MILLPOND_OUT_OF_MEMORY) {
    throw_out_of_memory(device);
  }
  TORCH_CHECK(false, "millpond: ", core->last_error());
  std::abort();
}

[[noreturn]] void throw_unsupported(const char* what) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "millpond: ",
      what,
      " is not served by this version of Millpond. Run the program with PyTorch's own allocator: without "
      "millpond.torch.enable() and without MILLPOND_TORCH.");
  std::abort();
}

// ---- The current device -------------------------------------------------------------------------------------------------

// cudaGetDevice takes a lock of the driver's, which threads wait for. With one device there is nothing to ask. With more
// the driver's current context is asked, which does not lock, and the device that it meant last is remembered. That holds
// once every device was used: before, PyTorch keeps a device that was only named to itself, without a context.
using GetContext = int (*)(void**);
GetContext get_context = nullptr;
std::atomic<int> devices_used{0};
std::atomic<bool> was_used[kDevices];

struct Remembered {
  void* context;
  DeviceIndex device;
};
thread_local Remembered remembered{nullptr, -1};

DeviceIndex ask_device() {
  DeviceIndex device = -1;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return device;
}

DeviceIndex ask_and_remember() {
  DeviceIndex device = ask_device();
  void* context = nullptr;
  if (devices_used.load() == device_count.load() && get_context != nullptr && get_context(&context) == 0) {
    remembered = Remembered{context, device};
  }
  return device;
}

inline DeviceIndex current_device() {
  if (C10_LIKELY(device_count.load(std::memory_order_relaxed) == 1)) {
    return 0;
  }
  void* context = nullptr;
  if (remembered.context != nullptr && get_context(&context) == 0 && context == remembered.context) {
    return remembered.device;
  }
  return ask_and_remember();
}

void note_use(int device) {
  if (!was_used[device].exchange(true)) {
    devices_used.fetch_add(1);
  }
}

// ---- Routes to private pools ---------------------------------------------------------------------------------------------

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

// ---- Frees ---------------------------------------------------------------------------------------------------------------

void profile(void* address, int64_t bytes, int device) {
  millpond_usage usage{};
  core->usage(device, &usage);
  c10::reportMemoryUsageToProfiler(
      address, bytes, usage.allocated_bytes, usage.reserved_bytes, Device(c10::kCUDA, static_cast<DeviceIndex>(device)));
}

millpond_status free_and_tell(void* block) {
  millpond_core_place place{};
  millpond_status status = core->find(block, &place);
  if (status != MILLPOND_OK) {
    return status;
  }
  if (is_watched.load(std::memory_order_relaxed)) {
    told_free(place);
  }
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (interpreter != nullptr) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, static_cast<uintptr_t>(place.address));
  }
  status = core->free(block);
  if (c10::memoryProfilingEnabled()) {
    profile(reinterpret_cast<void*>(place.address), -static_cast<int64_t>(place.bytes), place.device);
  }
  return status;
}

inline millpond_status free_block(void* block) {
  if (C10_LIKELY(
          !is_watched.load(std::memory_order_relaxed) && c10::impl::GPUTrace::get_trace() == nullptr &&
          !c10::memoryProfilingEnabled())) {
    return core->free(block);
  }
  return free_and_tell(block);
}

// The deleter of every tensor, for a context as for an address: the lowest bit tells them apart in the core.
void delete_block(void* block) noexcept {
  try {
    if (C10_UNLIKELY(free_block(block) != MILLPOND_OK)) {
      std::fprintf(stderr, "millpond: %s\n", core->last_error());
    }
  } catch (...) {
    // A recorder or a tracker failed, and a destructor has no one to tell.
  }
  drop_exception();
}

// With caching_allocator_disabled() memory comes from the driver and goes back at once, as with PyTorch's allocator.
std::atomic<bool> is_disabled{false};

void delete_uncached(void* address) noexcept {
  (void)cudaFree(address);
}

// ---- IPC -----------------------------------------------------------------------------------------------------------------

#if TORCH_VERSION_MINOR >= 12
constexpr char kIpcVersion = 3;
#else
constexpr char kIpcVersion = 2;
#endif
constexpr char kIpcMalloc = 'c';

struct Imported {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<void>> open;
};
Imported& imported = *new Imported;

std::shared_ptr<void> import_handle(const std::string& handle) {
  TORCH_CHECK(
      handle.size() == 2 + sizeof(cudaIpcMemHandle_t) && handle[0] == kIpcVersion && handle[1] == kIpcMalloc,
      "millpond: the handle of a tensor of another process is not one of cudaMalloc's memory, as with "
      "expandable_segments, or comes from another version of torch");
  std::lock_guard<std::mutex> lock(imported.mutex);
  if (auto found = imported.open.find(handle); found != imported.open.end()) {
    if (auto memory = found->second.lock()) {
      return memory;
    }
  }
  cudaIpcMemHandle_t raw;
  std::memcpy(&raw, handle.data() + 2, sizeof raw);
  void* address = nullptr;
  C10_CUDA_CHECK(cudaIpcOpenMemHandle(&address, raw, cudaIpcMemLazyEnablePeerAccess));
  DeviceIndex device = ask_device();
  std::shared_ptr<void> memory(address, [device](void* open) {
    c10::cuda::OptionalCUDAGuard guard(Device(c10::kCUDA, device));
    C10_CUDA_CHECK_WARN(cudaIpcCloseMemHandle(open));
  });
  imported.open[handle] = memory;
  return memory;
}

// ---- Snapshots -------------------------------------------------------------------------------------------------------------

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

// ---- The allocator -----------------------------------------------------------------------------------------------------------

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
    return take(device, c10::cuda::getCurrentCUDAStream(device).stream(), bytes).address;
  }

  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return bytes == 0 ? nullptr : take(current_device(), stream, bytes).address;
  }

  void raw_delete(void* address) override {
    if (address != nullptr) {
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
        "millpond: memory of pages has no base that other processes or libraries could use. Use policy:classic, as in "
        "millpond.torch.enable(\"policy:classic\")");
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
    check(core->get_fraction(device, &fraction));
    return fraction;
  }

  void setMemoryFraction(double fraction, DeviceIndex device) override {
    TORCH_CHECK(
        0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
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
#if TORCH_VERSION_MINOR >= 14
    to.num_oom_rejections = from.num_oom_rejections;
#endif
    return to;
  }

  void resetAccumulatedStats(DeviceIndex device) override {
    check(core->reset_totals(device));
  }

  void resetPeakStats(DeviceIndex device) override {
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
    auto& settings = result.config_metadata;
    settings = allocators::AllocatorConfigInfo{};
    settings.max_split_size = SIZE_MAX;
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
    check(core->pool_ref(device, pool_of(id), nullptr));
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
    if (source != nullptr) {
      throw_unsupported("a MemPool with an allocator of its own");
    }
    check(core->pool_ref(device, pool_of(id), nullptr));
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

  std::shared_ptr<allocators::AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t) override {
    throw_unsupported("a checkpoint of a private pool, which torch.compile's CUDA-graph trees take,");
  }

  allocators::CheckpointDelta setCheckpointPoolState(DeviceIndex, std::shared_ptr<allocators::AllocatorState>) override {
    throw_unsupported("a checkpoint of a private pool, which torch.compile's CUDA-graph trees take,");
  }

  // Other processes and other devices.

  allocators::ShareableHandle shareIpcHandle(void* address) override {
    millpond_core_segment segment{};
    check(core->base_of(address, &segment));
    TORCH_CHECK(
        segment.is_expandable == 0,
        "millpond: a tensor in memory of pages cannot be shared with another process. Use policy:classic in processes "
        "that share tensors, as in millpond.torch.enable(\"policy:classic\"), or send a copy on the host");
    cudaIpcMemHandle_t handle;
    C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(segment.address)));
    std::string text{kIpcVersion, kIpcMalloc};
    text.append(reinterpret_cast<const char*>(&handle), sizeof handle);
    return {static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(address) - segment.address), std::move(text)};
  }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return import_handle(handle);
  }

  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override {
    for (const auto& segment : segments_of(other, nullptr)) {
      // PyTorch's copies would touch them in kernels of the other device, which the driver does not survive.
      TORCH_CHECK(
          !segment.is_expandable,
          "millpond: memory of pages on GPU ",
          static_cast<int>(other),
          " is not mapped for GPU ",
          static_cast<int>(device),
          ". Use policy:classic in a process that works with several GPUs, as in "
          "millpond.torch.enable(\"policy:classic\"), or a process for each GPU");
    }
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
    watch.annotations.push_back(std::move(entry));
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

#if TORCH_VERSION_MINOR >= 14
  bool supportsUserMetadata() override {
    return true;
  }

  void annotateMemory(const void* address, const std::string& metadata) override {
    millpond_core_place place{};
    check(core->at(address, &place));
    std::lock_guard<std::recursive_mutex> lock(watch.mutex);
    std::string before = std::exchange(user_metadata, metadata);
    record(TraceEntry::ANNOTATE, place.device, place.address, place.bytes, nullptr, {0, 0}, nullptr);
    user_metadata = std::move(before);
  }
#endif

 private:
  // Events of segments are told by the core while there is anyone to tell.
  static void update() {
    update_watched();
    core->trace(watch.is_recording || !watch.trackers.empty() ? 1 : 0);
  }

  static void* allocate_uncached(size_t bytes) {
    void* address = nullptr;
    C10_CUDA_CHECK(cudaMalloc(&address, bytes));
    return address;
  }

  C10_ALWAYS_INLINE static millpond_core_block take(DeviceIndex device, cudaStream_t stream, size_t bytes) {
    millpond_core_pool pool{};
    const bool is_routed =
        C10_UNLIKELY(open_routes.load(std::memory_order_relaxed) != 0) && find_route(device, stream, pool);
    if (C10_UNLIKELY(bytes >= kTooLarge)) {
      throw_too_large();
    }
    const millpond_core_block block = core->alloc(device, stream, bytes, is_routed ? &pool : nullptr);
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

void put_text(char* out, size_t room, const std::string& text) {
  if (room != 0) {
    std::snprintf(out, room, "%s", text.c_str());
  }
}

// The one allocator, once it is installed. Leaked.
std::shared_ptr<CUDAAllocator>* installed = nullptr;

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Returns the version of torch that the shim was compiled for, such as "2.11.0".
EXPORT const char* millpond_shim_torch() {
#define MILLPOND_TEXT(x) #x
#define MILLPOND_VALUE(x) MILLPOND_TEXT(x)
  return MILLPOND_VALUE(TORCH_VERSION_MAJOR) "." MILLPOND_VALUE(TORCH_VERSION_MINOR) "." MILLPOND_VALUE(
      TORCH_VERSION_PATCH);
}

// Returns 1 if PyTorch's present allocator is in use already, which may have happened without torch.cuda.init().
EXPORT int millpond_shim_in_use() {
  try {
    auto* present = allocators::get();
    return present != nullptr && present->initialized() ? 1 : 0;
  } catch (...) {
    return 1;
  }
}

// Returns the name of PyTorch's present allocator in `out`.
EXPORT void millpond_shim_present(char* out, size_t room) {
  try {
    put_text(out, room, allocators::get()->name());
  } catch (...) {
    put_text(out, room, "");
  }
}

// Puts Millpond in the place of PyTorch's allocator. Returns 0, or 1 with the reason in `out`: nothing has changed then.
EXPORT int millpond_shim_install(const void* table, char* out, size_t room) {
  try {
    const auto* given = static_cast<const millpond_core_v1*>(table);
    TORCH_CHECK(given != nullptr && given->abi == MILLPOND_CORE_ABI, "the library has another version of the table");
    TORCH_CHECK(given->size >= sizeof(millpond_core_v1), "the library is older than the shim");
    TORCH_CHECK(installed == nullptr, "Millpond is installed already");
    core = given;
    check(core->lend(&host));
    auto* allocator = new std::shared_ptr<CUDAAllocator>(std::make_shared<Millpond>());
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(*allocator);
    c10::SetAllocator(c10::kCUDA, allocator->get(), 1);
    installed = allocator;
    return 0;
  } catch (const c10::Error& error) {
    put_text(out, room, error.what_without_backtrace());
  } catch (const std::exception& error) {
    put_text(out, room, error.what());
  } catch (...) {
    put_text(out, room, "an unknown error");
  }
  return 1;
}
