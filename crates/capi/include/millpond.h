/* Millpond: a caching allocator for GPU memory. This header is the documentation of its C interface.
 *
 * A first program:
 *
 *     millpond_allocator *pond;
 *     if (millpond_create("cuda:0", "policy:paged", &pond) != MILLPOND_OK) {
 *         fprintf(stderr, "%s\n", millpond_last_error());
 *         return 1;
 *     }
 *     void *memory;
 *     millpond_alloc(pond, 1 << 20, stream, &memory);  // `stream` is a CUstream, or NULL
 *     ... launch work on the stream that uses the memory ...
 *     millpond_free(pond, memory);                      // at once: the work need not be over
 *     millpond_destroy(pond, NULL);
 *
 * WORDS. A block is memory that was handed out: it has an address on the device, and its length is the size that was
 * asked for, rounded up to a multiple of 512 bytes at least. Freed memory is granted again on its stream at once,
 * because later work of the stream comes after earlier work. Whoever uses a block on another stream says so with
 * millpond_record_stream. Reserved memory is what Millpond has from the driver: blocks, and free memory that it keeps.
 *
 * STREAMS. A stream is passed as the driver's own handle: on CUDA a CUstream (the same as cudaStream_t), where NULL and
 * CU_STREAM_LEGACY are the legacy default stream; on the simulated device a number that millpond_stream_create returns,
 * where NULL is a stream that is always there. A stream is noted at its first use. Before a program destroys a CUstream
 * that it has passed, it calls millpond_stream_release: the driver uses handles again, and may crash where it is asked
 * about one that is gone. Streams that come and go without that are for millpond_alloc_async. CU_STREAM_PER_THREAD is the
 * default stream of the thread that makes the call; that thread may release it before it ends. Other threads cannot tell
 * how far it is: if they need memory of it, they may wait for all streams that wait for the legacy default stream.
 *
 * THREADS. Every function may be called from any thread at any time, also on the same allocator, with two exceptions:
 * while millpond_destroy runs, and after it, no other call uses that allocator; and a block is not used by one call
 * while another one frees it. Threads that use different streams do not wait for each other. On CUDA the thread's
 * current context is left as it was.
 *
 * FORK. An allocator belongs to the process that made it, because drivers do not serve a child with what its parent has
 * opened. In a child of `fork` each call with an inherited allocator is the error BAD_ALLOCATOR, and so is to open a
 * CUDA device where the parent has opened one. To use CUDA in the child, fork before the first allocator is made, or
 * start the child with exec. What the child inherits takes no memory of the device, and is not given back when it ends.
 * Neither _Fork nor the system's own call runs the handler that all this rests on: exec has to follow them.
 *
 * COPIES. A process may load the library several times, as where two packages bring one each. Each copy has allocators
 * of its own, and refuses those of another one with BAD_ALLOCATOR.
 *
 * ERRORS. A function that can fail returns a millpond_status; then nothing was changed unless it says otherwise, and
 * what it would have written is not written. millpond_last_error returns the text, which names the values and says what
 * to do. No function unwinds into its caller. None ends the process, unless the host itself has no memory left, and
 * none prints, except where it says so, and where a mistake of Millpond's own is found. Null pointers where none is
 * allowed, text that is not UTF-8, destroyed allocators, and addresses that are not those of live blocks are errors.
 * Not every mistake can be noticed: an address that was freed and has been handed out anew since is a live block.
 *
 * TEXTS. A `char *` that a function returns belongs to the caller, who ends it with millpond_string_free. A
 * `const char *` belongs to the library.
 *
 * COSTS. Tens of nanoseconds, unless said otherwise. A block that the cache does not have takes driver calls, which are
 * microseconds to milliseconds.
 */
#ifndef MILLPOND_H
#define MILLPOND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h> /* ssize_t */

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It rises when a function or a type changes so that programs must be compiled anew;
 * functions that are added do not raise it. */
#define MILLPOND_ABI 1

/* An allocator: one cache over the memory of one device. */
typedef struct millpond_allocator millpond_allocator;

/* A stream, as the driver names it: see STREAMS above. */
typedef void *millpond_stream;

