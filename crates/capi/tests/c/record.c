/* The recordings of millpond_core.h. The last argument is a folder for traces. */
#include <unistd.h>

#include "check.h"
#include "millpond_core.h"

static const millpond_core_v1 *core;

static void *alloc(uint64_t bytes) {
    millpond_core_block block = core->alloc(0, NULL, bytes, NULL);
    CHECK(block.address != NULL);
    return block.context;
}

/* Checks the lines of a trace but those with times, which differ from run to run. */
static void expect(const char *path, const char *expected) {
    char text[400] = {0}, line[200];
    int times = 0;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "i ", 2) == 0) {
            times++;
        } else if (strncmp(line, "o ", 2) == 0) {
            /* The allocator has asked how far the device is. */
        } else {
            strncat(text, line, sizeof text - strlen(text) - 1);
        }
    }
    fclose(file);
    CHECK(times > 0);
    CHECK(strcmp(text, expected) == 0);
}

int main(int argc, char **argv) {
    test_device(argc, argv);
    core = millpond_core_get(MILLPOND_CORE_ABI);
    CHECK(core != NULL && core->size >= sizeof *core);
    char path[1000], nowhere[1100];
    snprintf(path, sizeof path, "%s/record-%d.trace", getenv("FOLDER"), (int)getpid());
    snprintf(nowhere, sizeof nowhere, "%s/no/such.trace", path);

    CHECK(core->record_stop(0, path, NULL) == MILLPOND_BAD_ARGUMENT); /* Not opened, and not recorded. */
    CHECK(core->record_start(64) == MILLPOND_BAD_ARGUMENT);
    void *before = alloc(100);
    OK(core->record_start(0));
    void *one = alloc(1000), *two = alloc(3 * MIB);
    OK(core->record_stream(two, NULL));
    OK(core->free(before));
    OK(core->free(one));
    CHECK(core->record_stop(0, path, "[]") == MILLPOND_BAD_ARGUMENT); /* The recording goes on. */
    OK(core->free(two));
    OK(core->empty_cache(0, NULL));
    OK(core->record_stop(0, path, "{\"workload\": \"c\"}"));
    expect(path, "# {\"counted\":true,\"format\":3,\"workload\":\"c\"}\na 0 1000 0\na 1 3145728 0\nu 1 0\nf 0\nf 1\nm 0 0\ne\nr 0\n# end 9\n");
    CHECK(core->record_stop(0, path, NULL) == MILLPOND_BAD_ARGUMENT);

    /* A recording that is dropped, one that is begun anew, and one that cannot be written. */
    OK(core->record_start(0));
    OK(core->record_stop(0, NULL, NULL));
    OK(core->record_start(0));
    one = alloc(1000);
    OK(core->record_start(0));
    OK(core->free(one));
    OK(core->free(alloc(7)));
    OK(core->record_stop(0, path, NULL));
    expect(path, "# {\"counted\":true,\"format\":2}\na 0 7 0\nf 0\n# end 2\n");
    OK(core->record_start(0));
    CHECK(core->record_stop(0, nowhere, NULL) == MILLPOND_BAD_ARGUMENT);
    CHECK(strstr(millpond_last_error(), "such.trace") != NULL);

    /* A recording that is kept: it can be written once there is a place for it, and again, while the next one runs. */
    millpond_core_recording *kept = NULL;
    FAILS(core->record_take(0, &kept), MILLPOND_BAD_ARGUMENT, "is not being recorded");
    OK(core->record_start(0));
    OK(core->free(alloc(9)));
    FAILS(core->record_take(0, NULL), MILLPOND_BAD_ARGUMENT, "`out`");
    OK(core->record_take(0, &kept));
    FAILS(core->record_take(0, &kept), MILLPOND_BAD_ARGUMENT, "is not being recorded");
    OK(core->record_start(0));
    FAILS(core->recording_write(kept, nowhere, NULL), MILLPOND_BAD_ARGUMENT, "such.trace");
    FAILS(core->recording_write(kept, path, "{\"gpu\": 3}"), MILLPOND_BAD_ARGUMENT, "gpu");
    FAILS(core->recording_write(kept, NULL, NULL), MILLPOND_BAD_ARGUMENT, "`path`");
    FAILS(core->recording_write(NULL, path, NULL), MILLPOND_BAD_ARGUMENT, "`recording`");
    OK(core->recording_write(kept, path, "{\"workload\": \"one\"}"));
    expect(path, "# {\"counted\":true,\"format\":2,\"workload\":\"one\"}\na 0 9 0\nf 0\n# end 2\n");
    OK(core->recording_write(kept, path, NULL));
    expect(path, "# {\"counted\":true,\"format\":2}\na 0 9 0\nf 0\n# end 2\n");
    core->recording_drop(kept);
    core->recording_drop(NULL);
    OK(core->free(alloc(11)));
    OK(core->record_stop(0, path, NULL));
    expect(path, "# {\"counted\":true,\"format\":2}\na 0 11 0\nf 0\n# end 2\n");

    OK(core->header_check(NULL));
    OK(core->header_check("{\"workload\": \"one\"}"));
    FAILS(core->header_check("{\"workload\": 1}"), MILLPOND_BAD_ARGUMENT, "workload");
    FAILS(core->header_check("[]"), MILLPOND_BAD_ARGUMENT, "the header");

    /* A path is bytes, whatever they are. */
    char bytes[1100];
    snprintf(bytes, sizeof bytes, "%s-\xff", path);
    OK(core->record_start(0));
    OK(core->free(alloc(7)));
    OK(core->record_stop(0, bytes, NULL));
    expect(bytes, "# {\"counted\":true,\"format\":2}\na 0 7 0\nf 0\n# end 2\n");
    CHECK(remove(bytes) == 0);
    CHECK(remove(path) == 0);
    return 0;
}
