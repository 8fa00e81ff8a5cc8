/* The functions of PyTorch's CUDAPluggableAllocator. Its errors are on standard error, where the test reads them. */
#include "check.h"

typedef void *allocates(ssize_t, int, void *);
typedef void frees(void *, ssize_t, int, void *);

int main(int argc, char **argv) {
    test_device(argc, argv);
    /* PyTorch finds the functions by their names. */
    allocates *alloc = (allocates *)dlsym(RTLD_DEFAULT, "millpond_torch_alloc");
    frees *release = (frees *)dlsym(RTLD_DEFAULT, "millpond_torch_free");
    CHECK(alloc != NULL && release != NULL);
    void *far = (void *)0x2000;

    release(NULL, 0, 0, NULL);
    release(far, 512, 0, NULL); /* Printed: nothing was allocated there. */
    CHECK(strstr(millpond_last_error(), "0x2000 is not the address") != NULL);
    CHECK(alloc(0, 0, NULL) == NULL);
    void *block = alloc(3 * (ssize_t)MIB, 0, NULL), *second = alloc(1000, 1, NULL);
    CHECK(block != NULL && second != NULL);

    millpond_allocator *pond, *other;
    millpond_stream stream;
    millpond_usage usage;
    OK(millpond_torch_allocator(0, &pond));
    OK(millpond_torch_allocator(1, &other));
    CHECK(pond != other);
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.allocated_bytes == 3 * MIB);
    OK(millpond_get_usage(other, &usage));
    CHECK(usage.allocated_bytes == 1024);
    FAILS(millpond_destroy(pond, NULL), MILLPOND_BAD_ARGUMENT, "live as long as the process");
    FAILS(millpond_torch_allocator(-1, &pond), MILLPOND_BAD_ARGUMENT, "-1 is no device");
    FAILS(millpond_torch_allocator(64, &pond), MILLPOND_BAD_ARGUMENT, "64 is no device");
    FAILS(millpond_torch_allocator(0, NULL), MILLPOND_BAD_ARGUMENT, "null pointer");

    /* The environment says policy:classic: a block that another stream uses is not free at once. */
    OK(millpond_stream_create(pond, &stream));
    millpond_torch_record_stream(block, stream);
    millpond_torch_record_stream(NULL, stream);
    millpond_torch_record_stream(second, NULL); /* Of another device, which is found by the address. */
    release(block, 3 * (ssize_t)MIB, 0, NULL);
    CHECK(figure(pond, "allocation.all.current") == 0 && figure(pond, "active.all.current") == 1);
    release(block, 3 * (ssize_t)MIB, 0, NULL); /* Printed: freed twice. */
    millpond_torch_record_stream(block, stream); /* Printed. */
    millpond_torch_empty_cache();
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.reserved_bytes == 0);
    release(second, 1000, 1, NULL);
    millpond_torch_empty_cache();
    OK(millpond_get_usage(other, &usage));
    CHECK(usage.allocated_bytes == 0 && usage.reserved_bytes == 0);

    CHECK(alloc((ssize_t)1 << 50, 0, NULL) == NULL); /* Printed: out of memory. */
    CHECK(strstr(millpond_last_error(), "out of memory") != NULL);
    CHECK(alloc(-1, 0, NULL) == NULL); /* Printed. */
    CHECK(alloc(512, 99, NULL) == NULL); /* Printed: 99 is no device. */

    millpond_torch_memory_fraction(0.0, 0);
    CHECK(alloc(512, 0, NULL) == NULL); /* Printed: nothing is allowed. */
    millpond_torch_memory_fraction(1.0, 0);
    block = alloc(512, 0, NULL);
    CHECK(block != NULL);
    release(block, 512, 0, NULL);
    millpond_torch_memory_fraction(1.5, 0); /* Printed. */
    millpond_torch_memory_fraction(0.5, -7); /* Printed. */
    return 0;
}