/* What became of a call. The numbers do not change; further ones may be added. */
typedef int32_t millpond_status;
enum {
    /* Done. */
    MILLPOND_OK = 0,
    /* The device, or the limit, has no memory left for the request. Freeing something may let it succeed. */
    MILLPOND_OUT_OF_MEMORY = 1,
    /* An argument has a value that it must not have: a null pointer, a mistake in the configuration, an unknown stream,
     * a device's name that means nothing. */
    MILLPOND_BAD_ARGUMENT = 2,
    /* The allocator was destroyed, belongs to a parent process or to another copy of the library, or the pointer never
     * was one. */
    MILLPOND_BAD_ALLOCATOR = 3,
    /* The address is not that of a live block of this allocator: it was freed before, or came from elsewhere. */
    MILLPOND_NOT_A_BLOCK = 4,
    /* There is no such device here, or no driver that will do. */
    MILLPOND_NO_DEVICE = 5,
    /* The device does not have what the configuration or the call needs. */
    MILLPOND_UNSUPPORTED = 6,
    /* The device is lost, and no further call can succeed: end the process, or reset the device and start anew. */
    MILLPOND_DEVICE_LOST = 7,
    /* A call of the driver failed for another reason. The allocator stays usable. */
    MILLPOND_DRIVER = 8,
    /* A mistake of Millpond's own was found. The text says where; report it. What the call did is not known. */
    MILLPOND_INTERNAL = 9,
    /* A block cannot become longer at its address. Nothing has changed. */
    MILLPOND_NO_ROOM = 10
};

/* ---- The library ------------------------------------------------------------------------------------------------ */

/* Returns the MILLPOND_ABI that the library was built with. Compare it with the header's where the library is loaded at
 * run time. Cannot fail. */
uint32_t millpond_abi(void);

/* Returns the version of the library, such as "0.1.0", for people to read. Cannot fail. */
const char *millpond_version(void);

/* Returns the text of the last error of this thread, or "" if no call of this thread has failed. It is UTF-8, may have
 * several lines, and stays valid until the next call that fails on this thread, or the thread's end. Cannot fail. */
const char *millpond_last_error(void);

/* Ends a text that a function of this library returned as `char *`. NULL does nothing. Any other pointer, and ending a
 * text twice, is undefined, as with free(). */
void millpond_string_free(char *text);

/* Returns the CUDA devices of this machine as JSON, without opening any: "driver" is the newest version of CUDA that
 * the driver knows, such as "13.0", and each entry of "devices" has "ordinal", the number in "cuda:0", "name",
 * "total_bytes", "compute", such as "9.0", and "virtual_memory", which policy:paged needs. Further keys may be added.
 * `*out` is ended with millpond_string_free. The first call of a process loads the driver: hundreds of milliseconds.
 *
 * Errors: NO_DEVICE if there is no driver, or none that will do; BAD_ARGUMENT, DRIVER. */
millpond_status millpond_devices_json(char **out);

/* ---- Allocators ------------------------------------------------------------------------------------------------- */

/* Creates an allocator for the memory of a device.
 *
 * device  "cuda:0" and so on, by the driver's number; "cuda" is "cuda:0". "sim:0" to "sim:63" are simulated devices of
 *         an H200's size that need no GPU, each with other addresses, which are numbers without memory behind them;
 *         "sim" is "sim:0". Each call creates such a device anew, and work on it is over at once.
 * conf    the configuration, as the command line's --conf takes it and PYTORCH_CUDA_ALLOC_CONF has it, such as
 *         "policy:paged" or "max_split_size_mb:512,garbage_collection_threshold:0.8". "" has the defaults. NULL stands
 *         for the environment: the first of MILLPOND_CONF, PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF that is set.
 * out     receives the allocator.
 *
 * No memory is reserved yet. CUDA's driver is loaded here, at run time; opening a device may take hundreds of
 * milliseconds, and uses its primary context, as the CUDA runtime and PyTorch do. Several allocators, of one device or
 * of several, are independent of each other; 4,096 may exist at a time.
 *
 * Errors: BAD_ARGUMENT, NO_DEVICE, UNSUPPORTED, DEVICE_LOST, DRIVER; BAD_ALLOCATOR for CUDA in a child (FORK above). */
millpond_status millpond_create(const char *device, const char *conf, millpond_allocator **out);

/* Destroys an allocator and gives all of its memory back to the driver. Blocks that are still live are freed, as if
 * millpond_free were called for each, and their addresses are no longer valid. If `live` is not NULL, it receives the
 * number of those blocks.
 *
 * Waits for the device until it is done with all of the memory. Memory is left for the driver to reclaim where that
 * cannot be known, because the device is lost. NULL does nothing.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for one that the process shares, which lives as long as it. */
millpond_status millpond_destroy(millpond_allocator *pond, uint64_t *live);

/* Returns the allocator of a device that the whole process shares. It is made at its first use, and lives as long as the
 * process. All calls return the same one. PyTorch, CuPy and RMM on Millpond use it, too, and so do the functions for
 * CUDAPluggableAllocator below. So memory that one of them frees serves the others, in the order of its stream, and the
 * limit and the statistics are those of all.
 *
 * device  the driver's number: 0 is "cuda:0". If the environment has MILLPOND_TORCH_DEVICE=sim, "sim:0" takes its place,
 *         for tests without a GPU.
 * conf    the configuration, as in millpond_create. All devices of the process have the same one. NULL takes the one
 *         that was set before, or that of the environment.
 * out     receives the allocator.
 *
 * It differs from one of millpond_create as PyTorch's does: under growth:balanced it spends little memory to keep streams
 * apart, and other processes can have its pages (millpond_core.h).
 *
 * Errors: BAD_ARGUMENT, also for a configuration that is not the one in use; and those of millpond_create. */
