/* engine/kv/prefix/match.c - match: where a sequence can be continued, and giving it the rows and
 * the state of that place. Also for sequences that run: others may have computed more of their
 * tokens meanwhile. */
#include "engine/kv/prefix/tiers_internal.h"

/* ---- finding --------------------------------------------------------------------------------- */
/* How far a sequence is in the tree: after `at` tokens, below `parent`, or within the first n_same
 * tokens of its child `node`. */
typedef struct way {
    int32_t parent, node, n_same, before;
} way;

/* Follows the tokens as far as the tree has them, from the last node that the sequence has itself.
 * Unreadable blocks are not matched. */
static way follow(const weir_prefix *p, const weir_kv_sequence *sequence, int32_t salt)
{
    const int32_t own = prefix_own_node(p, sequence, salt, sequence->n_tokens);
    way w = { .parent = salt, .node = NONE };
    if (own != NONE) w = (way){ own, NONE, 0, (p->nodes[own].depth + 1) * RUN };
    while (w.before < sequence->n_tokens) {
        w.node = prefix_nearest_child(
            p, w.parent, sequence->tokens + w.before, sequence->n_tokens - w.before, &w.n_same
        );
        if (w.node != NONE && is_unreadable(p, w.node)) {
            w.node = NONE;
            w.n_same = 0;
        }
        if (w.node == NONE || w.n_same < RUN) return w;
        w = (way){ .parent = w.node, .node = NONE, .before = w.before + RUN };
    }
    return w;
}

/* Without states: the last token, or the last whole run, of the way and of `most` tokens. */
static void find_row(const weir_prefix *p, const way *w, int32_t most, place *best)
{
    const int32_t matched = w->before + w->n_same, end = matched < most ? matched : most,
                  at = p->is_paged ? end / RUN * RUN : end;
    if (at <= 0) return;
    int32_t before = w->node != NONE ? w->before : w->before - RUN,
            i = w->node != NONE ? w->node : w->parent;
    for (; before >= at; before -= RUN) i = p->nodes[i].parent;
    *best = (place){ i, at - before, at, NONE };
    prefix_find_window(p, best);
}

/* The deepest state on the common prefix, of all children of a node: those on it are equal. */
static void find_state_below(
    const weir_prefix *p, int32_t parent, const weir_kv_sequence *sequence, int32_t before,
    int32_t most, place *best
)
{
    for (int32_t s = p->nodes[parent].below; s != NONE; s = p->entries[s].next_below) {
        const int32_t index = p->entries[s].node, offset = p->entries[s].offset,
                      at = before + offset;
        ++*p->visits;
        if (at > most || at <= best->at || (p->is_paged && offset < RUN) ||
            is_unreadable(p, index) || !prefix_has_window(p, index, at) ||
            common(p->nodes[index].tokens, sequence->tokens + before, offset) < offset)
            continue;
        *best = (place){ index, offset, at, s };
    }
}

static void find_state(
    const weir_prefix *p, const way *w, const weir_kv_sequence *sequence, int32_t most, place *best
)
{
    const int32_t matched = w->before + w->n_same, end = matched < most ? matched : most;
    for (int32_t i = w->parent, before = w->before; best->node == NONE && before >= 0;
         i = p->nodes[i].parent, before -= RUN) {
        if (before < end) find_state_below(p, i, sequence, before, end, best);
        ++*p->visits;
    }
}

/* True if the cached sequence goes on where the way ends. */
static bool goes_on(const weir_prefix *p, const way *w)
{
    return w->node != NONE ? w->n_same < p->nodes[w->node].n_tokens
                           : p->nodes[w->parent].children != 0;
}

/* True if the state is of a turn whose answer the sequence does not have. */
static bool is_before_answer(const weir_prefix *p, int32_t entry)
{
    return entry != NONE && p->entries[entry].turn != 0 && p->entries[entry].end != entry;
}

