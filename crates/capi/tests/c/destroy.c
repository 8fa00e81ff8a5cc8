/* The end of allocators: live blocks, and names that are no longer valid. */
#include "check.h"

/* Calls every function with an allocator that is none. */
static void every_call_fails(millpond_allocator *pond, const char *part) {
    void *pointer = NULL;
    char *text = NULL;
    uint64_t number = 7;
    millpond_usage usage;
    millpond_status status = MILLPOND_BAD_ALLOCATOR;
    FAILS(millpond_alloc(pond, 512, NULL, &pointer), status, part);
    FAILS(millpond_free(pond, NULL), status, part);
    FAILS(millpond_free(pond, &pointer), status, part);
    FAILS(millpond_record_stream(pond, &pointer, NULL), status, part);
    FAILS(millpond_find(pond, &pointer, &pointer, &number), status, part);
    FAILS(millpond_stream_create(pond, &pointer), status, part);
    FAILS(millpond_stream_release(pond, NULL), status, part);
    FAILS(millpond_set_limit(pond, 1), status, part);
    FAILS(millpond_trim(pond, 0, &number), status, part);
    FAILS(millpond_empty_cache(pond), status, part);
    FAILS(millpond_get_usage(pond, &usage), status, part);
    FAILS(millpond_stats_json(pond, &text), status, part);
    FAILS(millpond_summary(pond, 0, &text), status, part);
    FAILS(millpond_reset_peaks(pond), status, part);
    FAILS(millpond_reset_totals(pond), status, part);
    CHECK(pointer == NULL && text == NULL && number == 7);
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    millpond_allocator *pond, *first = NULL;
    millpond_stream stream;
    void *block;
    uint64_t live = 0;
    int on_stack = 0;

    OK(millpond_create(device, "policy:paged", &pond));
    OK(millpond_stream_create(pond, &stream));
    for (int i = 0; i < 300; i++) {
        OK(millpond_alloc(pond, 512 << i % 14, i % 2 ? stream : NULL, &block));
        if (i % 3 == 0) {
            OK(millpond_free(pond, block));
        }
    }
    OK(millpond_record_stream(pond, block, NULL));
    OK(millpond_destroy(pond, &live));
    CHECK(live == 200);
    every_call_fails(pond, "was destroyed");
    FAILS(millpond_destroy(pond, &live), MILLPOND_BAD_ALLOCATOR, "was destroyed");
    CHECK(live == 200);

    every_call_fails(NULL, "null pointer");
    every_call_fails((millpond_allocator *)&on_stack, "is not an allocator");
    every_call_fails((millpond_allocator *)16, "is not an allocator");
    FAILS(millpond_destroy((millpond_allocator *)&on_stack, NULL), MILLPOND_BAD_ALLOCATOR, "is not an allocator");
    OK(millpond_destroy(NULL, NULL));

    /* The place of an allocator is used again, and its old name stays invalid. */
    for (int i = 0; i < 20; i++) {
        OK(millpond_create(device, "", &pond));
        CHECK(pond != first);
        if (first != NULL) {
            every_call_fails(first, "was destroyed");
        }
        OK(millpond_alloc(pond, 512, NULL, &block));
        OK(millpond_destroy(pond, NULL));
        first = pond;
    }
    return 0;
}