millpond_status millpond_shared(int device, const char *conf, millpond_allocator **out);

/* ---- Streams ---------------------------------------------------------------------------------------------------- */

/* Creates a stream on the device. On CUDA it is a CUstream that does not wait for the legacy default stream. It lives
 * until millpond_stream_release, or until the allocator is destroyed. A driver call.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT, DEVICE_LOST, DRIVER. */
millpond_status millpond_stream_create(millpond_allocator *pond, millpond_stream *out);

/* Ends the use of a stream. One that millpond_stream_create made is destroyed; of another, the allocator forgets the
 * handle, which the program may destroy then. Blocks of the stream stay valid and are freed as ever, and work that is
 * queued there is still taken into account. A few driver calls.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for the default stream, and for one that was not used with this allocator;
 * DEVICE_LOST; DRIVER, also while the stream is being captured into a graph. */
millpond_status millpond_stream_release(millpond_allocator *pond, millpond_stream stream);

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

/* Allocates at least `bytes` bytes for use on a stream, at an address that is a multiple of 512. `*out` receives the
 * address. 0 bytes are no error: `*out` is NULL then.
 *
 * The memory is not cleared (unless the configuration has scrub:...), and the host must not touch it on CUDA. From the
 * cache it takes tens of nanoseconds and no driver call. Otherwise memory is reserved, and cached memory may be
 * released or waited for first, as the policy says.
 *
 * Errors: OUT_OF_MEMORY, with a text that says what holds the memory; BAD_ALLOCATOR; BAD_ARGUMENT for an unknown
 * stream; DEVICE_LOST; DRIVER. */
millpond_status millpond_alloc(millpond_allocator *pond, uint64_t bytes, millpond_stream stream, void **out);

/* Frees a block by its address, which is that which millpond_alloc returned. NULL does nothing. Work that uses the
 * block on its own stream, or on one that was recorded for it, need not be over. Makes no driver call (except under
 * policy:direct, whose purpose that is).
 *
 * Errors: NOT_A_BLOCK for an address that is not the start of a live block: freed before, from elsewhere, or inside a
 * block; BAD_ALLOCATOR. */
millpond_status millpond_free(millpond_allocator *pond, void *address);

/* Allocates as millpond_alloc does, at an address that is a multiple of `alignment`: a power of two of at most 1 GiB. For
 * more than 512 a longer block is taken, by `alignment` less 512 bytes, and what lies before the address is wasted until it
 * is freed; statistics show the longer request. The block begins at the address that `*out` receives, also for millpond_find
 * and millpond_free.
 *
 * Errors: BAD_ARGUMENT for another alignment; those of millpond_alloc. */
millpond_status millpond_alloc_aligned(millpond_allocator *pond, uint64_t bytes, uint64_t alignment,
                                       millpond_stream stream, void **out);

/* Allocates `bytes` bytes with addresses for `capacity`, into which millpond_grow makes the block longer: what
 * cuMemAddressReserve does for the capacity, and cuMemMap for the bytes. Both are rounded up to whole pages of 2 MiB or
 * more, and the block has at least one page. Addresses need no memory, and are given up with the block. Driver calls.
 *
 * Errors: UNSUPPORTED unless the policy is paged; those of millpond_alloc. */
millpond_status millpond_alloc_growable(millpond_allocator *pond, uint64_t bytes, uint64_t capacity,
                                        millpond_stream stream, void **out);

/* Makes a block longer by `bytes` at its address. Nothing is copied, and what it has stays. A growable block grows up to
 * its capacity: the driver is asked for new pages, and for nothing else. Any other block grows where the memory after
 * it is free, or under policy:paged unused addresses follow. The cost does not depend on the length of the block. Work
 * on the new bytes may be queued on the block's stream at once. Meanwhile no other thread may free or grow the block.
 *
 * Errors, after which nothing has changed: NO_ROOM with a text that says what is in the way, OUT_OF_MEMORY, NOT_A_BLOCK,
 * BAD_ALLOCATOR, DEVICE_LOST, DRIVER. Where the configuration has scrub:..., and the driver fails to overwrite the new
 * bytes, the block has them all the same. */
millpond_status millpond_grow(millpond_allocator *pond, void *address, uint64_t bytes);

/* Records that a block is used on another stream: everything that is queued there until the block is freed comes before
 * the next use of its memory. Call it between millpond_alloc and millpond_free, once for each stream; to repeat it, or
 * to name the block's own stream, has no effect. This is PyTorch's record_stream.
 *
 * Errors: NOT_A_BLOCK, BAD_ALLOCATOR, BAD_ARGUMENT for an unknown stream, DEVICE_LOST, DRIVER. */
