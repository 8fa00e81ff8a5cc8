/* A first program: an allocator, blocks on a stream, and what was reserved for them.
 *
 *     scripts/capi.sh
 *     cc examples/c/first.c -o first -Itarget/capi/include -Ltarget/capi/lib -lmillpond -Wl,-rpath,$PWD/target/capi/lib
 *     ./first          # on the simulated device; ./first cuda:0 on a GPU
 */
#include <inttypes.h>
#include <millpond.h>
#include <stdio.h>

#define MIB (1024.0 * 1024.0)

/* Ends main with the text of the error. */
#define TRY(call)                                                                                                      \
    if ((call) != MILLPOND_OK) {                                                                                       \
        fprintf(stderr, "%s\n", millpond_last_error());                                                                \
        return 1;                                                                                                      \
    }

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "sim";
    millpond_allocator *pond;
    TRY(millpond_create(device, "policy:paged", &pond));
    millpond_stream stream;
    TRY(millpond_stream_create(pond, &stream));

    /* Ten rounds of a program that allocates and frees: the driver is called in the first alone. */
    for (int round = 0; round < 10; round++) {
        void *weights, *activations;
        TRY(millpond_alloc(pond, 30000000, stream, &weights));
        TRY(millpond_alloc(pond, 5000000, stream, &activations));
        /* ... launch work that uses them on the stream ... */
        TRY(millpond_free(pond, activations)); /* The work need not be over. */
        TRY(millpond_free(pond, weights));
    }
    millpond_usage usage;
    TRY(millpond_get_usage(pond, &usage));
    printf("at most %.1f MiB were allocated, and %.1f MiB reserved\n", (double)usage.max_allocated_bytes / MIB,
           (double)usage.max_reserved_bytes / MIB);

    /* A mistake is an error that says what to do. */
    TRY(millpond_set_limit(pond, 64 << 20));
    void *too_much;
    if (millpond_alloc(pond, 100 << 20, stream, &too_much) == MILLPOND_OUT_OF_MEMORY) {
        printf("%s\n", millpond_last_error());
    }

    uint64_t live;
    TRY(millpond_alloc(pond, 1000, stream, &too_much));
    TRY(millpond_destroy(pond, &live));
    printf("destroyed with %" PRIu64 " live block\n", live);
    return 0;
}
