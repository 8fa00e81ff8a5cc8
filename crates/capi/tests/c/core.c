/* The table of millpond_core.h: blocks by context and by address, pools, limits, statistics, layouts and events. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"
#include "millpond_core.h"

static const millpond_core_v1 *core;
static int asked, told[8], segments, tiles;
static uint64_t told_bytes, tiled_bytes;
static void *spare;

static int32_t free_memory(int32_t device) {
    CHECK(device == 0);
    asked += 1;
    if (spare == NULL) {
        return 0;
    }
    CHECK(core->free(spare) == MILLPOND_OK); /* It may call the table. */
    spare = NULL;
    return 1;
}

static void event(const millpond_core_event *event) {
    CHECK(event->kind >= MILLPOND_CORE_SEGMENT_ALLOC && event->kind <= MILLPOND_CORE_SEGMENT_UNMAP);
    CHECK(event->device == 0 && event->address != 0 && event->bytes != 0);
    told[event->kind] += 1;
    told_bytes += event->bytes;
}

static const millpond_core_host host = {sizeof host, 0, free_memory, event};

static void segment(void *user, const millpond_core_segment *segment) {
    CHECK(user == &segments && segment->address != 0 && segment->bytes != 0);
    segments += 1;
}

static void tile(void *user, const millpond_core_tile *tile) {
    CHECK(user == &segments && tile->bytes != 0);
    tiles += 1;
    tiled_bytes += tile->bytes;
}

static const millpond_core_sink sink = {&segments, segment, tile};

/* Tells the layout of a device. Returns the bytes in it. */
static uint64_t layout(const millpond_core_pool *pool) {
    segments = tiles = 0;
    tiled_bytes = 0;
    OK(core->layout(0, pool, &sink));
    return tiled_bytes;
}

static millpond_core_block alloc(uint64_t bytes, const millpond_core_pool *pool) {
    millpond_core_block block = core->alloc(0, NULL, bytes, pool);
    CHECK(block.address != NULL && ((uintptr_t)block.context & 1) == 1 && ((uintptr_t)block.address & 511) == 0);
    return block;
}

static int64_t status_of(millpond_core_block block) {
    CHECK(block.address == NULL);
    return (int64_t)(intptr_t)block.context;
}

static void before_the_first_use(void) {
    millpond_core_stats stats;
    double share = 0;
    char *text;
    OK(core->stats(0, &stats));
    CHECK(stats.reserved_bytes[0].current == 0 && stats.max_split_size == -1);
    CHECK(layout(NULL) == 0);
    OK(core->empty_cache(0, NULL));
    FAILS(core->configure("policy:best"), MILLPOND_BAD_ARGUMENT, "`best`");
    OK(core->configure("policy:classic,per_process_memory_fraction:0.5"));
    OK(core->configuration(&text));
    CHECK(strcmp(text, "policy:classic,per_process_memory_fraction:0.5") == 0);
    core->string_free(text);
    OK(core->get_fraction(0, &share));
    CHECK(share == 0.5);
    OK(core->set_fraction(0, 1.0));
    FAILS(core->set_fraction(0, 1.5), MILLPOND_BAD_ARGUMENT, "1.5");
    FAILS(core->stats(64, &stats), MILLPOND_BAD_ARGUMENT, "64 is no device");
    FAILS(core->lend(NULL), MILLPOND_BAD_ARGUMENT, "null pointer");
    OK(core->lend(&host));
    OK(core->trace(1));
}