millpond_status millpond_record_stream(millpond_allocator *pond, void *address, millpond_stream stream);

/* Allocates a block as millpond_alloc does, on a stream that the program may destroy whenever no call with it is under way,
 * without millpond_stream_release, as with cudaMallocAsync. The driver may use its handle again: the new stream then waits
 * on the device for what was freed on the old one. All blocks that the program uses on such a stream are freed with
 * millpond_free_async. Costs a few driver calls more than millpond_alloc, none of which waits, except that while the
 * stream is being captured the host waits for what was freed on it before.
 *
 * A stream that was also passed to another function that takes one, or used by PyTorch, must be released before it is
 * destroyed, as ever. It costs nothing more then.
 *
 * millpond_grow may queue work on the stream of its block: grow such a block while its stream is alive.
 *
 * Errors: those of millpond_alloc. */
millpond_status millpond_alloc_async(millpond_allocator *pond, uint64_t bytes, millpond_stream stream, void **out);

/* Frees a block on a stream, as cudaFreeAsync does: work on other streams that uses it comes before what is queued on this
 * one. The program sees to that, and may destroy the streams at once after the call, as work that is queued there is still
 * taken into account. NULL does nothing. An event is recorded: a few driver calls, none of which waits.
 *
 * While the stream is being captured there is none, and until its next call after the capture other streams cannot have the
 * memory. If the stream is destroyed before that call, the host waits for the whole device once somebody needs the memory:
 * millpond_empty_cache does, and a request before it is refused, unless Millpond knows that some stream is, or may be, being
 * captured. The wait spoils a capture that Millpond knows nothing of. A stream whose calls so far were all made in captures
 * counts as destroyed, because its handle may have changed hands.
 *
 * Errors: those of millpond_free and millpond_record_stream. Unless it is NOT_A_BLOCK or BAD_ALLOCATOR, the block is freed
 * all the same. */
millpond_status millpond_free_async(millpond_allocator *pond, void *address, millpond_stream stream);

/* Finds the live block in which an address lies. `*start` receives the block's address and `*bytes` its length, which
 * is the size that was asked for after rounding; all of these bytes may be used. Either may be NULL.
 *
 * For the start of a block this takes tens of nanoseconds, and for an address inside one a microsecond or two more for
 * each 2 MiB that lie between; for an address in no block, it may take a millisecond. Meanwhile no other thread may
 * free the block.
 *
 * Errors: NOT_A_BLOCK, BAD_ALLOCATOR. */
millpond_status millpond_find(millpond_allocator *pond, const void *address, void **start, uint64_t *bytes);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* Limits the reserved bytes. UINT64_MAX lifts the limit. To lower it below what is reserved releases nothing.
 *
 * Errors: BAD_ALLOCATOR. */
millpond_status millpond_set_limit(millpond_allocator *pond, uint64_t bytes);

/* Gives cached memory back to the driver until at most `bytes` bytes are reserved, or nothing more can be released. If
 * `reserved` is not NULL, it receives the bytes that are reserved then. Waits for the device; driver calls.
 *
 * Errors: BAD_ALLOCATOR, DEVICE_LOST, DRIVER; what was not released then stays cached. */
millpond_status millpond_trim(millpond_allocator *pond, uint64_t bytes, uint64_t *reserved);

/* Asks the device how far its streams are, so that statistics are up to date. With release_idle_after in the
 * configuration, memory that nothing has needed for that long goes back to the driver. If `released` is not NULL, it
 * receives the bytes that did, which is 0 otherwise. Does not wait for work in flight; driver calls.
 *
 * Errors: BAD_ALLOCATOR, DEVICE_LOST, DRIVER; what was not released then stays cached. */
millpond_status millpond_poll(millpond_allocator *pond, uint64_t *released);

/* Gives all cached memory back to the driver: waits for all freed blocks that streams still use, and releases what no
 * live block pins. This is PyTorch's empty_cache. Waits for the device; driver calls. Do not call it while a stream is being
 * captured on which millpond_free_async has freed memory: that may spoil the capture.
 *
 * Errors: BAD_ALLOCATOR, DEVICE_LOST, DRIVER; what was not released then stays cached. */
millpond_status millpond_empty_cache(millpond_allocator *pond);

/* ---- Private pools ---------------------------------------------------------------------------------------------- */

/* A private pool has memory of its own: its blocks serve requests in it and no others, and as long as the program holds
 * it, its memory stays where it is, with its addresses. A CUDA graph needs that, as it uses the addresses of what was
 * captured whenever it runs. A pool is a number, which no other pool of the allocator ever has; 0 is none. Blocks of a
 * pool are freed, found and recorded as all others are. */
