/* Blocks at multiples of an alignment. */
#include "check.h"

static const uint64_t ALIGNMENTS[] = {1, 256, 512, 1024, 4096, 65536, 2 * MIB};
enum { COUNT = sizeof ALIGNMENTS / sizeof *ALIGNMENTS };

/* The block that has an address in it begins at `block` and has at least `bytes` bytes. */
static void lies_at(millpond_allocator *pond, void *address, void *block, uint64_t bytes) {
    void *start;
    uint64_t length;
    OK(millpond_find(pond, address, &start, &length));
    CHECK(start == block && length >= bytes);
}

static void blocks(millpond_allocator *pond) {
    void *between[COUNT], *aligned[COUNT];
    for (int at = 0; at < COUNT; at += 1) {
        uint64_t bytes = 1000 + 5000 * (uint64_t)at;
        OK(millpond_alloc(pond, 512, NULL, &between[at]));
        OK(millpond_alloc_aligned(pond, bytes, ALIGNMENTS[at], NULL, &aligned[at]));
        CHECK(aligned[at] != NULL && (uintptr_t)aligned[at] % ALIGNMENTS[at] == 0);
        lies_at(pond, aligned[at], aligned[at], bytes);
        lies_at(pond, (char *)aligned[at] + bytes - 1, aligned[at], bytes);
    }
    for (int at = 0; at < COUNT; at += 1) {
        FAILS(millpond_free(pond, (char *)aligned[at] + 512), MILLPOND_NOT_A_BLOCK, "not the address");
        OK(millpond_free(pond, aligned[at]));
        OK(millpond_free(pond, between[at]));
        FAILS(millpond_free(pond, aligned[at]), MILLPOND_NOT_A_BLOCK, "not the address");
        FAILS(millpond_find(pond, aligned[at], NULL, NULL), MILLPOND_NOT_A_BLOCK, "");
    }
    CHECK(figure(pond, "allocated_bytes.all.current") == 0);
}

static void refused(millpond_allocator *pond) {
    static const uint64_t WRONG[] = {0, 3, 768, 2 * 1024 * MIB, UINT64_MAX};
    void *block = &block;
    for (size_t at = 0; at < sizeof WRONG / sizeof *WRONG; at += 1) {
        FAILS(millpond_alloc_aligned(pond, MIB, WRONG[at], NULL, &block), MILLPOND_BAD_ARGUMENT, "power of two");
        FAILS(millpond_alloc_aligned(pond, 0, WRONG[at], NULL, &block), MILLPOND_BAD_ARGUMENT, "power of two");
    }
    CHECK(block == &block);
    OK(millpond_alloc_aligned(pond, 0, 4096, NULL, &block));
    CHECK(block == NULL);
    FAILS(millpond_alloc_aligned(pond, MIB, 4096, NULL, NULL), MILLPOND_BAD_ARGUMENT, "`out`");
    FAILS(millpond_alloc_aligned(pond, UINT64_MAX, 4096, NULL, &block), MILLPOND_OUT_OF_MEMORY, "bytes");
    FAILS(millpond_alloc_aligned(NULL, MIB, 4096, NULL, &block), MILLPOND_BAD_ALLOCATOR, "null pointer");
}

/* What was freed serves requests of any alignment, and an aligned block grows at its address. */
static void reused(millpond_allocator *pond) {
    void *first, *second;
    OK(millpond_alloc_aligned(pond, 3 * MIB, 65536, NULL, &first));
    lies_at(pond, first, first, 3 * MIB);
    long long reserved = figure(pond, "reserved_bytes.all.current");
    OK(millpond_free(pond, first));
    OK(millpond_alloc(pond, 3 * MIB, NULL, &second));
    CHECK(figure(pond, "reserved_bytes.all.current") <= reserved);
    OK(millpond_free(pond, second));
    OK(millpond_alloc_aligned(pond, 3 * MIB, 65536, NULL, &first));
    if (millpond_grow(pond, first, MIB) == MILLPOND_OK) {
        lies_at(pond, first, first, 4 * MIB);
    }
    OK(millpond_free(pond, first));
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    static const char *const POLICIES[] = {"policy:paged", "policy:classic", "policy:direct"};
    for (size_t at = 0; at < sizeof POLICIES / sizeof *POLICIES; at += 1) {
        millpond_allocator *pond;
        uint64_t live;
        void *kept;
        OK(millpond_create(device, POLICIES[at], &pond));
        blocks(pond);
        refused(pond);
        reused(pond);
        OK(millpond_alloc_aligned(pond, MIB, 4096, NULL, &kept));
        OK(millpond_destroy(pond, &live));
        CHECK(live == 1);
    }
    return 0;
}
