/* Blocks that become longer at their address. */
#include "check.h"

static uint64_t length(millpond_allocator *pond, void *block) {
    uint64_t bytes;
    OK(millpond_find(pond, block, NULL, &bytes));
    return bytes;
}

static void growable(millpond_allocator *pond) {
    void *cache, *other, *start;
    uint64_t bytes;
    OK(millpond_alloc_growable(pond, 3 * MIB, 64 * MIB, NULL, &cache));
    CHECK(cache != NULL && length(pond, cache) == 4 * MIB);
    OK(millpond_alloc(pond, 5 * MIB, NULL, &other));
    CHECK((char *)other < (char *)cache || (char *)other >= (char *)cache + 64 * MIB);

    OK(millpond_grow(pond, cache, MIB)); /* Its last page has room for that. */
    CHECK(length(pond, cache) == 4 * MIB);
    for (int step = 0; step < 30; step += 1) {
        long long calls = figure(pond, "driver.calls");
        OK(millpond_grow(pond, cache, 2 * MIB));
        CHECK(figure(pond, "driver.calls") == calls + 2);
    }
    CHECK(figure(pond, "requested_bytes.all.current") == (long long)(69 * MIB));
    OK(millpond_find(pond, (char *)cache + 64 * MIB - 1, &start, &bytes));
    CHECK(start == cache && bytes == 64 * MIB);
    FAILS(millpond_grow(pond, cache, 1), MILLPOND_NO_ROOM, "grow by 1");
    CHECK(length(pond, cache) == 64 * MIB);

    OK(millpond_free(pond, cache));
    OK(millpond_free(pond, other));
    FAILS(millpond_grow(pond, cache, 1), MILLPOND_NOT_A_BLOCK, "not the address");
    FAILS(millpond_grow(pond, NULL, 1), MILLPOND_NOT_A_BLOCK, "not the address");
    FAILS(millpond_alloc_growable(pond, 1, 2, NULL, NULL), MILLPOND_BAD_ARGUMENT, "`out`");
}

static void ordinary(millpond_allocator *pond) {
    void *block, *next;
    OK(millpond_alloc(pond, 3 * MIB, NULL, &block));
    OK(millpond_alloc(pond, 3 * MIB, NULL, &next));
    FAILS(millpond_grow(pond, block, MIB), MILLPOND_NO_ROOM, "millpond_alloc_growable");
    OK(millpond_free(pond, next));
    OK(millpond_grow(pond, block, MIB));
    CHECK(length(pond, block) == 4 * MIB);
    OK(millpond_free(pond, block));
}

static void within_a_limit(millpond_allocator *pond) {
    void *cache;
    OK(millpond_empty_cache(pond));
    OK(millpond_set_limit(pond, 8 * MIB));
    OK(millpond_alloc_growable(pond, 0, 64 * MIB, NULL, &cache));
    OK(millpond_grow(pond, cache, 8 * MIB));
    FAILS(millpond_grow(pond, cache, 1), MILLPOND_OUT_OF_MEMORY, "out of memory");
    CHECK(length(pond, cache) == 8 * MIB);
    OK(millpond_free(pond, cache));
    OK(millpond_set_limit(pond, UINT64_MAX));
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    millpond_allocator *pond;
    OK(millpond_create(device, "policy:paged", &pond));
    growable(pond);
    ordinary(pond);
    within_a_limit(pond);
    OK(millpond_destroy(pond, NULL));

    void *cache;
    OK(millpond_create(device, "policy:classic", &pond));
    FAILS(millpond_alloc_growable(pond, MIB, 64 * MIB, NULL, &cache), MILLPOND_UNSUPPORTED, "paged");
    OK(millpond_destroy(pond, NULL));
    return 0;
}
