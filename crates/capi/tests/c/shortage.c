/* Hooks that run before a request is refused, requests of the cache alone, and forecasts. */
#include "check.h"

#include "millpond_core.h"

/* A program that has blocks which it can do without. */
struct program {
    millpond_allocator *pond;
    void *spare[4];
    int count;
    int calls;
    int ends;
    uint32_t attempt;
};

static int32_t spill(void *user, const millpond_shortage *shortage) {
    struct program *program = user;
    void *block = (void *)8;
    program->calls += 1;
    program->attempt = shortage->attempt;
    CHECK(shortage->size == sizeof *shortage && shortage->rejected == 0);
    CHECK(shortage->requested_bytes == 40 * MIB && shortage->limit_bytes == 64 * MIB);
    CHECK(shortage->short_bytes > 0 && strstr(shortage->text, "out of memory") != NULL);
    CHECK(shortage->reserved_bytes >= shortage->allocated_bytes && shortage->total_bytes > 64 * MIB);
    FAILS(millpond_alloc(program->pond, 40 * MIB, NULL, &block), MILLPOND_BAD_ARGUMENT, "a hook that runs");
    CHECK(block == (void *)8);
    OK(millpond_alloc_cached(program->pond, 40 * MIB, NULL, &block));
    CHECK(block == NULL);
    if (program->count == 0) {
        return 0;
    }
    OK(millpond_free(program->pond, program->spare[--program->count]));
    return 1;
}

static void ends(void *user) {
    ((struct program *)user)->ends += 1;
}

static void hooks(const char *device) {
    struct program program = {0};
    millpond_hook hook = {&program, spill, ends};
    uint64_t number = 0, none = 0;
    void *block = NULL;
    OK(millpond_create(device, "policy:paged", &program.pond));
    OK(millpond_set_limit(program.pond, 64 * MIB));
    while (program.count < 3) {
        OK(millpond_alloc(program.pond, 20 * MIB, NULL, &program.spare[program.count++]));
    }
    FAILS(millpond_hook_add(program.pond, NULL, &number), MILLPOND_BAD_ARGUMENT, "`hook` is a null pointer");
    FAILS(millpond_hook_add(program.pond, &hook, NULL), MILLPOND_BAD_ARGUMENT, "`out` is a null pointer");
    FAILS(millpond_hook_add(NULL, &hook, &number), MILLPOND_BAD_ALLOCATOR, "null pointer");
    millpond_hook empty = {&program, NULL, ends};
    FAILS(millpond_hook_add(program.pond, &empty, &number), MILLPOND_BAD_ARGUMENT, "`hook->call` is a null pointer");
    CHECK(number == 0 && program.ends == 0);

    OK(millpond_hook_add(program.pond, &hook, &number));
    OK(millpond_alloc(program.pond, 40 * MIB, NULL, &block));
    CHECK(program.calls == 2 && program.attempt == 2 && program.count == 1);
    CHECK(figure(program.pond, "num_ooms") == 0);
    OK(millpond_free(program.pond, program.spare[--program.count]));
    /* The hook has nothing left, so the request is refused. */
    void *more = NULL;
    FAILS(millpond_alloc(program.pond, 40 * MIB, NULL, &more), MILLPOND_OUT_OF_MEMORY, "out of memory");
    CHECK(program.calls == 3 && figure(program.pond, "num_ooms") == 1);

    OK(millpond_hook_remove(program.pond, number));
    CHECK(program.ends == 1);
    FAILS(millpond_hook_remove(program.pond, number), MILLPOND_BAD_ARGUMENT, "was removed");
    FAILS(millpond_alloc(program.pond, 40 * MIB, NULL, &more), MILLPOND_OUT_OF_MEMORY, "out of memory");
    CHECK(program.calls == 3 && more == NULL);
    /* One that is not removed ends with the allocator. */
    OK(millpond_hook_add(program.pond, &hook, &none));
    CHECK(none != number);
    OK(millpond_destroy(program.pond, NULL));
    CHECK(program.ends == 2);
}

