// Times pairs of an allocation and a free in C++, on whichever allocator PyTorch has: python/tests/pair_bench.py calls it.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <thread>
#include <vector>

// Returns the nanoseconds of a pair on each of `threads` threads at once, each on a stream of its own, as the mean of all.
// Kind 0 is allocate() with the end of its DataPtr, kind 1 raw_alloc() with raw_delete(). Each thread holds a block of
// `held` bytes meanwhile, unless that is 0.
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
      clock::time_point begin;
      for (int pair = -pairs / 10; pair < pairs; ++pair) {
        if (pair == 0) {
          begin = clock::now();
        }
        if (kind == 0) {
          auto data = allocator->allocate(bytes);
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
