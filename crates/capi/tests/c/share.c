/* Memory of pages in two processes. The first argument after the library is a program to run: this one, which fetches the
 * descriptors of its parent and looks at the bytes with the driver's own calls. */
#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "millpond_core.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* What the child ends with where the system does not let it have descriptors. */
#define REFUSED 77

enum { MOST = 64 };

typedef int copies_to(uint64_t, const void *, size_t);
typedef int copies_from(void *, uint64_t, size_t);

static const millpond_core_v1 *core;
static millpond_core_page pages[MOST];
static uint64_t count;

static void page(void *user, const millpond_core_page *page) {
    CHECK(user == pages && count < MOST && page->bytes != 0 && page->descriptor >= 0 && page->reserved == 0);
    pages[count++] = *page;
}

static const millpond_core_pages sink = {pages, page};

/* Shares an address. Returns its offset in the first page. */
static uint64_t share(const void *address) {
    uint64_t offset = UINT64_MAX;
    count = 0;
    OK(core->share(address, &sink, &offset));
    CHECK(count > 0 && offset < pages[0].bytes);
    return offset;
}

static void write_bytes(void *address, const void *bytes, size_t length) {
    copies_to *copy = (copies_to *)dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2");
    CHECK(copy != NULL && copy((uint64_t)(uintptr_t)address, bytes, length) == 0);
}

static void expect_bytes(const char *address, const char *bytes) {
    char found[32] = "";
    copies_from *copy = (copies_from *)dlsym(RTLD_DEFAULT, "cuMemcpyDtoH_v2");
    CHECK(copy != NULL && copy(found, (uint64_t)(uintptr_t)address, strlen(bytes)) == 0);
    if (strcmp(found, bytes) != 0) {
        fprintf(stderr, "%s in place of %s\n", found, bytes);
        exit(1);
    }
}

/* The calls of the driver above need a context, which the first use of a device does not leave current. */
static void use_context(void) {
    void *context = NULL;
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cuCtxSetCurrent");
    CHECK(retain != NULL && set != NULL && retain(&context, 0) == 0 && set(context) == 0);
}

static int open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int files = 0;
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) {
        files += 1;
    }
    CHECK(closedir(folder) == 0);
    return files;
}

/* What the other process does: the arguments are its parent, the offset, and the descriptor and bytes of each page. */
static int other_process(int argc, char **argv) {
    int parent = atoi(argv[0]), process = (int)syscall(SYS_pidfd_open, parent, 0);
    uint64_t offset = strtoull(argv[1], NULL, 10), bytes = 0;
    void *address;
    if (process < 0) {
        return REFUSED;
    }
    for (int at = 2; at + 1 < argc; at += 2, count += 1) {
        pages[count].descriptor = (int)syscall(SYS_pidfd_getfd, process, atoi(argv[at]), 0);
        pages[count].bytes = strtoull(argv[at + 1], NULL, 10);
        bytes += pages[count].bytes;
        if (pages[count].descriptor < 0) {
            CHECK(errno == EPERM || errno == ENOSYS);
            return REFUSED;
        }
    }
    CHECK(close(process) == 0);
    OK(core->open_shared(0, pages, count, &address));
    for (uint64_t at = 0; at < count; at += 1) {
        CHECK(close(pages[at].descriptor) == 0);
    }
    use_context();
    expect_bytes((char *)address + offset, "from the parent");
    write_bytes((char *)address + offset, "from the child.", 15);
    write_bytes((char *)address + bytes - 1, "!", 1);
    OK(core->close_shared(address));
    millpond_core_stats stats;
    OK(core->stats(0, &stats));
    CHECK(stats.reserved_bytes[0].current == 0);
    return 0;
}

