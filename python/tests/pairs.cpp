// Times pairs of an allocation and a free in C++, on whichever allocator PyTorch has, for python/tests/pair_bench.py.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace {
// Blocks of which one, drawn at random, is freed in each turn, and another one allocated in its place. Sizes are drawn
// up to the largest, or to its half, its quarter and so on to its 2048th part, each as often.
class Mixed {
 public:
  Mixed(c10::cuda::CUDACachingAllocator::CUDAAllocator* allocator, size_t largest, uint64_t seed)
      : allocator_(allocator), largest_(largest), state_(seed * 0x9e3779b97f4a7c15 + 1) {}

  void turn() {
    const uint64_t drawn = draw();
    auto& place = blocks_[drawn % blocks_.size()];
    place.clear();
    place = allocator_->allocate(1 + (drawn >> 32) % (largest_ >> (drawn >> 8) % 12));
  }

 private:
  uint64_t draw() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }

  c10::cuda::CUDACachingAllocator::CUDAAllocator* allocator_;
  size_t largest_;
  uint64_t state_;
  std::array<c10::DataPtr, 64> blocks_;
};
}  // namespace

// Returns the nanoseconds of a pair on each of `threads` threads at once, each on a stream of its own, as the mean of
// all. Kind 0 is allocate() with the end of its DataPtr, kind 1 raw_alloc() with raw_delete(), and kind 2 the same as 0
// with 64 live blocks of sizes up to `bytes`, which end in a random order. Each thread holds a block of `held` bytes
// meanwhile, unless that is 0.
extern "C" __attribute__((visibility("default"))) double millpond_time_pairs(
    int kind, size_t bytes, size_t held, int pairs, int threads) {
  using clock = std::chrono::steady_clock;
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  std::vector<double> nanoseconds(threads);
  std::vector<std::thread> running;
  for (int at = 0; at < threads; ++at) {
    running.emplace_back([=, &nanoseconds] {
      if (threads > 1) {
        c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(false, 0));
      }
      auto kept = allocator->allocate(held);
      Mixed mixed(allocator, bytes, at + 1);
      clock::time_point begin;
      // Before it is timed, each has what it takes in its cache.
      for (int pair = -pairs / 10 - (kind == 2 ? 2000 : 0); pair < pairs; ++pair) {
        if (pair == 0) {
          begin = clock::now();
        }
        if (kind == 0) {
          auto data = allocator->allocate(bytes);
        } else if (kind == 2) {
          mixed.turn();
        } else {
          allocator->raw_delete(allocator->raw_alloc(bytes));
        }
      }
      nanoseconds[at] = std::chrono::duration<double, std::nano>(clock::now() - begin).count() / pairs;
    });
  }
  double sum = 0;
  for (int at = 0; at < threads; ++at) {
    running[at].join();
    sum += nanoseconds[at];
  }
  return sum / threads;
}
