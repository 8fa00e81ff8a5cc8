/* What a child of `fork` may do with what it inherits, as a table: each line runs in a child of its own. */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "millpond_core.h"

static const char *device;
static const millpond_core_v1 *core;
static millpond_allocator *pond, *second;
static millpond_core_block block;
static millpond_core_recording *recording;
static void *memory, *torch_memory;
static millpond_stream stream;

/* Checks that a call fails because what it names is the parent's. */
#define REFUSED(call) FAILS(call, MILLPOND_BAD_ALLOCATOR, "was forked from one that had made allocators")

static void every_call_is_refused(void) {
    void *pointer = NULL;
    char *text = NULL;
    uint64_t number = 7;
    millpond_usage usage;
    REFUSED(millpond_alloc(pond, 512, NULL, &pointer));
    REFUSED(millpond_free(pond, memory));
    REFUSED(millpond_record_stream(pond, memory, NULL));
    REFUSED(millpond_find(pond, memory, &pointer, &number));
    REFUSED(millpond_stream_create(pond, &pointer));
    REFUSED(millpond_stream_release(pond, stream));
    REFUSED(millpond_trim(pond, 0, &number));
    REFUSED(millpond_empty_cache(pond));
    REFUSED(millpond_get_usage(pond, &usage));
    REFUSED(millpond_stats_json(pond, &text));
    REFUSED(millpond_pool_create(pond, &number));
    REFUSED(millpond_destroy(pond, &number));
    REFUSED(millpond_destroy(second, NULL));
    CHECK(pointer == NULL && text == NULL && number == 7);
    OK(millpond_destroy(NULL, NULL));
}

static void another_allocator_works(void) {
    millpond_allocator *own;
    void *pointer;
    OK(millpond_create("sim", "", &own));
    CHECK(own != pond && own != second);
    OK(millpond_alloc(own, 512, NULL, &pointer));
    OK(millpond_free(own, pointer));
    OK(millpond_destroy(own, NULL));
    FAILS(millpond_alloc(own, 512, NULL, &pointer), MILLPOND_BAD_ALLOCATOR, "was destroyed");
    REFUSED(millpond_alloc(pond, 512, NULL, &pointer));
}

static void a_gpu_is_the_parents(void) {
    millpond_allocator *own = NULL;
    if (strncmp(device, "cuda", 4) == 0) {
        REFUSED(millpond_create(device, "", &own));
        CHECK(own == NULL);
    }
}

static void the_table_is_refused(void) {
    millpond_core_place place;
    millpond_core_segment segment;
    millpond_core_stats stats;
    millpond_core_limits limits;
    millpond_core_page page = {2 * MIB, 0, 0, 0};
    double share;
    char *text;
    uint64_t largest;
    void *address;
    millpond_core_block none = core->alloc(0, NULL, 512, NULL);
    CHECK(none.address == NULL && (intptr_t)none.context == MILLPOND_BAD_ALLOCATOR);
    none = core->alloc(1, NULL, 512, NULL);
    CHECK(none.address == NULL && (intptr_t)none.context == MILLPOND_BAD_ALLOCATOR);
    REFUSED(core->record_stream(block.context, NULL));
    REFUSED(core->find(block.context, &place));
    REFUSED(core->find(block.address, &place));
    REFUSED(core->at((char *)block.address + 5, &place));
    REFUSED(core->base_of(block.address, &segment));
    REFUSED(core->empty_cache(0, NULL));
    REFUSED(core->stats(0, &stats));
    REFUSED(core->stats_json(0, &text));
    REFUSED(core->limits(0, &limits));
    REFUSED(core->largest_free(0, &largest));
    REFUSED(core->set_fraction(0, 0.5));
    REFUSED(core->get_fraction(0, &share));
    REFUSED(core->configure("policy:classic"));
    REFUSED(core->configuration(&text));
    REFUSED(core->record_start(0));
    REFUSED(core->record_stop(0, NULL, NULL));
    REFUSED(core->open_shared(0, &page, 1, &address));
    REFUSED(core->close_shared(memory));
}