weir_prefix_hit prefix_find(
    const weir_prefix *p, const weir_kv_sequence *sequence, const char *salt, int32_t most,
    place *best
)
{
    weir_prefix_hit hit = { .reason = "nothing is cached under this salt" };
    const int32_t salt_node = prefix_find_salt(p, salt_text(salt));
    *best = (place){ .node = NONE, .entry = NONE };
    if (salt_node == NONE) return hit;
    const way w = follow(p, sequence, salt_node);
    if (has_states(p))
        find_state(p, &w, sequence, most, best);
    else
        find_row(p, &w, most, best);
    hit.n_matched = w.before + w.n_same;
    hit.n_rows = best->at;
    hit.is_left = hit.n_matched < sequence->n_tokens && goes_on(p, &w);
    hit.is_rewritten = hit.is_left && is_before_answer(p, best->entry);
    hit.reason = hit.n_matched >= sequence->n_tokens ? "the whole sequence is cached"
                 : hit.n_matched > 0 ? "the nearest cached sequence ends or differs here"
                                     : "no cached sequence begins like this";
    if (hit.n_matched == 0 ||
        (best->node != NONE && (best->at == hit.n_matched || best->at == most)))
        return hit;
    if (has_states(p))
        hit.reason = best->node == NONE ? "no recurrent state is kept on the common part"
                                        : "the last recurrent state on the common part is here";
    else if (p->windows != NULL)
        hit.reason = "the rows that layers with a window read are not cached after this point";
    else if (p->is_paged)
        hit.reason = "this KV format continues sequences at multiples of 64 tokens";
    return hit;
}

int32_t weir_prefix_match_length(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    place best;
    const weir_kv_sequence sequence = { .tokens = (int32_t *)tokens,
                                        .n_tokens = n_tokens }; /* The sequence is only read. */
    return prefix_find(prefix, &sequence, salt, n_tokens, &best).n_rows;
}

bool weir_prefix_can_match(const weir_prefix *prefix)
{
    return !has_states(prefix) || prefix->limits.n_snapshots > 0;
}

int32_t weir_prefix_shared_rows(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    place best;
    const weir_kv_sequence sequence = { .tokens = (int32_t *)tokens,
                                        .n_tokens = n_tokens }; /* The sequence is only read. */
    (void)prefix_find(prefix, &sequence, salt, n_tokens, &best);
    if (prefix->heads == 0 || best.node == NONE) return 0;
    /* The sequences that hold a run hold all above it. */
    int32_t i = best.node, rows = best.at / RUN * RUN;
    for (; prefix->nodes[i].n_tokens > 0 && has_idle_page(prefix, i); i = prefix->nodes[i].parent)
        rows = prefix->nodes[i].depth * RUN;
    return rows;
}

/* ---- giving ---------------------------------------------------------------------------------- */
static const char *const no_table = "there is no memory for its page table";

/* Entries of a table that are written together: those of a head are next to each other. */
enum { SHARED_AT_ONCE = 16 };

bool prefix_share(weir_prefix *p, weir_kv_sequence *sequence, const place *end)
{
    int32_t page = (end->at - 1) / RUN;
    if (weir_kv_table_grow(&sequence->table, p->store, page + 1) != WEIR_OK) return false;
    void *const *blocks[SHARED_AT_ONCE]; /* filled from the end */
    int64_t n = 0;
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent, page--) {
        if (p->heads == 0) continue;
        blocks[SHARED_AT_ONCE - ++n] = (void *const *)pages_of(p, i);
        if (n < SHARED_AT_ONCE && page > 0) continue;
        weir_kv_table_share(&sequence->table, p->store, page, blocks + SHARED_AT_ONCE - n, n);
        n = 0;
    }
    WEIR_ASSERT(page == -1);
    prefix_share_windows(p, sequence, end);
    weir_kv_commit(&sequence->table, end->at - sequence->table.n_rows);
    sequence->n_computed = end->at;
    return true;
}

/* True if the place has no state, or the sequence wants none; else `state` is it, or NULL
 * (false) as long as it is on disk. */
static bool has_state(
    weir_prefix *p, const weir_kv_sequence *sequence, const place *at, const float **state
)
{
    *state = NULL;
    if (at->entry == NONE || sequence->recurrent_bytes == 0) return true;
    *state = prefix_read_state(p, at->entry);
    return *state != NULL;
}

static void use_runs(weir_prefix *p, const place *end)
{
    prefix_settle(p);
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent)
        prefix_use_run(p, i);
}

