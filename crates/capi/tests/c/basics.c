/* What a program does: blocks, streams, statistics, cached memory. */
#include "check.h"

static void versions(void) {
    CHECK(millpond_abi() == MILLPOND_ABI);
    CHECK(strchr(millpond_version(), '.') != NULL);
    CHECK(strcmp(millpond_last_error(), "") == 0);
    millpond_string_free(NULL);
}

/* On the stand-in for the driver there are two devices. Elsewhere there may be any, or no driver. */
static void devices(int is_stand_in) {
    char *json = NULL;
    FAILS(millpond_devices_json(NULL), MILLPOND_BAD_ARGUMENT, "out");
    millpond_status status = millpond_devices_json(&json);
    if (is_stand_in) {
        OK(status);
        CHECK(strstr(json, "\"driver\":\"") != NULL && strstr(json, "\"virtual_memory\":true") != NULL);
        CHECK(strstr(json, "\"ordinal\":0") != NULL && strstr(json, "\"ordinal\":1") != NULL);
        CHECK(strstr(json, "\"name\":\"Millpond CUDA simulator 1\"") != NULL);
        CHECK(strstr(json, "\"total_bytes\":") != NULL && strstr(json, "\"compute\":\"") != NULL);
    } else {
        CHECK(status == MILLPOND_OK ? json != NULL : json == NULL && strstr(millpond_last_error(), "driver") != NULL);
    }
    millpond_string_free(json);
}

static void blocks(millpond_allocator *pond) {
    void *small, *large, *nothing = &small, *start;
    uint64_t bytes;
    OK(millpond_alloc(pond, 1000, NULL, &small));
    OK(millpond_alloc(pond, 5 * MIB, NULL, &large));
    OK(millpond_alloc(pond, 0, NULL, &nothing));
    CHECK(small != NULL && large != NULL && small != large && nothing == NULL);
    CHECK((uintptr_t)small % 512 == 0 && (uintptr_t)large % 512 == 0);

    OK(millpond_find(pond, small, &start, &bytes));
    CHECK(start == small && bytes == 1024);
    const uint64_t inside[] = {0, 1, 511, 4096, 2 * MIB, 3 * MIB + 7, 5 * MIB - 1};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        OK(millpond_find(pond, (char *)large + inside[i], &start, &bytes));
        CHECK(start == large && bytes == 5 * MIB);
    }
    OK(millpond_find(pond, large, NULL, NULL));
    FAILS(millpond_find(pond, (char *)small + 1024, &start, &bytes), MILLPOND_NOT_A_BLOCK, "not the address");

    OK(millpond_free(pond, small));
    OK(millpond_free(pond, large));
    OK(millpond_free(pond, NULL));
    FAILS(millpond_find(pond, small, &start, &bytes), MILLPOND_NOT_A_BLOCK, "not the address");

    void *again;
    OK(millpond_alloc(pond, 1000, NULL, &again));
    CHECK(again == small); /* Freed memory is granted again on its stream at once. */
    OK(millpond_free(pond, again));
}

static void statistics(millpond_allocator *pond) {
    millpond_usage usage;
    void *block;
    OK(millpond_empty_cache(pond));
    OK(millpond_reset_peaks(pond));
    OK(millpond_reset_totals(pond));
    OK(millpond_alloc(pond, 3 * MIB, NULL, &block));
    OK(millpond_free(pond, block));
    OK(millpond_alloc(pond, 2 * MIB, NULL, &block));
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.allocated_bytes == 2 * MIB && usage.max_allocated_bytes == 3 * MIB);
    CHECK(usage.reserved_bytes >= 3 * MIB && usage.max_reserved_bytes == usage.reserved_bytes);
    CHECK(figure(pond, "allocated_bytes.all.current") == (long long)(2 * MIB));
    CHECK(figure(pond, "allocation.all.allocated") == 2 && figure(pond, "allocation.all.freed") == 1);
    CHECK(figure(pond, "reserved_bytes.all.peak") == (long long)usage.max_reserved_bytes);
    CHECK(figure(pond, "driver.calls") > 0);
    OK(millpond_reset_peaks(pond));
    OK(millpond_reset_totals(pond));
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.max_allocated_bytes == 2 * MIB);
    CHECK(figure(pond, "allocation.all.allocated") == 0);
    OK(millpond_free(pond, block));

    char *full, *brief;
    OK(millpond_summary(pond, 0, &full));
    OK(millpond_summary(pond, 1, &brief));
    CHECK(strstr(full, "Millpond") != NULL && strstr(full, "Allocated memory") != NULL);
    CHECK(strlen(brief) < strlen(full));
    millpond_string_free(full);
    millpond_string_free(brief);
}

