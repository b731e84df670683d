/* engine/kv/tiers/lower_tier.h - storage of KV pages that do not fit near the kernels: below a
 * device first page-locked host memory, so that copies run at the bus's speed, then a file; below
 * the host only the file. The file has no name: it disappears when the process ends.
 *
 *   part 0 [n_blocks, part_bytes[0]], part 1 [n_blocks, part_bytes[1]], ...
 *
 * a block is 64 tokens, a part one layer of all KV heads. Blocks [0, n_host_blocks) are in memory,
 * the others in the file. Consecutive blocks of a sequence are one run in each part, as attention
 * reads them. Freed blocks are reused: the file never grows past its blocks, and is truncated once
 * the last one was freed. Two tiers may share the disk: what both files hold there, of freed blocks
 * too, stays within the blocks of the first one, since what one needs the other gives back
 * (lower_tier_space.c). Blocks do not move between memory and file: attention reads both in every
 * step, so neither is the better place for older blocks. If the file system supports
 * O_DIRECT the page cache is not used; otherwise what was written or read is dropped from it.
 * Buffers, page sizes and offsets are multiples of 4096. With a device, sources and destinations
 * may be anywhere; transfers between it and the file use a bounce buffer. Each page of the file has
 * a checksum in memory, which is compared when it is read. alloc and free: engine thread. write and
 * read: any thread, on different blocks or one after the other. */
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

/* Pages of one layer of a block. */
typedef struct weir_lower_tier_part {
    int64_t n_pages;
    size_t page_bytes;
} weir_lower_tier_part;

typedef struct weir_lower_tier_layout {
    /* Of the file; ignored if all blocks are in memory. */
    const char *folder;
    /* n_host_blocks: the first ones, in memory. */
    int64_t n_blocks, n_host_blocks, n_parts;
    const weir_lower_tier_part *parts; /* [n_parts], copied */
    /* Its file shares the disk with that of another tier, which must outlive it; NULL: it has what
     * its blocks take. */
    weir_lower_tier *shares_with;
} weir_lower_tier_layout;

/* As pwritev, pread, fallocate with FALLOC_FL_PUNCH_HOLE, and ftruncate; NULL: the system's. Tests
 * use it to inject failures. */
typedef struct weir_lower_tier_io {
    ssize_t (*write)(int fd, const struct iovec *pieces, int n_pieces, off_t at);
    ssize_t (*read)(int fd, void *bytes, size_t n, off_t at);
    int (*make_hole)(int fd, off_t at, off_t n);
    int (*truncate)(int fd, off_t n);
} weir_lower_tier_io;

/* Bytes on the account page_tables; the blocks in memory are on the host's account kv. n_pages: of
 * a block. */
size_t weir_lower_tier_metadata_bytes(
    int64_t n_blocks, int64_t n_host_blocks, int64_t n_parts, int64_t n_pages
);
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
/* Returns true if the file has no block any more: its thread may shrink it. */
bool weir_lower_tier_free(weir_lower_tier *lower, int32_t block);
/* Any thread: true if the file has no block, but may have bytes. */
bool weir_lower_tier_may_shrink(const weir_lower_tier *lower);
/* Truncates the file by up to 128 MiB, some 50 ms on ext4: all of a file may take seconds. For the
 * thread that writes, between writes, while it may shrink. */
void weir_lower_tier_shrink(weir_lower_tier *lower);
/* False: the file system cannot give back part of a file, so no other file should have what this
 * one frees. */
bool weir_lower_tier_gives_back(const weir_lower_tier *lower);
int64_t weir_lower_tier_free_blocks(const weir_lower_tier *lower);

/* Writes one part of a block, one piece per page. EIO: the error says why. */
WEIR_MUST_CHECK weir_status weir_lower_tier_write(
    weir_lower_tier *lower, int32_t block, int64_t part, const struct iovec *pieces, int n_pieces,
    weir_error *error
);
/* True if the last write to the file failed, and the next block would be there, too. Engine
 * thread. */
bool weir_lower_tier_fails(const weir_lower_tier *lower);
/* Reads `n` bytes of a part from offset `at` of `block` on, possibly into the following blocks:
 * whole pages. EIO: they could not be read, or are not those that were written. */
WEIR_MUST_CHECK weir_status weir_lower_tier_read(
    weir_lower_tier *lower, int32_t block, int64_t part, size_t at, void *bytes, size_t n,
    weir_error *error
);
/* The same to memory of the host: does not wait for other reads. */
WEIR_MUST_CHECK weir_status weir_lower_tier_read_to_host(
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
