// Settings that PyTorch's functions change: torch.cuda.memory._set_allocator_settings and the others that end in
// c10::CachingAllocator::setAllocatorSettings.
//
// That parses what all accelerators have in common, and hands the text to one parser of the device. CUDA's is in that place.
// Here one takes the place that calls CUDA's, for pinned memory, which is PyTorch's own, and then Millpond.
#pragma once

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDAAllocatorConfig.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "errors.hpp"

namespace {

using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;

// Takes a text of the core that it ends.
std::vector<std::string> keys_of(char* text) {
  std::vector<std::string> keys;
  std::istringstream stream(text);
  core->string_free(text);
  for (std::string key; std::getline(stream, key, ',');) {
    keys.push_back(key);
  }
  return keys;
}

// Returns the pairs of a configuration without that of `backend`: CUDA's parser demands the name of the allocator in use.
std::string without_backend(const std::string& text) {
  std::string kept;
  std::string pair;
  int depth = 0;
  const auto end_pair = [&] {
    const auto begin = pair.find_first_not_of(" \t\n\r");
    if (begin == std::string::npos || pair.compare(begin, 7, "backend") != 0) {
      kept += kept.empty() ? pair : "," + pair;
    }
    pair.clear();
  };
  for (char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      end_pair();
    } else {
      pair += c;
    }
  }
  end_pair();
  return kept;
}

// Warns the program in Python, which gives it.
std::atomic<void (*)(const char*)> warn{nullptr};

// Warns of a key that has no effect, the first time.
void warn_of(const std::string& key, const char* why) {
  static std::mutex mutex;
  static auto& warned = *new std::set<std::string>();
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!warned.insert(key).second) {
      return;
    }
  }
  if (auto* told = warn.load()) {
    told(("millpond: the allocator setting " + key + " has no effect: " + why).c_str());
  }
}

// What PyTorch calls with each text.
void settings_changed(const std::string& text) {
  allocators::CUDAAllocatorConfig::instance().parseArgs(without_backend(text));
  char* kept = nullptr;
  char* unserved = nullptr;
  check(core->reconfigure(text.c_str(), &kept, &unserved));
  const auto stay = keys_of(kept);
  for (const auto& key : keys_of(unserved)) {
    warn_of(key, "it asks for what Millpond does not do");
  }
  for (const auto& key : stay) {
    warn_of(
        key,
        "a device is in use, and it stays as it was. Set it at the start, in MILLPOND_CONF or millpond.torch.enable()");
  }
}

// Returns the keys of Millpond that PyTorch does not know, without those of pinned memory, which PyTorch alone has. Before, PyTorch reads its environment: CUDA's parser demands that
// a `backend` there is the allocator in use.
std::unordered_set<std::string> own_keys() {
  allocators::CUDAAllocatorConfig::instance();
  char* text = nullptr;
  check(core->keys(&text));
  std::unordered_set<std::string> own;
  for (const auto& key : keys_of(text)) {
    if (Config::getKeys().count(key) == 0 && key.compare(0, 7, "pinned_") != 0) {
      own.insert(key);
    }
  }
  return own;
}

} // namespace
