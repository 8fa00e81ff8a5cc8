/* Groups: memory that goes back to the driver while it is paused, and returns to the same addresses. */
#include "check.h"

static millpond_group group(millpond_allocator *pond, const char *name) {
    millpond_group info;
    OK(millpond_get_group(pond, name, &info));
    return info;
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    millpond_allocator *pond;
    millpond_stream stream;
    millpond_pool pool, kv, other;
    void *weights, *cache, *again, *none;
    OK(millpond_create(device, "policy:paged", &pond));
    OK(millpond_stream_create(pond, &stream));
    OK(millpond_group_pool(pond, "weights", &pool));
    OK(millpond_group_pool(pond, "weights", &other));
    CHECK(pool == other);
    OK(millpond_group_pool(pond, "kv", &kv));
    CHECK(pool != kv);
    FAILS(millpond_group_pool(pond, NULL, &other), MILLPOND_BAD_ARGUMENT, "name");
    FAILS(millpond_group_pool(pond, "kv", NULL), MILLPOND_BAD_ARGUMENT, "out");

    OK(millpond_pool_alloc(pond, pool, 6 * MIB, stream, &weights));
    OK(millpond_pool_alloc(pond, kv, 30 * MIB, stream, &cache));
    CHECK(group(pond, "weights").reserved_bytes >= 6 * MIB && !group(pond, "weights").is_paused);
    FAILS(millpond_group_pause(pond, "kv", (millpond_keep)7), MILLPOND_BAD_ARGUMENT, "`keep` is 7");
    OK(millpond_group_pause(pond, "weights", MILLPOND_KEEP_ON_HOST));
    OK(millpond_group_pause(pond, "kv", MILLPOND_DISCARD));
    OK(millpond_group_pause(pond, "kv", MILLPOND_DISCARD));
    millpond_group info = group(pond, "weights");
    CHECK(info.is_paused && info.reserved_bytes == 0 && info.paused_bytes >= 6 * MIB && info.host_bytes >= 6 * MIB);
    CHECK(group(pond, "kv").host_bytes == 0 && group(pond, "kv").allocated_bytes >= 30 * MIB);
    FAILS(millpond_pool_alloc(pond, pool, MIB, stream, &none), MILLPOND_BAD_ARGUMENT, "\"weights\" is paused: resume it");
    FAILS(millpond_capture_begin(pond, kv, stream), MILLPOND_BAD_ARGUMENT, "is paused");
    OK(millpond_free(pond, cache));

    OK(millpond_set_limit(pond, 4 * MIB));
    FAILS(millpond_group_resume(pond, "weights"), MILLPOND_OUT_OF_MEMORY, "\"weights\" stays paused");
    OK(millpond_set_limit(pond, UINT64_MAX));
    OK(millpond_group_resume(pond, "weights"));
    OK(millpond_group_resume(pond, "kv"));
    CHECK(group(pond, "weights").paused_bytes == 0 && group(pond, "kv").allocated_bytes == 0);
    OK(millpond_free(pond, weights));
    OK(millpond_pool_alloc(pond, pool, 6 * MIB, stream, &again));
    CHECK(again == weights);
    OK(millpond_free(pond, again));

    OK(millpond_pool_create(pond, &other));
    OK(millpond_group_add(pond, "kv", other));
    FAILS(millpond_group_add(pond, "weights", other), MILLPOND_BAD_ARGUMENT, "another group");
    OK(millpond_pool_release(pond, other));
    OK(millpond_pool_release(pond, pool));
    OK(millpond_destroy(pond, NULL));

    OK(millpond_create(device, "policy:classic", &pond));
    FAILS(millpond_group_pool(pond, "kv", &pool), MILLPOND_UNSUPPORTED, "policy:paged");
    OK(millpond_destroy(pond, NULL));
    return 0;
}
