/* engine/kv/prefix/prefix.c - the tree: its memory, match and insert. Its states are in states.c,
 * reclaiming in reclaim.c, whole sequences in texts.c. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/kv/prefix/pruned_cache_internal.h"

/* ---- opening --------------------------------------------------------------------------------- */

static bool measure(weir_prefix *prefix, const weir_kv_spec *spec)
{
    const size_t nodes = (size_t)node_count(&prefix->limits),
                 slots = (size_t)prefix->limits.n_snapshots;
    prefix->heads = weir_kv_n_heads(spec);
    prefix->is_paged = weir_kv_is_paged(spec);
    prefix->all_pruned_bytes = pruned_bytes(&prefix->limits);
    return prefix->all_pruned_bytes != SIZE_MAX && prefix->limits.n_nodes >= 0 &&
           prefix->limits.n_nodes < INT32_MAX - 64 && prefix->limits.n_snapshots >= 0 &&
           weir_mul_size(&prefix->node_bytes, nodes, sizeof(node)) &&
           weir_mul_size(&prefix->page_bytes, nodes, (size_t)prefix->heads * sizeof(void *)) &&
           weir_mul_size(&prefix->tip_bytes, nodes, sizeof(int32_t)) &&
           weir_mul_size(&prefix->slot_bytes, slots, sizeof(slot)) &&
           weir_mul_size(
               &prefix->state_bytes, slots, (prefix->limits.snapshot_bytes + 63) & ~(size_t)63
           );
}

size_t weir_prefix_tree_bytes(const weir_prefix_limits *limits, const weir_kv_spec *spec)
{
    weir_prefix prefix = { .limits = *limits };
    return measure(&prefix, spec) ? prefix.node_bytes + prefix.page_bytes + prefix.tip_bytes
                                  : SIZE_MAX;
}

size_t weir_prefix_state_bytes(const weir_prefix_limits *limits)
{
    weir_prefix prefix = { .limits = *limits };
    const weir_kv_spec none = { 0 };
    size_t bytes;
    return measure(&prefix, &none) &&
                   weir_add_size(&bytes, prefix.slot_bytes, prefix.state_bytes) &&
                   weir_add_size(&bytes, bytes, prefix.all_pruned_bytes)
               ? bytes
               : SIZE_MAX;
}

static weir_status take_memory(weir_prefix *p, weir_error *error)
{
    WEIR_TRY(weir_ledger_alloc(
        p->ledger, (void **)&p->nodes, WEIR_ACCOUNT_PAGE_TABLES, p->node_bytes, error
    ));
    if (p->page_bytes > 0)
        WEIR_TRY(weir_ledger_alloc(
            p->ledger, (void **)&p->pages, WEIR_ACCOUNT_PAGE_TABLES, p->page_bytes, error
        ));
    WEIR_TRY(weir_ledger_alloc(
        p->ledger, (void **)&p->tips, WEIR_ACCOUNT_PAGE_TABLES, p->tip_bytes, error
    ));
    if (p->slot_bytes > 0)
        WEIR_TRY(weir_ledger_alloc(
            p->ledger, (void **)&p->slots, WEIR_ACCOUNT_SNAPSHOTS, p->slot_bytes, error
        ));
    if (p->state_bytes > 0)
        WEIR_TRY(weir_ledger_alloc(
            p->ledger, (void **)&p->states, WEIR_ACCOUNT_SNAPSHOTS, p->state_bytes, error
        ));
    if (p->all_pruned_bytes > 0)
        WEIR_TRY(weir_ledger_alloc(
            p->ledger, (void **)&p->pruned, WEIR_ACCOUNT_SNAPSHOTS, p->all_pruned_bytes, error
        ));
    pruned_open(p);
    return WEIR_OK;
}

