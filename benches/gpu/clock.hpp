// Two clocks: nanoseconds for passes, and the processor's counter for single operations.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace peers {

inline uint64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

inline uint64_t ticks_now() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return now();
#endif
}

// Nanoseconds that this thread has run on a processor.
inline int64_t thread_cpu() {
    timespec time{};
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return -1;
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// What a tick is worth, and what reading the counter twice costs: found out once, in some 30 ms.
class Meter {
  public:
    Meter() {
        const uint64_t start = now(), first = ticks_now();
        while (now() - start < 20'000'000) {
        }
        const uint64_t last = ticks_now(), stop = now();
        nanoseconds_ = static_cast<double>(stop - start) / static_cast<double>(last - first);
        std::vector<uint64_t> costs(100'000);
        for (uint64_t &cost : costs) {
            const uint64_t before = ticks_now();
            cost = ticks_now() - before;
        }
        std::nth_element(costs.begin(), costs.begin() + costs.size() / 2, costs.end());
        cost_ = costs[costs.size() / 2];
    }

    // That share of the sorted ticks took at most so many nanoseconds, without the clock's own cost.
    double at(const std::vector<uint64_t> &sorted, double share) const {
        const auto wanted = static_cast<size_t>(share * static_cast<double>(sorted.size()));
        const size_t place = std::min(sorted.size() - 1, wanted);
        const uint64_t ticks = sorted[place] > cost_ ? sorted[place] - cost_ : 0;
        return static_cast<double>(ticks) * nanoseconds_;
    }

    double cost() const { return static_cast<double>(cost_) * nanoseconds_; }

  private:
    double nanoseconds_ = 1;
    uint64_t cost_ = 0;
};

} // namespace peers
