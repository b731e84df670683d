/* engine/kv/tiers/lower_tier.h - storage of KV pages that do not fit near the kernels: below a
 * device first page-locked host memory, so that copies run at the bus's speed, then a file; below
 * the host only the file. The file has no name: it disappears when the process ends.
 *
 *   part 0 [n_blocks, part_bytes[0]], part 1 [n_blocks, part_bytes[1]], ...
 *
 * a block is 64 tokens, a part one layer of all KV heads. Blocks [0, n_host_blocks) are in memory,
 * the others in the file. Consecutive blocks of a sequence are one run in each part, as attention
 * reads them. Freed blocks are reused: the file never grows past its blocks, and is truncated to
 * nothing when the last one is freed. Blocks do not move between memory and file: attention reads
 * both in every step, so neither is the better place for older blocks. If the file system supports
 * O_DIRECT the page cache is not used; otherwise what was written or read is dropped from it.
 * Buffers, part sizes and offsets are multiples of 4096. With a device, sources and destinations
 * may be anywhere; transfers between it and the file use a bounce buffer. take and give: engine
 * thread. write and read: any thread, on different blocks or one after the other. */
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
    /* Of the file; ignored if all blocks are in memory. */
    const char *folder;
    /* n_host_blocks: the first ones, in memory. */
    int64_t n_blocks, n_host_blocks, n_parts;
    const size_t *part_bytes; /* [n_parts], copied */
} weir_lower_tier_layout;

/* As pwritev and pread; tests use it to inject failures. */
typedef struct weir_lower_tier_io {
    ssize_t (*write)(int fd, const struct iovec *pieces, int n_pieces, off_t at);
    ssize_t (*read)(int fd, void *bytes, size_t n, off_t at);
} weir_lower_tier_io;

/* Bytes on the account page_tables; the blocks in memory are on the host's account kv. */
size_t weir_lower_tier_metadata_bytes(int64_t n_blocks, int64_t n_parts);
WEIR_MUST_CHECK weir_status weir_lower_tier_open(
    weir_lower_tier **out, const weir_lower_tier_layout *layout, weir_ledger *ledger,
    weir_error *error
);
void weir_lower_tier_close(weir_lower_tier *lower); /* NULL-safe */
/* NULL: the system's. */
void weir_lower_tier_set_io(weir_lower_tier *lower, const weir_lower_tier_io *io);

/* Allocates a block, in memory if one is free, else in the file, charged to memory.disk; EFULL.
 * Successive blocks are contiguous if possible. */
WEIR_MUST_CHECK weir_status
weir_lower_tier_alloc(weir_lower_tier *lower, int32_t *block, weir_error *error);
void weir_lower_tier_free(weir_lower_tier *lower, int32_t block);
int64_t weir_lower_tier_free_blocks(const weir_lower_tier *lower);

/* Writes one part of a block, in pieces. EIO: the error says why. */
WEIR_MUST_CHECK weir_status weir_lower_tier_write(
    weir_lower_tier *lower, int32_t block, int64_t part, const struct iovec *pieces, int n_pieces,
    weir_error *error
);
/* Reads `n` bytes of a part from offset `at` of `block` on, possibly into the following blocks. */
WEIR_MUST_CHECK weir_status weir_lower_tier_read(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
);
/* The same while kernels of a device run (offload/device.h), into memory that no unfinished kernel
 * reads or writes. */
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
