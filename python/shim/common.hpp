// What every part of the shim knows: the versions of torch that it is for, names, and the core.
#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/headeronly/version.h>

#include <algorithm>
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
#include <utility>
#include <vector>

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

} // namespace