/* Peaks of parts of a program that overlap, with a reset of all others between. */
static void peaks(millpond_allocator *pond) {
    millpond_peak outer = 0, inner = 0;
    millpond_usage usage, all;
    void *block;
    char *json;
    OK(millpond_peak_open(pond, &outer));
    OK(millpond_alloc(pond, 8 * MIB, NULL, &block));
    OK(millpond_free(pond, block));
    OK(millpond_peak_open(pond, &inner));
    CHECK(outer != 0 && inner != 0 && inner != outer);
    OK(millpond_reset_peaks(pond));
    OK(millpond_alloc(pond, 3 * MIB, NULL, &block));
    OK(millpond_free(pond, block));
    OK(millpond_peak_usage(pond, outer, &usage));
    CHECK(usage.allocated_bytes == 0 && usage.max_allocated_bytes == 8 * MIB && usage.max_reserved_bytes >= 8 * MIB);
    OK(millpond_peak_close(pond, outer));
    FAILS(millpond_peak_close(pond, outer), MILLPOND_BAD_ARGUMENT, "not open");
    FAILS(millpond_peak_usage(pond, outer, &usage), MILLPOND_BAD_ARGUMENT, "not open");
    OK(millpond_peak_usage(pond, inner, &usage));
    OK(millpond_get_usage(pond, &all));
    CHECK(usage.max_allocated_bytes == 3 * MIB && all.max_allocated_bytes == 3 * MIB);
    OK(millpond_peak_json(pond, inner, &json));
    CHECK(strstr(json, "\"allocated_bytes.all.peak\": 3145728") != NULL && strstr(json, "pages.") == NULL);
    millpond_string_free(json);
    FAILS(millpond_peak_open(pond, NULL), MILLPOND_BAD_ARGUMENT, "out");
    /* The inner scope is left to the end of the allocator. */
}

static void cache(millpond_allocator *pond) {
    void *block, *kept;
    uint64_t reserved = 0;
    millpond_usage usage;
    OK(millpond_alloc(pond, 40 * MIB, NULL, &block));
    OK(millpond_alloc(pond, 40 * MIB, NULL, &kept));
    OK(millpond_free(pond, block));
    OK(millpond_trim(pond, UINT64_MAX, NULL));
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.reserved_bytes >= 80 * MIB);
    OK(millpond_trim(pond, 0, &reserved));
    CHECK(reserved >= 40 * MIB && reserved < 80 * MIB);
    OK(millpond_free(pond, kept));
    OK(millpond_empty_cache(pond));
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.allocated_bytes == 0 && usage.reserved_bytes == 0);
}

static void streams(millpond_allocator *pond) {
    millpond_stream one, other;
    void *block, *elsewhere;
    OK(millpond_stream_create(pond, &one));
    OK(millpond_stream_create(pond, &other));
    CHECK(one != NULL && other != NULL && one != other);
    OK(millpond_alloc(pond, 4 * MIB, one, &block));
    OK(millpond_alloc(pond, 4 * MIB, other, &elsewhere));
    OK(millpond_record_stream(pond, block, other));
    OK(millpond_record_stream(pond, block, other));
    OK(millpond_record_stream(pond, block, one));
    OK(millpond_record_stream(pond, block, NULL));
    OK(millpond_free(pond, block));

    OK(millpond_stream_release(pond, other));
    FAILS(millpond_stream_release(pond, other), MILLPOND_BAD_ARGUMENT, "released before");
    OK(millpond_free(pond, elsewhere)); /* Blocks of a released stream are freed as ever. */
    OK(millpond_stream_release(pond, one));
    OK(millpond_empty_cache(pond));
}

/* Memory that nothing needs goes back at polls, if the configuration says so. */
static void idle(const char *device) {
    millpond_allocator *pond;
    millpond_usage usage;
    uint64_t released = 1, sum = 0;
    void *block;
    OK(millpond_create(device, "policy:paged", &pond));
    OK(millpond_poll(pond, &released));
    CHECK(released == 0 && figure(pond, "idle.since_last_nanoseconds") == -1);
    OK(millpond_destroy(pond, NULL));
    OK(millpond_create(device, "policy:paged,release_idle_after:1ms,keep_idle_mb:10", &pond));
    OK(millpond_poll(pond, NULL));
    OK(millpond_alloc(pond, 200 * MIB, NULL, &block));
    OK(millpond_free(pond, block));
    while (sum == 0) {
        OK(millpond_poll(pond, &released));
        sum += released;
    }
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.reserved_bytes >= 10 * MIB && usage.reserved_bytes + sum == 200 * MIB);
    CHECK(figure(pond, "idle.releases") == 1 && figure(pond, "idle.released_bytes") == (long long)sum);
    CHECK(figure(pond, "idle.since_last_nanoseconds") >= 0);
    OK(millpond_destroy(pond, NULL));
}

/* A freed block that another stream may still use is not free at once where streams do not wait for each other. */
static void recorded(const char *device) {
    millpond_allocator *pond;
    millpond_stream other;
    void *block;
    OK(millpond_create(device, "policy:classic", &pond));
    OK(millpond_stream_create(pond, &other));
    OK(millpond_alloc(pond, 4 * MIB, NULL, &block));
    OK(millpond_free(pond, block));
    CHECK(figure(pond, "active.all.current") == 0);
    OK(millpond_alloc(pond, 4 * MIB, NULL, &block));
    OK(millpond_record_stream(pond, block, other));
    OK(millpond_free(pond, block));
    CHECK(figure(pond, "allocation.all.current") == 0 && figure(pond, "active.all.current") == 1);
    OK(millpond_destroy(pond, NULL));
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    const char *confs[] = {"", "policy:paged", "policy:classic", "policy:direct", "policy:paged,growth:tight", NULL};
    versions();
    devices(argc >= 3);
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
        millpond_allocator *pond;
        uint64_t live = 99;
        OK(millpond_create(device, confs[i], &pond));
        if (confs[i] == NULL || strcmp(confs[i], "policy:direct") != 0) {
            blocks(pond);
            statistics(pond);
            peaks(pond);
            cache(pond);
        }
        streams(pond);
        OK(millpond_destroy(pond, &live));
        CHECK(live == 0);
    }
    recorded(device);
    idle(device);
    return 0;
}
