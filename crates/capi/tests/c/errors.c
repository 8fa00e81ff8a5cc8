/* Mistakes of a program are errors with a text, and change nothing. */
#include "check.h"

static void creation(const char *device) {
    millpond_allocator *pond = (millpond_allocator *)8;
    FAILS(millpond_create(NULL, "", &pond), MILLPOND_BAD_ARGUMENT, "`device` is a null pointer");
    FAILS(millpond_create(device, "", NULL), MILLPOND_BAD_ARGUMENT, "`out` is a null pointer");
    FAILS(millpond_create("\xFF", "", &pond), MILLPOND_BAD_ARGUMENT, "`device` is not UTF-8");
    FAILS(millpond_create(device, "\xFF", &pond), MILLPOND_BAD_ARGUMENT, "`conf` is not UTF-8");
    FAILS(millpond_create("toaster", "", &pond), MILLPOND_BAD_ARGUMENT, "`toaster` is no device");
    FAILS(millpond_create("sim:64", "", &pond), MILLPOND_BAD_ARGUMENT, "`sim:64` names no simulated device");
    FAILS(millpond_create("cuda:x", "", &pond), MILLPOND_BAD_ARGUMENT, "`cuda:x` names no CUDA device");
    FAILS(millpond_create("vulkan", "", &pond), MILLPOND_UNSUPPORTED, "no addresses");
    FAILS(millpond_create(device, "policy:best", &pond), MILLPOND_BAD_ARGUMENT, "best");
    FAILS(millpond_create(device, "max_split_size_mb:1", &pond), MILLPOND_BAD_ARGUMENT, "max_split_size_mb");
    FAILS(millpond_create("cuda:99", "", &pond), MILLPOND_NO_DEVICE, "CUDA");
    CHECK(pond == (millpond_allocator *)8); /* What fails writes nothing. */
}

static void null_pointers(millpond_allocator *pond) {
    void *block = NULL;
    const char *null = "is a null pointer";
    FAILS(millpond_alloc(pond, 512, NULL, NULL), MILLPOND_BAD_ARGUMENT, null);
    FAILS(millpond_stream_create(pond, NULL), MILLPOND_BAD_ARGUMENT, null);
    FAILS(millpond_get_usage(pond, NULL), MILLPOND_BAD_ARGUMENT, null);
    FAILS(millpond_stats_json(pond, NULL), MILLPOND_BAD_ARGUMENT, null);
    FAILS(millpond_summary(pond, 0, NULL), MILLPOND_BAD_ARGUMENT, null);
    FAILS(millpond_alloc(NULL, 512, NULL, &block), MILLPOND_BAD_ALLOCATOR, "the allocator is a null pointer");
    FAILS(millpond_free(NULL, &block), MILLPOND_BAD_ALLOCATOR, "the allocator is a null pointer");
    CHECK(block == NULL);
}

static void addresses(const char *device, millpond_allocator *pond) {
    millpond_allocator *other;
    void *block, *second, *foreign;
    char *host = malloc(4096);
    OK(millpond_create(strncmp(device, "cuda", 4) == 0 ? "cuda:1" : "sim:1", "", &other));
    OK(millpond_alloc(pond, 3 * MIB, NULL, &block));
    OK(millpond_alloc(pond, 512, NULL, &second));
    OK(millpond_alloc(other, 3 * MIB, NULL, &foreign));

    void *wrong[] = {(char *)block + 1, (char *)block + 512, (char *)block + 2 * MIB, &block, host, foreign, (void *)1,
                     (void *)~(uintptr_t)0, (void *)((uintptr_t)1 << 60), (void *)((uintptr_t)1 << 57)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FAILS(millpond_free(pond, wrong[i]), MILLPOND_NOT_A_BLOCK, "is not the address of a live block");
        FAILS(millpond_record_stream(pond, wrong[i], NULL), MILLPOND_NOT_A_BLOCK, "is not the address");
    }
    FAILS(millpond_record_stream(pond, NULL, NULL), MILLPOND_NOT_A_BLOCK, "is not the address");
    FAILS(millpond_find(pond, NULL, NULL, NULL), MILLPOND_NOT_A_BLOCK, "is not the address");

    OK(millpond_free(pond, block));
    FAILS(millpond_free(pond, block), MILLPOND_NOT_A_BLOCK, "it was freed before");
    FAILS(millpond_record_stream(pond, block, NULL), MILLPOND_NOT_A_BLOCK, "it was freed before");
    CHECK(figure(pond, "allocation.all.current") == 1);
    OK(millpond_free(pond, second));
    OK(millpond_destroy(other, NULL));
    free(host);
}

