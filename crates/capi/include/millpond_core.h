/* Millpond as a table of functions: for bindings to frameworks that have an allocator interface of their own, such as
 * PyTorch's. Programs use millpond.h.
 *
 * One symbol is exported, millpond_core_get. It returns a table, which begins with its version and its size. Entries
 * are only ever added at the end: a binding that was built with a shorter table works with a longer one, and one that
 * was built with a longer table reads `size` before it uses what may be missing.
 *
 * DEVICES AND STREAMS. Devices are the numbers from 0 to 63 of CUDA's driver. There is one allocator for each device.
 * It is made at the first use of the device, with the configuration of `configure`, and lives as long as the process.
 * millpond_shared returns the same one, with its blocks, streams and statistics. If the environment has
 * MILLPOND_TORCH_DEVICE=sim, simulated devices take their place. A stream is the driver's handle: a
 * CUstream, which is the same as a cudaStream_t; NULL is the legacy default stream.
 *
 * BLOCKS AND CONTEXTS. `alloc` returns the address of a block and its context. Addresses are multiples of 512, and a
 * context has its lowest bit set, so functions that take a `block` take either. A context names its block without a
 * look-up. It is valid from `alloc` to `free`; a number with its lowest bit set that no `alloc` returned is undefined. An
 * address is looked up, and an address of no block is an error.
 *
 * THREADS. Each function may be called from any thread, at the same time as any other, unless it says otherwise. A block
 * is not used by one call while another frees it.
 *
 * LOCKS. Each entry says what it locks. "Nothing": it reads without a lock. "The stream": it holds the lock of one stream
 * of one device for tens of nanoseconds. "The device": it may wait for other threads that have memory reserved or
 * released on the device, and for the device itself. No lock is held while a function of the host is called, and none
 * across a call of the driver. Functions of the host that are called "within" a call must not call the table.
 *
 * FORK. In a child of a process that has used a device, `free` only forgets an inherited block, and everything that
 * needs a device is the error BAD_ALLOCATOR: millpond.h says more. A child of a process that has used none makes
 * allocators of its own. Recordings and checkpoints are dropped in either.
 *
 * ERRORS. Functions return a millpond_status (millpond.h has the codes), and millpond_last_error the text of this
 * thread's last one. Nothing is written and nothing has changed then, unless the entry says otherwise. Nothing unwinds
 * out of the table: a panic inside is the code MILLPOND_INTERNAL. Nothing may unwind into it: functions of the host do
 * not throw.
 */
#ifndef MILLPOND_CORE_H
#define MILLPOND_CORE_H

#include "millpond.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the table. It rises when an entry or a type changes its meaning or its place, and not when entries are
 * added at the end. */
#define MILLPOND_CORE_ABI 1

/* What `alloc` returns: the address and the context of a block. For 0 bytes both are NULL. If it fails the address is
 * NULL, and the context is the millpond_status as a number. */
typedef struct millpond_core_block {
    void *address;
    void *context;
} millpond_core_block;

/* The name of a private pool, as PyTorch's MempoolId_t has it. {0, 0} is the default pool. */
typedef struct millpond_core_pool {
    uint64_t first;
    uint64_t second;
} millpond_core_pool;

/* A block, as it lies. */
typedef struct millpond_core_place {
    uint64_t address; /* its start */
    uint64_t bytes;   /* its length: what was asked for, after rounding */
    int32_t device;
    int32_t reserved; /* 0 */
} millpond_core_place;

/* One figure of the statistics. */
typedef struct millpond_core_stat {
    int64_t current;
    int64_t peak;
    int64_t allocated;
    int64_t freed;
} millpond_core_stat;

