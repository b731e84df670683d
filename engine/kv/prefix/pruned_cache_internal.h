/* engine/kv/prefix/pruned_cache_internal.h - internals of the pruned cache for its parts and for
 * the tree. */
#pragma once
#include "engine/kv/pool/table_snapshot.h"
#include "engine/kv/prefix/prefix_internal.h"
#include "engine/kv/prefix/pruned_cache.h"

enum { WEIR_PRUNED_ENTRIES = 1024 };

/* An entry, and the offsets of its parts in the block, from `at` on: tokens, recurrent state, table
 * snapshot, text and state of the policy. */
struct pruned_entry {
    size_t at, bytes; /* bytes 0: free */
    /* Offsets; policy: its text. */
    size_t recurrent, snapshot, policy, state, state_bytes;
    int32_t n_tokens, n_holds;
    bool is_checkpoint; /* its last tokens are of a prompt that went on */
    bool is_spare;
    bool stands_for_end; /* a checkpoint that was not spare when it was inserted */
    bool is_deleted; /* its client has deleted the session: it is not saved */
    uint64_t last_use;
    weir_policy_history past;
    /* name "": none. */
    char salt[WEIR_PREFIX_SALT + 1], name[WEIR_PREFIX_NAME + 1];
};

/* The first n_pruned are ends of turns, those after them, as many, are checkpoints. */
static inline int32_t pruned_places(const weir_prefix *p)
{
    return p->pruned != NULL ? 2 * p->limits.n_pruned : 0;
}
static inline bool pruned_is_used(const pruned_entry *entry) { return entry->bytes > 0; }

static inline const int32_t *pruned_tokens(const weir_prefix *p, const pruned_entry *entry)
{
    return (const int32_t *)(p->pruned_memory + entry->at);
}
static inline void *entry_snapshot(const weir_prefix *p, const pruned_entry *entry)
{
    return p->pruned_memory + entry->at + entry->snapshot;
}

/* ---- pruned_cache.c -------------------------------------------------------------------------- */
size_t pruned_bytes(const weir_prefix_limits *limits); /* SIZE_MAX on overflow */
void pruned_open(weir_prefix *p); /* p->pruned has its memory, zeroed */
void pruned_close(weir_prefix *p);
/* The least recently used entry that is not held; NULL: there is none. */
pruned_entry *pruned_oldest(const weir_prefix *p);
void pruned_drop(weir_prefix *p, pruned_entry *entry); /* for its pages */
/* Makes an entry, without its policy's state. Returns NULL with the reason. */
pruned_entry *pruned_make(
    weir_prefix *p, const weir_pruned_entry *content, const weir_kv_table *table, bool is_spare,
    const char **reason
);
bool pruned_is_sound(const weir_prefix *p);

/* ---- pruned_files.c -------------------------------------------------------------------------- */
/* For weir_prefix_forget, and weir_prefix_forget_name. */
void pruned_forget(weir_prefix *p, const int32_t *tokens, int32_t n_tokens, const char *salt);
void pruned_forget_name(weir_prefix *p, const char *name);

/* ---- pruned_match.c -------------------------------------------------------------------------- */
typedef enum kinship {
    OF_OTHERS /* another salt */,
    OTHER_POLICY,
    OTHER_CHOICE /* budget or protected rows */,
    ALIKE
} kinship;
kinship pruned_compare(
    const pruned_entry *entry, const weir_policy_history *past, const char *salt
);
/* True if the entry is a prefix of the tokens. */
bool pruned_begins(
    const weir_prefix *p, const pruned_entry *entry, const int32_t *tokens, int32_t n_tokens
);
bool pruned_has_turns(const pruned_entry *entry, const weir_policy_history *past);