static void streams(const char *device, millpond_allocator *pond) {
    void *block = NULL;
    millpond_stream stream;
    int is_cuda = strncmp(device, "cuda", 4) == 0;
    OK(millpond_stream_create(pond, &stream));
    FAILS(millpond_stream_release(pond, NULL), MILLPOND_BAD_ARGUMENT, "the default stream");
    FAILS(millpond_stream_release(pond, (millpond_stream)0x123450), MILLPOND_BAD_ARGUMENT, "was not used");
    /* A real driver may follow a pointer that is no stream; the simulated one knows its streams. */
    FAILS(millpond_alloc(pond, 512, (millpond_stream)0x123450, &block), MILLPOND_BAD_ARGUMENT, "");
    OK(millpond_alloc(pond, 512, stream, &block));
    FAILS(millpond_record_stream(pond, block, (millpond_stream)0x123450), MILLPOND_BAD_ARGUMENT, "");
    if (is_cuda) {
        void *legacy;
        OK(millpond_alloc(pond, 512, (millpond_stream)1, &legacy)); /* CU_STREAM_LEGACY */
        OK(millpond_free(pond, legacy));
        FAILS(millpond_stream_release(pond, (millpond_stream)1), MILLPOND_BAD_ARGUMENT, "the default stream");
        FAILS(millpond_stream_release(pond, (millpond_stream)2), MILLPOND_BAD_ARGUMENT, "was not used");
    }
    OK(millpond_free(pond, block));
    OK(millpond_stream_release(pond, stream));
    if (!is_cuda) { /* The driver may crash where it is asked about a stream that was destroyed. */
        FAILS(millpond_alloc(pond, 512, stream, &block), MILLPOND_BAD_ARGUMENT, "was released");
    }
}

static void memory(millpond_allocator *pond) {
    void *block = NULL, *kept;
    millpond_usage before, after;
    OK(millpond_alloc(pond, 20 * MIB, NULL, &kept));
    OK(millpond_get_usage(pond, &before));
    FAILS(millpond_alloc(pond, (uint64_t)1 << 50, NULL, &block), MILLPOND_OUT_OF_MEMORY, "out of memory");
    FAILS(millpond_alloc(pond, (uint64_t)1 << 60, NULL, &block), MILLPOND_OUT_OF_MEMORY, "2^60");
    FAILS(millpond_alloc(pond, UINT64_MAX, NULL, &block), MILLPOND_OUT_OF_MEMORY, "2^60");
    OK(millpond_get_usage(pond, &after));
    CHECK(block == NULL && after.allocated_bytes == before.allocated_bytes);

    OK(millpond_set_limit(pond, 64 * MIB));
    FAILS(millpond_alloc(pond, 50 * MIB, NULL, &block), MILLPOND_OUT_OF_MEMORY, "64.00 MiB allowed");
    OK(millpond_free(pond, kept));
    OK(millpond_alloc(pond, 50 * MIB, NULL, &block)); /* Freeing something lets the request succeed. */
    OK(millpond_set_limit(pond, UINT64_MAX));
    OK(millpond_alloc(pond, 50 * MIB, NULL, &kept));
    OK(millpond_free(pond, block));
    OK(millpond_free(pond, kept));
    CHECK(figure(pond, "num_ooms") == 2);
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    millpond_allocator *pond;
    creation(device);
    OK(millpond_create(device, "policy:paged", &pond));
    null_pointers(pond);
    addresses(device, pond);
    streams(device, pond);
    memory(pond);
    OK(millpond_destroy(pond, NULL));
    return 0;
}
