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
    FAILS(millpond_checkpoint_restore(other, two, &live), MILLPOND_BAD_ARGUMENT, "another allocator");
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
        captures(pond, stream);
        checkpoints(pond, device, stream);
        streams_come_and_go(pond);
        OK(millpond_destroy(pond, &live));
        CHECK(live == 1);
    }
    return 0;
}