static void forecasts(const char *device, const char *conf) {
    millpond_allocator *pond;
    millpond_fit fit;
    void *block, *cached = (void *)8;
    OK(millpond_create(device, conf, &pond));
    OK(millpond_set_limit(pond, 64 * MIB));
    OK(millpond_would_fit(pond, 40 * MIB, NULL, &fit));
    CHECK(fit.served_by == MILLPOND_NEW && fit.bound == MILLPOND_NO_BOUND && fit.reserves_bytes == 40 * MIB);
    OK(millpond_alloc_cached(pond, 40 * MIB, NULL, &cached));
    CHECK(cached == NULL);
    OK(millpond_alloc(pond, 40 * MIB, NULL, &block));
    OK(millpond_would_fit(pond, 40 * MIB, NULL, &fit));
    CHECK(fit.served_by == MILLPOND_NOTHING && fit.bound == MILLPOND_LIMIT && fit.bound_bytes == 64 * MIB);
    CHECK(fit.short_bytes == 16 * MIB && fit.reserves_bytes == 0 && fit.reserved == 0);
    OK(millpond_free(pond, block));
    OK(millpond_would_fit(pond, 40 * MIB, NULL, &fit));
    CHECK(fit.served_by == MILLPOND_CACHED && fit.reserves_bytes == 0 && fit.waits == 0 && fit.releases_bytes == 0);
    OK(millpond_alloc_cached(pond, 40 * MIB, NULL, &cached));
    CHECK(cached == block);
    OK(millpond_free(pond, cached));
    OK(millpond_alloc_cached(pond, 0, NULL, &cached));
    CHECK(cached == NULL);
    OK(millpond_would_fit(pond, 0, NULL, &fit));
    CHECK(fit.served_by == MILLPOND_CACHED);
    OK(millpond_set_limit(pond, UINT64_MAX));
    OK(millpond_would_fit(pond, (uint64_t)1 << 50, NULL, &fit));
    CHECK(fit.served_by == MILLPOND_NOTHING && fit.bound == MILLPOND_DEVICE && fit.short_bytes > 0);
    FAILS(millpond_would_fit(pond, MIB, NULL, NULL), MILLPOND_BAD_ARGUMENT, "`out` is a null pointer");
    FAILS(millpond_would_fit(pond, UINT64_MAX, NULL, &fit), MILLPOND_OUT_OF_MEMORY, "2^60");
    FAILS(millpond_alloc_cached(pond, MIB, NULL, NULL), MILLPOND_BAD_ARGUMENT, "`out` is a null pointer");
    OK(millpond_destroy(pond, NULL));
}

static int host_calls, table_calls;

static int32_t free_memory(int32_t device) {
    CHECK(device == 0);
    host_calls += 1;
    return 1;
}

static int32_t lift(void *user, const millpond_shortage *shortage) {
    const millpond_core_v1 *core = user;
    table_calls += 1;
    /* The host's function was asked before, and freed nothing. */
    CHECK(host_calls == 1 && shortage->attempt == 2 && shortage->device == 0);
    OK(core->set_fraction(0, 1));
    return 1;
}

static void table(void) {
    static const millpond_core_host host = {sizeof host, 0, free_memory, NULL};
    const millpond_core_v1 *core = millpond_core_get(MILLPOND_CORE_ABI);
    millpond_hook hook = {(void *)core, lift, NULL};
    millpond_core_limits limits;
    millpond_core_stats stats;
    millpond_fit fit;
    uint64_t number;
    OK(core->lend(&host));
    OK(core->limits(0, &limits));
    OK(core->set_fraction(0, 64.5 * MIB / limits.total_bytes));
    OK(core->would_fit(0, NULL, 80 * MIB, &fit));
    CHECK(fit.served_by == MILLPOND_NOTHING && fit.bound == MILLPOND_LIMIT);
    OK(core->hook_add(0, &hook, &number));
    millpond_core_block block = core->alloc(0, NULL, 80 * MIB, NULL);
    CHECK(block.address != NULL && table_calls == 1);
    OK(core->stats(0, &stats));
    CHECK(stats.num_ooms == 0);
    OK(core->free(block.context));
    OK(core->hook_remove(0, number));
    FAILS(core->hook_remove(0, number), MILLPOND_BAD_ARGUMENT, "was removed");
    OK(core->would_fit(0, NULL, 80 * MIB, &fit));
    CHECK(fit.served_by == MILLPOND_CACHED);
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    hooks(device);
    forecasts(device, "policy:paged");
    forecasts(device, "policy:classic");
    table();
    return 0;
}
