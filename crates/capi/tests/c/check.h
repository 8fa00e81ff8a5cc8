/* What the test programs have in common: checks that say what was wrong, and the device to test on. */
#ifndef CHECK_H
#define CHECK_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "millpond.h"

#define MIB ((uint64_t)1 << 20)

/* Ends the program with the line and the text, unless the condition holds. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Checks that a call returned MILLPOND_OK. */
#define OK(call) check_status((call), MILLPOND_OK, "", #call, __FILE__, __LINE__)

/* Checks that a call failed with that status, and that the text of the error has that part. */
#define FAILS(call, status, part) check_status((call), (status), (part), #call, __FILE__, __LINE__)

static inline void check_status(millpond_status is, millpond_status expected, const char *part, const char *call,
                                const char *file, int line) {
    if (is != expected || (expected != MILLPOND_OK && strstr(millpond_last_error(), part) == NULL)) {
        fprintf(stderr, "%s:%d: %s: status %d in place of %d, \"%s\" (expected: \"%s\")\n", file, line, call, (int)is,
                (int)expected, millpond_last_error(), part);
        exit(1);
    }
}

/* Returns the device that the test names as the first argument. The second, where there is one, is the library that
 * stands for CUDA's driver: loaded first, it is the one that is found under the driver's name. */
static inline const char *test_device(int argc, char **argv) {
    CHECK(argc >= 2);
    if (argc >= 3 && dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return argv[1];
}

/* Returns a figure of the statistics. */
static inline long long figure(millpond_allocator *pond, const char *key) {
    char *json, quoted[64];
    OK(millpond_stats_json(pond, &json));
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *found = strstr(json, quoted);
    if (found == NULL) {
        fprintf(stderr, "no %s in %s\n", key, json);
        exit(1);
    }
    long long value = atoll(found + strlen(quoted));
    millpond_string_free(json);
    return value;
}

#endif
