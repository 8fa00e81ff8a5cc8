// Memory of other processes.
#pragma once

#include <cerrno>

#include <sys/syscall.h>

#include "handles.hpp"

// Calls of Linux since 5.3 and 5.6, which older headers lack.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace {

// ---- To other processes ----

allocators::ShareableHandle share_segment(void* address, const millpond_core_segment& segment) {
  cudaIpcMemHandle_t handle;
  C10_CUDA_CHECK(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(segment.address)));
  std::string text{kIpcVersion, kIpcMalloc};
  text.append(reinterpret_cast<const char*>(&handle), sizeof handle);
  return {static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(address) - segment.address), std::move(text)};
}

void note_page(void* pages, const millpond_core_page* page) {
  static_cast<std::vector<millpond_core_page>*>(pages)->push_back(*page);
}

// The handle is that of the pages of the block. They keep their descriptors, so it stays the same while the block lives,
// and blocks in one page have one handle. PyTorch keeps the tensor until the other processes are done with it.
allocators::ShareableHandle share_pages(void* address) {
  std::vector<millpond_core_page> pages;
  const millpond_core_pages sink{&pages, note_page};
  uint64_t offset = 0;
  const millpond_status status = core->share(address, &sink, &offset);
  throw_caught();
  TORCH_CHECK(
      status == MILLPOND_OK,
      "millpond: a tensor in memory of pages cannot be shared with another process: ",
      core->last_error(),
      ". Use policy:classic in processes that share tensors, as in millpond.torch.enable(\"policy:classic\"), or send a "
      "copy on the host");
  return {static_cast<ptrdiff_t>(offset), frame_of_pages(pages)};
}

allocators::ShareableHandle share_handle(void* address) {
  millpond_core_segment segment{};
  check(core->base_of(address, &segment));
  return segment.is_expandable == 0 ? share_segment(address, segment) : share_pages(address);
}

// ---- From other processes ----

// A file descriptor of this process.
struct File {
  explicit File(long descriptor) : number(static_cast<int>(descriptor)) {}
  File(File&& from) noexcept : number(std::exchange(from.number, -1)) {}
  ~File() {
    if (number >= 0) {
      close(number);
    }
  }
  int number;
};

std::string why_not_fetched(int error) {
  switch (error) {
    case ENOSYS:
      return "the kernel has no pidfd_open or pidfd_getfd (Linux 5.6), or a filter of the container hides them";
    case EPERM:
    case EACCES:
      return "this process may not look into that one, as ptrace may not. In a container, give it CAP_SYS_PTRACE or a "
             "seccomp profile that permits pidfd_getfd; elsewhere set kernel.yama.ptrace_scope to 0, or have the sender "
             "call prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)";
    case ESRCH:
      return "that process has ended, or counts its number in another container";
    case EBADF:
      return "that process has freed the tensor";
    case EMFILE:
      return "this process has too many open files (ulimit -n)";
    default:
      return "the system refuses";
  }
}

[[noreturn]] void throw_not_fetched(const char* call, int process) {
  const int error = errno;
  TORCH_CHECK(
      false,
      "millpond: the memory of a tensor of process ",
      process,
      " cannot be fetched: ",
      call,
      ": ",
      std::strerror(error),
      ": ",
      why_not_fetched(error),
      ". Or use policy:classic in the process that sends, whose tensors need no file descriptors");
}

// Maps pages of another process. Returns the address of the first.
void* open_pages(DeviceIndex device, SharedPages shared) {
  File process(syscall(SYS_pidfd_open, shared.process, 0));
  if (process.number < 0) {
    throw_not_fetched("pidfd_open", shared.process);
  }
  std::vector<File> files;
  for (auto& page : shared.pages) {
    const long fetched = syscall(SYS_pidfd_getfd, process.number, page.descriptor, 0);
    if (fetched < 0) {
      throw_not_fetched("pidfd_getfd", shared.process);
    }
    files.emplace_back(fetched);
    page.descriptor = files.back().number;
  }
  void* address = nullptr;
  check(core->open_shared(device, shared.pages.data(), shared.pages.size(), &address));
  return address;
}

void close_pages(DeviceIndex device, void* address) {
  // Unlike a free of the driver's, an unmap does not wait for work.
  c10::cuda::OptionalCUDAGuard guard(Device(c10::kCUDA, device));
  C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
  if (core->close_shared(address) != MILLPOND_OK) {
    std::fprintf(stderr, "millpond: %s\n", core->last_error());
  }
}

void* open_segment(const std::string& handle) {
  cudaIpcMemHandle_t raw;
  std::memcpy(&raw, handle.data() + 2, sizeof raw);
  void* address = nullptr;
  C10_CUDA_CHECK(cudaIpcOpenMemHandle(&address, raw, cudaIpcMemLazyEnablePeerAccess));
  return address;
}

void close_segment(DeviceIndex device, void* address) {
  c10::cuda::OptionalCUDAGuard guard(Device(c10::kCUDA, device));
  C10_CUDA_CHECK_WARN(cudaIpcCloseMemHandle(address));
}

// What is open, by handle: memory of one handle is mapped once, for all tensors in it.
struct Imported {
  std::mutex mutex;
  std::unordered_map<std::string, std::weak_ptr<void>> open;
};
Imported& imported = *new Imported;

void forget_handle(const std::string& handle) {
  std::lock_guard<std::mutex> lock(imported.mutex);
  const auto found = imported.open.find(handle);
  // It may have been opened again meanwhile.
  if (found != imported.open.end() && found->second.expired()) {
    imported.open.erase(found);
  }
}

std::shared_ptr<void> open_handle(const std::string& handle) {
  const DeviceIndex device = ask_device();
  if (is_of_torch(handle, kIpcMalloc) && handle.size() == 2 + sizeof(cudaIpcMemHandle_t)) {
    return {open_segment(handle), [device, handle](void* open) {
              close_segment(device, open);
              forget_handle(handle);
            }};
  }
  const bool is_own = handle.size() > 2 && handle[0] == kOwnIpc;
  TORCH_CHECK(
      is_own || is_of_torch(handle, kIpcPages),
      "millpond: the handle of a tensor of another process is of a kind that Millpond does not know, or comes from another "
      "version of torch");
  return {open_pages(device, is_own ? pages_of_millpond(handle) : pages_of_torch(handle)), [device, handle](void* open) {
            close_pages(device, open);
            forget_handle(handle);
          }};
}

std::shared_ptr<void> import_handle(const std::string& handle) {
  std::lock_guard<std::mutex> lock(imported.mutex);
  if (auto found = imported.open.find(handle); found != imported.open.end()) {
    if (auto memory = found->second.lock()) {
      return memory;
    }
  }
  std::shared_ptr<void> memory = open_handle(handle);
  imported.open[handle] = memory;
  return memory;
}

} // namespace