static void blocks(void) {
    millpond_core_place place;
    millpond_core_segment base;
    millpond_usage usage;
    millpond_core_block none = core->alloc(0, NULL, 0, NULL), first = alloc(1000, NULL), second = alloc(3 * MIB, NULL);
    CHECK(none.address == NULL && none.context == NULL);
    FAILS(core->configure(NULL), MILLPOND_BAD_ARGUMENT, "in use already");
    OK(core->usage(0, &usage));
    CHECK(usage.allocated_bytes == 1024 + 3 * MIB);
    CHECK(told[MILLPOND_CORE_SEGMENT_ALLOC] == 2 && told_bytes == usage.reserved_bytes);
    CHECK(layout(NULL) == usage.reserved_bytes && segments == 2 && tiles == 4);

    OK(core->find(first.context, &place));
    CHECK(place.address == (uint64_t)first.address && place.bytes == 1024 && place.device == 0);
    OK(core->at((char *)second.address + 5, &place)); /* Odd, and no context. */
    CHECK(place.address == (uint64_t)second.address && place.bytes == 3 * MIB);
    OK(core->base_of((char *)second.address + 777, &base));
    CHECK(base.address == (uint64_t)second.address && base.bytes == 20 * MIB && base.is_large && !base.is_expandable);
    FAILS(core->find((void *)0x2000, &place), MILLPOND_NOT_A_BLOCK, "0x2000");
    FAILS(core->at((char *)second.address + 3 * MIB, &place), MILLPOND_NOT_A_BLOCK, "is not the address");

    OK(core->record_stream(first.context, NULL));
    OK(core->record_stream(NULL, NULL));
    OK(core->free(first.context));
    FAILS(core->free(first.context), MILLPOND_NOT_A_BLOCK, "freed before");
    FAILS(core->record_stream(first.context, NULL), MILLPOND_NOT_A_BLOCK, "freed before");
    OK(core->free(second.address)); /* An address frees as the context does. */
    FAILS(core->free(second.address), MILLPOND_NOT_A_BLOCK, "freed before");
    OK(core->free(NULL));
    uint64_t largest;
    OK(core->largest_free(0, &largest));
    CHECK(largest == 20 * MIB);
    OK(core->empty_cache(0, NULL));
    CHECK(told[MILLPOND_CORE_SEGMENT_FREE] == 2 && layout(NULL) == 0);
}

static void memory_runs_out(void) {
    millpond_core_oom oom;
    millpond_core_limits limits;
    FAILS(core->oom(&oom), MILLPOND_BAD_ARGUMENT, "out of memory");
    OK(core->limits(0, &limits));
    CHECK(limits.total_bytes > MIB && limits.limit_bytes == UINT64_MAX && limits.allocated_bytes == 0);
    CHECK(status_of(core->alloc(0, NULL, limits.total_bytes + MIB, NULL)) == MILLPOND_OUT_OF_MEMORY);
    CHECK(asked == 1 && strstr(core->last_error(), "out of memory") != NULL);
    OK(core->oom(&oom));
    CHECK(oom.requested_bytes == limits.total_bytes + MIB && oom.tried_bytes >= oom.requested_bytes && oom.device == 0);
    CHECK(strncmp(oom.explanation, "  ", 2) == 0 && strstr(oom.explanation, "What to do:") != NULL);

    /* What the host frees serves the request. */
    OK(core->set_fraction(0, 64.0 * (double)MIB / (double)limits.total_bytes));
    spare = alloc(60 * MIB, NULL).context;
    millpond_core_block block = alloc(50 * MIB, NULL);
    CHECK(asked == 2 && spare == NULL);
    OK(core->free(block.context));
    OK(core->set_fraction(0, 1.0));
    CHECK(status_of(core->alloc(64, NULL, 1, NULL)) == MILLPOND_BAD_ARGUMENT);
}

struct told {
    millpond_core_pool pool;
    int64_t current, peak;
    int count;
};

static void told_pool(void *user, millpond_core_pool pool, const millpond_core_stat *reserved_bytes) {
    struct told *told = user;
    told->count += 1;
    if (pool.first == told->pool.first && pool.second == told->pool.second) {
        told->current = reserved_bytes[0].current;
        told->peak = reserved_bytes[0].peak;
        CHECK(reserved_bytes[1].current + reserved_bytes[2].current == told->current);
    }
}

static struct told pool_told(millpond_core_pool pool) {
    struct told told = {pool, -1, -1, 0};
    const millpond_core_pools sink = {&told, told_pool};
    OK(core->pools_stats(0, &sink));
    return told;
}