weir_status weir_prefix_open(
    weir_prefix **out, weir_kv_store *store, weir_ledger *ledger, const weir_prefix_limits *limits,
    weir_error *error
)
{
    weir_prefix *const prefix = calloc(1, sizeof *prefix);
    if (prefix == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the prefix index");
    *prefix = (weir_prefix){ .store = store, .ledger = ledger, .limits = *limits };
    weir_status status =
        measure(prefix, weir_kv_store_spec(store))
            ? take_memory(prefix, error)
            : weir_error_set(
                  error, WEIR_EINVAL, "a prefix index of these sizes does not fit in memory"
              );
    if (status != WEIR_OK) {
        weir_prefix_close(prefix);
        return status;
    }
    const int32_t n = (int32_t)node_count(limits);
    for (int32_t i = 0; i < n; i++)
        prefix->nodes[i] = (node){ .depth = -2,
                                   .parent = NONE,
                                   .child = NONE,
                                   .snapshot = NONE,
                                   .tip = NONE,
                                   .next = i + 1 < n ? i + 1 : NONE };
    prefix->nodes[FOREST].next = NONE;
    prefix->free_node = FOREST + 1;
    prefix->parent_in_use = NONE;
    *out = prefix;
    return WEIR_OK;
}

static void drop_all(weir_prefix *p, int32_t index)
{
    for (int32_t child = p->nodes[index].child; child != NONE; child = p->nodes[child].next)
        drop_all(p, child);
    drop_pages(p, index);
}

void weir_prefix_close(weir_prefix *prefix)
{
    if (prefix == NULL) return;
    pruned_close(prefix);
    if (prefix->nodes != NULL && (prefix->page_bytes == 0 || prefix->pages != NULL))
        drop_all(prefix, FOREST);
    weir_ledger_free(prefix->ledger, prefix->nodes, WEIR_ACCOUNT_PAGE_TABLES, prefix->node_bytes);
    weir_ledger_free(prefix->ledger, prefix->pages, WEIR_ACCOUNT_PAGE_TABLES, prefix->page_bytes);
    weir_ledger_free(prefix->ledger, prefix->tips, WEIR_ACCOUNT_PAGE_TABLES, prefix->tip_bytes);
    weir_ledger_free(prefix->ledger, prefix->slots, WEIR_ACCOUNT_SNAPSHOTS, prefix->slot_bytes);
    weir_ledger_free(prefix->ledger, prefix->states, WEIR_ACCOUNT_SNAPSHOTS, prefix->state_bytes);
    weir_ledger_free(
        prefix->ledger, prefix->pruned, WEIR_ACCOUNT_SNAPSHOTS, prefix->all_pruned_bytes
    );
    free(prefix);
}

/* ---- taking ---------------------------------------------------------------------------------- */
/* Moves `best` to the deepest point of this node, within its first n_same tokens and `most` tokens
 * in all, where a sequence can be continued. */
static void find_point(
    const weir_prefix *p, int32_t index, int32_t before, int32_t n_same, int32_t most, place *best
)
{
    int32_t end = n_same < most - before ? n_same : most - before;
    if (p->is_paged && end < RUN) return;
    if (!has_states(p) && end > 0 && before + end > best->at)
        *best = (place){ index, end, before + end, NONE };
    for (int32_t s = p->nodes[index].snapshot; s != NONE; s = p->slots[s].next) {
        const int32_t offset = p->slots[s].offset;
        if (p->is_paged && offset < RUN) continue;
        if (offset <= end && before + offset > best->at)
            *best = (place){ index, offset, before + offset, s };
    }
}

/* The child with the longest common prefix. States of all children count: those on the common
 * prefix are equal. Unreadable blocks are not matched. */
static int32_t descend(
    const weir_prefix *p, int32_t parent, const weir_kv_sequence *sequence, int32_t before,
    int32_t most, place *best, int32_t *n_same
)
{
    int32_t nearest = NONE;
    *n_same = 0;
    for (int32_t i = p->nodes[parent].child; i != NONE; i = p->nodes[i].next) {
        const int32_t n = p->nodes[i].n_tokens, left = sequence->n_tokens - before;
        if (is_lost(p, i)) continue;
        const int32_t same =
            common(p->nodes[i].tokens, sequence->tokens + before, n < left ? n : left);
        find_point(p, i, before, same, most, best);
        if (same <= *n_same) continue;
        *n_same = same;
        nearest = i;
    }
    return nearest;
}

void prefix_share(weir_prefix *p, weir_kv_sequence *sequence, const place *end)
{
    int32_t page = (end->at - 1) / RUN;
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent, page--) {
        if (p->heads > 0) weir_kv_table_share(&sequence->table, p->store, page, pages_of(p, i));
        prefix_mark(p, i);
    }
    WEIR_ASSERT(page == -1);
    weir_kv_commit(&sequence->table, end->at - sequence->table.n_rows);
    sequence->n_computed = end->at;
}

