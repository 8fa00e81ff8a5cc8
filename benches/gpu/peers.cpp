// Other allocators of GPU memory, served over standard input and output for millpond-gpu-bench: `peers ALLOCATOR
// DEVICE`, one allocator per process, or `peers --list`. Built by scripts/gpu-peers.sh on the machine that has them.
//
// Every line asks one thing and gets one line back, `ok ...` or `error WHAT`; after an error the program ends. What
// can be asked is in `serve`; benches/src/gpu/peer.rs asks. All times are nanoseconds.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include <unistd.h>

#include "allocators.hpp"
#include "clock.hpp"
#include "play.hpp"
#include "rmm.hpp"
#include "torch.hpp"

namespace peers {

template <class T> T word(std::istringstream &line, const char *what) {
    T value{};
    if (!(line >> value)) throw std::runtime_error(std::string("the request lacks ") + what);
    return value;
}

// Four quantiles of sorted ticks, and what reading the clock twice costs, which is taken off them.
inline std::string quantiles(const std::vector<uint64_t> &ticks, const Meter &meter) {
    std::ostringstream out;
    for (const double share : {0.5, 0.99, 0.999, 1.0}) out << meter.at(ticks, share) << ' ';
    out << meter.cost();
    return out.str();
}

template <class A> std::string answer(Game<A> &game, A &allocator, const Meter &meter, const std::string &asked) {
    std::istringstream line(asked);
    std::ostringstream out;
    const auto request = word<std::string>(line, "its name");
    if (request == "load") {
        std::string path;
        std::getline(line >> std::ws, path);
        game.load(path);
    } else if (request == "prepare") {
        out << game.prepare();
    } else if (request == "passes") {
        const auto most = word<size_t>(line, "a number of passes");
        for (const uint64_t time : game.passes(most, word<uint64_t>(line, "a budget"))) out << time << ' ';
    } else if (request == "singles") {
        const auto least = word<size_t>(line, "a number of operations");
        const std::vector<uint64_t> ticks = game.singles(least, word<uint64_t>(line, "a budget"));
        out << ticks.size() << ' ' << quantiles(ticks, meter);
    } else if (request == "evicted") {
        const auto stride = word<size_t>(line, "a stride"), bytes = word<size_t>(line, "a number of bytes");
        if (stride == 0) throw std::runtime_error("a stride of 0");
        const std::vector<uint64_t> ticks = game.evicted(stride, bytes);
        out << ticks.size() << ' ' << quantiles(ticks, meter);
    } else if (request == "race") {
        const auto threads = word<size_t>(line, "a number of threads");
        const auto warm = word<uint64_t>(line, "a time before the window"), window = word<uint64_t>(line, "a window");
        const Race race = game.race(threads, warm, window, word<size_t>(line, "a number of operations"));
        out << race.wall << ' ' << race.cpu;
    } else if (request == "peak") {
        out << allocator.peak();
    } else if (request == "verify") {
        out << game.verify();
    } else if (request == "drop") {
        game.drop();
    } else {
        throw std::runtime_error("unknown request " + request);
    }
    return out.str();
}

template <class A> int serve(int device) {
    try {
        check(cudaSetDevice(device), "cudaSetDevice");
        // The context, which is nobody's to pay for.
        check(cudaFree(nullptr), "cudaFree");
        A allocator(device);
        Game<A> game(allocator, device);
        const Meter meter;
        std::cout << "ok " << allocator.about() << std::endl;
        std::string line;
        while (std::getline(std::cin, line)) {
            const std::string answered = answer(game, allocator, meter, line);
            std::cout << "ok " << answered << std::endl;
        }
        return 0;
    } catch (const std::exception &error) {
        std::string what = error.what();
        std::replace(what.begin(), what.end(), '\n', ' ');
        std::cout << "error " << what << std::endl;
        return 1;
    }
}

#ifdef PEERS_TORCH
// PyTorch may read its settings while it is loaded, before `main`: where they are others, the program starts over.
inline void settle_environment(char **argv, const char *wanted) {
    bool differs = false;
    for (const char *name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
        const char *value = std::getenv(name);
        const std::string found = value ? value : "";
        differs = differs || found != wanted;
        if (*wanted) setenv(name, wanted, 1);
        else unsetenv(name);
    }
    if (differs) {
        execv("/proc/self/exe", argv);
        std::perror("peers: /proc/self/exe cannot be started over");
        std::exit(1);
    }
}
#endif

struct Entry {
    const char *name;
    const char *torch_settings;
    int (*serve)(int device);
};

const Entry ENTRIES[] = {
#ifdef PEERS_TORCH
    {"torch", "", serve<Torch<false>>},
    {"torch-expandable", "expandable_segments:True", serve<Torch<true>>},
#endif
    {"cudaMallocAsync", "", serve<Async>},
    {"cudaMalloc", "", serve<Plain>},
#ifdef PEERS_RMM
    {"rmm-pool", "", serve<Rmm>},
#endif
};

} // namespace peers

int main(int argc, char **argv) {
    const std::string name = argc > 1 ? argv[1] : "";
    if (name == "--list") {
        for (const peers::Entry &entry : peers::ENTRIES) std::cout << entry.name << '\n';
        return 0;
    }
    for (const peers::Entry &entry : peers::ENTRIES) {
        if (name != entry.name) continue;
#ifdef PEERS_TORCH
        peers::settle_environment(argv, entry.torch_settings);
#endif
        return entry.serve(argc > 2 ? std::atoi(argv[2]) : 0);
    }
    std::cerr << "usage: peers --list | peers ALLOCATOR DEVICE\n";
    return 2;
}
