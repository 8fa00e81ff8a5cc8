// The memory resource of millpond.hpp, on the simulated driver of CUDA. scripts/cccl.sh compiles and runs it.
#include "millpond.hpp"

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

// The functions of CUDA's runtime that CCCL's errors and the resource need. Without them no runtime is linked.
extern "C" const char *cudaGetErrorString(cudaError_t) {
    return "an error of the driver's";
}

static int current = 0;

extern "C" cudaError_t cudaGetDevice(int *device) {
    *device = current;
    return current < 0 ? cudaErrorInitializationError : cudaSuccess;
}

static std::atomic<int> waits{0};
static cudaError_t synchronized(cudaStream_t stream);

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return synchronized(stream);
}

namespace {

using millpond::resource;

struct no_memory : std::runtime_error {
    explicit no_memory(const char *text) : std::runtime_error(text) {}
};

static_assert(!cuda::mr::resource_with<resource, cuda::mr::host_accessible>);
static_assert(cuda::mr::resource_with<millpond::basic_resource<no_memory>, cuda::mr::device_accessible>);
static_assert(std::is_nothrow_copy_constructible_v<millpond::out_of_memory>);
static_assert(std::is_trivially_copyable_v<resource>);

constexpr std::size_t kMiB = 1 << 20;

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                       \
        }                                                                       \
    } while (0)

// Returns the text of the exception of this type that a call throws.
template <class Exception, class Call>
std::string thrown(Call call) {
    try {
        call();
    } catch (const Exception &caught) {
        return caught.what();
    }
    return "nothing was thrown";
}