/* All of torch.cuda.memory_stats under its names. Each family has three figures: all, small pool, large pool. */
typedef struct millpond_core_stats {
    millpond_core_stat allocation[3];
    millpond_core_stat segment[3];
    millpond_core_stat active[3];
    millpond_core_stat inactive_split[3];
    millpond_core_stat allocated_bytes[3];
    millpond_core_stat reserved_bytes[3];
    millpond_core_stat active_bytes[3];
    millpond_core_stat inactive_split_bytes[3];
    millpond_core_stat requested_bytes[3];
    millpond_core_stat oversize_allocations;
    millpond_core_stat oversize_segments;
    int64_t num_alloc_retries;
    int64_t num_ooms;
    int64_t num_sync_all_streams;
    int64_t num_device_alloc;
    int64_t num_device_free;
    int64_t num_oom_rejections;
    int64_t max_split_size; /* -1 without a limit */
} millpond_core_stats;

/* What a device has, in bytes. */
typedef struct millpond_core_limits {
    uint64_t total_bytes;
    uint64_t free_bytes;  /* what the driver says; 0 where it says nothing */
    uint64_t limit_bytes; /* on reserved bytes; UINT64_MAX without a limit */
    uint64_t reserved_bytes;
    uint64_t allocated_bytes;
} millpond_core_limits;

/* The numbers of the last `alloc` of this thread that was out of memory. */
typedef struct millpond_core_oom {
    int32_t device;
    int32_t rejected; /* 1 if throw_on_cudamalloc_oom refused it before anything was tried */
    uint64_t requested_bytes;
    uint64_t tried_bytes; /* what the driver would have been asked for: the size in PyTorch's message */
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t limit_bytes; /* UINT64_MAX without a limit */
    uint64_t allocated_bytes;
    uint64_t reserved_bytes;
    /* What holds the memory and what would free it: lines that begin with two spaces. Valid until the next `alloc` of
     * this thread that is out of memory. */
    const char *explanation;
} millpond_core_oom;

/* The states of a block in a layout. */
enum { MILLPOND_CORE_FREE = 0, MILLPOND_CORE_LIVE = 1, MILLPOND_CORE_PENDING = 2 };

/* Memory without a gap, as a snapshot has it: a segment of the driver's, or neighbouring pages of a range. Under
 * policy:paged a page may be mapped several times; memory that is in use through a window is part of the window. So each
 * reserved byte is in one segment. */
typedef struct millpond_core_segment {
    uint64_t address;
    uint64_t bytes;
    void *stream;
    millpond_core_pool pool;
    int32_t is_large;
    int32_t is_expandable; /* 1 for pages of a range */
    uint64_t id;           /* counts up with the birth of segments and ranges */
} millpond_core_segment;

/* A block of the segment that was told last. */
typedef struct millpond_core_tile {
    uint64_t address;
    uint64_t bytes;
    uint64_t requested_bytes; /* 0 for a free one */
    int32_t state;
    int32_t reserved; /* 0 */
} millpond_core_tile;

/* Takes a layout: each segment, and behind it each of its blocks in the order of their addresses. Called with no lock
 * held, on the thread that asks; what it is given is valid during its call. */
typedef struct millpond_core_sink {
    void *user;
    void (*segment)(void *user, const millpond_core_segment *segment);
    void (*tile)(void *user, const millpond_core_tile *tile);
} millpond_core_sink;

/* Takes the private pools of a device, one after the other, on the thread that asks and with no lock held. The figures are
 * all, small pool and large pool, as in millpond_core_stats, and valid during the call. */
typedef struct millpond_core_pools {
    void *user;
    void (*pool)(void *user, millpond_core_pool pool, const millpond_core_stat *reserved_bytes);
} millpond_core_pools;

/* What happened to memory of the driver's. */
enum {
    MILLPOND_CORE_SEGMENT_ALLOC = 3,
    MILLPOND_CORE_SEGMENT_FREE = 4,
    MILLPOND_CORE_SEGMENT_MAP = 5,
    MILLPOND_CORE_SEGMENT_UNMAP = 6
};

