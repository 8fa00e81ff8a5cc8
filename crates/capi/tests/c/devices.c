/* A request that throw_on_cudamalloc_oom refuses before anything is tried, and what a process with two devices sees. */
#include "check.h"
#include "millpond_core.h"

static const millpond_core_v1 *core;
static int asked;

static int32_t free_memory(int32_t device) {
    CHECK(device == 0);
    asked += 1;
    return 0;
}

static const millpond_core_host host = {sizeof host, 0, free_memory, NULL};

/* The host is not asked to free memory for a request that is refused whatever it frees. */
static void rejected(void) {
    millpond_core_limits limits;
    millpond_core_oom oom;
    OK(core->limits(0, &limits));
    CHECK((intptr_t)core->alloc(0, NULL, limits.total_bytes, NULL).context == MILLPOND_OUT_OF_MEMORY);
    OK(core->oom(&oom));
    CHECK(oom.rejected == 1 && asked == 0);
}

/* A block is one of the device that it was allocated on, and goes back there. */
static void two_devices(void) {
    millpond_core_block blocks[2];
    millpond_core_place place;
    millpond_usage usage;
    for (int device = 0; device < 2; device += 1) {
        blocks[device] = core->alloc(device, NULL, 1000 << device, NULL);
        CHECK(blocks[device].address != NULL);
    }
    CHECK(blocks[0].address != blocks[1].address);
    for (int device = 0; device < 2; device += 1) {
        OK(core->find(blocks[device].context, &place));
        CHECK(place.device == device && place.bytes == (uint64_t)1024 << device);
        OK(core->at((char *)blocks[device].address + 700, &place));
        CHECK(place.device == device && place.address == (uint64_t)(uintptr_t)blocks[device].address);
        OK(core->usage(device, &usage));
        CHECK(usage.allocated_bytes == (uint64_t)1024 << device);
    }
    OK(core->free(blocks[1].context));
    OK(core->usage(1, &usage));
    CHECK(usage.allocated_bytes == 0);
    OK(core->usage(0, &usage));
    CHECK(usage.allocated_bytes == 1024);
    OK(core->free(blocks[0].address));
    OK(core->usage(0, &usage));
    CHECK(usage.allocated_bytes == 0);
}

int main(int argc, char **argv) {
    test_device(argc, argv);
    core = millpond_core_get(MILLPOND_CORE_ABI);
    OK(core->configure("policy:classic,throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5"));
    OK(core->lend(&host));
    rejected();
    two_devices();
    return 0;
}
