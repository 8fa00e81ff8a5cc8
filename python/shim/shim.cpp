// PyTorch's CUDA allocator, served by Millpond: a subclass of c10's CUDAAllocator that translates each call into one of
// the table in millpond_core.h, and its errors into PyTorch's. It decides nothing about memory. What PyTorch's tools
// want beside memory is here: the history of events with their Python frames, observers, trackers and the profiler.
//
// One source for torch 2.11 to 2.15. It is compiled for one version and checked against it before it is installed: the
// class has another table of virtual functions in most versions.
//
// Everything global is leaked on purpose. This library is loaded after torch, so its static destructors would run before
// torch's, which still free memory.

#include "allocator.hpp"

namespace {

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

// Names the group in whose scope this thread is from now on: "" for none. Pools that it opens meanwhile become part of it.
EXPORT void millpond_shim_group(const char* name) {
  group_name = name;
}

// Has a function called with the text of each warning, on the thread that causes it.
EXPORT void millpond_shim_warn(void (*told)(const char*)) {
  warn.store(told);
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
    const auto own = own_keys();
    auto* allocator = new std::shared_ptr<CUDAAllocator>(std::make_shared<Millpond>());
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(*allocator);
    c10::SetAllocator(c10::kCUDA, allocator->get(), 1);
    installed = allocator;
    Config::registerDeviceConfigParserHook(&settings_changed, own);
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