static void pools(void) {
    const millpond_core_pool pool = {0, 7}, other = {1, 0};
    const millpond_core_source source = {NULL, NULL, NULL, NULL};
    int64_t uses;
    OK(core->empty_cache(0, NULL));
    CHECK(status_of(core->alloc(0, NULL, 512, &pool)) == MILLPOND_BAD_ARGUMENT);
    FAILS(core->pool_unref(0, pool), MILLPOND_BAD_ARGUMENT, "(0, 7)");
    FAILS(core->pool_ref(0, pool, &source), MILLPOND_BAD_ARGUMENT, "alloc");
    FAILS(core->pool_ref(0, (millpond_core_pool){0, 0}, NULL), MILLPOND_BAD_ARGUMENT, "is the default pool");
    OK(core->pool_ref(0, pool, NULL));
    OK(core->pool_ref(0, pool, NULL));
    OK(core->pool_ref(0, other, NULL));
    OK(core->pool_uses(0, pool, &uses));
    CHECK(uses == 2);
    OK(core->pool_flags(0, pool, MILLPOND_CORE_NO_SPLIT, 1));
    FAILS(core->pool_flags(0, pool, 8, 1), MILLPOND_BAD_ARGUMENT, "0x8");
    OK(core->pool_flags(0, pool, MILLPOND_CORE_NO_SPLIT, 0));

    OK(core->capture_begin(0, pool, NULL));
    millpond_core_block block = alloc(3 * MIB, &pool), outside = alloc(3 * MIB, NULL);
    FAILS(core->capture_begin(0, pool, NULL), MILLPOND_BAD_ARGUMENT, "captured already");
    OK(core->capture_end(0, pool));
    CHECK(layout(&pool) == 20 * MIB && layout(&other) == 0 && layout(NULL) == 40 * MIB);
    CHECK(pool_told(pool).current == 20 * MIB && pool_told(pool).peak == 20 * MIB && pool_told(pool).count == 2);
    CHECK(pool_told(other).current == 0);
    FAILS(core->pools_stats(0, NULL), MILLPOND_BAD_ARGUMENT, "sink");
    OK(core->free(block.context));
    OK(core->free(outside.context));
    OK(core->empty_cache(0, NULL));
    CHECK(layout(NULL) == 20 * MIB && layout(&pool) == 20 * MIB);
    OK(core->pool_unref(0, pool));
    OK(core->empty_cache(0, &pool));
    CHECK(layout(&pool) == 20 * MIB);
    OK(core->pool_unref(0, pool));
    OK(core->pool_unref(0, other));
    FAILS(core->pool_unref(0, pool), MILLPOND_BAD_ARGUMENT, "(0, 7)");
    CHECK(pool_told(pool).current == 20 * MIB && pool_told(pool).count == 1);
    OK(core->empty_cache(0, &pool));
    CHECK(layout(NULL) == 0);
}

static int supplied, taken_back, ended;

static void *supply(void *user, uint64_t bytes, int32_t device, void *stream) {
    CHECK(user == &supplied && device == 0 && stream == NULL && (bytes == 20 * MIB || bytes == 18 * MIB));
    supplied += 1;
    return supplied == 1 ? (void *)((uint64_t)1 << 44) : NULL;
}

static void take_back(void *user, void *memory, uint64_t bytes, int32_t device, void *stream) {
    CHECK(user == &supplied && device == 0 && stream == NULL && bytes == 20 * MIB && (uint64_t)memory == (uint64_t)1 << 44);
    taken_back += 1;
}

static void is_over(void *user) {
    int64_t uses;
    CHECK(user == &supplied);
    OK(core->pool_uses(0, (millpond_core_pool){0, 8}, &uses)); /* No lock is held. */
    ended += 1;
}

static void sources(void) {
    const millpond_core_pool pool = {0, 8};
    const millpond_core_source source = {&supplied, supply, take_back, is_over};
    const int allocs = told[MILLPOND_CORE_SEGMENT_ALLOC], frees = told[MILLPOND_CORE_SEGMENT_FREE];
    millpond_core_segment base;
    millpond_core_oom oom;
    OK(core->empty_cache(0, NULL));
    OK(core->pool_ref(0, pool, &source));
    FAILS(core->pool_ref(0, pool, &source), MILLPOND_BAD_ARGUMENT, "with its first reference");
    CHECK(ended == 0);
    millpond_core_block block = alloc(3 * MIB, &pool);
    CHECK(supplied == 1 && (uint64_t)block.address == (uint64_t)1 << 44 && told[MILLPOND_CORE_SEGMENT_ALLOC] == allocs + 1);
    OK(core->base_of(block.address, &base));
    CHECK(base.bytes == 20 * MIB && base.pool.second == 8 && !base.is_expandable && base.is_large);
    CHECK(layout(&pool) == 20 * MIB && segments == 1);
    CHECK(status_of(core->alloc(0, NULL, 9 * MIB + 9 * MIB, &pool)) == MILLPOND_OUT_OF_MEMORY);
    OK(core->oom(&oom));
    CHECK(strstr(oom.explanation, "a source of its own") != NULL);
    OK(core->pool_unref(0, pool));
    OK(core->free(block.context));
    CHECK(taken_back == 0 && ended == 0);
    OK(core->empty_cache(0, &pool));
    CHECK(taken_back == 1 && ended == 1 && told[MILLPOND_CORE_SEGMENT_FREE] == frees + 1 && layout(NULL) == 0);
    OK(core->pool_ref(0, pool, &source)); /* The name is free again. */
    OK(core->pool_unref(0, pool));
    CHECK(ended == 2);
}

