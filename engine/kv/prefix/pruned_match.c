/* engine/kv/prefix/pruned_match.c - finds the entry that a sequence continues, and gives it the
 * rows and states. */
#include "engine/kv/prefix/pruned_cache_internal.h"

/* ---- comparing ------------------------------------------------------------------------------- */
kinship pruned_compare(const pruned_entry *entry, const weir_policy_history *past, const char *salt)
{
    if (!pruned_is_used(entry) || strcmp(entry->salt, salt_text(salt)) != 0) return OF_OTHERS;
    if (memcmp(entry->past.policy, past->policy, sizeof past->policy) != 0) return OTHER_POLICY;
    return entry->past.budget == past->budget && entry->past.n_pinned == past->n_pinned
               ? ALIKE
               : OTHER_CHOICE;
}

bool pruned_begins(
    const weir_prefix *p, const pruned_entry *entry, const int32_t *tokens, int32_t n_tokens
)
{
    return entry->n_tokens <= n_tokens &&
           common(pruned_tokens(p, entry), tokens, entry->n_tokens) == entry->n_tokens;
}

bool pruned_has_turns(const pruned_entry *entry, const weir_policy_history *past)
{
    return entry->past.n_turns == past->n_turns &&
           memcmp(entry->past.turns, past->turns, (size_t)past->n_turns * sizeof *past->turns) == 0;
}

bool weir_pruned_contains(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    for (int32_t i = 0; i < pruned_places(prefix); i++) {
        const pruned_entry *const entry = &prefix->pruned[i];
        if (pruned_is_used(entry) && strcmp(entry->salt, salt_text(salt)) == 0 &&
            pruned_begins(prefix, entry, tokens, n_tokens))
            return true;
    }
    return false;
}

/* ---- finding --------------------------------------------------------------------------------- */
typedef struct search {
    const int32_t *tokens;
    int32_t most; /* of the tokens */
    weir_policy_history past;
    const char *salt;
    bool again;
} search;

/* What an entry of others says about why nothing is continued. */
static void explain(
    const weir_prefix *p, const search *s, const pruned_entry *entry, kinship kin,
    weir_prefix_hit *hit
)
{
    if (hit->n_matched > 0) return;
    if (kin == OTHER_CHOICE)
        hit->reason = "sequences of this KV policy are cached, under another budget or with other "
                      "protected rows";
    if (kin == OTHER_POLICY && pruned_begins(p, entry, s->tokens, s->most))
        hit->reason =
            "this sequence is cached under another KV policy, or under other options of it";
}

/* The longest entry that is a prefix of the tokens; of two, the end of a turn. */
static pruned_entry *find(const weir_prefix *p, const search *s, weir_prefix_hit *hit)
{
    pruned_entry *best = NULL;
    int32_t left = 0; /* the longest common prefix with a turn that goes on otherwise */
    for (int32_t i = 0; i < pruned_places(p); i++) {
        pruned_entry *const entry = &p->pruned[i];
        const kinship kin = pruned_compare(entry, &s->past, s->salt);
        if (kin != ALIKE) explain(p, s, entry, kin, hit);
        if (kin != ALIKE || (s->again && !pruned_has_turns(entry, &s->past))) continue;
        const int32_t n = entry->n_tokens,
                      same = common(pruned_tokens(p, entry), s->tokens, n < s->most ? n : s->most);
        if (same > hit->n_matched) {
            hit->n_matched = same;
            hit->reason =
                "a sequence that its KV policy watched is continued where a turn of it ended "
                "or a chunk of its prompt was kept, and the nearest one differs here";
        }
        if (same == n && (best == NULL || n > best->n_tokens)) best = entry;
        if (same < n && same < s->most && !entry->is_checkpoint && same > left) left = same;
    }
    hit->is_left = left > 0 && left == hit->n_matched;
    return best;
}

/* ---- giving ---------------------------------------------------------------------------------- */
/* Returns NULL, or why the sequence cannot have it; static text. */
static const char *give(
    const weir_prefix *prefix, const pruned_entry *entry, weir_kv_sequence *sequence
)
{
    const char *const base = prefix->pruned_memory + entry->at;
    if (weir_table_snapshot_restore(base + entry->snapshot, &sequence->table, prefix->store) !=
        WEIR_OK)
        return "there is no memory for its page table";
    if (weir_policy_run_load(
            sequence->policy_run, &entry->past, entry->n_tokens, &sequence->table,
            base + entry->state, entry->state_bytes, NULL
        ) != WEIR_OK) {
        weir_kv_truncate(&sequence->table, prefix->store, 0);
        return "the KV policy's state of the cached sequence cannot be used";
    }
    sequence->n_computed = entry->n_tokens;
    if (sequence->recurrent_bytes > 0)
        weir_ledger_copy(
            sequence->ledger, sequence->recurrent, base + entry->recurrent,
            sequence->recurrent_bytes
        );
    sequence->recurrent_dirty = true;
    return NULL;
}

weir_prefix_hit weir_pruned_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, bool again
)
{
    weir_prefix_hit hit = { .reason = "no sequence of this KV policy is cached under this salt" };
    search s = {
        .tokens = sequence->tokens, .most = sequence->n_tokens - 1, .salt = salt, .again = again
    };
    WEIR_ASSERT(sequence->n_computed == 0 && sequence->policy_run != NULL);
    weir_policy_history_of(&s.past, sequence->policy_run);
    pruned_entry *const entry = find(prefix, &s, &hit);
    if (entry == NULL) return hit;
    const char *const why = give(prefix, entry, sequence);
    if (why != NULL) {
        hit.reason = why;
        return hit;
    }
    entry->last_use = ++prefix->clock;
    entry->is_spare = entry->is_deleted = false;
    hit.n_rows = entry->n_tokens;
    hit.is_rewritten = entry->stands_for_end;
    if (entry->is_checkpoint) {
        hit.reason = "the prompt of a cached sequence is continued after one of its chunks";
    } else {
        hit.n_matched = entry->n_tokens;
        hit.is_left = false;
        hit.reason = "all of a cached sequence is continued";
    }
    return hit;
}
