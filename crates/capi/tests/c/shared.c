/* The allocators that a process shares: the table of functions, the functions of PyTorch's CUDAPluggableAllocator, and
 * the handles of millpond_shared are doors to the same memory. */
#include <pthread.h>
#include <stdbool.h>

#include "check.h"
#include "millpond_core.h"

static const millpond_core_v1 *core;
static millpond_allocator *pond;
static bool is_cuda;

static void *alloc(uint64_t bytes, millpond_stream stream) {
    void *memory;
    OK(millpond_alloc(pond, bytes, stream, &memory));
    return memory;
}

static void one_configuration(void) {
    millpond_allocator *again = NULL;
    char *text;
    FAILS(millpond_shared(64, NULL, &pond), MILLPOND_BAD_ARGUMENT, "64 is no device");
    FAILS(millpond_shared(0, NULL, NULL), MILLPOND_BAD_ARGUMENT, "null pointer");
    FAILS(millpond_shared(0, "policy:best", &pond), MILLPOND_BAD_ARGUMENT, "`best`");
    OK(core->configure("policy:paged"));
    OK(millpond_shared(0, "policy:classic", &pond)); /* No device is in use yet. */
    OK(core->configuration(&text));
    CHECK(strcmp(text, "policy:classic") == 0);
    millpond_string_free(text);
    OK(millpond_shared(0, NULL, &again));
    CHECK(again == pond);
    OK(millpond_shared(0, "policy:classic,throw_on_cudamalloc_oom:False", &again)); /* What it has, said otherwise. */
    CHECK(again == pond);
    OK(core->configure("policy:classic"));
    FAILS(core->configure("policy:paged"), MILLPOND_BAD_ARGUMENT, "it began with: `policy:classic`");
    again = NULL;
    FAILS(millpond_shared(1, "policy:paged", &again), MILLPOND_BAD_ARGUMENT, "in use already");
    CHECK(again == NULL);
    OK(millpond_torch_allocator(0, &again));
    CHECK(again == pond);
    FAILS(millpond_destroy(pond, NULL), MILLPOND_BAD_ARGUMENT, "live as long as the process");
}

static void what_one_door_frees_another_gets(void) {
    millpond_usage usage;
    void *start;
    uint64_t bytes;
    millpond_stream stream;
    OK(millpond_stream_create(pond, &stream));
    millpond_core_block block = core->alloc(0, stream, 3 * MIB, NULL);
    CHECK(block.address != NULL);
    OK(millpond_find(pond, (char *)block.address + 100, &start, &bytes));
    CHECK(start == block.address && bytes == 3 * MIB);
    OK(millpond_get_usage(pond, &usage));
    CHECK(usage.allocated_bytes == 3 * MIB);

    OK(core->free(block.context));
    void *memory = alloc(3 * MIB, stream);
    CHECK(memory == block.address);
    OK(core->free(memory)); /* By its address. */
    CHECK(millpond_torch_alloc((ssize_t)(3 * MIB), 0, stream) == memory);
    OK(millpond_free(pond, memory));
    block = core->alloc(0, stream, 3 * MIB, NULL);
    CHECK(block.address == memory);
    OK(millpond_free(pond, memory));
    FAILS(core->free(block.context), MILLPOND_NOT_A_BLOCK, "freed before");
    FAILS(millpond_free(pond, memory), MILLPOND_NOT_A_BLOCK, "is not the address");
    CHECK(millpond_torch_alloc((ssize_t)(3 * MIB), 0, stream) == memory);
    millpond_torch_free(memory, (ssize_t)(3 * MIB), 0, stream);

    /* Another stream does not get it, and one that is recorded through another door is waited for. */
    CHECK(alloc(3 * MIB, NULL) != memory);
    block = core->alloc(0, stream, 3 * MIB, NULL);
    OK(millpond_record_stream(pond, block.address, NULL));
    OK(core->free(block.context));
    CHECK(figure(pond, "active.all.current") == 2);
    OK(core->empty_cache(0, NULL));
    CHECK(figure(pond, "active.all.current") == 1);
    OK(millpond_reset_peaks(pond));
    OK(core->usage(0, &usage));
    CHECK(usage.max_allocated_bytes == 3 * MIB && usage.reserved_bytes == 20 * MIB);
}

