/* Two copies of the library in one process: the one that is linked, and one that COPY names. */
#include "check.h"

typedef millpond_status create(const char *, const char *, millpond_allocator **);
typedef millpond_status destroy(millpond_allocator *, uint64_t *);
typedef millpond_status allocate(millpond_allocator *, uint64_t, millpond_stream, void **);
typedef const char *last_error(void);

static void *copy;

/* Finds a function of the copy. */
static void *of_the_copy(const char *name) {
    void *found = dlsym(copy, name);
    CHECK(found != NULL);
    return found;
}

int main(int argc, char **argv) {
    const char *device = test_device(argc, argv);
    copy = dlopen(getenv("COPY"), RTLD_NOW | RTLD_LOCAL);
    CHECK(copy != NULL);
    create *other_create = (create *)of_the_copy("millpond_create");
    destroy *other_destroy = (destroy *)of_the_copy("millpond_destroy");
    allocate *other_alloc = (allocate *)of_the_copy("millpond_alloc");
    last_error *other_error = (last_error *)of_the_copy("millpond_last_error");
    CHECK(other_create != millpond_create);

    /* Used as often as each other, from the same start. */
    for (int round = 0; round < 20; round += 1) {
        millpond_allocator *mine, *theirs;
        void *block;
        OK(millpond_create(device, "", &mine));
        OK(other_create(device, "", &theirs));
        CHECK(mine != theirs);
        FAILS(millpond_destroy(theirs, NULL), MILLPOND_BAD_ALLOCATOR, "another copy of libmillpond");
        FAILS(millpond_alloc(theirs, 512, NULL, &block), MILLPOND_BAD_ALLOCATOR, "another copy of libmillpond");
        CHECK(other_destroy(mine, NULL) == MILLPOND_BAD_ALLOCATOR);
        CHECK(other_alloc(mine, 512, NULL, &block) == MILLPOND_BAD_ALLOCATOR);
        CHECK(strstr(other_error(), "another copy of libmillpond") != NULL);
        OK(millpond_alloc(mine, 512, NULL, &block));
        OK(other_alloc(theirs, 512, NULL, &block));
        OK(millpond_destroy(mine, NULL));
        FAILS(millpond_destroy(theirs, NULL), MILLPOND_BAD_ALLOCATOR, "another copy of libmillpond");
        OK(other_destroy(theirs, NULL));
    }
    return 0;
}