/* What was freed is allocated again where it lay, in the middle of what it has become part of. */
static void addresses(void) {
    const millpond_core_pool pool = {5, 5};
    OK(core->pool_ref(0, pool, NULL));
    millpond_core_block low = alloc(3 * MIB, &pool), middle = alloc(4 * MIB, &pool), high = alloc(5 * MIB, &pool);
    CHECK(status_of(core->alloc_at(0, NULL, 4 * MIB, middle.address, &pool)) == MILLPOND_BAD_ARGUMENT);
    OK(core->free(low.context));
    OK(core->free(middle.context));
    OK(core->free(high.context));
    CHECK(status_of(core->alloc_at(0, NULL, 4 * MIB, middle.address, NULL)) == MILLPOND_BAD_ARGUMENT);
    CHECK(strstr(core->last_error(), "are not free") != NULL);
    CHECK(status_of(core->alloc_at(0, NULL, 4 * MIB, (char *)middle.address + 8, &pool)) == MILLPOND_BAD_ARGUMENT);
    CHECK(core->alloc_at(0, NULL, 0, middle.address, &pool).address == NULL);
    millpond_core_block again = core->alloc_at(0, NULL, 4 * MIB - 100, middle.address, &pool);
    CHECK(again.address == middle.address);
    millpond_core_place place;
    OK(core->find(again.context, &place));
    CHECK(place.bytes == 4 * MIB);
    CHECK(layout(&pool) == 20 * MIB && segments == 1 && tiles == 3);
    CHECK(status_of(core->alloc_at(0, NULL, MIB, (char *)again.address + 3 * MIB, &pool)) == MILLPOND_BAD_ARGUMENT);
    OK(core->free(again.context));
    OK(core->pool_unref(0, pool));
    OK(core->empty_cache(0, &pool));
}

static int freed, made;
static millpond_core_block last_made;

static void was_freed(void *user, const millpond_core_place *place) {
    CHECK(user == &made && place->address != 0 && place->bytes >= 512 && place->device == 0 && made == 0);
    freed += 1;
}

static void was_made(void *user, const millpond_core_block *block) {
    CHECK(user == &made && block->address != NULL);
    last_made = *block;
    made += 1;
}

static void checkpoints(void) {
    const millpond_core_pool pool = {3, 9};
    const millpond_core_delta delta = {&made, was_freed, was_made};
    millpond_core_checkpoint *empty, *two;
    millpond_core_place place;
    FAILS(core->checkpoint_take(0, pool, &empty), MILLPOND_BAD_ARGUMENT, "(3, 9)");
    OK(core->pool_ref(0, pool, NULL));
    OK(core->checkpoint_take(0, pool, &empty));
    FAILS(core->checkpoint_take(0, pool, NULL), MILLPOND_BAD_ARGUMENT, "out");
    FAILS(core->checkpoint_set(0, NULL, NULL), MILLPOND_BAD_ARGUMENT, "checkpoint");
    FAILS(core->checkpoint_set(1, empty, NULL), MILLPOND_BAD_ARGUMENT, "device 0");
    millpond_core_block outside = alloc(4 * MIB, NULL), kept = alloc(3 * MIB, &pool), gone = alloc(700, &pool);
    OK(core->checkpoint_take(0, pool, &two));
    OK(core->free(gone.context));
    millpond_core_block more = alloc(5 * MIB, &pool);

    /* The block that is live in both is freed and made again, with the same context. */
    OK(core->checkpoint_set(0, two, &delta));
    CHECK(freed == 2 && made == 2);
    FAILS(core->find(more.context, &place), MILLPOND_NOT_A_BLOCK, "freed before");
    OK(core->find(kept.context, &place));
    CHECK(place.address == (uint64_t)(uintptr_t)kept.address && place.bytes == 3 * MIB);
    OK(core->find(gone.address, &place));
    CHECK(place.bytes == 1024);
    OK(core->find(outside.context, &place));
    CHECK(last_made.context == kept.context || last_made.context == gone.context);

    freed = made = 0;
    OK(core->checkpoint_set(0, empty, &delta));
    CHECK(freed == 2 && made == 0);
    FAILS(core->free(kept.context), MILLPOND_NOT_A_BLOCK, "freed before");
    OK(core->open_to(0, 0));
    OK(core->open_to(0, 1));
    FAILS(core->open_to(0, 64), MILLPOND_BAD_ARGUMENT, "64 is no device");
    millpond_core_block live = alloc(900, &pool);
    OK(core->capture_begin(0, pool, NULL));
    FAILS(core->checkpoint_set(0, two, &delta), MILLPOND_BAD_ARGUMENT, "captured");
    OK(core->capture_end(0, pool));
    OK(core->free(live.context)); /* Nothing was freed for it. */
    OK(core->checkpoint_set(0, two, NULL));
    OK(core->free(kept.context));
    OK(core->free(gone.address));

    /* Without references its memory goes back, and another pool of the name is another pool. */
    OK(core->pool_unref(0, pool));
    FAILS(core->checkpoint_set(0, two, &delta), MILLPOND_BAD_ARGUMENT, "(3, 9)");
    OK(core->empty_cache(0, &pool));
    OK(core->pool_ref(0, pool, NULL));
    live = alloc(900, &pool);
    FAILS(core->checkpoint_set(0, two, &delta), MILLPOND_BAD_ARGUMENT, "cannot go back to the checkpoint");
    CHECK(freed == 2 && made == 0);
    OK(core->free(live.context));
    core->checkpoint_drop(two);
    core->checkpoint_drop(empty);
    core->checkpoint_drop(NULL);
    OK(core->pool_unref(0, pool));
    OK(core->free(outside.context));
    OK(core->empty_cache(0, NULL));
}

