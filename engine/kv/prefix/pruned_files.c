/* engine/kv/prefix/pruned_files.c - entries of the pruned cache that are written to files or were
 * read from one. Checkpoints are not: a file has the end of a turn. */
#include "engine/kv/prefix/pruned_cache_internal.h"

static pruned_entry *find_queried(const weir_prefix *p, const weir_pruned_query *query)
{
    pruned_entry *best = NULL;
    for (pruned_entry *t = p->pruned; p->pruned != NULL && t < p->pruned + p->limits.n_pruned;
         t++) {
        if (!pruned_is_used(t)) continue;
        if (query->name != NULL && strcmp(t->name, query->name) == 0) return t;
        if (query->name != NULL || strcmp(t->salt, salt_text(query->salt)) != 0 ||
            !pruned_begins(p, t, query->tokens, query->n_tokens))
            continue;
        if (best == NULL || t->n_tokens > best->n_tokens ||
            (t->n_tokens == best->n_tokens && t->last_use > best->last_use))
            best = t;
    }
    return best;
}

static weir_status hold(
    weir_prefix *prefix, pruned_entry *entry, weir_kv_sequence *sequence, weir_pruned_entry *content
)
{
    const char *const base = prefix->pruned_memory + entry->at;
    WEIR_TRY(weir_table_snapshot_restore(base + entry->snapshot, &sequence->table, prefix->store));
    entry->n_holds++;
    *content = (weir_pruned_entry
    ){ .tokens = pruned_tokens(prefix, entry),
       .n_tokens = entry->n_tokens,
       .salt = entry->salt,
       .name = entry->name,
       .past = entry->past,
       .policy = base + entry->policy,
       .recurrent = has_states(prefix) ? (const float *)(base + entry->recurrent) : NULL,
       .state = base + entry->state,
       .state_bytes = entry->state_bytes,
       .entry = (int32_t)(entry - prefix->pruned) };
    return WEIR_OK;
}

weir_status weir_pruned_pin(
    weir_prefix *prefix, const weir_pruned_query *query, weir_kv_sequence *sequence,
    weir_pruned_entry *content
)
{
    pruned_entry *const entry = find_queried(prefix, query);
    return entry != NULL ? hold(prefix, entry, sequence, content) : WEIR_ENOTFOUND;
}

weir_status weir_pruned_pin_next(
    weir_prefix *prefix, uint64_t *use, weir_kv_sequence *sequence, weir_pruned_entry *content
)
{
    pruned_entry *next = NULL;
    for (pruned_entry *t = prefix->pruned;
         prefix->pruned != NULL && t < prefix->pruned + prefix->limits.n_pruned; t++)
        if (pruned_is_used(t) && !t->is_deleted && (*use == 0 || t->last_use < *use) &&
            (next == NULL || t->last_use > next->last_use))
            next = t;
    if (next == NULL) return WEIR_ENOTFOUND;
    *use = next->last_use;
    return hold(prefix, next, sequence, content);
}

void weir_pruned_unpin(weir_prefix *prefix, const weir_pruned_entry *content)
{
    WEIR_ASSERT(prefix->pruned[content->entry].n_holds > 0);
    prefix->pruned[content->entry].n_holds--;
}

const char *weir_pruned_restore(
    weir_prefix *prefix, const weir_kv_table *table, const weir_pruned_entry *content
)
{
    const char *reason;
    pruned_entry *const entry = pruned_make(prefix, content, table, false, &reason);
    if (entry == NULL) return reason;
    memcpy(prefix->pruned_memory + entry->at + entry->state, content->state, content->state_bytes);
    return NULL;
}

bool weir_pruned_has_name(const weir_prefix *prefix, const char *name)
{
    return name[0] != '\0' && find_queried(prefix, &(weir_pruned_query){ .name = name }) != NULL;
}

void pruned_forget(weir_prefix *p, const int32_t *tokens, int32_t n_tokens, const char *salt)
{
    for (int32_t i = 0; i < pruned_places(p); i++) {
        pruned_entry *const entry = &p->pruned[i];
        if (pruned_is_used(entry) && strcmp(entry->salt, salt) == 0 &&
            pruned_begins(p, entry, tokens, n_tokens))
            entry->is_deleted = true;
    }
}

void pruned_forget_name(weir_prefix *p, const char *name)
{
    pruned_entry *const entry = find_queried(p, &(weir_pruned_query){ .name = name });
    if (entry == NULL) return;
    weir_prefix_forget(p, pruned_tokens(p, entry), entry->n_tokens, entry->salt);
    entry->name[0] = '\0';
}
