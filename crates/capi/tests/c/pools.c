/* Private pools: their memory stays apart and stays where it is, captures, and checkpoints. */
#include "check.h"

static uint64_t reserved(millpond_allocator *pond) {
    millpond_usage usage;
    OK(millpond_get_usage(pond, &usage));
    return usage.reserved_bytes;
}

static void apart(millpond_allocator *pond, millpond_stream stream) {
    millpond_pool pool, other;
    void *inside, *outside, *nothing = &inside;
    OK(millpond_pool_create(pond, &pool));
    OK(millpond_pool_create(pond, &other));
    CHECK(pool != 0 && other != 0 && pool != other);
    FAILS(millpond_pool_create(pond, NULL), MILLPOND_BAD_ARGUMENT, "out");
    FAILS(millpond_pool_alloc(pond, 99, 512, stream, &inside), MILLPOND_BAD_ARGUMENT, "no private pool 99");
    FAILS(millpond_pool_alloc(pond, pool, 512, stream, NULL), MILLPOND_BAD_ARGUMENT, "out");
    OK(millpond_pool_alloc(pond, pool, 0, stream, &nothing));
    OK(millpond_pool_alloc(pond, pool, 30 * MIB, stream, &inside));
    CHECK(nothing == NULL && inside != NULL);
    OK(millpond_free(pond, inside));
    OK(millpond_alloc(pond, 30 * MIB, stream, &outside));
    CHECK(outside != inside);
    OK(millpond_free(pond, outside));
    OK(millpond_empty_cache(pond));
    OK(millpond_pool_empty_cache(pond, pool));
    CHECK(reserved(pond) >= 30 * MIB); /* It is held. */
    OK(millpond_pool_alloc(pond, pool, 30 * MIB, stream, &outside));
    CHECK(outside == inside);
    OK(millpond_pool_release(pond, pool));
    FAILS(millpond_pool_release(pond, pool), MILLPOND_BAD_ARGUMENT, "released before");
    FAILS(millpond_pool_alloc(pond, pool, 512, stream, &inside), MILLPOND_BAD_ARGUMENT, "released before");
    OK(millpond_find(pond, outside, NULL, NULL)); /* Its blocks outlive it. */
    OK(millpond_free(pond, outside));
    OK(millpond_pool_empty_cache(pond, pool));
    CHECK(reserved(pond) == 0);
    OK(millpond_pool_release(pond, other));
}

static void captures(millpond_allocator *pond, millpond_stream stream) {
    millpond_pool pool;
    void *first, *second;
    OK(millpond_pool_create(pond, &pool));
    OK(millpond_capture_begin(pond, pool, stream));
    FAILS(millpond_capture_begin(pond, pool, stream), MILLPOND_BAD_ARGUMENT, "captured already");
    OK(millpond_capture_begin(pond, pool, NULL));
    OK(millpond_pool_alloc(pond, pool, 3 * MIB, stream, &first));
    OK(millpond_free(pond, first));
    OK(millpond_pool_alloc(pond, pool, 3 * MIB, stream, &second));
    CHECK(first == second); /* In the order of the stream. */
    OK(millpond_capture_end(pond, pool));
    OK(millpond_capture_end(pond, pool));
    FAILS(millpond_capture_end(pond, 77), MILLPOND_BAD_ARGUMENT, "77");
    OK(millpond_free(pond, second));
    OK(millpond_pool_release(pond, pool));
    OK(millpond_empty_cache(pond));
}

