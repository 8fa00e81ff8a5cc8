/* Threads that allocate, free what other threads have allocated, and make mistakes at the same time. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 4, SLOTS = 64, STEPS = 4000, RACES = 200, FINDS = 100000 };

static millpond_allocator *pond;
/* Blocks that any thread may take and free. */
static _Atomic(void *) shared[SLOTS];
static _Atomic(int) freed_once;
static void *_Atomic contested;
static _Atomic(int) finds;
static pthread_barrier_t barrier;

static uint32_t next(uint32_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/* Blocks go from thread to thread through the slots. */
static void pass_around(uint32_t *seed, millpond_stream stream) {
    for (int step = 0; step < STEPS; step++) {
        void *block, *start;
        uint64_t bytes, asked = 1 + next(seed) % (next(seed) % 8 == 0 ? 4 * MIB : 20000);
        OK(millpond_alloc(pond, asked, stream, &block));
        OK(millpond_find(pond, block, &start, &bytes));
        CHECK(start == block && bytes >= asked);
        if (next(seed) % 16 == 0) {
            OK(millpond_record_stream(pond, block, NULL));
        }
        block = atomic_exchange(&shared[next(seed) % SLOTS], block);
        OK(millpond_free(pond, block)); /* What another thread has put there, or NULL. */
        if (next(seed) % 500 == 0) {
            OK(millpond_trim(pond, 8 * MIB, NULL));
            CHECK(figure(pond, "allocation.all.current") >= 0);
        }
    }
}

/* All threads free one block at once: one of them does, and the others are told. */
static void race_to_free(int thread) {
    for (int race = 0; race < RACES; race++) {
        if (thread == 0) {
            void *block;
            OK(millpond_alloc(pond, 512, NULL, &block));
            atomic_store(&contested, block);
            atomic_store(&freed_once, 0);
        }
        pthread_barrier_wait(&barrier);
        millpond_status status = millpond_free(pond, atomic_load(&contested));
        CHECK(status == MILLPOND_OK || status == MILLPOND_NOT_A_BLOCK);
        atomic_fetch_add(&freed_once, status == MILLPOND_OK);
        pthread_barrier_wait(&barrier);
        CHECK(atomic_load(&freed_once) == 1);
        pthread_barrier_wait(&barrier);
    }
}

/* Frees a small block and gets a large one in turns, until all is found. The large one may have the number that the small
 * one had. */
static void *come_and_go(void *argument) {
    (void)argument;
    while (atomic_load(&finds) < FINDS) {
        void *small, *large;
        OK(millpond_alloc(pond, 512, NULL, &small));
        atomic_store(&contested, small);
        OK(millpond_free(pond, small));
        OK(millpond_alloc(pond, 64 * MIB, NULL, &large));
        OK(millpond_free(pond, large));
    }
    return NULL;
}

/* An address in no block is in none, whatever happens to the block below it meanwhile. */
static void look_beside(void) {
    pthread_t thread;
    void *keep, *small;
    OK(millpond_alloc(pond, 512, NULL, &keep)); /* Its segment stays, so that no large block comes there. */
    OK(millpond_alloc(pond, 512, NULL, &small));
    OK(millpond_free(pond, small));
    atomic_store(&contested, small);
    atomic_store(&finds, 0);
    CHECK(pthread_create(&thread, NULL, come_and_go, NULL) == 0);
    while (atomic_fetch_add(&finds, 1) < FINDS) {
        char *beside = (char *)atomic_load(&contested) + 4096;
        FAILS(millpond_find(pond, beside, NULL, NULL), MILLPOND_NOT_A_BLOCK, "is not the address");
    }
    CHECK(pthread_join(thread, NULL) == 0);
    OK(millpond_free(pond, keep));
}

static void *work(void *argument) {
    int thread = (int)(intptr_t)argument;
    uint32_t seed = 77u + (uint32_t)thread;
    millpond_stream stream;
    char name[32];
    OK(millpond_stream_create(pond, &stream));
    CHECK(strcmp(millpond_last_error(), "") == 0); /* Errors of other threads are not this one's. */
    snprintf(name, sizeof name, "toaster %d", thread);
    millpond_allocator *none;
    FAILS(millpond_create(name, "", &none), MILLPOND_BAD_ARGUMENT, name);
    pass_around(&seed, stream);
    CHECK(strstr(millpond_last_error(), name) != NULL);
    race_to_free(thread);
    return NULL;
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    const char *confs[] = {"policy:paged", "policy:classic"};
    for (size_t conf = 0; conf < 2; conf++) {
        pthread_t threads[THREADS];
        uint64_t live;
        OK(millpond_create(device, confs[conf], &pond));
        look_beside();
        long long before = figure(pond, "allocation.all.allocated");
        CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
        for (intptr_t i = 0; i < THREADS; i++) {
            CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
        }
        for (int i = 0; i < THREADS; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
        int left = 0;
        for (int i = 0; i < SLOTS; i++) {
            left += atomic_load(&shared[i]) != NULL;
        }
        CHECK(figure(pond, "allocation.all.current") == left);
        CHECK(figure(pond, "allocation.all.allocated") - before == (long long)THREADS * STEPS + RACES);
        for (int i = 0; i < SLOTS; i += 2) {
            OK(millpond_free(pond, atomic_exchange(&shared[i], NULL)));
        }
        for (int i = 0; i < SLOTS; i++) {
            left -= i % 2 == 0;
            atomic_store(&shared[i], NULL);
        }
        CHECK(figure(pond, "allocation.all.current") == left);
        OK(millpond_destroy(pond, &live));
        CHECK(live == (uint64_t)left);
        pthread_barrier_destroy(&barrier);
    }
    return 0;
}
