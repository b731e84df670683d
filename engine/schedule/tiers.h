/* engine/schedule/tiers.h - which blocks of KV pages leave memory for the tier below when it is
 * full (the disk; below a device the host first), and which come back.
 *
 * Out go first the kept texts that no sequence uses, the least recently used ones first; those that
 * lost rows cannot, and are dropped; then the oldest blocks of sequences, those of the longest
 * sequence first. The first block of a sequence (every row attends to it most), sinks, and its last
 * `hot` ones stay. Attention reads it there, so nothing has to come back to be used; what does come
 * back, where there is room to spare or a kept text to take it from, is the newest first. A text
 * there is dropped only when that tier is full too, or fails. Engine thread, between steps. */
#pragma once
#include "engine/kv/prefix.h"
#include "engine/kv/residency.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What holds pages beside the sequences of a step. */
typedef struct weir_kv_holders {
    weir_prefix *prefix; /* NULL: nothing is kept */
    weir_sequence *(*running)(
        void   *user,
        int32_t i); /* sequence number i, NULL past the last; NULL: there are no others */
    void *user;
} weir_kv_holders;

struct weir_work;

/* Until n_blocks past the sinks fit in memory. EFULL: they do not; the error says why where the
 * disk is the reason. */
WEIR_MUST_CHECK weir_status weir_tiers_demote(weir_kv_store *store, const weir_kv_holders *holders,
                                              const struct weir_work *works, int32_t n_works,
                                              int32_t hot, int64_t n_blocks, weir_error *error);
/* A bounded number of blocks of the works' sequences comes back. */
void weir_tiers_promote(weir_kv_store *store, const weir_kv_holders *holders,
                        const struct weir_work *works, int32_t n_works, int32_t hot);

/* Blocks that must fit in memory for n_sequences to go on, with steps of `rows` rows beside one row
 * of each. */
static inline int64_t weir_tiers_least_blocks(int64_t n_sequences, int64_t rows, int64_t hot)
{
    return n_sequences * (1 + hot + 2) + (rows + WEIR_PAGE_TOKENS - 1) / WEIR_PAGE_TOKENS + 1;
}

#ifdef __cplusplus
}
#endif