enum { FINDS = 100000 };
static _Atomic(int) finds;
static void *_Atomic beside;

/* Frees a small block and gets a large one in turns, which may have the number that the small one had. */
static void *come_and_go(void *argument) {
    (void)argument;
    while (atomic_load(&finds) < FINDS) {
        millpond_core_block small = alloc(512, NULL);
        atomic_store(&beside, (char *)small.address + 4096);
        OK(core->free(small.context));
        OK(core->free(alloc(64 * MIB, NULL).context));
    }
    return NULL;
}

/* An address in no block is in none, whatever happens to the block below it meanwhile. */
static void look_beside(void) {
    pthread_t thread;
    millpond_core_place place;
    millpond_core_segment base;
    millpond_core_block keep = alloc(512, NULL);
    atomic_store(&beside, (char *)keep.address + 8192);
    CHECK(pthread_create(&thread, NULL, come_and_go, NULL) == 0);
    while (atomic_fetch_add(&finds, 1) < FINDS) {
        FAILS(core->at(atomic_load(&beside), &place), MILLPOND_NOT_A_BLOCK, "is not the address");
        if (atomic_load(&finds) % 64 == 0) {
            FAILS(core->base_of(atomic_load(&beside), &base), MILLPOND_NOT_A_BLOCK, "is not the address");
        }
    }
    CHECK(pthread_join(thread, NULL) == 0);
    OK(core->free(keep.context));
}

static void statistics(void) {
    millpond_core_stats stats;
    char *text;
    OK(core->reset_totals(0));
    millpond_core_block block = alloc(1000, NULL);
    OK(core->stats(0, &stats));
    CHECK(stats.allocation[1].current == 1 && stats.allocation[2].current == 0 && stats.allocated_bytes[0].current == 1024);
    CHECK(stats.requested_bytes[1].allocated == 1000 && stats.num_ooms == 0 && stats.num_device_alloc == 1);
    OK(core->free(block.context));
    OK(core->reset_peaks(0));
    OK(core->stats(0, &stats));
    CHECK(stats.allocated_bytes[0].peak == 0 && stats.allocated_bytes[0].freed == 1024);
    OK(core->stats_json(0, &text));
    CHECK(strstr(text, "\"allocated_bytes.all.current\": 0") != NULL);
    core->string_free(text);
    millpond_peak peak;
    OK(core->peak_open(0, &peak));
    OK(core->free(alloc(5000, NULL).context));
    OK(core->peak_json(0, peak, &text));
    CHECK(strstr(text, "\"requested_bytes.all.peak\": 5000") != NULL);
    core->string_free(text);
    OK(core->peak_close(0, peak));
    FAILS(core->peak_json(0, peak, &text), MILLPOND_BAD_ARGUMENT, "not open");
    uint64_t released = 1;
    OK(core->poll(0, &released));
    CHECK(released == 0);
    OK(core->summary(0, 1, &text));
    CHECK(strstr(text, "memory summary") != NULL);
    core->string_free(text);
    OK(core->trace(0));
}

int main(int argc, char **argv) {
    test_device(argc, argv);
    CHECK(millpond_core_get(0) == NULL && millpond_core_get(99) == NULL);
    core = millpond_core_get(MILLPOND_CORE_ABI);
    CHECK(core != NULL && core->abi == MILLPOND_CORE_ABI && core->size == sizeof *core);
    before_the_first_use();
    blocks();
    memory_runs_out();
    pools();
    sources();
    addresses();
    checkpoints();
    statistics();
    look_beside();
    return 0;
}