/* Has another process read and write a block. Returns whether the system let it have the descriptors. */
static int in_another_process(char **argv, char *block) {
    char texts[2 + 2 * MOST][24], *arguments[6 + 2 * MOST] = {argv[0], argv[1], argv[2], "child"};
    uint64_t offset = share(block), taken = 2;
    write_bytes(block, "from the parent", 15);
    snprintf(texts[0], sizeof texts[0], "%d", (int)getpid());
    snprintf(texts[1], sizeof texts[1], "%llu", (unsigned long long)offset);
    for (uint64_t at = 0; at < count; at += 1) {
        snprintf(texts[taken++], sizeof texts[0], "%d", pages[at].descriptor);
        snprintf(texts[taken++], sizeof texts[0], "%llu", (unsigned long long)pages[at].bytes);
    }
    for (uint64_t at = 0; at < taken; at += 1) {
        arguments[4 + at] = texts[at];
    }
    /* Where a child may not look into its parent, this one may. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pid_t child = fork();
    int status = 0;
    CHECK(child >= 0);
    if (child == 0) {
        execv(argv[0], arguments);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == REFUSED) {
        return 0;
    }
    CHECK(WEXITSTATUS(status) == 0);
    expect_bytes(block, "from the child.");
    return 1;
}

static char *alloc(uint64_t bytes) {
    char *address = core->alloc(0, NULL, bytes, NULL).address;
    CHECK(address != NULL);
    return address;
}

/* The same in this process: another address, the same bytes. */
static void in_this_process(char *block, uint64_t bytes) {
    uint64_t first = share(block), last;
    void *address;
    int files = open_files();
    OK(core->open_shared(0, pages, count, &address));
    char *there = (char *)address + first;
    CHECK(there != block);
    write_bytes(block + bytes - 4, "last", 4);
    expect_bytes(there + bytes - 4, "last");
    write_bytes(there, "first", 5);
    expect_bytes(block, "first");
    last = share(block + 4);
    CHECK(last == first + 4);
    OK(core->close_shared(address));
    FAILS(core->close_shared(address), MILLPOND_BAD_ARGUMENT, "is not the address of an import");
    CHECK(open_files() == files);
}

static void refusals(char *block) {
    uint64_t offset;
    void *address;
    millpond_core_page none = {2 * MIB, 0, 0, 0}; /* Standard input. */
    FAILS(core->share(block, NULL, &offset), MILLPOND_BAD_ARGUMENT, "`sink`");
    FAILS(core->share(block, &sink, NULL), MILLPOND_BAD_ARGUMENT, "`offset`");
    FAILS(core->share(&offset, &sink, &offset), MILLPOND_NOT_A_BLOCK, "is not the address");
    FAILS(core->open_shared(0, NULL, 1, &address), MILLPOND_BAD_ARGUMENT, "`pages`");
    FAILS(core->open_shared(0, &none, 0, &address), MILLPOND_BAD_ARGUMENT, "0 pages");
    FAILS(core->open_shared(0, &none, 1, NULL), MILLPOND_BAD_ARGUMENT, "`out`");
    FAILS(core->open_shared(0, &none, 1, &address), MILLPOND_BAD_ARGUMENT, "the file descriptor 0 is not a page");
    none.descriptor = -1;
    FAILS(core->open_shared(0, &none, 1, &address), MILLPOND_BAD_ARGUMENT, "-1 is no file descriptor");
    OK(core->close_shared(NULL));
}

/* Parts of a block, and DMA buffers. */
static void exports(char *block, uint64_t bytes) {
    millpond_core_dma_buf made = {0, 0, 0, 1};
    uint64_t whole = share(block), all = count, offset;
    uint64_t last = pages[count - 1].number;
    count = 0;
    OK(core->export_pages(block + bytes - 1, 1, &sink, &offset));
    CHECK(count == 1 && pages[0].number == last && offset < pages[0].bytes);
    count = 0;
    OK(core->export_pages(block, bytes, &sink, &offset));
    CHECK(count == all && offset == whole);
    int files = open_files();
    OK(core->export_dma_buf(block + 12345, bytes - 12345, &made));
    CHECK(made.descriptor >= 0 && made.reserved == 0 && open_files() == files + 1);
    CHECK(made.offset < made.bytes && bytes - 12345 <= made.bytes - made.offset);
    CHECK(((uint64_t)(uintptr_t)block + 12345 - made.offset) % 4096 == 0);
    CHECK(close(made.descriptor) == 0);
    FAILS(core->export_pages(block, bytes + 4 * MIB, &sink, &offset), MILLPOND_BAD_ARGUMENT, "bytes at 0x");
    FAILS(core->export_pages(block, 0, &sink, &offset), MILLPOND_BAD_ARGUMENT, "0 bytes at 0x");
    FAILS(core->export_pages(block, 1, NULL, &offset), MILLPOND_BAD_ARGUMENT, "`sink`");
    FAILS(core->export_pages(&offset, 1, &sink, &offset), MILLPOND_NOT_A_BLOCK, "is not the address");
    FAILS(core->export_dma_buf(block, bytes + 4 * MIB, &made), MILLPOND_BAD_ARGUMENT, "bytes at 0x");
    FAILS(core->export_dma_buf(block, 1, NULL), MILLPOND_BAD_ARGUMENT, "`out`");
    FAILS(core->export_dma_buf(&offset, 1, &made), MILLPOND_NOT_A_BLOCK, "is not the address");
    CHECK(open_files() == files);
}

static void pages_of(char **argv, int files) {
    /* Pages of their own at home, then half of them together in a window. */
    enum { BLOCKS = 8 };
    char *blocks[BLOCKS], *small = alloc(3000), *second = alloc(3000);
    use_context();
    uint64_t first = share(small);
    int descriptor = pages[0].descriptor;
    CHECK(count == 1 && share(second) != first && count == 1 && pages[0].descriptor == descriptor);
    in_this_process(small, 3000);
    for (int at = 0; at < BLOCKS; at += 1) {
        blocks[at] = alloc(30 * MIB);
    }
    in_this_process(blocks[1], 30 * MIB);
    int refused = !in_another_process(argv, blocks[1] + 12345);
    for (int at = 0; at < BLOCKS; at += 2) {
        OK(core->free(blocks[at]));
    }
    OK(core->set_fraction(0, 280.0 / 8192)); /* No room for more pages. */
    char *window = alloc(90 * MIB);
    share(window);
    CHECK(count > 2);
    in_this_process(window, 90 * MIB);
    exports(window, 90 * MIB);
    refused |= !in_another_process(argv, window);
    if (refused) {
        fprintf(stderr, "SKIPPED: this system does not let a child have its parent's descriptors\n");
    }
    refusals(window);
    OK(core->free(window));
    for (int at = 1; at < BLOCKS; at += 2) {
        OK(core->free(blocks[at]));
    }
    OK(core->free(small));
    OK(core->free(second));
    OK(core->empty_cache(0, NULL));
    CHECK(open_files() == files);
}

int main(int argc, char **argv) {
    const char *mode = getenv("MODE");
    test_device(argc, argv);
    core = millpond_core_get(MILLPOND_CORE_ABI);
    OK(core->configure(strcmp(mode, "classic") == 0 ? "policy:classic" : "policy:paged"));
    if (argc > 3) {
        return other_process(argc - 4, argv + 4);
    }
    uint64_t offset;
    OK(core->free(alloc(30 * MIB))); /* Whatever files the driver opens are open now. */
    OK(core->empty_cache(0, NULL));
    if (strcmp(mode, "pages") == 0) {
        pages_of(argv, open_files());
        return 0;
    }
    const char *why = strcmp(mode, "classic") == 0 ? "cuIpcGetMemHandle" :
                      strcmp(mode, "off") == 0     ? "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC is 0" :
                                                     "simulated device";
    FAILS(core->share(alloc(30 * MIB), &sink, &offset), MILLPOND_UNSUPPORTED, why);
    CHECK(count == 0);
    char *segment = alloc(3 * MIB);
    millpond_core_dma_buf made;
    FAILS(core->export_pages(segment, MIB, &sink, &offset), MILLPOND_UNSUPPORTED, why);
    if (strcmp(mode, "sim") == 0) {
        FAILS(core->export_dma_buf(segment, MIB, &made), MILLPOND_UNSUPPORTED, why);
    } else {
        OK(core->export_dma_buf(segment, MIB, &made));
        CHECK(made.offset < 65536 && made.bytes - made.offset >= MIB && close(made.descriptor) == 0);
    }
    return 0;
}