void prefix_give(weir_prefix *p, weir_kv_sequence *sequence, const place *end)
{
    prefix_share(p, sequence, end);
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent)
        p->nodes[i].last_use = p->clock;
    if (end->slot == NONE) return;
    p->slots[end->slot].last_use = p->clock;
    p->slots[end->slot].is_spare = false;
    if (sequence->recurrent_bytes == 0) return; /* a sequence that only carries rows to a file */
    weir_ledger_copy(
        sequence->ledger, sequence->recurrent, state_of(p, end->slot), sequence->recurrent_bytes
    );
    sequence->recurrent_dirty = true;
}

weir_prefix_hit prefix_find(
    const weir_prefix *p, const weir_kv_sequence *sequence, const char *salt, int32_t most,
    place *best
)
{
    weir_prefix_hit hit = { .reason = "nothing is kept under this salt" };
    int32_t at = find_salt(p, salt_text(salt));
    *best = (place){ .node = NONE };
    if (at == NONE) return hit;
    hit.reason = "no kept text begins like this";
    for (int32_t same = RUN; same == RUN && hit.n_matched < sequence->n_tokens;) {
        at = descend(p, at, sequence, hit.n_matched, most, best, &same);
        hit.n_matched += same;
    }
    hit.n_rows = best->at;
    if (hit.n_matched >= sequence->n_tokens)
        hit.reason = "the whole text is kept";
    else if (hit.n_matched > 0)
        hit.reason = "the nearest kept text ends or differs here";
    if (hit.n_matched == 0 ||
        (best->node != NONE && (best->at == hit.n_matched || best->at == most)))
        return hit;
    if (has_states(p))
        hit.reason = best->node == NONE ? "no recurrent state is kept on the common part"
                                        : "the last recurrent state on the common part is here";
    else if (p->is_paged)
        hit.reason = "this KV format continues texts at multiples of 64 tokens";
    return hit;
}

weir_prefix_hit weir_prefix_match(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, int32_t most
)
{
    place best;
    WEIR_ASSERT(sequence->n_computed == 0);
    prefix->clock++;
    const weir_prefix_hit hit = prefix_find(prefix, sequence, salt, most, &best);
    if (best.node != NONE) prefix_give(prefix, sequence, &best);
    return hit;
}

int32_t weir_prefix_match_length(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    place best;
    const weir_kv_sequence text = { .tokens = (int32_t *)tokens,
                                    .n_tokens = n_tokens }; /* The sequence is only read. */
    return prefix_find(prefix, &text, salt, n_tokens, &best).n_rows;
}

/* ---- keeping --------------------------------------------------------------------------------- */
/* Allocates a node under `parent`; NONE if all are in use. */
static int32_t new_node(weir_prefix *p, int32_t parent)
{
    if (p->free_node == NONE && !prefix_free_node(p, parent)) return NONE;
    const int32_t index = p->free_node;
    p->free_node = p->nodes[index].next;
    p->nodes[index] = (node){ .depth = p->nodes[parent].depth + 1,
                              .parent = parent,
                              .child = NONE,
                              .snapshot = NONE,
                              .tip = NONE,
                              .next = p->nodes[parent].child,
                              .last_use = p->clock };
    p->nodes[parent].child = index;
    return index;
}

static void copy_pages(
    weir_prefix *p, int32_t index, const weir_kv_sequence *sequence, int32_t page
)
{
    for (int64_t h = 0; h < p->heads; h++) {
        void *const own = sequence->table.pages[h * sequence->table.capacity + page];
        weir_kv_page_hold(p->store, own);
        pages_of(p, index)[h] = own;
    }
    prefix_mark(p, index);
}

/* The sequence computed what the node has. The bits are equal, so its own whole page is replaced by
 * the node's. */
