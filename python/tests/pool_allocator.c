/* An allocator for torch.cuda.memory.CUDAPluggableAllocator, for sources.py. Its memory is the driver's, or, on a
 * machine without a GPU, addresses alone. It counts its calls and the bytes that it has given. */
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

typedef int (*Alloc)(uint64_t *address, size_t bytes);
typedef int (*Free)(uint64_t address);

static Alloc driver_alloc;
static Free driver_free;
static long allocs, frees, bytes_given, bytes_allowed;

/* Begins to count anew, with this number of bytes to give. */
void pool_begin(long allowed, int has_gpu) {
    void *driver = has_gpu ? dlopen("libcuda.so.1", RTLD_NOW) : 0;
    driver_alloc = driver != 0 ? (Alloc)dlsym(driver, "cuMemAlloc_v2") : 0;
    driver_free = driver != 0 ? (Free)dlsym(driver, "cuMemFree_v2") : 0;
    allocs = frees = bytes_given = 0;
    bytes_allowed = allowed;
}

void pool_allow(long allowed) {
    bytes_allowed = allowed;
}

void *pool_alloc(ssize_t size, int device, void *stream) {
    (void)device, (void)stream;
    if (bytes_given + size > bytes_allowed) {
        return 0;
    }
    uint64_t address = 0;
    if (driver_alloc != 0) {
        if (driver_alloc(&address, (size_t)size) != 0) {
            return 0;
        }
    } else {
        void *reserved = mmap(0, (size_t)size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        address = reserved == MAP_FAILED ? 0 : (uint64_t)(uintptr_t)reserved;
    }
    allocs += address != 0;
    bytes_given += address != 0 ? size : 0;
    return (void *)(uintptr_t)address;
}

void pool_free(void *memory, ssize_t size, int device, void *stream) {
    (void)device, (void)stream;
    frees += 1;
    bytes_given -= size;
    if (driver_free != 0) {
        driver_free((uint64_t)(uintptr_t)memory);
    } else {
        munmap(memory, (size_t)size);
    }
}

long pool_allocs(void) {
    return allocs;
}

long pool_frees(void) {
    return frees;
}

long pool_bytes(void) {
    return bytes_given;
}