bool has(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

template <class Function>
Function *driver(const char *name) {
    auto *found = reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
    CHECK(found != nullptr);
    return found;
}

// Makes device 0 the current one of this thread.
void use_device() {
    void *context = nullptr;
    CHECK(driver<int(void **, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0);
    CHECK(driver<int(void *)>("cuCtxSetCurrent")(context) == 0);
}

} // namespace

// As the runtime does: where the thread has no current context, that of the device becomes it.
static cudaError_t synchronized(cudaStream_t stream) {
    ++waits;
    use_device();
    const int code = driver<int(cudaStream_t)>("cuStreamSynchronize")(stream);
    return code == 0 ? cudaSuccess : cudaErrorUnknown;
}

namespace {

cuda::stream_ref new_stream(const resource &pond) {
    millpond_stream stream = nullptr;
    CHECK(millpond_stream_create(pond.get(), &stream) == MILLPOND_OK);
    return cuda::stream_ref{static_cast<cudaStream_t>(stream)};
}

// The flag, which outlives the test, is set once the stream has been at work for a while.
void queue_work(cuda::stream_ref stream, std::atomic<bool> &flag) {
    auto work = [](void *user) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        static_cast<std::atomic<bool> *>(user)->store(true);
    };
    auto *launch = driver<int(void *, void (*)(void *), void *)>("cuLaunchHostFunc");
    CHECK(launch(stream.get(), work, &flag) == 0);
}

std::uint64_t allocated(const resource &pond) {
    millpond_usage usage{};
    CHECK(millpond_get_usage(pond.get(), &usage) == MILLPOND_OK);
    return usage.allocated_bytes;
}

void equality() {
    const resource pond, copy = pond, same(0, "policy:classic"), second(1);
    CHECK(pond == copy && pond == same && pond != second && !(pond == second));
    current = 1;
    CHECK(resource{} == second);
    current = -1;
    CHECK(resource{} == pond);
    current = 0;
    millpond_allocator *own = nullptr;
    CHECK(millpond_create("cuda:0", "policy:classic", &own) == MILLPOND_OK);
    CHECK(resource(own) != pond && resource(own) == resource(own) && resource(own).get() == own);
    CHECK(millpond_destroy(own, nullptr) == MILLPOND_OK);
}

void memory_is_granted_in_the_order_of_the_stream() {
    resource pond;
    const cuda::stream_ref one = new_stream(pond), two = new_stream(pond);
    void *memory = pond.allocate(one, 3 * kMiB);
    CHECK(memory != nullptr && reinterpret_cast<std::uintptr_t>(memory) % 512 == 0 && allocated(pond) == 3 * kMiB);
    pond.deallocate(one, memory, 3 * kMiB);
    CHECK(pond.allocate(one, 3 * kMiB, 512) == memory);
    CHECK(pond.allocate(two, 3 * kMiB) != memory);

    // It is freed on the other stream, whose work comes first.
    static std::atomic<bool> is_done{false};
    queue_work(two, is_done);
    pond.deallocate(two, memory, 3 * kMiB);
    CHECK(!is_done && pond.allocate(one, 3 * kMiB) != memory);
    two.sync();
    CHECK(is_done && pond.allocate(one, 3 * kMiB) == memory);
    CHECK(pond.allocate(one, 0) == nullptr);
    pond.deallocate(one, nullptr, 0);
}

// cudaStreamPerThread is another stream on each thread.
void each_thread_has_a_stream_of_its_own() {
    resource pond;
    const cuda::stream_ref one = new_stream(pond), own{cudaStreamPerThread};
    void *memory = pond.allocate(one, 5 * kMiB);
    static std::atomic<bool> is_done{false};
    queue_work(own, is_done);
    pond.deallocate(own, memory, 5 * kMiB);
    CHECK(!is_done && pond.allocate(one, 5 * kMiB) != memory);
    own.sync();
    CHECK(is_done && pond.allocate(one, 5 * kMiB) == memory);

    memory = pond.allocate(own, 5 * kMiB);
    pond.deallocate(own, memory, 5 * kMiB);
    std::thread([&] {
        void *other = pond.allocate(own, 5 * kMiB);
        CHECK(other != memory);
        pond.deallocate(own, other, 5 * kMiB);
        CHECK(pond.allocate(own, 5 * kMiB) == other);
        CHECK(millpond_stream_release(pond.get(), own.get()) == MILLPOND_OK);
    }).join();
    CHECK(pond.allocate(own, 5 * kMiB) == memory);

    // Freed on the stream of another thread, which has gone on until its end.
    is_done = false;
    std::thread([&] {
        use_device();
        queue_work(own, is_done);
        pond.deallocate(own, memory, 5 * kMiB);
    }).join();
    void *next = pond.allocate(own, 5 * kMiB);
    CHECK(is_done || next != memory);
}

void memory_without_a_stream_is_for_all() {
    resource pond;
    const cuda::stream_ref legacy{cudaStream_t{}};
    static std::atomic<bool> is_done{false};
    void *memory = pond.allocate(legacy, 7 * kMiB);
    queue_work(legacy, is_done);
    pond.deallocate(legacy, memory, 7 * kMiB);
    CHECK(!is_done && pond.allocate_sync(7 * kMiB) == memory && is_done);
    pond.deallocate_sync(memory, 7 * kMiB);
    pond.deallocate_sync(nullptr, 0);
    CHECK(pond.allocate(legacy, 7 * kMiB) == memory);
    pond.deallocate(cuda::stream_ref{cudaStreamLegacy}, memory, 7 * kMiB);
    // A thread that has not used CUDA yet may have no current context, which the runtime gives it.
    const int before = waits;
    std::thread([&] { pond.deallocate_sync(pond.allocate_sync(kMiB), kMiB); }).join();
    CHECK(waits == before + 1);
}

void what_fails_is_thrown() {
    resource pond;
    const cuda::stream_ref stream = new_stream(pond);
    for (std::size_t alignment : {0, 3, 48, 1024}) {
        CHECK(has(thrown<std::invalid_argument>([&] { (void)pond.allocate(stream, 1, alignment); }), "power of 2"));
    }
    auto too_much = [&] { (void)pond.allocate(stream, std::size_t{1} << 50); };
    CHECK(has(thrown<millpond::out_of_memory>(too_much), "out of memory on device 0"));
    CHECK(has(thrown<std::bad_alloc>(too_much), "out of memory on device 0"));
    millpond::basic_resource<no_memory> other;
    CHECK(has(thrown<no_memory>([&] { (void)other.allocate_sync(std::size_t{1} << 50); }), "out of memory"));
    CHECK(has(thrown<millpond::error>([] { resource(0, "policy:best"); }), "`best`"));
    try {
        resource(0, "policy:paged");
        CHECK(!"it has another configuration");
    } catch (const millpond::error &caught) {
        CHECK(caught.status() == MILLPOND_BAD_ARGUMENT && has(caught.what(), "`policy:classic`"));
    }
}

// A mistake of the program's is printed: the script looks for it.
void a_block_is_freed_twice() {
    resource pond;
    const cuda::stream_ref stream = new_stream(pond);
    void *memory = pond.allocate(stream, kMiB);
    pond.deallocate(stream, memory, kMiB);
    pond.deallocate(stream, memory, kMiB);
}

void others_hold_a_resource() {
    resource pond;
    const cuda::stream_ref stream = new_stream(pond);
    cuda::mr::resource_ref<cuda::mr::device_accessible> ref{pond};
    cuda::mr::any_resource<cuda::mr::device_accessible> any{pond};
    void *memory = ref.allocate(stream, kMiB, 256);
    const std::uint64_t before = allocated(pond);
    any.deallocate(stream, memory, kMiB, 256);
    CHECK(allocated(pond) == before - kMiB && any.allocate(stream, kMiB, 256) == memory);
    ref.deallocate(stream, memory, kMiB, 256);
    CHECK(any == cuda::mr::any_resource<cuda::mr::device_accessible>{resource{}});
}

cudaStream_t made_by_the_program() {
    void *stream = nullptr;
    CHECK(driver<int(void **, unsigned)>("cuStreamCreate")(&stream, 1) == 0);
    return static_cast<cudaStream_t>(stream);
}

void destroy(cudaStream_t stream) {
    CHECK(driver<int(void *)>("cuStreamDestroy_v2")(stream) == 0);
}

// The driver uses the handles again at once, and refuses a stream that is gone with a code that loses the device.
void streams_come_and_go() {
    resource pond;
    const std::uint64_t before = allocated(pond);
    const cuda::stream_ref kept = new_stream(pond);
    const cudaStream_t first = made_by_the_program();
    destroy(first);
    for (int turn = 0; turn < 300; ++turn) {
        const cudaStream_t stream = made_by_the_program(), second = made_by_the_program();
        CHECK(stream == first || second == first);
        void *memory = pond.allocate(stream, 9 * kMiB);
        void *other = pond.allocate(second, 9 * kMiB);
        pond.deallocate(stream, memory, 9 * kMiB);
        destroy(stream);
        // Freed on another stream than that of the allocation, and that one is gone.
        pond.deallocate(kept, other, 9 * kMiB);
        destroy(second);
        pond.deallocate(kept, pond.allocate(kept, (turn % 40 + 1) * kMiB), 0);
    }
    CHECK(millpond_poll(pond.get(), nullptr) == MILLPOND_OK);
    CHECK(millpond_trim(pond.get(), 0, nullptr) == MILLPOND_OK);
    CHECK(allocated(pond) == before);
}

// What a stream has done with memory comes first, though the stream is gone.
void work_of_a_stream_that_is_gone_counts() {
    resource pond;
    const cuda::stream_ref kept = new_stream(pond);
    const cudaStream_t stream = made_by_the_program();
    void *memory = pond.allocate(stream, 300 * kMiB);
    static std::atomic<bool> is_done{false};
    queue_work(stream, is_done);
    pond.deallocate(stream, memory, 300 * kMiB);
    destroy(stream);
    // A new stream of the same handle gets the memory, and waits.
    const cudaStream_t next = made_by_the_program();
    CHECK(next == stream && !is_done);
    CHECK(pond.allocate(next, 300 * kMiB) == memory);
    cuda::stream_ref{next}.sync();
    CHECK(is_done);
    is_done = false;
    queue_work(next, is_done);
    pond.deallocate(next, memory, 300 * kMiB);
    destroy(next);
    // Another one gets it where there is no other memory.
    CHECK(millpond_set_limit(pond.get(), 600 * kMiB) == MILLPOND_OK);
    void *again = pond.allocate(kept, 300 * kMiB);
    kept.sync();
    CHECK(is_done);
    pond.deallocate(kept, again, 300 * kMiB);
    CHECK(millpond_set_limit(pond.get(), UINT64_MAX) == MILLPOND_OK);
}

// Such a stream as others use, and as is released before it is destroyed.
void a_stream_that_is_passed_otherwise_lasts() {
    resource pond;
    const cudaStream_t stream = made_by_the_program();
    void *memory = pond.allocate(stream, 11 * kMiB);
    void *other = nullptr;
    CHECK(millpond_alloc(pond.get(), 13 * kMiB, stream, &other) == MILLPOND_OK);
    static std::atomic<bool> is_done{false};
    queue_work(stream, is_done);
    CHECK(millpond_free(pond.get(), other) == MILLPOND_OK);
    const cuda::stream_ref two = new_stream(pond);
    void *next = pond.allocate(two, 13 * kMiB);
    CHECK(next != other || is_done);
    pond.deallocate(two, next, 0);
    pond.deallocate(stream, memory, 0);
    CHECK(millpond_stream_release(pond.get(), stream) == MILLPOND_OK);
    destroy(stream);
    CHECK(millpond_stream_release(pond.get(), stream) == MILLPOND_BAD_ARGUMENT);
}

void threads() {
    const std::uint64_t before = allocated(resource{});
    std::vector<std::thread> all;
    for (int number = 0; number < 4; ++number) {
        all.emplace_back([] {
            resource pond;
            const cuda::stream_ref stream = new_stream(pond);
            for (std::size_t turn = 1; turn <= 2000; ++turn) {
                void *memory = pond.allocate(stream, turn * 700);
                pond.deallocate(stream, memory, turn * 700);
            }
        });
    }
    for (auto &thread : all) {
        thread.join();
    }
    CHECK(allocated(resource{}) == before);
}

} // namespace

int main() {
    resource(0, "policy:classic");
    use_device();
    equality();
    memory_is_granted_in_the_order_of_the_stream();
    each_thread_has_a_stream_of_its_own();
    memory_without_a_stream_is_for_all();
    what_fails_is_thrown();
    a_block_is_freed_twice();
    others_hold_a_resource();
    a_stream_that_is_passed_otherwise_lasts();
    work_of_a_stream_that_is_gone_counts();
    streams_come_and_go();
    threads();
    std::puts("the resource does what millpond.hpp says");
    return 0;
}
