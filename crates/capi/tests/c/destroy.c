/* The end of allocators: live blocks, and names that are no longer valid. */
#include <time.h>

#include "check.h"

static void nap(void *unused) {
    const struct timespec time = {.tv_nsec = 50 * 1000 * 1000};
    nanosleep(&time, unused);
}

/* Work of a stream that is gone uses a block when the allocator is destroyed. */
static void destroy_waits_for_a_stream_that_is_gone(const char *device) {
    int (*retain)(void **, int) = dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain");
    int (*release)(int) = dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRelease_v2");
    int (*set_current)(void *) = dlsym(RTLD_DEFAULT, "cuCtxSetCurrent");
    int (*synchronize)(void) = dlsym(RTLD_DEFAULT, "cuCtxSynchronize");
    int (*create)(void **, unsigned) = dlsym(RTLD_DEFAULT, "cuStreamCreate");
    int (*destroy)(void *) = dlsym(RTLD_DEFAULT, "cuStreamDestroy_v2");
    int (*call)(void *, void (*)(void *), void *) = dlsym(RTLD_DEFAULT, "cuLaunchHostFunc");
    int (*fill)(uint64_t, unsigned char, size_t, void *) = dlsym(RTLD_DEFAULT, "cuMemsetD8Async");
    millpond_allocator *pond;
    void *context, *stream, *block;
    uint64_t live;
    OK(millpond_create(device, "policy:paged", &pond));
    CHECK(retain(&context, 0) == 0 && set_current(context) == 0 && create(&stream, 1) == 0);
    OK(millpond_alloc_async(pond, MIB, stream, &block));
    CHECK(call(stream, nap, NULL) == 0 && fill((uint64_t)(uintptr_t)block, 1, MIB, stream) == 0);
    CHECK(destroy(stream) == 0);
    OK(millpond_destroy(pond, &live));
    CHECK(live == 1 && synchronize() == 0);
    CHECK(release(0) == 0);
}

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
    if (argc >= 3) {
        destroy_waits_for_a_stream_that_is_gone(device);
    }
    return 0;
}
