// Handles of memory that other processes have: bytes that PyTorch sends with a tensor and keeps as a key.
//
// PyTorch's own framings, which processes without Millpond read and write: a version, a kind, and then
//   'c'  a cudaIpcMemHandle_t
//   'e'  for memory of expandable segments a header (the process, 4 bytes of padding, the bytes of each page, the number of
//        pages; since version 3 the kind of the pages' handles and 4 bytes of padding), and the file descriptor of each page
// Facts from c10/cuda/CUDACachingAllocator.cpp of torch 2.9 to 2.11 (ShareHeader, shareIpcHandle) and from the calls of
// getpid and ostream::write in libc10_cuda of torch 2.11.0 and 2.15.0. Torch up to 2.12 writes version 2 and 2.13 writes 3,
// as NeMo-RL's cuda_ipc.py has found; the second kind has changed with it (pytorch/pytorch#179618) and the first has not.
//
// Pages of one size go in the framing of expandable segments, and what names them without doubt behind it, which PyTorch
// does not read: file descriptors are used again, and a handle is a key. Pages of several sizes have a framing of
// Millpond's, whose first byte is to PyTorch a version of the future.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include "frees.hpp"

namespace {

#if TORCH_VERSION_MINOR >= 13
constexpr char kIpcVersion = 3;
#else
constexpr char kIpcVersion = 2;
#endif
constexpr char kFirstIpcVersion = 2;
constexpr char kLastIpcVersion = 3;
constexpr char kIpcMalloc = 'c';
constexpr char kIpcPages = 'e';
constexpr char kOwnIpc = 'M';
constexpr char kOwnIpcVersion = 1;
constexpr int32_t kIpcDescriptors = 1;

// What a framing says of pages. The descriptors are those of the process that sends.
struct SharedPages {
  int32_t process = 0;
  std::vector<millpond_core_page> pages;
};

template <typename T>
void append(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads a handle from its front. What is not there makes it bad.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  template <typename T>
  T take() {
    T value{};
    if (left() < sizeof value) {
      is_good = false;
      return value;
    }
    std::memcpy(&value, text_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  size_t left() const {
    return text_.size() - at_;
  }

  bool is_good = true;

 private:
  const std::string& text_;
  size_t at_ = 0;
};

// A number that no other process has had, as numbers of processes are used again.
uint64_t process_token() {
  static const uint64_t token = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return token;
}

std::string frame_of_pages(const std::vector<millpond_core_page>& pages) {
  const uint64_t bytes = pages.front().bytes;
  const auto is_alike = [&](const millpond_core_page& page) { return page.bytes == bytes; };
  std::string text;
  if (std::all_of(pages.begin(), pages.end(), is_alike)) {
    text = {kIpcVersion, kIpcPages};
    append<int64_t>(text, getpid()); // The padding is part of the key.
    append<uint64_t>(text, bytes);
    append<uint64_t>(text, pages.size());
    if (kIpcVersion >= 3) {
      append<int64_t>(text, kIpcDescriptors);
    }
    for (const auto& page : pages) {
      append<int32_t>(text, page.descriptor);
    }
  } else {
    text = {kOwnIpc, kOwnIpcVersion};
    append<int32_t>(text, getpid());
    append<uint64_t>(text, pages.size());
    for (const auto& page : pages) {
      append<int32_t>(text, page.descriptor);
      append<uint64_t>(text, page.bytes);
    }
  }
  append<uint64_t>(text, process_token());
  for (const auto& page : pages) {
    append<uint64_t>(text, page.number);
  }
  return text;
}

SharedPages pages_of_torch(const std::string& text) {
  Reader reader(text);
  const char version = reader.take<char>();
  reader.take<char>();
  SharedPages shared;
  shared.process = reader.take<int32_t>();
  reader.take<int32_t>();
  const auto bytes = reader.take<uint64_t>();
  const auto count = reader.take<uint64_t>();
  const int32_t kind = version >= 3 ? reader.take<int32_t>() : kIpcDescriptors;
  if (version >= 3) {
    reader.take<int32_t>();
  }
  constexpr size_t kFabric = 64;
  TORCH_CHECK(
      kind == kIpcDescriptors && (count == 0 || reader.left() != count * kFabric),
      "millpond: the tensor of another process lies in memory that is shared by a fabric handle, and Millpond reads file "
      "descriptors. Send it from a process with Millpond, or without expandable_segments");
  for (uint64_t at = 0; at < count && reader.is_good; ++at) {
    shared.pages.push_back({bytes, 0, reader.take<int32_t>(), 0});
  }
  TORCH_CHECK(reader.is_good && count != 0, "millpond: the handle of a tensor of another process is incomplete");
  return shared;
}

SharedPages pages_of_millpond(const std::string& text) {
  Reader reader(text);
  reader.take<char>();
  TORCH_CHECK(
      reader.take<char>() == kOwnIpcVersion,
      "millpond: the handle of a tensor of another process is from another version of Millpond. Install the same in both");
  SharedPages shared;
  shared.process = reader.take<int32_t>();
  const auto count = reader.take<uint64_t>();
  for (uint64_t at = 0; at < count && reader.is_good; ++at) {
    const auto descriptor = reader.take<int32_t>();
    shared.pages.push_back({reader.take<uint64_t>(), 0, descriptor, 0});
  }
  TORCH_CHECK(reader.is_good && count != 0, "millpond: the handle of a tensor of another process is incomplete");
  return shared;
}

bool is_of_torch(const std::string& handle, char kind) {
  return handle.size() > 2 && kFirstIpcVersion <= handle[0] && handle[0] <= kLastIpcVersion && handle[1] == kind;
}

} // namespace