/* An event of the driver's memory. The numbers of the kinds are those of PyTorch's TraceEntry::Action. */
typedef struct millpond_core_event {
    int32_t kind;
    int32_t device;
    uint64_t address;
    uint64_t bytes;
    void *stream; /* NULL where it is not known */
} millpond_core_event;

/* What the binding lends to the table. It lives as long as the process. An entry may be NULL. */
typedef struct millpond_core_host {
    uint32_t size; /* of this struct, in bytes */
    uint32_t reserved;
    /* Frees memory that the program can do without: PyTorch's FreeCudaMemoryCallbacks. Called by `alloc` before it gives
     * up, with no lock held; it may call the table. Returns 1 if something was freed, and then `alloc` tries again. */
    int32_t (*free_memory)(int32_t device);
    /* Takes an event, while `trace` is on: within the call that causes it, with no lock held, on its thread. Under
     * MILLPOND_CORE_SEGMENT_ALLOC and MAP the memory is there already; under FREE and UNMAP it is there still. */
    void (*event)(const millpond_core_event *event);
} millpond_core_host;

/* What a private pool gets its memory from instead of the driver: MemPool(allocator=...). `alloc` and `free` are called
 * within the calls that may lock the device, with no lock held. */
typedef millpond_source millpond_core_source;

/* What a private pool had handed out at one moment. */
typedef struct millpond_core_checkpoint millpond_core_checkpoint;

/* A recording that has ended. */
typedef struct millpond_core_recording millpond_core_recording;

/* Takes what `checkpoint_set` has changed: the blocks that were freed, and then those that were handed out again. An
 * address may be told by both. Called with no lock held, on the thread that asks. */
typedef struct millpond_core_delta {
    void *user;
    void (*freed)(void *user, const millpond_core_place *place);
    void (*made)(void *user, const millpond_core_block *block);
} millpond_core_delta;

/* A page, as another process can have it. */
typedef struct millpond_core_page {
    uint64_t bytes;
    /* Its number on its device in the process that shares it: never used again, as descriptors are. `open_shared` does
     * not read it. */
    uint64_t number;
    int32_t descriptor; /* a file descriptor of the process that calls */
    int32_t reserved;   /* 0 */
} millpond_core_page;

/* Takes the pages of `share` in the order of their addresses. Called with no lock held, on the thread that asks. */
typedef struct millpond_core_pages {
    void *user;
    void (*page)(void *user, const millpond_core_page *page);
} millpond_core_pages;

/* A DMA buffer: memory as a file that other drivers of the machine import. */
typedef struct millpond_core_dma_buf {
    uint64_t bytes;     /* of the file */
    uint64_t offset;    /* in the file, of what was exported */
    int32_t descriptor; /* the file descriptor, which is the caller's to close */
    int32_t reserved;   /* 0 */
} millpond_core_dma_buf;

/* Properties of a private pool. */
enum { MILLPOND_CORE_USE_ON_OOM = 1, MILLPOND_CORE_NO_SPLIT = 2 };