typedef uint64_t millpond_pool;

/* What a pool had handed out at one moment. */
typedef struct millpond_checkpoint millpond_checkpoint;

/* Creates a private pool, which the program holds until millpond_pool_release. Reserves no memory.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT. */
millpond_status millpond_pool_create(millpond_allocator *pond, millpond_pool *out);

/* What a private pool gets its memory from instead of the driver. Memory is taken in segments of 2 MiB, 20 MiB or more, from
 * which blocks are cut; a segment is freed whole.
 *
 * The functions are called on the thread whose call needs them, by any thread and by several at once, with no lock of
 * Millpond's held. They must not unwind, nor call Millpond for this device. */
typedef struct millpond_source {
    /* What the functions are called with. */
    void *user;
    /* Returns that many bytes of the device's memory for blocks of a stream, at a multiple of 512, or NULL if there are none.
     * No work may be under way on them. */
    void *(*alloc)(void *user, uint64_t bytes, int32_t device, void *stream);
    /* Takes back what `alloc` returned for the same stream and length. No work uses it any more. */
    void (*free)(void *user, void *memory, uint64_t bytes, int32_t device, void *stream);
    /* Is told once that neither function will be called again: the pool was released, and its last segment was freed. May
     * be NULL. */
    void (*end)(void *user);
} millpond_source;

/* Creates a private pool as millpond_pool_create does, with a source for its memory. `*source` is copied. Whatever the
 * policy is, the pool has segments as policy:classic has, of which no other pool or stream uses anything; they count as
 * reserved, towards the limit too. What would go back to the driver is freed by the source. A request for which the source
 * has no memory is out of memory, once what can be freed was freed and the source was asked again.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT; `end` is not called then. */
millpond_status millpond_pool_create_from(millpond_allocator *pond, const millpond_source *source, millpond_pool *out);

/* Ends the program's hold of a pool. No more blocks are allocated in it. Its live blocks stay valid, and what is free goes
 * back to the driver, or to its source, with the cached memory of the allocator, or with millpond_pool_empty_cache. Destroying the allocator
 * does this for all pools.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for a pool that the program does not hold. */
millpond_status millpond_pool_release(millpond_allocator *pond, millpond_pool pool);

/* Gives the cached memory of one pool back to the driver. Does nothing for a pool that the program holds, and for a number
 * that is none. Waits for what uses that memory; driver calls.
 *
 * Errors: BAD_ALLOCATOR, DEVICE_LOST, DRIVER; what was not released then stays cached. */
millpond_status millpond_pool_empty_cache(millpond_allocator *pond, millpond_pool pool);

/* Allocates a block as millpond_alloc does, in a private pool.
 *
 * Errors: BAD_ARGUMENT for a pool that the program does not hold, and those of millpond_alloc. */
millpond_status millpond_pool_alloc(millpond_allocator *pond, millpond_pool pool, uint64_t bytes,
                                    millpond_stream stream, void **out);

/* ---- Groups: memory that can be paused --------------------------------------------------------------------------- */

/* A group is private pools whose memory goes back to the driver while the program does something else, and returns to
 * the same addresses: so blocks, pointers and captured graphs stay valid. It is known by its name. Each function below
 * makes the group if there is none of this name, so a misspelt name is no error: nothing is paused. Groups need
 * policy:paged, and so a device with virtual memory (else UNSUPPORTED). */

/* What becomes of the contents of a group that is paused. */
typedef int32_t millpond_keep;
enum {
    /* They are lost. */
    MILLPOND_DISCARD = 0,
    /* They are copied to memory of the host, and back when the group is resumed. */
    MILLPOND_KEEP_ON_HOST = 1,
};

/* How much memory a group has, in bytes. */
typedef struct millpond_group {
    /* In blocks that the program holds, whether the group is paused or not. */
    uint64_t allocated_bytes;
    /* In pages that are taken from the driver now. */
    uint64_t reserved_bytes;
    /* In pages that went back to the driver until the group is resumed. */
    uint64_t paused_bytes;
    /* In memory of the host, for contents. */
    uint64_t host_bytes;
    /* 1 if the group is paused. */
    int32_t is_paused;
    int32_t reserved;
} millpond_group;

/* Returns the pool of a group, in which millpond_pool_alloc allocates its blocks. The program holds it until
 * millpond_pool_release, which leaves the group as it is.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT, UNSUPPORTED. */
millpond_status millpond_group_pool(millpond_allocator *pond, const char *name, millpond_pool *out);

/* Makes another private pool a part of a group, for as long as the pool exists: that of a graph, for example.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for a pool that the program does not hold, one of another group, one with a source,
 * and while the group is paused; UNSUPPORTED. */
millpond_status millpond_group_add(millpond_allocator *pond, const char *name, millpond_pool pool);

