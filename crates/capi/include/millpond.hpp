/* Millpond as a memory resource of CCCL, for programs in C++ and for RMM from version 26.06 on.
 *
 *     millpond::resource pond;                 // the current device, in the configuration of the process
 *     void *memory = pond.allocate(stream, 1 << 20);
 *     ... launch work on the stream ...
 *     pond.deallocate(stream, memory, 1 << 20);                 // at once: the work need not be over
 *
 * and, with RMM, for all that allocates from its current resource:
 *
 *     rmm::mr::set_current_device_resource(millpond::basic_resource<rmm::out_of_memory>{});
 *
 * The header needs C++17 and CCCL 3.4 or newer, which RMM from 26.06 on and CUDA bring; and libmillpond and CUDA's
 * runtime when a program is linked. A resource is as long as a pointer, is copied freely, and owns nothing. Its functions
 * may be called from any thread, as those of millpond.h, which explains streams, threads and `fork`.
 *
 * ERRORS. What finds no memory throws OutOfMemory, whose text says what holds the memory. Any other failure throws
 * millpond::error. The functions that give memory back cannot throw. They print a mistake of the program's, such as a
 * block that is freed twice, to standard error.
 *
 * STREAMS. A stream may be destroyed at any time after the last call with it, as with RMM's own resources; nothing is
 * released for it. The functions are those of millpond_alloc_async and millpond_free_async.
 *
 * COSTS. Those of millpond.h: a few driver calls that do not wait, on a stream that the program has made, and tens of
 * nanoseconds on a default stream.
 */
#ifndef MILLPOND_HPP
#define MILLPOND_HPP

#include "millpond.h"

#include <cuda/memory_resource>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <new>
#include <stdexcept>

namespace millpond {

/* There is no memory for a request. */
class out_of_memory : public std::bad_alloc {
public:
    explicit out_of_memory(const char *text) : text_(text) {}

    const char *what() const noexcept override {
        return text_.what();
    }

private:
    std::runtime_error text_; /* A text that is copied without an exception. */
};

/* A call failed, though not for want of memory. */
class error : public std::runtime_error {
public:
    error(millpond_status status, const char *text) : std::runtime_error(text), status_(status) {}

    /* Returns why: MILLPOND_BAD_ARGUMENT and so on. */
    millpond_status status() const noexcept {
        return status_;
    }

private:
    millpond_status status_;
};

/* An allocator as a resource: a cuda::mr::resource of device memory.
 *
 * OutOfMemory is what is thrown when there is no memory; it is made from a text. RMM's adaptors look for
 * rmm::out_of_memory. */
template <class OutOfMemory = out_of_memory>
class basic_resource {
public:
    /* Takes the allocator of the device that is the current one now, as RMM's resources do. Throws error. */
    basic_resource() : basic_resource(current_device()) {}

    /* Takes the allocator of a device that the whole process shares, as millpond_shared does. Throws error. */
    explicit basic_resource(int device, const char *conf = nullptr) {
        check(millpond_shared(device, conf, &pond_));
    }

    /* Takes an allocator, such as one of millpond_create. It must outlive the resource and its copies. */
    explicit basic_resource(millpond_allocator *pond) noexcept : pond_(pond) {}

    /* Returns the allocator, for the functions of millpond.h: limits, statistics, millpond_stream_release. */
    millpond_allocator *get() const noexcept {
        return pond_;
    }

    /* Allocates at least `bytes` bytes for use on a stream, at a multiple of 512, so that `alignment` is at most 512 and
     * a power of 2; millpond_alloc_aligned serves larger ones. 0 bytes are NULL. Throws OutOfMemory, error, and
     * std::invalid_argument for another alignment. */
    [[nodiscard]] void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = kAlignment) {
        if (alignment == 0 || alignment > kMostAlignment || (alignment & (alignment - 1)) != 0) {
            throw std::invalid_argument("millpond: an alignment is a power of 2 up to 512");
        }
        void *memory = nullptr;
        check(millpond_alloc_async(pond_, bytes, stream.get(), &memory));
        return memory;
    }

    /* Frees what `allocate` returned; NULL does nothing. Work that uses it on this stream need not be over, nor work on
     * other streams that this one waits for. The streams may be destroyed at once. The bytes and the alignment are not
     * looked at. */
    void deallocate(cuda::stream_ref stream, void *memory, std::size_t, std::size_t = kAlignment) noexcept {
        told(millpond_free_async(pond_, memory, stream.get()));
    }

    /* Allocates memory that any stream may use at once, and waits for the legacy default stream. The device of the
     * allocator is the current one. Throws as `allocate` does, and cuda::cuda_error. */
    [[nodiscard]] void *allocate_sync(std::size_t bytes, std::size_t alignment = kAlignment) {
        void *memory = allocate(cuda::stream_ref{cudaStream_t{}}, bytes, alignment);
        // CUDA's runtime also serves a thread that has not used CUDA before. The driver's call, which is behind the sync()
        // of a stream_ref, fails there: no context is current.
        const cudaError_t code = cudaStreamSynchronize(cudaStreamLegacy);
        if (code != cudaSuccess) {
            give_back(memory);
            throw cuda::cuda_error(code, "millpond cannot wait for the default stream");
        }
        return memory;
    }

    /* Frees what `allocate_sync` returned. No work uses it any more. */
    void deallocate_sync(void *memory, std::size_t, std::size_t = kAlignment) noexcept {
        give_back(memory);
    }

    /* Returns whether what one allocates may be freed by the other: whether both are the same allocator. */
    friend bool operator==(const basic_resource &one, const basic_resource &other) noexcept {
        return one.pond_ == other.pond_;
    }

    friend bool operator!=(const basic_resource &one, const basic_resource &other) noexcept {
        return one.pond_ != other.pond_;
    }

    friend constexpr void get_property(const basic_resource &, cuda::mr::device_accessible) noexcept {}

private:
    static constexpr std::size_t kAlignment = 256;
    static constexpr std::size_t kMostAlignment = 512;

    /* Device 0, where CUDA cannot tell: to open that one says why. */
    static int current_device() noexcept {
        int device = 0;
        return cudaGetDevice(&device) == cudaSuccess ? device : 0;
    }

    static void check(millpond_status status) {
        if (status == MILLPOND_OUT_OF_MEMORY) {
            throw OutOfMemory(millpond_last_error());
        }
        if (status != MILLPOND_OK) {
            throw error(status, millpond_last_error());
        }
    }

    void give_back(void *memory) noexcept {
        told(millpond_free(pond_, memory));
    }

    static void told(millpond_status status) noexcept {
        /* A child of `fork` drops what it has inherited, and a device that is lost takes all along. */
        if (status != MILLPOND_OK && status != MILLPOND_BAD_ALLOCATOR && status != MILLPOND_DEVICE_LOST) {
            std::fprintf(stderr, "millpond: %s\n", millpond_last_error());
        }
    }

    millpond_allocator *pond_ = nullptr;
};

using resource = basic_resource<>;

static_assert(cuda::mr::synchronous_resource_with<resource, cuda::mr::device_accessible>);
static_assert(cuda::mr::resource_with<resource, cuda::mr::device_accessible>);

} // namespace millpond

#endif