typedef struct millpond_core_v1 {
    uint32_t abi;  /* MILLPOND_CORE_ABI */
    uint32_t size; /* of the table, in bytes */

    /* ---- Set-up ---- */

    /* millpond_last_error and millpond_string_free, for a binding that finds the table alone. */
    const char *(*last_error)(void);
    void (*string_free)(char *text);

    /* Sets the configuration of allocators that are made later, in the grammar of PYTORCH_CUDA_ALLOC_CONF; NULL stands
     * for the environment, as in millpond_create. The text is checked, without a device. Once a device is in use, the
     * configuration must be the one that it has. Locks: nothing that is held. Errors: BAD_ARGUMENT. */
    millpond_status (*configure)(const char *conf);
    /* Returns the configuration in its canonical form, with the keys that differ from the defaults. `*out` is ended with
     * millpond_string_free. Locks: as `configure`. Errors: BAD_ARGUMENT for a mistake in the environment. */
    millpond_status (*configuration)(char **out);
    /* Lends the functions of the host; the last call counts. `host` lives as long as the process. Locks: nothing.
     * Errors: BAD_ARGUMENT. */
    millpond_status (*lend)(const millpond_core_host *host);

    /* ---- Blocks ---- */

    /* Allocates at least `bytes` bytes for use on a stream, in the private pool `pool`, or in the default pool if that is
     * NULL. Locks: the stream, while the cache serves it; the device otherwise. Calls `free_memory` and, within, `event`.
     * Errors: OUT_OF_MEMORY, after which `oom` has the numbers; BAD_ARGUMENT for a pool without references; and
     * those of millpond_alloc and millpond_create. */
    millpond_core_block (*alloc)(int32_t device, void *stream, uint64_t bytes, const millpond_core_pool *pool);
    /* Frees a block. NULL does nothing. Work that uses it on its stream, or on one that was recorded, need not be over.
     * Locks: the stream. Errors: NOT_A_BLOCK. */
    millpond_status (*free)(void *block);
    /* Records that a block is used on another stream until it is freed. NULL does nothing. Locks: the stream. Errors:
     * NOT_A_BLOCK, and those of a stream's first use. */
    millpond_status (*record_stream)(void *block, void *stream);
    /* Finds a live block by its context or its start. Locks: the stream. Errors: NOT_A_BLOCK. */
    millpond_status (*find)(const void *block, millpond_core_place *out);
    /* Finds the live block in which an address lies, which may be any number. Meanwhile no other thread frees it. Locks:
     * the stream. Errors: NOT_A_BLOCK. */
    millpond_status (*at)(const void *address, millpond_core_place *out);
    /* Finds the driver's memory in which the live block of an address lies: its segment, or the whole of its range. Walks over every
     * block of the device. Locks: the streams of the device, one after the other. Errors: NOT_A_BLOCK if it is in none.
     */
    millpond_status (*base_of)(const void *address, millpond_core_segment *out);

    /* ---- Memory ---- */

    /* Gives cached memory of a device back to the driver, of one pool or, if that is NULL, of all but
     * private pools with references. Nothing happens for a
     * device that was not used, and for a private pool that has references. Locks: the device. Calls `event`, within.
     * Errors: DRIVER, DEVICE_LOST. */
    millpond_status (*empty_cache)(int32_t device, const millpond_core_pool *pool);
    /* Limits the reserved bytes to a share of the device's memory, from 0 to 1, which lifts the limit; and returns the
     * share. For a device that was not used yet the share is kept, and the device is not opened. Locks: the device, for a
     * moment. Errors: BAD_ARGUMENT. */
    millpond_status (*set_fraction)(int32_t device, double fraction);
    millpond_status (*get_fraction)(int32_t device, double *out);
    /* Returns what a device has. A driver call. Opens the device. Locks: the streams of the device, one after the other.
     * Errors: those of millpond_create, DRIVER. */
    millpond_status (*limits)(int32_t device, millpond_core_limits *out);
    /* Returns the largest free block of a device that is reserved, in bytes. Walks over every block. Locks: as `limits`.
     * Errors: BAD_ARGUMENT. */
    millpond_status (*largest_free)(int32_t device, uint64_t *out);
    /* Returns the numbers of this thread's last `alloc` that was out of memory. Locks: nothing. Errors: BAD_ARGUMENT if
     * there was none. */
    millpond_status (*oom)(millpond_core_oom *out);

    /* ---- Statistics: all are 0 for a device that was not used, which is not opened ---- */

    /* Locks of all: the streams of the device, one after the other. Errors of all: BAD_ARGUMENT. */
    millpond_status (*stats)(int32_t device, millpond_core_stats *out);
    /* The bytes in live blocks, and the reserved ones. */
    millpond_status (*usage)(int32_t device, millpond_usage *out);
    millpond_status (*reset_peaks)(int32_t device);
    millpond_status (*reset_totals)(int32_t device);
    /* As millpond_stats_json and millpond_summary. They open the device. `*out` is ended with millpond_string_free. */
    millpond_status (*stats_json)(int32_t device, char **out);
    millpond_status (*summary)(int32_t device, int32_t abbreviated, char **out);
    /* Tells the layout of a device, of one pool or, if that is NULL, of all of them. Locks: as above, but none is held
     * while the sink is called. */
    millpond_status (*layout)(int32_t device, const millpond_core_pool *pool, const millpond_core_sink *sink);
    /* Turns the events on (1) or off (0). Locks: nothing. */
    millpond_status (*trace)(int32_t on);

    /* ---- Private pools ---- */

    /* Creates a pool under this name, or adds a reference to it. While a pool has a reference its memory stays where it is.
     * `source` supplies the memory of a new pool, as in millpond_pool_create_from; NULL stands for the driver. `*source` is
     * copied. Its `end` is called, within and with no lock held, by the call after which the pool has neither references nor
     * segments. Locks of all: the pools of the device, for a moment. Errors of all: BAD_ARGUMENT; here also those of
     * millpond_create, and BAD_ARGUMENT for a source for a pool that exists. `end` is not called then. */
    millpond_status (*pool_ref)(int32_t device, millpond_core_pool pool, const millpond_core_source *source);
    /* Ends a reference. Without any the cached memory of the pool goes back with that of the default pool, or alone with
     * `empty_cache` of this pool. */
    millpond_status (*pool_unref)(int32_t device, millpond_core_pool pool);
    /* Returns the number of references, a capture among them; 0 for a pool that there is not. */
    millpond_status (*pool_uses)(int32_t device, millpond_core_pool pool, int64_t *out);
    /* Turns the properties `which`, a sum of MILLPOND_CORE_USE_ON_OOM and so on, on (1) or off (0). The others stay. */
    millpond_status (*pool_flags)(int32_t device, millpond_core_pool pool, uint32_t which, int32_t on);
    /* Tells that work queued on a stream is captured into a graph, in this pool, until `capture_end`. It is called once for
     * each stream that takes part. Meanwhile no event is recorded or asked for on these streams. */
    millpond_status (*capture_begin)(int32_t device, millpond_core_pool pool, void *stream);
    /* Tells that the capture has ended, on all of its streams. Without one it does nothing. */
    millpond_status (*capture_end)(int32_t device, millpond_core_pool pool);

    /* ---- Recordings ---- */

    /* Begins to record what the program asks of a device's allocator, for a trace that `millpond replay` reads. A recording
     * in progress is dropped. Until `record_stop` each allocation, free and use takes a lock that all streams of the device
     * share, and 24 bytes of host memory. Blocks that are live already do not appear, and those of private pools appear
     * as blocks of the default pool. Opens the device. Locks: the device, for a moment. Errors: those of millpond_create. */
    millpond_status (*record_start)(int32_t device);
    /* Ends the recording of a device and writes it to a file, which is compressed if its name ends in ".gz" or ".zst". A
     * `path` of NULL drops it. `header` has facts about the program as a JSON object; NULL stands for none. Takes as long as
     * writing the file. Locks: the device, for a moment. Errors: BAD_ARGUMENT if the device is not being recorded, for a
     * header with a mistake, after which the recording goes on, and for a file that cannot be written, after which the
     * recording is lost: `record_take` keeps it. */
    millpond_status (*record_stop)(int32_t device, const char *path, const char *header);

    /* ---- Checkpoints of private pools, which trees of graphs take ---- */

    /* Notes which blocks of a pool are live, and where. `*out` is ended with `checkpoint_drop`; it is no reference to the
     * pool. Locks: the streams of the pool, one after the other. Errors: BAD_ARGUMENT for a pool without references. */
    millpond_status (*checkpoint_take)(int32_t device, millpond_core_pool pool, millpond_core_checkpoint **out);
    /* Frees all live blocks of the pool of a checkpoint, and hands out just those of the checkpoint, at their addresses,
     * with the same contexts. `delta` may be NULL. Waits for work that uses this memory on other streams. Meanwhile no
     * other thread allocates in the pool, or frees blocks of it. Locks: all streams of the device, for a moment; the
     * device. Errors: BAD_ARGUMENT, and nothing has changed: the pool has no references, memory of the checkpoint went
     * back to the driver, as it may once the pool has no references, or a stream is being captured in the pool. DRIVER:
     * a wait failed; the blocks are freed and none is handed out. */
    millpond_status (*checkpoint_set)(
        int32_t device, const millpond_core_checkpoint *checkpoint, const millpond_core_delta *delta);
    /* Ends a checkpoint. NULL does nothing. Locks: nothing. */
    void (*checkpoint_drop)(millpond_core_checkpoint *checkpoint);

    /* ---- Several devices ---- */

    /* Lets the kernels of another device touch the memory of a device: what there is, and what will be, pages too. Opens
     * the device. A driver call for each page that is mapped. Locks: the pages of the device, in turn. Errors:
     * BAD_ARGUMENT; those of millpond_create; DRIVER, also if the other device cannot reach the memory. */
    millpond_status (*open_to)(int32_t device, int32_t other);

    /* ---- Several processes ---- */

    /* Tells the pages behind the live block in which an address lies, as file descriptors that another process can have
     * (through a Unix socket, by inheritance, or with pidfd_getfd), and in `*offset` where the address lies in the first
     * of them. Pages are such that they can be shared where the device and its driver can do that, unless the
     * environment has TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0 when the device is first used. The descriptors are Millpond's,
     * and stay open while the block lives, and longer where the pages stay reserved; one page has one descriptor. Other
     * processes see whole pages, with all blocks in them. The block must live until they are done with it. Meanwhile no
     * other thread frees it. A driver call for each page that is shared for the first time. Locks: the stream; the pages
     * of the device, for a driver call each. Errors: NOT_A_BLOCK; UNSUPPORTED for memory that does not lie in pages, which
     * is shared with cuIpcGetMemHandle, and for pages that cannot be shared; DRIVER, for example without file descriptors
     * left. */
    millpond_status (*share)(const void *address, const millpond_core_pages *sink, uint64_t *offset);
    /* Maps `count` pages of another process one behind another, for access by a device and those it was opened to. The
     * descriptors must be open, and may be closed afterwards. `*out` is the address of the first page, and is ended with
     * `close_shared`. The memory exists until then, is no block, and is in no statistics. Opens the device. Locks: the
     * pages of the device, in turn. Errors: BAD_ARGUMENT for what is no page, or has another size; those of
     * millpond_create; UNSUPPORTED without virtual memory; OUT_OF_MEMORY without addresses; DRIVER. */
    millpond_status (*open_shared)(int32_t device, const millpond_core_page *pages, uint64_t count, void **out);
    /* Unmaps what `open_shared` has mapped. No work may use it any more: this does not wait. NULL does nothing. Locks: the
     * pages of the device. Errors: BAD_ARGUMENT. */
    millpond_status (*close_shared)(void *address);

    /* ---- Blocks at addresses ---- */

    /* Allocates as `alloc` does, but just the memory at `address`, or fails: the bytes, rounded up, must lie in one segment
     * of this stream and pool, or in its pages, and all of them be free. Nothing is taken from the driver. Under
     * policy:paged addresses of windows, in which large blocks may lie, are never free. Waits for work of other streams that
     * uses the memory. Locks: the device; the stream. Errors: BAD_ARGUMENT if the memory is not free, and as in `alloc`,
     * but not OUT_OF_MEMORY. */
    millpond_core_block (*alloc_at)(
        int32_t device, void *stream, uint64_t bytes, void *address, const millpond_core_pool *pool);

    /* ---- Recordings that are kept until they are written ---- */

    /* Ends the recording of a device and returns it. `*out` is ended with `recording_drop`. Locks: the device, for a
     * moment. Errors: BAD_ARGUMENT if the device is not being recorded. */
    millpond_status (*record_take)(int32_t device, millpond_core_recording **out);
    /* Writes a recording as `record_stop` does, as often as it is called: one that could not be written may be written
     * elsewhere. Meanwhile no other call uses the recording. Locks: nothing. Errors: BAD_ARGUMENT for a header with a
     * mistake, and for a file that cannot be written. */
    millpond_status (*recording_write)(millpond_core_recording *recording, const char *path, const char *header);
    /* Ends a recording. NULL does nothing. Locks: nothing. */
    void (*recording_drop)(millpond_core_recording *recording);
    /* Checks a header as `record_stop` takes it. Locks: nothing. Errors: BAD_ARGUMENT for a mistake in it. */
    millpond_status (*header_check)(const char *header);

    /* ---- Groups: private pools whose memory goes back to the driver together, and returns to the same addresses ---- */

    /* A group is known by its name on a device, and made at its first use. Groups need policy:paged.
     *
     * Makes a private pool a part of a group, for as long as the pool exists. Opens the device. Locks: the device, for a
     * moment. Errors: BAD_ARGUMENT for a pool without references, one of another group, one with a source, and while the
     * group is paused; UNSUPPORTED. */
    millpond_status (*group_add_pool)(int32_t device, const char *name, millpond_core_pool pool);
    /* Waits for the streams on which blocks of the group were allocated or recorded, and gives the group's pages back to
     * the driver. `keep` is 0 to discard the contents, or 1 to copy them to host memory first. Nothing can be allocated in
     * the group then, and its blocks must not be used; they may be freed. Does nothing if it is paused. Locks: the group;
     * the device, for moments. Errors, after which the group is as it was: BAD_ARGUMENT while a stream that uses the group
     * is being captured, and for pages that other processes have; UNSUPPORTED; DRIVER; DEVICE_LOST. */
    millpond_status (*group_pause)(int32_t device, const char *name, int32_t keep);
    /* Gives the group pages again, at the same addresses, with the contents that were kept. Does nothing if it is running.
     * Locks: the group; the device, for moments. Errors, after which the group is paused as before: OUT_OF_MEMORY if there
     * is no room for all of its pages; UNSUPPORTED; DRIVER; DEVICE_LOST. */
    millpond_status (*group_resume)(int32_t device, const char *name);
    /* Tells how much memory a group has. Locks: the group; the device, for a moment. Errors: UNSUPPORTED. */
    millpond_status (*group_info)(int32_t device, const char *name, millpond_group *out);

    /* ---- The peaks of a part of a program ---- */

    /* Opens a peak scope as millpond_peak_open does. Opens the device. Locks: the streams of the device, one after the
     * other. Errors: BAD_ARGUMENT, and those of millpond_create. */
    millpond_status (*peak_open)(int32_t device, millpond_peak *out);
    /* As millpond_peak_json. `*out` is ended with millpond_string_free. Locks: as `peak_open`. Errors: BAD_ARGUMENT. */
    millpond_status (*peak_json)(int32_t device, millpond_peak peak, char **out);
    /* Ends a peak scope. Locks: the device, for a moment. Errors: BAD_ARGUMENT. */
    millpond_status (*peak_close)(int32_t device, millpond_peak peak);

    /* ---- Idle memory ---- */

    /* As millpond_poll. 0 for a device that was not used, which is not opened. Locks: the device, for a moment. Calls
     * `event`, within. Errors: BAD_ARGUMENT, DRIVER, DEVICE_LOST. */
    millpond_status (*poll)(int32_t device, uint64_t *released);

    /* ---- Short of memory ---- */

    /* Has a hook called before a request of a device is refused, as millpond_hook_add does: behind `free_memory`, which is
     * asked first, and once for a request. The hook may call the table. Opens the device. Locks: nothing that is held
     * while a hook is called. Errors: BAD_ARGUMENT, and those of millpond_create; `end` is not called then. */
    millpond_status (*hook_add)(int32_t device, const millpond_hook *hook, uint64_t *out);
    /* Removes a hook, as millpond_hook_remove does. Locks: as `hook_add`. Errors: BAD_ARGUMENT. */
    millpond_status (*hook_remove)(int32_t device, uint64_t hook);
    /* Forecasts a request in the default pool, as millpond_would_fit does. Opens the device. Locks: the device. Errors:
     * those of millpond_would_fit and of millpond_create. */
    millpond_status (*would_fit)(int32_t device, void *stream, uint64_t bytes, millpond_fit *out);

    /* ---- Other drivers ---- */

    /* Tells the pages behind `bytes` bytes of a live block, as `share` does for the whole block, and in `*offset` where
     * `address` lies in the first of them. Errors: those of `share`, and BAD_ARGUMENT for bytes that leave the block. */
    millpond_status (*export_pages)(
        const void *address, uint64_t bytes, const millpond_core_pages *sink, uint64_t *offset);
    /* Makes a DMA buffer of `bytes` bytes of a live block, for example for ibv_reg_dmabuf_mr. It takes memory of pages and
     * of segments. The file has whole pages of the host, so others also see what lies around the bytes. It stands for the
     * memory and not for the addresses: the block must live until the others are done with it, and the driver keeps the
     * memory until the descriptor is closed everywhere. Meanwhile no other thread frees the block. A driver call. Locks:
     * the stream; the pages of the device. Errors: NOT_A_BLOCK; BAD_ARGUMENT for bytes that leave the block; UNSUPPORTED for
     * a device without DMA buffers, and for bytes in several pages where the driver takes one at a time; DRIVER, for
     * example without file descriptors left. */
    millpond_status (*export_dma_buf)(const void *address, uint64_t bytes, millpond_core_dma_buf *out);

    /* ---- Settings: lists of keys are separated by commas, and are ended with millpond_string_free ---- */

    /* Returns all keys that a configuration may name. Locks: nothing. Errors: BAD_ARGUMENT. */
    millpond_status (*keys)(char **out);
    /* Returns the keys of the configuration that ask for what Millpond does not do: "" if there are none. Locks and errors:
     * as `configuration`. */
    millpond_status (*unserved)(char **out);
    /* Changes settings of all devices from the next request on, in the grammar of `configure`: of those in use, and of
     * those that are used later. What the text does not name stays. Memory that is reserved stays, too. `*kept` gets the
     * keys that stay as they were because a device is in use, where that makes a difference: `policy`, `growth`, `slack`,
     * `scrub` and `expandable_segments`. `*unserved` gets those of the text that ask for what Millpond does not do. All
     * others act, or are meaningless here. Locks: the devices in use, for a moment; their streams, one after the other.
     * Errors: BAD_ARGUMENT for a mistake in the text. */
    millpond_status (*reconfigure)(const char *conf, char **kept, char **unserved);

    /* ---- Statistics of private pools ---- */

    /* Tells what is reserved for each private pool of a device that has references or memory: PyTorch's
     * reserved_bytes_by_private_pools. Visits no blocks. Locks: the streams of the device, one after the other, but none
     * while the sink is called. Errors: BAD_ARGUMENT. */
    millpond_status (*pools_stats)(int32_t device, const millpond_core_pools *sink);
} millpond_core_v1;

/* Returns the table of a version, or NULL if the library does not have it. It is valid as long as the library is loaded.
 * Locks: nothing. */
const millpond_core_v1 *millpond_core_get(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