/* Waits for the streams on which blocks of the group were allocated or recorded, and gives the group's pages back to the
 * driver. Wait yourself for others, such as those on which a graph runs. Nothing can be allocated in the group then
 * (BAD_ARGUMENT), and its blocks must not be used; they may be freed. Does nothing if it is paused. Takes the time of the copy,
 * and of some driver calls for each page.
 *
 * Errors, after which the group is as it was: BAD_ALLOCATOR; BAD_ARGUMENT while a stream that uses the group is being
 * captured, if its pages were exported to another process, if the host has too little memory for the contents, or for an
 * unknown `keep`; UNSUPPORTED; DEVICE_LOST; DRIVER. */
millpond_status millpond_group_pause(millpond_allocator *pond, const char *name, millpond_keep keep);

/* Gives the group pages again, at the same addresses, with the contents that were kept. Does nothing if it is running.
 *
 * Errors, after which the group is paused as before: BAD_ALLOCATOR; OUT_OF_MEMORY if there is no room for all of its pages,
 * although cached memory of other pools was given back; UNSUPPORTED; DEVICE_LOST; DRIVER. */
millpond_status millpond_group_resume(millpond_allocator *pond, const char *name);

/* Tells how much memory a group has. Waits while it is being paused or resumed.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT, UNSUPPORTED. */
millpond_status millpond_get_group(millpond_allocator *pond, const char *name, millpond_group *out);

/* ---- Captures and checkpoints ------------------------------------------------------------------------------------ */

/* Tells that work queued on a stream is captured into a graph, in this pool, until millpond_capture_end. Call it beside
 * the driver's own function, once for each stream that takes part. Meanwhile no event is recorded or asked for on these
 * streams, and no stream takes memory of the pool that another one may still use.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for a pool that the program does not hold, an unknown stream, and one that is being
 * captured already; DEVICE_LOST; DRIVER. */
millpond_status millpond_capture_begin(millpond_allocator *pond, millpond_pool pool, millpond_stream stream);

/* Tells that the capture in a pool has ended, on all of its streams. Without one it does nothing.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for a pool that the program does not hold. */
millpond_status millpond_capture_end(millpond_allocator *pond, millpond_pool pool);

/* Notes which blocks of a pool are live, and where. `*out` is ended with millpond_checkpoint_free; it does not hold the
 * pool. Walks over every block of the pool.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for a pool that the program does not hold. */
millpond_status millpond_checkpoint_create(millpond_allocator *pond, millpond_pool pool, millpond_checkpoint **out);

/* Frees all live blocks of the pool of a checkpoint, and hands out just those that were live then, at their addresses and
 * with their lengths: for graphs that are recorded one behind the other in one pool, along several paths. A block that is
 * live now and was then stays the program's. If `live` is not NULL, it receives the number of live blocks. Waits for work
 * that uses this memory on other streams. Meanwhile no other thread allocates in the pool or frees a block of it.
 *
 * Errors: BAD_ARGUMENT, and nothing has changed: the program does not hold the pool, or did not all the time since then,
 * and its memory went back; a stream is being captured in it; the checkpoint is another allocator's. BAD_ALLOCATOR.
 * DEVICE_LOST, DRIVER: a wait failed; the blocks are freed, and none is handed out. */
millpond_status millpond_checkpoint_restore(millpond_allocator *pond, const millpond_checkpoint *checkpoint,
                                            uint64_t *live);

/* Ends a checkpoint. NULL does nothing. Cannot fail. */
void millpond_checkpoint_free(millpond_checkpoint *checkpoint);

/* ---- Short of memory -------------------------------------------------------------------------------------------- */

/* A request that is about to be refused. It is valid during the call that it is passed to. */
typedef struct millpond_shortage {
    uint32_t size;            /* of this struct, in bytes: fields are only ever added at the end */
    uint32_t attempt;         /* how often the request was refused: 1 for the first time */
    int32_t device;           /* the number of the device */
    int32_t rejected;         /* 1 if throw_on_cudamalloc_oom refuses it before anything is tried */
    uint64_t requested_bytes;
    uint64_t tried_bytes;     /* what the driver was asked for, or would have been */
    uint64_t short_bytes;     /* what must come free at least */
    uint64_t limit_bytes;     /* UINT64_MAX without a limit */
    uint64_t total_bytes;     /* all bytes of the device */
    uint64_t allocated_bytes;
    uint64_t reserved_bytes;
    const char *text;         /* what holds the memory, and what would help, as millpond_last_error would have it */
} millpond_shortage;

/* What a program does before a request is refused.
 *
 * The functions are called on the thread whose call needs them, by any thread and by several at once, with no lock of
 * Millpond's held. They must not unwind, nor wait for another thread that allocates. `call` may free blocks, empty or
 * trim the cache, and set the limit. A request that it makes of the same allocator is served if the cache has a block
 * at once, and else fails with BAD_ARGUMENT; millpond_alloc_cached works there in full. */
