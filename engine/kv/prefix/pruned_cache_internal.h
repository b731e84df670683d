/* engine/kv/prefix/pruned_cache_internal.h - internals of the pruned cache (pruned_cache.c) for the
 * tree. */
#pragma once
#include "engine/kv/pool/table_snapshot.h"
#include "engine/kv/prefix/prefix_internal.h"

enum { WEIR_CUT_TEXTS = 1024 };

/* An entry, and the offsets of its parts in the block, from `at` on: tokens, recurrent state, table
 * snapshot, text and state of the policy. */
struct pruned_entry {
    size_t at, bytes; /* bytes 0: free */
    /* Offsets; policy: its text. */
    size_t recurrent, snapshot, policy, state, state_bytes;
    int32_t n_tokens, n_holds;
    uint64_t last_use;
    weir_policy_history past;
    /* name "": none. */
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
};

static inline const int32_t *pruned_tokens(const weir_prefix *p, const pruned_entry *text)
{
    return (const int32_t *)(p->pruned_memory + text->at);
}
static inline void *entry_snapshot(const weir_prefix *p, const pruned_entry *text)
{
    return p->pruned_memory + text->at + text->snapshot;
}

size_t pruned_bytes(const weir_prefix_limits *limits); /* SIZE_MAX on overflow */
void pruned_open(weir_prefix *p); /* p->pruned has its memory, zeroed */
void pruned_close(weir_prefix *p);
pruned_entry *pruned_oldest(const weir_prefix *p);
bool pruned_is_sound(const weir_prefix *p);