/* True if there is memory for a table of this many rows once its own is free. */
static bool can_grow(const weir_prefix *p, const weir_kv_sequence *sequence, int32_t rows)
{
    const int64_t n_blocks = (rows + RUN - 1) / RUN;
    return weir_kv_store_tables_of(p->store, n_blocks) <=
           weir_kv_store_free(p->store).tables + sequence->table.n_units;
}

/* True if what is needed to continue there is in memory; the rest is being read from disk. A state
 * that was read stays for one iteration only, so it comes last. */
static bool is_here(
    weir_prefix *p, const weir_kv_sequence *sequence, const place *at, const float **state
)
{
    *state = NULL;
    return prefix_read_windows(p, at) && has_state(p, sequence, at, state);
}

/* Shares the pages, for whose table there is memory, with a copy of the state, as a use of them. */
static void give(weir_prefix *p, weir_kv_sequence *sequence, const place *end, const float *state)
{
    WEIR_ASSERT(prefix_share(p, sequence, end)); /* can_grow */
    use_runs(p, end); /* nodes in use are in no order, so moving them in it costs nothing */
    prefix_use_windows(p, end->node, end->at, true);
    if (end->entry == NONE) return;
    prefix_use_state(p, end->entry);
    if (state == NULL) return; /* a sequence that only carries rows to a file */
    weir_ledger_copy(sequence->ledger, sequence->recurrent, state, sequence->recurrent_bytes);
    sequence->recurrent_dirty = true;
}

weir_prefix_hit weir_prefix_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, int32_t most
)
{
    place best;
    const float *state;
    WEIR_ASSERT(sequence->n_computed == 0);
    prefix->clock++;
    const weir_prefix_hit hit = prefix_find(prefix, sequence, salt, most, &best);
    if (prefix_waits_for_windows(prefix))
        return (weir_prefix_hit
        ){ .n_matched = hit.n_matched, .waits = true, .reason = "cached rows are written to disk" };
    if (!is_here(prefix, sequence, &best, &state)) {
        use_runs(prefix, &best);
        return (weir_prefix_hit
        ){ .n_matched = hit.n_matched, .waits = true, .reason = "its state is read from disk" };
    }
    if (best.node != NONE && !can_grow(prefix, sequence, best.at))
        return (weir_prefix_hit){ .n_matched = hit.n_matched, .reason = no_table };
    if (hit.is_rewritten) prefix_leave_answer(prefix, best.entry);
    if (best.node != NONE) give(prefix, sequence, &best, state);
    return hit;
}

weir_prefix_hit weir_prefix_extend(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, int32_t most, int32_t least
)
{
    place best;
    const float *state;
    WEIR_ASSERT(!sequence->table.is_pruned);
    const int32_t wanted = sequence->n_computed + least;
    const weir_prefix_hit hit = prefix_find(prefix, sequence, salt, most, &best);
    weir_prefix_hit nothing = { .n_rows = sequence->n_computed,
                                .n_matched = hit.n_matched,
                                .reason = hit.reason };
    if (best.node == NONE || best.at < wanted) return nothing;
    if (best.entry != NONE && prefix->entries[best.entry].memory == NONE) {
        nothing.reason = "its state is on disk";
        return nothing;
    }
    if (!prefix_has_windows_here(prefix, &best)) {
        nothing.reason = "rows that layers with a window read are on disk";
        return nothing;
    }
    nothing.reason = no_table;
    if (!can_grow(prefix, sequence, best.at)) return nothing;
    (void)has_state(prefix, sequence, &best, &state);
    prefix->clock++;
    weir_kv_sequence_reset(sequence);
    give(prefix, sequence, &best, state);
    return hit;
}

int32_t weir_prefix_share(weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt)
{
    place best;
    WEIR_ASSERT(sequence->n_computed == 0);
    (void)prefix_find(prefix, sequence, salt, sequence->n_tokens, &best);
    if (!prefix_read_windows(prefix, &best)) return WEIR_PREFIX_WAITS;
    if (best.node != NONE) (void)prefix_share(prefix, sequence, &best);
    return sequence->n_computed;
}
