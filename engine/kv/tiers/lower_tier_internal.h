/* engine/kv/tiers/lower_tier_internal.h - the lower tier, shared by its blocks (lower_tier.c),
 * their bytes (lower_tier_bytes.c), and what its file holds on disk (lower_tier_space.c). */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "engine/kv/tiers/lower_tier.h"

typedef struct tier_part {
    size_t page_bytes, bytes;
    size_t file_start, host_start; /* offsets in the file, in memory */
    int64_t n_pages, first_page; /* first_page: its number in a block */
} tier_part;

typedef _Atomic uint64_t tier_bits; /* 64 of them */

/* Files that share one limit. */
enum { SHARERS = 3 };

/* Bytes of files on disk. */
typedef struct tier_space {
    size_t limit;
    size_t used; /* of allocated blocks; engine thread */
    atomic_ullong n_changes; /* allocations and frees, counted after the bit has changed */
    /* (lock) Of blocks that were written and not given back since, allocated or not; the engine
     * thread reads it. */
    atomic_size_t held;
    weir_lower_tier *tiers[SHARERS]; /* (lock) */
    pthread_mutex_t lock; /* of threads that write; held while space is given back */
} tier_space;

struct weir_lower_tier {
    weir_ledger *ledger;
    weir_lower_tier_io io;
    char *folder;
    int fd;
    bool is_direct, gives_back;
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
    tier_bits *used; /* of the blocks; the engine thread's */
    atomic_llong n_on_disk; /* of them, those of the file */
    /* (space->lock) Of the blocks: the file has bytes of it; their number; where the search for
     * freed ones continues. */
    tier_bits *held;
    int64_t n_held, next_freed;
    tier_space *space, own_space;
    off_t end; /* of the file; the writing thread's */
    atomic_bool may_shrink; /* the file had no block, and has bytes since */
    atomic_bool fails; /* the last write did */
    atomic_llong written, read, write_errors, read_errors;
};

static inline int64_t bits_words(int64_t n) { return (n + 63) / 64; }

static inline bool bits_have(const tier_bits *bits, int64_t i)
{
    return (atomic_load(&bits[i / 64]) >> (i % 64) & 1) != 0;
}

static inline void bits_set(tier_bits *bits, int64_t i)
{
    (void)atomic_fetch_or(&bits[i / 64], UINT64_C(1) << (i % 64));
}

static inline void bits_clear(tier_bits *bits, int64_t i)
{
    (void)atomic_fetch_and(&bits[i / 64], ~(UINT64_C(1) << (i % 64)));
}

static inline int64_t tier_file_blocks(const weir_lower_tier *tier)
{
    return tier->n_blocks - tier->n_host_blocks;
}

static inline int64_t tier_on_disk(const weir_lower_tier *tier)
{
    return atomic_load(&tier->n_on_disk);
}

/* Offset in the file of a block's part. */
static inline size_t tier_offset(const weir_lower_tier *tier, int64_t block, const tier_part *part)
{
    return part->file_start + (size_t)(block - tier->n_host_blocks) * part->bytes;
}

/* ---- lower_tier_space.c ---------------------------------------------------------------------- */
/* The tier gets a space of its own, or shares that of another one; it gives up its part. */
void tier_share_space(weir_lower_tier *tier, weir_lower_tier *other);
void tier_leave_space(weir_lower_tier *tier); /* also if it has none */
/* True if a block that the file does not hold yet can be written before others are given back. */
bool tier_grows(const weir_lower_tier *tier);
/* Before a block of the file is written: counts its bytes, for which others are given back if need
 * be. EIO: they cannot be. */
WEIR_MUST_CHECK weir_status
tier_take_space(weir_lower_tier *tier, int64_t block, weir_error *error);