static void a_block_belongs_to_its_device(void) {
    millpond_allocator *other;
    void *start;
    OK(millpond_shared(1, NULL, &other));
    void *here = alloc(512, NULL), *there;
    OK(millpond_alloc(other, 512, NULL, &there));
    FAILS(millpond_free(other, here), MILLPOND_NOT_A_BLOCK, "is not the address");
    FAILS(millpond_free(pond, there), MILLPOND_NOT_A_BLOCK, "is not the address");
    FAILS(millpond_find(other, here, &start, NULL), MILLPOND_NOT_A_BLOCK, "is not the address");
    FAILS(millpond_record_stream(pond, there, NULL), MILLPOND_NOT_A_BLOCK, "is not the address");
    OK(millpond_find(other, there, &start, NULL));
    CHECK(start == there);
    OK(millpond_free(pond, here));
    OK(core->free(there));
}

/* A stream that was released is known nowhere: not in the pools that the framework has named, either. */
static void a_stream_is_released_for_all(void) {
    millpond_core_pool pool = {0, 7};
    millpond_stream stream;
    OK(millpond_stream_create(pond, &stream));
    OK(core->pool_ref(0, pool, NULL));
    millpond_core_block block = core->alloc(0, stream, MIB, &pool);
    CHECK(block.address != NULL);
    OK(core->free(block.context));
    OK(millpond_stream_release(pond, stream));
    FAILS(millpond_stream_release(pond, stream), MILLPOND_BAD_ARGUMENT, "released before");
    if (!is_cuda) { /* There the handle may be that of a new stream. */
        block = core->alloc(0, stream, MIB, &pool);
        CHECK(block.address == NULL && strstr(millpond_last_error(), "was released") != NULL);
    }
    OK(core->pool_unref(0, pool));
    FAILS(millpond_stream_release(pond, NULL), MILLPOND_BAD_ARGUMENT, "the default stream");
}

static void *on_its_own_stream(void *memory) {
    millpond_stream per_thread = (void *)2;
    millpond_core_pool pool = {0, 9};
    void *own = alloc(9 * MIB, per_thread);
    CHECK(own != memory);
    OK(millpond_free(pond, own));
    CHECK(core->alloc(0, per_thread, 9 * MIB, NULL).address == own);
    void *inside = core->alloc(0, per_thread, 9 * MIB, &pool).address;
    CHECK(inside != NULL);
    OK(core->free(inside));
    CHECK(core->alloc(0, per_thread, 9 * MIB, &pool).address == inside);
    OK(core->free(inside));
    OK(millpond_stream_release(pond, per_thread));
    OK(millpond_free(pond, own));
    return inside;
}

/* CU_STREAM_LEGACY is NULL under another name, and CU_STREAM_PER_THREAD is another stream on each thread. */
static void names_of_default_streams(void) {
    millpond_stream legacy = (void *)1, per_thread = (void *)2;
    void *memory = alloc(5 * MIB, NULL);
    OK(millpond_free(pond, memory));
    CHECK(alloc(5 * MIB, legacy) == memory);
    OK(millpond_record_stream(pond, memory, NULL));
    OK(millpond_free(pond, memory));
    CHECK(core->alloc(0, NULL, 5 * MIB, NULL).address == memory);
    OK(core->free(memory));
    FAILS(millpond_stream_release(pond, legacy), MILLPOND_BAD_ARGUMENT, "the default stream");
    CHECK(alloc(5 * MIB, NULL) == memory);
    OK(millpond_free(pond, memory));

    pthread_t thread;
    void *other;
    millpond_core_pool pool = {0, 9};
    OK(core->pool_ref(0, pool, NULL));
    memory = alloc(9 * MIB, per_thread);
    OK(millpond_free(pond, memory));
    void *inside = core->alloc(0, per_thread, 9 * MIB, &pool).address;
    OK(core->free(inside));
    CHECK(pthread_create(&thread, NULL, on_its_own_stream, memory) == 0 && pthread_join(thread, &other) == 0);
    CHECK(other != inside && alloc(9 * MIB, per_thread) == memory);
    CHECK(core->alloc(0, per_thread, 9 * MIB, &pool).address == inside);
    OK(core->free(inside));
    OK(millpond_free(pond, memory));
    OK(core->pool_unref(0, pool));
    OK(millpond_stream_release(pond, per_thread));
    FAILS(millpond_stream_release(pond, per_thread), MILLPOND_BAD_ARGUMENT, "released before");
}

int main(int argc, char **argv) {
    is_cuda = strncmp(test_device(argc, argv), "cuda", 4) == 0;
    core = millpond_core_get(MILLPOND_CORE_ABI);
    one_configuration();
    what_one_door_frees_another_gets();
    a_block_belongs_to_its_device();
    a_stream_is_released_for_all();
    if (is_cuda) {
        names_of_default_streams();
    }
    return 0;
}
