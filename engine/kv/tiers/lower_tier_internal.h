/* engine/kv/tiers/lower_tier_internal.h - the lower tier, shared by its blocks (lower_tier.c) and
 * their bytes (lower_tier_bytes.c). */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "engine/kv/tiers/lower_tier.h"

typedef struct tier_part {
    size_t page_bytes, bytes;
    size_t file_start, host_start; /* offsets in the file, in memory */
    int64_t n_pages, first_page; /* first_page: its number in a block */
} tier_part;

struct weir_lower_tier {
    weir_ledger *ledger;
    weir_lower_tier_io io;
    char *folder;
    int fd;
    bool is_direct;
    /* n_free includes those in memory. */
    int64_t n_blocks, n_host_blocks, n_parts, n_free, n_free_host;
    int64_t next, next_host; /* where the search for a free block continues */
    size_t block_bytes, metadata_bytes;
    tier_part *parts; /* [n_parts]; owned, together with the bits and the checksums */
    int64_t n_pages; /* of a block */
    uint32_t *checksums; /* [blocks of the file, n_pages] */
    char *host; /* memory of the first blocks; may be NULL */
    size_t host_bytes, way_bytes;
    /* [way_bytes], the size of a part, between a device and the file; NULL: no device, or no
     * file. */
    char *way;
    pthread_mutex_t way_lock;
    uint64_t *used; /* one bit per block */
    atomic_bool fails; /* the last write did */
    atomic_llong written, read, write_errors, read_errors;
};
