/* Settings that change before a device is used, and while it is. */
#include "check.h"
#include "millpond_core.h"

static const millpond_core_v1 *core;

static void is_configured(const char *expected) {
    char *text;
    OK(core->configuration(&text));
    if (strcmp(text, expected) != 0) {
        fprintf(stderr, "configured as \"%s\" in place of \"%s\"\n", text, expected);
        exit(1);
    }
    core->string_free(text);
}

static void change(const char *conf, const char *kept, const char *unserved) {
    char *stays, *missing;
    OK(core->reconfigure(conf, &stays, &missing));
    if (strcmp(stays, kept) != 0 || strcmp(missing, unserved) != 0) {
        fprintf(stderr, "%s: \"%s\" stays and \"%s\" is missing\n", conf, stays, missing);
        exit(1);
    }
    core->string_free(stays);
    core->string_free(missing);
}

static uint64_t rounded(int device, uint64_t bytes) {
    millpond_core_block block = core->alloc(device, NULL, bytes, NULL);
    millpond_core_place place;
    CHECK(block.address != NULL);
    OK(core->find(block.context, &place));
    OK(core->free(block.context));
    return place.bytes;
}

static double fraction(int device) {
    double share;
    OK(core->get_fraction(device, &share));
    return share;
}

static void texts(void) {
    char *text, *other;
    OK(core->keys(&text));
    CHECK(strstr(text, "backend,") == text && strstr(text, ",release_lock_on_hipmalloc,") != NULL);
    core->string_free(text);
    OK(core->configure("graph_capture_record_stream_reuse:True,pinned_use_background_threads:True"));
    OK(core->unserved(&text));
    CHECK(strcmp(text, "graph_capture_record_stream_reuse") == 0);
    core->string_free(text);
    FAILS(core->keys(NULL), MILLPOND_BAD_ARGUMENT, "null");
    FAILS(core->reconfigure(NULL, &text, &other), MILLPOND_BAD_ARGUMENT, "null");
    FAILS(core->reconfigure("slack:1", NULL, &other), MILLPOND_BAD_ARGUMENT, "null");
}

int main(int argc, char **argv) {
    char *one, *other;
    test_device(argc, argv);
    core = millpond_core_get(MILLPOND_CORE_ABI);
    texts();

    /* Before any device is used every key acts. */
    OK(core->configure("policy:paged,max_split_size_mb:64"));
    OK(core->set_fraction(1, 0.25));
    change("policy:classic,roundup_power2_divisions:2", "", "");
    is_configured("policy:classic,max_split_size_mb:64,roundup_power2_divisions:2");
    CHECK(rounded(0, 5000) == 6144 && fraction(0) == 1 && fraction(1) == 0.25);

    /* Then the policy stays, also for devices that are used later. */
    change("policy:paged,roundup_power2_divisions:4,expandable_segments_reserve:0.5,backend:native", "policy",
           "expandable_segments_reserve");
    is_configured("policy:classic,max_split_size_mb:64,roundup_power2_divisions:4");
    CHECK(rounded(0, 5000) == 5120 && rounded(1, 5000) == 5120);
    change("expandable_segments:False", "", "");
    change("expandable_segments:True,per_process_memory_fraction:0.5", "expandable_segments", "");
    CHECK(fraction(0) == 0.5 && fraction(1) == 0.5);
    is_configured("policy:classic,max_split_size_mb:64,roundup_power2_divisions:4,per_process_memory_fraction:0.5");

    /* A mistake changes nothing. */
    FAILS(core->reconfigure("roundup_power2_divisions:8,slack:-1", &one, &other), MILLPOND_BAD_ARGUMENT, "`slack`");
    CHECK(rounded(0, 5000) == 5120);
    return 0;
}
