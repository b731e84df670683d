/* engine/kv/tiers/lower_tier.h - where KV pages lie that the memory near the kernels has no room for:
 * below a device first memory of the host, page-locked so that copies run at the bus's speed, then
 * a file; below the host the file alone. The file has no name: nothing is left of it when the
 * process ends, however it ends.
 *
 *   part 0 [n_blocks, part_bytes[0]], part 1 [n_blocks, part_bytes[1]], ...   a block is 64 tokens,
 *   a part one layer of all KV heads
 * in memory for blocks [0, n_host_blocks), in the file for the others. So the blocks of a text that
 * follow each other are one run in each part, as attention reads them. A block that is given back
 * is used again: the file never grows past its blocks, and is cut to nothing when the last one
 * goes. What went to memory stays there, and what went to the file: attention reads both in every
 * step, so neither is the better place for older blocks. Where the file system takes O_DIRECT no
 * page cache is used; elsewhere what was written or read is dropped from it. Buffers, part sizes
 * and offsets are multiples of 4096. With a device, bytes that come from or go to it may be
 * anywhere; from and to the file they take a way over a buffer here. take and give: engine thread.
 * write and read: any thread, of different blocks or after each other. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "engine/base/error.h"
#include "offload/ledger.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_LOWER_TIER_ALIGNMENT = 4096 };

typedef struct weir_lower_tier weir_lower_tier;

typedef struct weir_lower_tier_layout {
    const char *folder; /* of the file; not looked at if all blocks are in memory */
    int64_t n_blocks, n_host_blocks, n_parts; /* n_host_blocks: the first ones, in memory */
    const size_t *part_bytes; /* [n_parts], copied */
} weir_lower_tier_layout;

/* Where bytes go; tests put failures in between. As pwritev and pread. */
typedef struct weir_lower_tier_io {
    ssize_t (*write)(int fd, const struct iovec *pieces, int n_pieces, off_t at);
    ssize_t (*read)(int fd, void *bytes, size_t n, off_t at);
} weir_lower_tier_io;

/* What the account page_tables holds; the blocks in memory are on the account kv of the host. */
size_t weir_lower_tier_metadata_bytes(int64_t n_blocks, int64_t n_parts);
WEIR_MUST_CHECK weir_status weir_lower_tier_open(
    weir_lower_tier **out, const weir_lower_tier_layout *layout, weir_ledger *ledger,
    weir_error *error
);
void weir_lower_tier_close(weir_lower_tier *lower); /* NULL-safe */
/* NULL: the system's */
void weir_lower_tier_set_io(weir_lower_tier *lower, const weir_lower_tier_io *io);

/* A free block, in memory while there is one, then in the file, charged to memory.disk; EFULL.
 * Blocks taken one after the other follow each other where they can. */
WEIR_MUST_CHECK weir_status
weir_lower_tier_alloc(weir_lower_tier *lower, int32_t *block, weir_error *error);
void weir_lower_tier_free(weir_lower_tier *lower, int32_t block);
int64_t weir_lower_tier_free_blocks(const weir_lower_tier *lower);

/* One part of a block, in pieces. EIO: the error says why. */
WEIR_MUST_CHECK weir_status weir_lower_tier_write(
    weir_lower_tier *lower, int32_t block, int64_t part, const struct iovec *pieces, int n_pieces,
    weir_error *error
);
/* `n` bytes of a part from `at` on, counted from the beginning of `block`: may go on into the
 * blocks that follow. */
WEIR_MUST_CHECK weir_status weir_lower_tier_read(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
);
/* The same beside the kernels of a device (offload/device.h): into memory that none of those reads
 * or writes which have not ended. */
WEIR_MUST_CHECK weir_status weir_lower_tier_read_async(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
);

typedef struct weir_lower_tier_stats {
    int64_t written, read; /* bytes since opening */
    int64_t write_errors, read_errors;
} weir_lower_tier_stats;
weir_lower_tier_stats weir_lower_tier_stats_of(const weir_lower_tier *lower);

#ifdef __cplusplus
}
#endif
