/* engine/kv/prefix/pruned_cache_internal.h - the inside of kept texts that a policy watched: the list
 * (pruned_cache.c) as the tree sees it. */
#pragma once
#include "engine/kv/pool/table_snapshot.h"
#include "engine/kv/prefix/prefix_internal.h"

enum { WEIR_CUT_TEXTS = 1024 };

/* An entry, and where in the block its parts are, from `at` on: tokens, recurrent state, parcel,
 * text and state of the policy. */
struct pruned_entry {
    size_t at, bytes; /* bytes 0: free */
    size_t recurrent, snapshot, policy, state, state_bytes; /* policy: its text */
    int32_t n_tokens, n_holds;
    uint64_t last_use;
    weir_policy_history past;
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1]; /* name "": none */
};

static inline const int32_t *pruned_tokens(const weir_prefix *p, const pruned_entry *text)
{
    return (const int32_t *)(p->pruned_memory + text->at);
}
static inline void *entry_snapshot(const weir_prefix *p, const pruned_entry *text)
{
    return p->pruned_memory + text->at + text->snapshot;
}

size_t pruned_bytes(const weir_prefix_limits *limits); /* SIZE_MAX: absurd */
void pruned_open(weir_prefix *p); /* p->cut has its memory, zero */
void pruned_close(weir_prefix *p);
pruned_entry *pruned_oldest(const weir_prefix *p);
/* Adds pages that only entries hold */
void pruned_count(const weir_prefix *p, weir_kv_pages *pages);
bool pruned_is_sound(const weir_prefix *p);
