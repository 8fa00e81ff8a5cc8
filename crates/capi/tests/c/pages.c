/* Events of pages: the host is told where each is mapped, and what is live lies in what is mapped. */
#include "check.h"
#include "millpond_core.h"

enum { MOST = 1000 };

static struct page {
    uint64_t address;
    uint64_t bytes;
} pages[MOST];
static int count;

static void event(const millpond_core_event *event) {
    int at = 0;
    CHECK(event->device == 0 && event->bytes != 0);
    if (event->kind == MILLPOND_CORE_SEGMENT_MAP) {
        for (; at < count; at += 1) {
            CHECK(event->address + event->bytes <= pages[at].address || pages[at].address + pages[at].bytes <= event->address);
        }
        CHECK(count < MOST);
        pages[count++] = (struct page){event->address, event->bytes};
    } else if (event->kind == MILLPOND_CORE_SEGMENT_UNMAP) {
        while (at < count && (pages[at].address != event->address || pages[at].bytes != event->bytes)) {
            at += 1;
        }
        CHECK(at < count);
        pages[at] = pages[--count];
    }
}

static const millpond_core_host host = {sizeof host, 0, NULL, event};

/* Counts the bytes of a block that are mapped. */
static uint64_t mapped_of(uint64_t start, uint64_t bytes) {
    uint64_t mapped = 0;
    for (int at = 0; at < count; at += 1) {
        uint64_t from = pages[at].address > start ? pages[at].address : start;
        uint64_t end = pages[at].address + pages[at].bytes;
        end = end < start + bytes ? end : start + bytes;
        mapped += end > from ? end - from : 0;
    }
    return mapped;
}

int main(int argc, char **argv) {
    test_device(argc, argv);
    const millpond_core_v1 *core = millpond_core_get(MILLPOND_CORE_ABI);
    enum { BLOCKS = 6 };
    millpond_core_block blocks[BLOCKS];
    OK(core->configure("policy:paged"));
    OK(core->lend(&host));
    OK(core->trace(1));
    for (int at = 0; at < BLOCKS; at += 1) {
        blocks[at] = core->alloc(0, NULL, (at % 2 == 0 ? 30 : 5) * MIB, NULL);
        CHECK(blocks[at].address != NULL);
        CHECK(mapped_of((uint64_t)(uintptr_t)blocks[at].address, (at % 2 == 0 ? 30 : 5) * MIB) == (at % 2 == 0 ? 30 : 5) * MIB);
    }
    CHECK(count > 1);
    for (int at = 0; at < BLOCKS; at += 1) {
        OK(core->free(blocks[at].context));
    }
    OK(core->empty_cache(0, NULL));
    CHECK(count == 0);
    return 0;
}