static void what_is_inherited_is_dropped(void) {
    OK(core->free(block.context));
    FAILS(core->free(block.context), MILLPOND_NOT_A_BLOCK, "freed before");
    core->recording_drop(recording);
    millpond_torch_free(torch_memory, 512, 0, NULL);
    millpond_torch_free(torch_memory, 512, 0, NULL);
    CHECK(strstr(millpond_last_error(), "freed before") != NULL); /* Nothing has failed since. */
}

static void pytorchs_allocators_are_refused(void) {
    millpond_allocator *own;
    CHECK(millpond_torch_alloc(512, 0, NULL) == NULL);
    CHECK(strstr(millpond_last_error(), "was forked from one") != NULL);
    REFUSED(millpond_torch_allocator(1, &own));
}

static void a_child_of_the_child_is_told_too(void) {
    every_call_is_refused();
    int status = 1;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        every_call_is_refused();
        the_table_is_refused();
        a_gpu_is_the_parents();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static const struct line {
    const char *name;
    void (*run)(void);
    bool exits; /* as a program does, and not with _exit */
} lines[] = {
    {"every call is refused", every_call_is_refused, false},
    {"another allocator works", another_allocator_works, true},
    {"a GPU is the parent's", a_gpu_is_the_parents, false},
    {"the table is refused", the_table_is_refused, true},
    {"what is inherited is dropped", what_is_inherited_is_dropped, true},
    {"PyTorch's allocators are refused", pytorchs_allocators_are_refused, false},
    {"a child of the child is told too", a_child_of_the_child_is_told_too, true},
};

/* Runs a line in a child. */
static void in_a_child(const struct line *line) {
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20); /* A call that waits for a lock of the parent's ends here. */
        line->run();
        if (line->exits) {
            exit(0);
        }
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "%s: the child ended with %#x\n", line->name, (unsigned)status);
        exit(1);
    }
}

/* Before its first allocator a process has nothing that a child could not use. */
static void forked_before_the_first(void) {
    char *text;
    CHECK(core->alloc(0, NULL, 512, NULL).address != NULL);
    OK(core->configuration(&text));
    core->string_free(text);
    OK(millpond_create(device, "", &pond));
    OK(millpond_alloc(pond, 512, NULL, &memory));
    OK(millpond_destroy(pond, NULL));
}

int main(int argc, char **argv) {
    device = test_device(argc, argv);
    core = millpond_core_get(MILLPOND_CORE_ABI);
    OK(core->configure("policy:paged"));
    in_a_child(&(struct line){"forked before the first allocator", forked_before_the_first, true});

    uint64_t live = 0;
    OK(millpond_create(device, "policy:paged", &pond));
    OK(millpond_create("sim:3", "policy:classic", &second));
    OK(millpond_stream_create(pond, &stream));
    OK(millpond_alloc(pond, 4 * MIB, stream, &memory));
    OK(core->record_start(0));
    block = core->alloc(0, NULL, 3 * MIB, NULL);
    CHECK(block.address != NULL);
    OK(core->record_take(0, &recording));
    torch_memory = millpond_torch_alloc(512, 0, NULL);
    CHECK(torch_memory != NULL);
    for (size_t at = 0; at < sizeof lines / sizeof *lines; at += 1) {
        in_a_child(&lines[at]);
    }

    /* Nothing of that has touched the parent. */
    millpond_core_place place;
    OK(core->find(block.context, &place));
    OK(core->free(block.context));
    core->recording_drop(recording);
    millpond_torch_free(torch_memory, 512, 0, NULL);
    OK(millpond_free(pond, memory));
    OK(millpond_destroy(pond, &live));
    CHECK(live == 0);
    OK(millpond_destroy(second, NULL));
    return 0;
}
