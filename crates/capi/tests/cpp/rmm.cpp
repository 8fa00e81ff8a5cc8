// RMM on millpond.hpp: buffers, and adaptors above it. scripts/cccl.sh compiles it, and its `run` runs it on a GPU.
#include <millpond.hpp>

#include <rmm/cuda_stream.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

namespace {

using resource = millpond::basic_resource<rmm::out_of_memory>;

static_assert(cuda::mr::resource_with<resource, cuda::mr::device_accessible>);
static_assert(std::is_constructible_v<rmm::device_async_resource_ref, resource &>);
static_assert(std::is_constructible_v<rmm::device_resource_ref, resource &>);
static_assert(!std::is_constructible_v<rmm::host_async_resource_ref, resource &>);

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

// What all versions of RMM take for a stream.
cuda::stream_ref of(const rmm::cuda_stream &stream) {
    return cuda::stream_ref{stream.value()};
}

millpond_usage usage_of(const resource &pond) {
    millpond_usage usage{};
    CHECK(millpond_get_usage(pond.get(), &usage) == MILLPOND_OK);
    return usage;
}

// Streams come and go, and the driver uses their handles again.
void streams_are_destroyed_once_their_buffers_are_freed() {
    rmm::cuda_stream kept;
    for (int turn = 0; turn < 500; ++turn) {
        const std::vector<int> data(1 << 18, turn);
        const std::size_t bytes = data.size() * sizeof(int);
        rmm::device_buffer copy(bytes, of(kept));
        {
            rmm::cuda_stream stream;
            rmm::device_buffer buffer(data.data(), bytes, of(stream));
            const auto way = cudaMemcpyDeviceToDevice;
            CHECK(cudaMemcpyAsync(copy.data(), buffer.data(), bytes, way, stream.value()) == cudaSuccess);
            copy.set_stream(of(stream));
            if (turn % 3 == 0) {
                stream.synchronize();
            }
            copy = rmm::device_buffer(copy, of(stream));
            std::vector<int> back(data.size());
            const auto out = cudaMemcpyDeviceToHost;
            CHECK(cudaMemcpyAsync(back.data(), copy.data(), bytes, out, stream.value()) == cudaSuccess);
            stream.synchronize();
            CHECK(back == data);
            copy = rmm::device_buffer(0, of(kept));
        }
        rmm::device_buffer other(bytes << (turn % 7), of(kept));
    }
}

// Each buffer is freed at once, on the stream that has used it last, and keeps its bytes until then.
void buffers_hold_what_was_put_there() {
    rmm::cuda_stream one, two;
    for (int turn = 0; turn < 200; ++turn) {
        const std::vector<int> data(1 << 18, turn);
        const std::size_t bytes = data.size() * sizeof(int);
        rmm::device_buffer first(data.data(), bytes, of(one));
        one.synchronize();
        rmm::device_buffer second(first.data(), bytes, of(two));
        first.set_stream(of(two));
        first = rmm::device_buffer(bytes, of(one));
        std::vector<int> back(data.size());
        CHECK(cudaMemcpyAsync(back.data(), second.data(), bytes, cudaMemcpyDeviceToHost, two.value()) == cudaSuccess);
        two.synchronize();
        CHECK(back == data);
    }
}

void adaptors_count_what_lies_in_millpond(const resource &pond) {
    rmm::mr::statistics_resource_adaptor counted{pond};
    rmm::cuda_stream stream;
    {
        rmm::device_buffer buffer(1000, of(stream), counted);
        CHECK(counted.get_bytes_counter().value >= 1000 && usage_of(pond).allocated_bytes == 1024);
    }
    CHECK(counted.get_bytes_counter().value == 0 && usage_of(pond).allocated_bytes == 0);
    try {
        rmm::device_buffer buffer(std::size_t{1} << 50, of(stream), counted);
        CHECK(!"a petabyte was granted");
    } catch (const rmm::out_of_memory &caught) {
        std::printf("%.100s\n", caught.what());
    }
}

} // namespace

int main() {
    const resource pond;
    rmm::mr::set_current_device_resource(pond);
    buffers_hold_what_was_put_there();
    streams_are_destroyed_once_their_buffers_are_freed();
    adaptors_count_what_lies_in_millpond(pond);
    std::printf("peak reserved %llu MiB: RMM lives in Millpond\n",
                static_cast<unsigned long long>(usage_of(pond).max_reserved_bytes >> 20));
    return 0;
}