typedef struct millpond_hook {
    /* What the functions are called with. */
    void *user;
    /* Makes room. Returns 1 to have the request tried again, and 0 if it has nothing to free. */
    int32_t (*call)(void *user, const millpond_shortage *shortage);
    /* Is told once that neither function will be called again: the hook was removed, or the allocator destroyed, and no
     * call is in progress. May be NULL. */
    void (*end)(void *user);
} millpond_hook;

/* Has a hook called before a request is refused: in millpond_alloc, millpond_pool_alloc, and what frameworks call.
 * `*hook` is copied, and `*out` receives a number for millpond_hook_remove. Hooks are called in the order in which they
 * were added. After one returns 1 the request is tried again; if it would still be refused, the next ones are called,
 * and after the last the first. A round in which all return 0 ends that, and so do 8 rounds: the request is then
 * OUT_OF_MEMORY. Costs nothing until then.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT; `end` is not called then. */
millpond_status millpond_hook_add(millpond_allocator *pond, const millpond_hook *hook, uint64_t *out);

/* Removes a hook. A call in progress on another thread goes on; `end` is called after it.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for a number that is no hook. */
millpond_status millpond_hook_remove(millpond_allocator *pond, uint64_t hook);

/* Allocates as millpond_alloc does if the cache has the memory. If it has not, `*out` is NULL, which is no error. Asks the
 * driver for no memory, releases none, and waits neither for the device nor for other threads that are short of memory;
 * but under policy:paged it may map free memory side by side, and the stream may wait on the device.
 *
 * Errors: those of millpond_alloc. */
millpond_status millpond_alloc_cached(millpond_allocator *pond, uint64_t bytes, millpond_stream stream, void **out);

/* What would serve a request: a cached block; free memory, mapped side by side; new memory, at least for a part; nothing. */
enum { MILLPOND_CACHED = 0, MILLPOND_GATHERED = 1, MILLPOND_NEW = 2, MILLPOND_NOTHING = 3 };

/* What stands in the way of a request that nothing would serve: the limit, or what the device has left. */
enum { MILLPOND_NO_BOUND = 0, MILLPOND_LIMIT = 1, MILLPOND_DEVICE = 2 };

/* Whether a request would be served, and what it would take. */
typedef struct millpond_fit {
    int32_t served_by;       /* MILLPOND_CACHED and so on */
    int32_t waits;           /* 1 if the host would wait for work that is not known to be over */
    int32_t bound;           /* MILLPOND_NO_BOUND if it would be served */
    int32_t reserved;        /* 0 */
    uint64_t reserves_bytes; /* what would be reserved */
    uint64_t releases_bytes; /* what would go back to the driver first */
    uint64_t bound_bytes;    /* the limit, or what the device has left */
    uint64_t short_bytes;    /* what is missing there */
} millpond_fit;

/* Forecasts a request and changes nothing: for programs that admit work by the memory that it takes. If something would
 * serve it, and nothing else happens, millpond_alloc succeeds, and changes the reserved bytes by just what is told. If
 * nothing would, it is OUT_OF_MEMORY, unless a hook makes room. What the driver gives may differ from what it reports as
 * free. Takes under a microsecond if a cached block serves a large request, and else tens of microseconds and more, as
 * the tables of blocks are copied.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for an unknown stream; OUT_OF_MEMORY from 2^60 bytes; DEVICE_LOST; DRIVER. */
millpond_status millpond_would_fit(millpond_allocator *pond, uint64_t bytes, millpond_stream stream, millpond_fit *out);

/* ---- Statistics ------------------------------------------------------------------------------------------------- */

/* The figures that programs look at most, in bytes. */
typedef struct millpond_usage {
    uint64_t allocated_bytes;     /* in live blocks, after rounding: torch.cuda.memory_allocated */
    uint64_t max_allocated_bytes; /* the peak of it since millpond_reset_peaks */
    uint64_t reserved_bytes;      /* taken from the driver: torch.cuda.memory_reserved */
    uint64_t max_reserved_bytes;  /* the peak of it since millpond_reset_peaks */
} millpond_usage;

/* Writes these figures to `out`. Takes the lock of each stream in turn: about a microsecond.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT. */
millpond_status millpond_get_usage(millpond_allocator *pond, millpond_usage *out);

/* Returns all statistics as one JSON object of whole numbers. The 122 keys of torch.cuda.memory_stats come first, such
 * as "allocated_bytes.all.peak"; behind them are "num_oom_rejections", what the policy paged has done with pages
 * ("pages.*", all 0 under other policies) and reserves beyond what is live ("slack.*", where -1 stands for no bound),
 * what went back because nothing had needed it ("idle.*": how often, how much, and how long ago the last time was, or -1),
 * and what the driver was asked ("driver.calls", "driver.nanoseconds", "driver.stalls", "driver.stall_nanoseconds",
 * "driver.stream_waits"). Further keys may be added. Sizes are in bytes. `*out` is ended with millpond_string_free.
 * Asks the driver how far each stream is, takes the lock of each in turn, and walks over every block: tens of
 * microseconds and more.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT. */
