// Going over workloads with one allocator: passes, single operations, races of threads, and the check of the blocks.
// As benches/src/measure does it for this repository's own allocator.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "allocators.hpp"
#include "clock.hpp"
#include "workload.hpp"

namespace peers {

// What one thread works with, apart from the others' cache lines.
template <class A> struct alignas(128) Member {
    // So many slots at both ends are left unused: another thread's may lie beside them.
    static constexpr size_t MARGIN = 128 / sizeof(typename A::Block) + 1;

    Workload workload;
    std::vector<typename A::Block> slots;
    std::vector<cudaStream_t> streams;
    bool prepared = false;
    // Where in the timed list the next race goes on.
    size_t next = 0;

    explicit Member(const std::string &path) : workload(read_workload(path)), slots(workload.slots + 2 * MARGIN) {}

    typename A::Block &block(uint32_t slot) { return slots[MARGIN + slot]; }

    // Which slots are full now. No pass notes it, because the lists tell.
    std::vector<char> full() const {
        std::vector<char> full(workload.slots, 0);
        if (!prepared) return full;
        for (const Op &op : workload.prepare) full[op.slot] = op.bytes != 0;
        for (size_t at = 0; at < next; ++at) full[workload.timed[at].slot] = workload.timed[at].bytes != 0;
        return full;
    }
};

// Nanoseconds per operation of any thread; processor time is negative where the system does not tell.
struct Race {
    double wall = 0, cpu = -1;
};

template <class A> class Game {
  public:
    Game(A &allocator, int device) : allocator_(allocator), device_(device) {}

    void load(const std::string &path) {
        members_.push_back(std::make_unique<Member<A>>(path));
        Member<A> &member = *members_.back();
        while (member.streams.size() < member.workload.streams) member.streams.push_back(new_stream());
    }

    // The operations before the first pass, of all members; in nanoseconds.
    uint64_t prepare() {
        uint64_t time = 0;
        for (auto &member : members_) {
            const uint64_t start = now();
            play(*member, member->workload.prepare);
            time += now() - start;
            member->prepared = true;
        }
        allocator_.settle();
        return time;
    }

    // Passes until there are enough or the budget is used up, at least one; each in nanoseconds.
    std::vector<uint64_t> passes(size_t most, uint64_t budget) {
        Member<A> &member = ready();
        std::vector<uint64_t> times;
        uint64_t spent = 0;
        while (times.empty() || (times.size() < most && spent < budget)) {
            const uint64_t start = now();
            play(member, member.workload.timed);
            times.push_back(now() - start);
            spent += times.back();
            play(member, member.workload.finish);
            allocator_.settle();
        }
        return times;
    }

    // Single operations, of whole passes, until there are enough or the budget is used up; sorted, in ticks.
    std::vector<uint64_t> singles(size_t least, uint64_t budget) {
        Member<A> &member = ready();
        std::vector<uint64_t> ticks;
        ticks.reserve(least + member.workload.timed.size());
        const uint64_t begin = now();
        while (ticks.empty() || (ticks.size() < least && now() - begin < budget)) {
            for (const Op &op : member.workload.timed) {
                ticks.push_back(timed(member, op));
            }
            play(member, member.workload.finish);
            allocator_.settle();
        }
        std::sort(ticks.begin(), ticks.end());
        return ticks;
    }

    // Operations of one pass, in front of each of which that many bytes are written, so that the caches that are smaller
    // have nothing of the allocator's: every `stride`th; sorted, in ticks.
    std::vector<uint64_t> evicted(size_t stride, size_t bytes) {
        Member<A> &member = ready();
        std::vector<uint64_t> ticks;
        std::vector<uint64_t> others(bytes / sizeof(uint64_t), 1);
        size_t at = 0;
        for (const Op &op : member.workload.timed) {
            if (at++ % stride != 0) {
                step(member, op);
                continue;
            }
            for (size_t word = 0; word < others.size(); word += LINE / sizeof(uint64_t)) {
                const_cast<volatile uint64_t &>(others[word]) += 1;
            }
            ticks.push_back(timed(member, op));
        }
        play(member, member.workload.finish);
        allocator_.settle();
        std::sort(ticks.begin(), ticks.end());
        return ticks;
    }

    // Threads run without pause, and a window in the middle counts. A thread looks at the phase every `slice`
    // operations.
    Race race(size_t threads, uint64_t warm, uint64_t window, size_t slice) {
        ready();
        if (threads == 0 || threads > members_.size() || slice == 0) {
            throw std::runtime_error(std::to_string(threads) + " threads of " + std::to_string(members_.size()) +
                                     ", a look every " + std::to_string(slice) + " operations");
        }
        std::atomic<int> phase{WARM};
        std::vector<Share> shares(threads);
        std::vector<std::thread> racers;
        for (size_t at = 0; at < threads; ++at) {
            racers.emplace_back([this, at, slice, &phase, &shares] { shares[at] = run(*members_[at], phase, slice); });
        }
        std::this_thread::sleep_for(std::chrono::nanoseconds(warm));
        phase.store(COUNT, std::memory_order_relaxed);
        std::this_thread::sleep_for(std::chrono::nanoseconds(window));
        phase.store(STOP, std::memory_order_relaxed);
        for (std::thread &racer : racers) racer.join();
        allocator_.settle();
        return sum(shares);
    }

    // From no blocks at all through one pass: none is null, and none overlaps another that is alive. Answers how many
    // there were.
    uint64_t verify() {
        Member<A> &member = ready();
        clear(member);
        std::map<uintptr_t, uintptr_t> live;
        uint64_t blocks = 0;
        const auto go = [&](const std::vector<Op> &ops) {
            for (const Op &op : ops) blocks += verified(member, op, live);
        };
        go(member.workload.prepare);
        member.prepared = true;
        go(member.workload.timed);
        go(member.workload.finish);
        allocator_.settle();
        return blocks;
    }

    // Gives all blocks back, forgets the workloads, and empties the cache.
    void drop() {
        for (auto &member : members_) {
            clear(*member);
            idle_.insert(idle_.end(), member->streams.begin(), member->streams.end());
        }
        members_.clear();
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        allocator_.empty();
    }

  private:
    enum Phase { WARM, COUNT, STOP };
    // The bytes of a cache line.
    static constexpr size_t LINE = 64;

    // What one thread did in its window.
    struct Share {
        uint64_t operations = 0, wall = 0;
        int64_t cpu = -1;
        std::string trouble;
    };

    Member<A> &ready() {
        for (const auto &member : members_) {
            if (!member->prepared) throw std::runtime_error("a workload is loaded and not prepared");
        }
        if (members_.empty()) throw std::runtime_error("no workload is loaded");
        return *members_[0];
    }

    // Streams are never destroyed: allocators keep memory by stream.
    cudaStream_t new_stream() {
        cudaStream_t stream = nullptr;
        if (idle_.empty()) {
            check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
        } else {
            stream = idle_.back();
            idle_.pop_back();
        }
        return stream;
    }

    void step(Member<A> &member, const Op &op) {
        if (op.bytes != 0) {
            member.block(op.slot) = allocator_.allocate(op.bytes, member.streams[op.stream]);
        } else {
            allocator_.free(member.block(op.slot));
        }
    }

    // One operation, in ticks.
    uint64_t timed(Member<A> &member, const Op &op) {
        const uint64_t start = ticks_now();
        step(member, op);
        return ticks_now() - start;
    }

    void play(Member<A> &member, const std::vector<Op> &ops) {
        for (const Op &op : ops) step(member, op);
    }

    uint64_t verified(Member<A> &member, const Op &op, std::map<uintptr_t, uintptr_t> &live) {
        if (op.bytes == 0) {
            live.erase(reinterpret_cast<uintptr_t>(A::address(member.block(op.slot))));
            step(member, op);
            return 0;
        }
        step(member, op);
        const auto start = reinterpret_cast<uintptr_t>(A::address(member.block(op.slot))), end = start + op.bytes;
        const auto after = live.lower_bound(start);
        const bool hits_next = after != live.end() && after->first < end;
        const bool hits_last = after != live.begin() && std::prev(after)->second > start;
        if (start == 0 || hits_next || hits_last) {
            throw std::runtime_error("a block of " + std::to_string(op.bytes) + " bytes at " + std::to_string(start) +
                                     (start == 0 ? " is null" : " overlaps one that is alive"));
        }
        live.emplace_hint(after, start, end);
        return 1;
    }

    void clear(Member<A> &member) {
        const std::vector<char> full = member.full();
        for (uint32_t slot = 0; slot < full.size(); ++slot) {
            if (full[slot]) allocator_.free(member.block(slot));
        }
        member.prepared = false;
        member.next = 0;
    }

    uint64_t part(Member<A> &member, size_t slice) {
        const std::vector<Op> &ops = member.workload.timed;
        const size_t end = std::min(member.next + slice, ops.size()), count = end - member.next;
        for (size_t at = member.next; at < end; ++at) step(member, ops[at]);
        member.next = end == ops.size() ? 0 : end;
        return count;
    }

    // An exception must not leave the thread.
    Share run(Member<A> &member, const std::atomic<int> &phase, size_t slice) {
        Share share;
        try {
            check(cudaSetDevice(device_), "cudaSetDevice");
            while (phase.load(std::memory_order_relaxed) == WARM) part(member, slice);
            const int64_t cpu = thread_cpu();
            const uint64_t start = now();
            do {
                share.operations += part(member, slice);
            } while (phase.load(std::memory_order_relaxed) != STOP);
            share.wall = now() - start;
            share.cpu = cpu < 0 ? -1 : thread_cpu() - cpu;
        } catch (const std::exception &error) {
            share.trouble = error.what();
        }
        return share;
    }

    static Race sum(const std::vector<Share> &shares) {
        double rate = 0, cpu = 0;
        uint64_t operations = 0;
        bool told = true;
        for (const Share &share : shares) {
            if (!share.trouble.empty()) throw std::runtime_error(share.trouble);
            rate += static_cast<double>(share.operations) / static_cast<double>(share.wall);
            operations += share.operations;
            cpu += static_cast<double>(share.cpu);
            told = told && share.cpu >= 0;
        }
        return {1 / rate, told ? cpu / static_cast<double>(operations) : -1};
    }

    A &allocator_;
    int device_;
    std::vector<std::unique_ptr<Member<A>>> members_;
    std::vector<cudaStream_t> idle_;
};

} // namespace peers