static void checkpoints(millpond_allocator *pond, const char *device, millpond_stream stream) {
    millpond_pool pool;
    millpond_checkpoint *empty, *two;
    millpond_allocator *other;
    void *kept, *gone, *more, *start;
    uint64_t live = 77, bytes;
    OK(millpond_pool_create(pond, &pool));
    OK(millpond_checkpoint_create(pond, pool, &empty));
    FAILS(millpond_checkpoint_create(pond, pool, NULL), MILLPOND_BAD_ARGUMENT, "out");
    FAILS(millpond_checkpoint_create(pond, 99, &two), MILLPOND_BAD_ARGUMENT, "99");
    OK(millpond_pool_alloc(pond, pool, 3 * MIB, stream, &kept));
    OK(millpond_pool_alloc(pond, pool, 900, stream, &gone));
    OK(millpond_checkpoint_create(pond, pool, &two));
    OK(millpond_free(pond, gone));
    OK(millpond_pool_alloc(pond, pool, 7 * MIB, stream, &more));
    OK(millpond_checkpoint_restore(pond, two, &live));
    CHECK(live == 2);
    FAILS(millpond_free(pond, more), MILLPOND_NOT_A_BLOCK, "not the address");
    OK(millpond_find(pond, kept, &start, &bytes));
    CHECK(start == kept && bytes == 3 * MIB);
    OK(millpond_find(pond, (char *)gone + 1000, &start, &bytes));
    CHECK(start == gone && bytes == 1024);

    OK(millpond_checkpoint_restore(pond, empty, &live));
    CHECK(live == 0);
    FAILS(millpond_find(pond, kept, NULL, NULL), MILLPOND_NOT_A_BLOCK, "not the address");
    OK(millpond_checkpoint_restore(pond, two, NULL));
    OK(millpond_capture_begin(pond, pool, stream));
    FAILS(millpond_checkpoint_restore(pond, empty, &live), MILLPOND_BAD_ARGUMENT, "captured");
    OK(millpond_capture_end(pond, pool));
    FAILS(millpond_checkpoint_restore(pond, NULL, &live), MILLPOND_BAD_ARGUMENT, "checkpoint");
    OK(millpond_create(device, "", &other));
    /* With a pool of the same number, in which something lives. */
    millpond_pool alike;
    do {
        OK(millpond_pool_create(other, &alike));
    } while (alike < pool);
    CHECK(alike == pool);
    OK(millpond_pool_alloc(other, alike, 3 * MIB, NULL, &more));
    FAILS(millpond_checkpoint_restore(other, two, &live), MILLPOND_BAD_ARGUMENT, "the checkpoint is one of another");
    OK(millpond_free(other, more));
    OK(millpond_destroy(other, NULL));
    OK(millpond_free(pond, kept));
    OK(millpond_free(pond, gone));
    OK(millpond_pool_release(pond, pool));
    FAILS(millpond_checkpoint_restore(pond, two, &live), MILLPOND_BAD_ARGUMENT, "released before");
    CHECK(live == 0);
    millpond_checkpoint_free(two);
    millpond_checkpoint_free(empty);
    millpond_checkpoint_free(NULL);
    OK(millpond_empty_cache(pond));
    CHECK(reserved(pond) == 0);
}

/* A stream whose handle was released is opened anew in its pools. */
static void streams_come_and_go(millpond_allocator *pond) {
    millpond_pool pool;
    millpond_stream stream;
    void *block;
    OK(millpond_pool_create(pond, &pool));
    for (int i = 0; i < 5; i++) {
        OK(millpond_stream_create(pond, &stream));
        OK(millpond_pool_alloc(pond, pool, MIB, stream, &block));
        OK(millpond_free(pond, block));
        OK(millpond_stream_release(pond, stream));
    }
    /* The pool is left to the end of the allocator, with a block and a capture. */
    OK(millpond_pool_alloc(pond, pool, MIB, NULL, &block));
    OK(millpond_capture_begin(pond, pool, NULL));
}

/* A source that has memory of its own, of which no more than `left` bytes are to be had. */
typedef struct supply {
    char *memory;
    uint64_t given, left;
    int allocs, frees, ends;
} supply;

static void *supply_alloc(void *user, uint64_t bytes, int32_t device, void *stream) {
    supply *self = user;
    self->allocs += 1;
    CHECK(device == 0);
    (void)stream;
    if (bytes > self->left) {
        return NULL;
    }
    void *memory = self->memory + self->given;
    self->given += bytes;
    self->left -= bytes;
    return memory;
}

static void supply_free(void *user, void *memory, uint64_t bytes, int32_t device, void *stream) {
    supply *self = user;
    CHECK((char *)memory >= self->memory && (char *)memory + bytes <= self->memory + self->given && device == 0);
    (void)stream;
    self->frees += 1;
    self->left += bytes;
}

static void supply_end(void *user) {
    ((supply *)user)->ends += 1;
}

static int is_supplied(const supply *from, const void *block) {
    return (const char *)block >= from->memory && (const char *)block < from->memory + from->given;
}