millpond_status millpond_stats_json(millpond_allocator *pond, char **out);

/* Returns the table of torch.cuda.memory_summary, for people to read; with `abbreviated` not 0 without the rows of the
 * large and the small pool. `*out` is ended with millpond_string_free. Costs what millpond_stats_json does, and
 * asks the driver how much memory is left, too.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT. */
millpond_status millpond_summary(millpond_allocator *pond, int abbreviated, char **out);

/* Sets every peak to its current value: torch.cuda.reset_peak_memory_stats. Takes the lock of each stream in turn.
 *
 * Errors: BAD_ALLOCATOR. */
millpond_status millpond_reset_peaks(millpond_allocator *pond);

/* A peak scope: the peaks of a part of the program, from millpond_peak_open to millpond_peak_close. Scopes may be nested,
 * may overlap, and end in any order, on any thread. None changes another one, nor the peaks of millpond_get_usage; and
 * millpond_reset_peaks changes no scope. What other threads allocate counts too. A scope is a number, which no other
 * scope of the allocator ever has; 0 is none. */
typedef uint64_t millpond_peak;

/* Opens a peak scope, whose peaks begin with the present values. Takes the lock of each stream in turn; allocations and
 * frees cost what they do without it. Destroying the allocator ends its scopes.
 *
 * Errors: BAD_ALLOCATOR, BAD_ARGUMENT. */
millpond_status millpond_peak_open(millpond_allocator *pond, millpond_peak *out);

/* Writes what millpond_get_usage does, with the peaks since the scope was opened. Takes the lock of each stream in turn.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for NULL, and for a scope that is not open. */
millpond_status millpond_peak_usage(millpond_allocator *pond, millpond_peak peak, millpond_usage *out);

/* Returns the 122 keys of torch.cuda.memory_stats as millpond_stats_json does, with the peaks since the scope was opened.
 * `*out` is ended with millpond_string_free. Takes the lock of each stream in turn.
 *
 * Errors: as millpond_peak_usage. */
millpond_status millpond_peak_json(millpond_allocator *pond, millpond_peak peak, char **out);

/* Ends a peak scope.
 *
 * Errors: BAD_ALLOCATOR; BAD_ARGUMENT for a scope that is not open. */
millpond_status millpond_peak_close(millpond_allocator *pond, millpond_peak peak);

/* Sets the totals of what was allocated and freed, and the counts of events, to 0:
 * torch.cuda.reset_accumulated_memory_stats. Takes the lock of each stream in turn.
 *
 * Errors: BAD_ALLOCATOR. */
millpond_status millpond_reset_totals(millpond_allocator *pond);

/* ---- PyTorch ---------------------------------------------------------------------------------------------------- */

/* The functions of torch.cuda.memory.CUDAPluggableAllocator, in its signatures. They use the allocators of
 * millpond_shared, with a `conf` of NULL.
 *
 * These signatures have no way to return an error. So a call that fails prints the text to standard error, behind
 * "millpond: ", and it can be read with millpond_last_error on the same thread. */

/* Allocates as millpond_alloc does. Returns NULL for 0 bytes, and if it fails: PyTorch does not turn that into an
 * out-of-memory error of its own. */
void *millpond_torch_alloc(ssize_t size, int device, millpond_stream stream);

/* Frees as millpond_free does. The size and the stream are not looked at. In a child of `fork` an inherited block is
 * forgotten there, and nothing is printed: a framework drops in the child what it has inherited. */
void millpond_torch_free(void *address, ssize_t size, int device, millpond_stream stream);

/* Records a use on another stream, as millpond_record_stream does, on whichever device the block is: for
 * set_record_stream_fn. Without it PyTorch ignores record_stream, and memory is granted again while it is in use. */
void millpond_torch_record_stream(void *address, millpond_stream stream);

/* Empties the caches of all devices in use, as millpond_empty_cache does: for set_reset_fn. */
void millpond_torch_empty_cache(void);

/* Limits the reserved bytes of a device to a share of its memory, from 0 to 1, which lifts the limit: for
 * set_memory_fraction_fn. */
void millpond_torch_memory_fraction(double fraction, int device);

/* Returns what millpond_shared does with a `conf` of NULL.
 *
 * Errors: BAD_ARGUMENT, and those of millpond_create. Prints nothing. */
millpond_status millpond_torch_allocator(int device, millpond_allocator **out);

#ifdef __cplusplus
}
#endif

#endif
