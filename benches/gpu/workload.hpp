// The file of operations that every subject goes over. The other side is benches/src/gpu/file.rs.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace peers {

// 16 bytes, as in the file. An operation without bytes is a free.
struct Op {
    uint64_t bytes;
    uint32_t slot;
    uint32_t stream;
};
static_assert(sizeof(Op) == 16, "an operation of the file has 16 bytes");

// As benches/src/workload/mod.rs says: `timed` can be gone over any number of times, with `finish` behind each.
struct Workload {
    std::vector<Op> prepare, timed, finish;
    uint32_t slots = 0;
    uint32_t streams = 0;
};

struct Header {
    char magic[8];
    uint32_t slots, streams, prepare, timed, finish, nothing;
};
static_assert(sizeof(Header) == 32, "the head of the file has 32 bytes");

inline std::vector<Op> read_ops(std::ifstream &file, uint32_t count, const Header &head, const std::string &path) {
    std::vector<Op> ops(count);
    file.read(reinterpret_cast<char *>(ops.data()), static_cast<std::streamsize>(count * sizeof(Op)));
    if (!file) throw std::runtime_error(path + " ends within its operations");
    for (const Op &op : ops) {
        if (op.slot >= head.slots || op.stream >= head.streams) {
            throw std::runtime_error(path + " names slot " + std::to_string(op.slot) + " of " +
                                     std::to_string(head.slots) + " on stream " + std::to_string(op.stream) + " of " +
                                     std::to_string(head.streams));
        }
    }
    return ops;
}

inline Workload read_workload(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path);
    Header head{};
    file.read(reinterpret_cast<char *>(&head), sizeof head);
    if (!file || std::memcmp(head.magic, "MPOPS-01", 8) != 0) {
        throw std::runtime_error(path + " is no workload of this version: build both programs from the same sources");
    }
    Workload workload;
    workload.slots = head.slots;
    workload.streams = head.streams;
    workload.prepare = read_ops(file, head.prepare, head, path);
    workload.timed = read_ops(file, head.timed, head, path);
    workload.finish = read_ops(file, head.finish, head, path);
    if (workload.timed.empty()) throw std::runtime_error(path + " has nothing to time");
    return workload;
}

} // namespace peers