/* A pool has its memory from a source, whatever the policy is, and gives it back there. */
static void sources(millpond_allocator *pond, millpond_stream stream) {
    supply from = {(char *)((uint64_t)1 << 44), 0, 40 * MIB, 0, 0, 0};
    const millpond_source source = {&from, supply_alloc, supply_free, supply_end}, without = {&from, NULL, supply_free, NULL};
    millpond_pool pool;
    void *first, *second, *outside;
    OK(millpond_empty_cache(pond));
    const uint64_t before = reserved(pond);
    FAILS(millpond_pool_create_from(pond, NULL, &pool), MILLPOND_BAD_ARGUMENT, "source");
    FAILS(millpond_pool_create_from(pond, &without, &pool), MILLPOND_BAD_ARGUMENT, "alloc");
    FAILS(millpond_pool_create_from(pond, &source, NULL), MILLPOND_BAD_ARGUMENT, "out");
    OK(millpond_pool_create_from(pond, &source, &pool));
    OK(millpond_pool_alloc(pond, pool, 3 * MIB, stream, &first));
    OK(millpond_pool_alloc(pond, pool, 4 * MIB, stream, &second));
    CHECK(from.allocs == 1 && from.given == 20 * MIB && is_supplied(&from, first) && is_supplied(&from, second));
    CHECK(reserved(pond) == before + 20 * MIB);
    OK(millpond_alloc(pond, 3 * MIB, stream, &outside));
    CHECK(!is_supplied(&from, outside));
    OK(millpond_free(pond, outside));
    FAILS(millpond_pool_alloc(pond, pool, 30 * MIB, stream, &outside), MILLPOND_OUT_OF_MEMORY, "a source of its own");
    CHECK(from.allocs > 1 && from.frees == 0);
    OK(millpond_free(pond, first));
    OK(millpond_empty_cache(pond));
    CHECK(from.frees == 0 && from.ends == 0); /* It is held. */
    OK(millpond_pool_release(pond, pool));
    OK(millpond_pool_empty_cache(pond, pool));
    CHECK(from.frees == 0 && from.ends == 0); /* A block is live. */
    OK(millpond_free(pond, second));
    OK(millpond_pool_empty_cache(pond, pool));
    CHECK(from.frees == 1 && from.ends == 1 && reserved(pond) == before);

    /* Without segments the source ends with the hold. What the device cannot take goes back to it. */
    from = (supply){(char *)((uint64_t)1 << 44) + 1, 0, 40 * MIB, 0, 0, 0};
    OK(millpond_pool_create_from(pond, &source, &pool));
    FAILS(millpond_pool_alloc(pond, pool, 512, stream, &first), MILLPOND_OUT_OF_MEMORY, "has refused 2.00 MiB");
    CHECK(from.allocs == from.frees && from.ends == 0);
    OK(millpond_pool_release(pond, pool));
    CHECK(from.ends == 1);
}

/* Destroying an allocator ends the sources of its pools, and gives them their memory back. */
static void sources_end_with_their_allocator(const char *device) {
    supply from = {(char *)((uint64_t)1 << 44), 0, 40 * MIB, 0, 0, 0};
    const millpond_source source = {&from, supply_alloc, supply_free, supply_end};
    millpond_allocator *pond;
    millpond_pool pool;
    void *block;
    OK(millpond_create(device, "policy:paged", &pond));
    OK(millpond_pool_create_from(pond, &source, &pool));
    OK(millpond_pool_alloc(pond, pool, 512, NULL, &block));
    OK(millpond_destroy(pond, NULL));
    CHECK(from.allocs == 1 && from.frees == 1 && from.ends == 1);
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    const char *confs[] = {"policy:paged", "policy:classic", "policy:classic,expandable_segments:True", "policy:direct"};
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
        millpond_allocator *pond;
        millpond_stream stream;
        uint64_t live;
        OK(millpond_create(device, confs[i], &pond));
        OK(millpond_stream_create(pond, &stream));
        apart(pond, stream);
        sources(pond, stream);
        captures(pond, stream);
        checkpoints(pond, device, stream);
        streams_come_and_go(pond);
        OK(millpond_destroy(pond, &live));
        CHECK(live == 1);
    }
    sources_end_with_their_allocator(device);
    return 0;
}