static void adopt(weir_prefix *p, int32_t index, weir_kv_sequence *sequence, int32_t page)
{
    void **const own = sequence->table.pages + page;
    if (p->heads == 0 || own[0] == pages_of(p, index)[0]) return;
    for (int64_t h = 0; h < p->heads; h++) {
        weir_kv_page_drop(p->store, own[h * sequence->table.capacity]);
        own[h * sequence->table.capacity] = NULL;
    }
    weir_kv_table_share(&sequence->table, p->store, page, pages_of(p, index));
    prefix_mark(p, index);
}

/* True if the node has these tokens, but its page is on disk without other users, or unreadable:
 * the sequence's own, in memory, is better. */
static bool is_worse(
    const weir_prefix *p, int32_t index, const weir_kv_sequence *sequence, int32_t page
)
{
    return is_cold(p, index) && (is_lost(p, index) || is_idle(p, index)) &&
           !weir_kv_is_cold(p->store, sequence->table.pages[page]);
}

static void use(weir_prefix *p, int32_t index)
{
    node *const run = &p->nodes[index];
    run->last_use = p->clock;
    if (!run->has_lost_file) return;
    run->has_lost_file = false;
    run->n_tried = 0;
}

/* The node for tokens [at, at + n) of the sequence under `parent`: one that has them, one that is
 * extended or gets a better page, or a new one. */
static int32_t keep_run(
    weir_prefix *p, int32_t parent, weir_kv_sequence *sequence, int32_t at, int32_t n
)
{
    int32_t same, index = nearest_child(p, parent, sequence->tokens + at, n, &same);
    const bool is_whole = index != NONE && same == p->nodes[index].n_tokens;
    if (index != NONE && same == n && !(is_whole && is_worse(p, index, sequence, at / RUN))) {
        if (n == RUN && !is_lost(p, index)) adopt(p, index, sequence, at / RUN);
        return index;
    }
    if (is_whole)
        drop_pages(p, index); /* its rows are in the sequence's pages too */
    else
        index = new_node(p, parent);
    if (index == NONE) return NONE;
    node *const run = &p->nodes[index];
    if (!is_whole) p->stats.n_nodes++;
    if (!is_whole) p->n_sinks += is_sink(p, index);
    p->stats.n_tokens += n - run->n_tokens;
    p->stats.n_inserted++;
    memcpy(run->tokens, sequence->tokens + at, (size_t)n * sizeof *run->tokens);
    run->n_tokens = n;
    copy_pages(p, index, sequence, at / RUN);
    return index;
}

static int32_t keep_salt(weir_prefix *p, const char *salt)
{
    const int32_t found = find_salt(p, salt);
    if (found != NONE || strlen(salt) > WEIR_PREFIX_SALT) return found;
    const int32_t index = new_node(p, FOREST);
    if (index != NONE) memcpy(p->nodes[index].tokens, salt, strlen(salt) + 1);
    return index;
}

int32_t weir_prefix_insert(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt,
    const weir_prefix_snapshot *marks, int32_t n_marks, bool whole_pages
)
{
    prefix->clock++;
    const int32_t whole = sequence->n_computed / RUN * RUN;
    const int32_t end = sequence->table.is_pruned         ? 0
                        : whole_pages || prefix->is_paged ? whole
                                                          : sequence->n_computed;
    int32_t at = 0, mark = 0, index = end > 0 ? keep_salt(prefix, salt_text(salt)) : NONE;
    while (index != NONE && at < end) {
        const int32_t n = end - at < RUN ? end - at : RUN;
        index = keep_run(prefix, index, sequence, at, n);
        if (index == NONE) break;
        use(prefix, index);
        for (; mark < n_marks && marks[mark].at <= at + n; mark++)
            prefix_attach(prefix, index, marks[mark].at - at, marks[mark].state);
        at += n;
    }
    if (whole_pages && at == end) return n_marks - mark;
    for (; mark < n_marks; mark++) weir_prefix_release_snapshot(prefix, marks[mark].state);
    return 0;
}

weir_prefix_stats weir_prefix_stats_of(const weir_prefix *prefix) { return prefix->stats; }
