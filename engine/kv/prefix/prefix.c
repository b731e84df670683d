/* engine/kv/prefix/prefix.c - the tree: its memory, and insert. Matching is in match.c, states in
 * states.c, reclaiming in reclaim.c, whole sequences in sequences.c. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/kv/prefix/pruned_cache_internal.h"
#include "engine/kv/prefix/tiers_internal.h"

/* ---- opening --------------------------------------------------------------------------------- */

static bool measure(weir_prefix *prefix, const weir_kv_spec *spec)
{
    const size_t nodes = (size_t)node_count(&prefix->limits), states = (size_t)n_memory(prefix);
    prefix->heads = weir_kv_n_heads(spec);
    prefix->is_paged = weir_kv_is_paged(spec);
    prefix->block = weir_kv_pages_of(spec, spec->sinks.n_pages, spec->sinks.n_pages + 1);
    prefix->sink_block = (weir_kv_pages){ .sinks = prefix->heads };
    prefix->classes = 1;
    while (prefix->classes < WEIR_KV_SIZE_CLASSES && prefix->block.others[prefix->classes] > 0)
        prefix->classes++;
    prefix->all_pruned_bytes = pruned_bytes(&prefix->limits);
    prefix->transfer_bytes = prefix_transfer_bytes(&prefix->limits);
    prefix->n_entries = prefix->limits.n_snapshots + prefix->limits.n_cold;
    return prefix->all_pruned_bytes != SIZE_MAX && prefix->limits.n_nodes >= 0 &&
           prefix->limits.n_nodes < INT32_MAX - 64 && prefix->limits.n_snapshots >= 0 &&
           weir_mul_size(&prefix->node_bytes, nodes, sizeof(node)) &&
           weir_mul_size(&prefix->page_bytes, nodes, (size_t)prefix->heads * sizeof(void *)) &&
           weir_mul_size(&prefix->idle_bytes, nodes, (size_t)prefix->classes * sizeof(int32_t)) &&
           weir_mul_size(&prefix->order_bytes, nodes, ORDERS * sizeof(int32_t)) &&
           weir_mul_size(&prefix->changed_bytes, nodes, sizeof(int32_t)) &&
           weir_mul_size(
               &prefix->entry_bytes, (size_t)prefix->n_entries,
               sizeof(snapshot_entry) + STATE_ORDERS * sizeof(int32_t)
           ) &&
           weir_add_size(&prefix->entry_bytes, prefix->entry_bytes, states * sizeof(int32_t)) &&
           weir_mul_size(
               &prefix->state_bytes, states, (prefix->limits.snapshot_bytes + 63) & ~(size_t)63
           );
}

size_t weir_prefix_tree_bytes(const weir_prefix_limits *limits, const weir_kv_spec *spec)
{
    weir_prefix prefix = { .limits = *limits };
    size_t bytes;
    return measure(&prefix, spec) && weir_add_size(&bytes, prefix.node_bytes, prefix.page_bytes) &&
                   weir_add_size(&bytes, bytes, prefix.idle_bytes) &&
                   weir_add_size(&bytes, bytes, prefix.order_bytes) &&
                   weir_add_size(&bytes, bytes, prefix.changed_bytes) &&
                   weir_add_size(&bytes, bytes, prefix_tier_metadata_bytes(limits))
               ? bytes
               : SIZE_MAX;
}

size_t weir_prefix_state_bytes(const weir_prefix_limits *limits)
{
    weir_prefix prefix = { .limits = *limits };
    const weir_kv_spec none = { 0 };
    size_t bytes;
    return measure(&prefix, &none) &&
                   weir_add_size(&bytes, prefix.entry_bytes, prefix.state_bytes) &&
                   weir_add_size(&bytes, bytes, prefix.transfer_bytes) &&
                   weir_add_size(&bytes, bytes, prefix.all_pruned_bytes)
               ? bytes
               : SIZE_MAX;
}

/* The tree's arrays. */
static weir_status take(weir_prefix *p, void **out, size_t bytes, weir_error *error)
{
    return bytes == 0 ? WEIR_OK
                      : weir_ledger_alloc(p->ledger, out, WEIR_ACCOUNT_PAGE_TABLES, bytes, error);
}

static weir_status take_memory(weir_prefix *p, weir_error *error)
{
    WEIR_TRY(take(p, (void **)&p->nodes, p->node_bytes, error));
    WEIR_TRY(take(p, (void **)&p->pages, p->page_bytes, error));
    WEIR_TRY(take(p, (void **)&p->idle_pages, p->idle_bytes, error));
    WEIR_TRY(take(p, (void **)&p->orders, p->order_bytes, error));
    WEIR_TRY(take(p, (void **)&p->changed, p->changed_bytes, error));
    if (p->entry_bytes > 0) {
        WEIR_TRY(weir_ledger_alloc(
            p->ledger, (void **)&p->entries, WEIR_ACCOUNT_SNAPSHOTS, p->entry_bytes, error
        ));
        p->state_orders = (int32_t *)(p->entries + p->n_entries);
        p->owners = p->state_orders + (int64_t)STATE_ORDERS * p->n_entries;
    }
    if (p->transfer_bytes > 0)
        WEIR_TRY(weir_ledger_alloc(
            p->ledger, (void **)&p->transfer_memory, WEIR_ACCOUNT_SNAPSHOTS, p->transfer_bytes,
            error
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
    WEIR_TRY(prefix_open_tier(p, error));
    WEIR_TRY(prefix_open_window_tier(p, error));
    return prefix_open_moves(p, error);
}

static const node unused_node = { .depth = -2,
                                  .parent = NONE,
                                  .next = NONE,
                                  .snapshot = NONE,
                                  .below = NONE,
                                  .window = NONE,
                                  .window_copy = NONE,
                                  .window_list = WINDOW_NONE,
                                  .leaf_order = ORDER_NONE };

static void open_nodes(weir_prefix *p)
{
    const int32_t n = (int32_t)node_count(&p->limits);
    for (int32_t i = 0; i < n; i++) {
        p->nodes[i] = unused_node;
        p->nodes[i].next = i + 1 < n ? i + 1 : NONE;
    }
    p->nodes[FOREST].is_droppable = true;
    p->free_node = FOREST + 1;
    p->oldest = p->newest = p->walk = p->search.at = NONE;
    p->parent_in_use = NONE;
}

weir_status weir_prefix_open(
    weir_prefix **out, weir_kv_store *store, weir_ledger *ledger, const weir_prefix_limits *limits,
    weir_error *error
)
{
    weir_prefix *const prefix = calloc(1, sizeof *prefix);
    if (prefix == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the prefix index");
    *prefix = (weir_prefix){ .store = store, .ledger = ledger, .limits = *limits };
    prefix->visits = &prefix->stats.visits;
    prefix->windows = weir_kv_store_windows(store);
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
    open_nodes(prefix);
    prefix_open_entries(prefix);
    prefix_open_windows(prefix);
    weir_kv_watch(store, prefix->changed);
    prefix->is_open = true;
    *out = prefix;
    return WEIR_OK;
}

void weir_prefix_close(weir_prefix *prefix)
{
    if (prefix == NULL) return;
    prefix_close_moves(prefix);
    pruned_close(prefix);
    if (prefix->is_open) {
        weir_kv_release_begin(prefix->store);
        for (int32_t i = FOREST + 1; i < (int32_t)node_count(&prefix->limits); i++)
            prefix_drop_pages(prefix, i);
        prefix_close_windows(prefix);
        weir_kv_release_end(prefix->store);
        weir_kv_watch(prefix->store, NULL);
    }
    weir_lower_tier_close(prefix->tier);
    weir_lower_tier_close(prefix->window_tier);
    weir_ledger *const ledger = prefix->ledger;
    weir_ledger_free(
        ledger, prefix->transfer_memory, WEIR_ACCOUNT_SNAPSHOTS, prefix->transfer_bytes
    );
    weir_ledger_free(ledger, prefix->nodes, WEIR_ACCOUNT_PAGE_TABLES, prefix->node_bytes);
    weir_ledger_free(ledger, prefix->pages, WEIR_ACCOUNT_PAGE_TABLES, prefix->page_bytes);
    weir_ledger_free(ledger, prefix->idle_pages, WEIR_ACCOUNT_PAGE_TABLES, prefix->idle_bytes);
    weir_ledger_free(ledger, prefix->orders, WEIR_ACCOUNT_PAGE_TABLES, prefix->order_bytes);
    weir_ledger_free(ledger, prefix->changed, WEIR_ACCOUNT_PAGE_TABLES, prefix->changed_bytes);
    weir_ledger_free(ledger, prefix->entries, WEIR_ACCOUNT_SNAPSHOTS, prefix->entry_bytes);
    weir_ledger_free(ledger, prefix->states, WEIR_ACCOUNT_SNAPSHOTS, prefix->state_bytes);
    weir_ledger_free(ledger, prefix->pruned, WEIR_ACCOUNT_SNAPSHOTS, prefix->all_pruned_bytes);
    free(prefix);
}

/* ---- keeping --------------------------------------------------------------------------------- */
/* Allocates a node under `parent` for these tokens (n = 0: words of a salt); NONE if all are in
 * use. */
static int32_t new_node(weir_prefix *p, int32_t parent, const int32_t *words, int32_t n)
{
    if (p->free_node == NONE && !prefix_free_node(p, parent)) return NONE;
    const int32_t index = p->free_node;
    node *const own = &p->nodes[index];
    p->free_node = own->next;
    *own = unused_node;
    own->depth = p->nodes[parent].depth + 1;
    own->parent = parent;
    own->salt = parent == FOREST ? index : p->nodes[parent].salt;
    own->n_tokens = n;
    memcpy(own->tokens, words, (size_t)(n > 0 ? n : RUN) * sizeof *words);
    if (n > 0) prefix_list_run(p, index);
    prefix_add_child(p, index);
    prefix_count_new(p, index);
    p->stats.n_nodes += n > 0;
    p->stats.n_tokens += n;
    return index;
}

void prefix_free(weir_prefix *p, int32_t index)
{
    p->nodes[index] = unused_node;
    p->nodes[index].next = p->free_node;
    p->free_node = index;
}

/* ---- pages ----------------------------------------------------------------------------------- */
static void copy_pages(
    weir_prefix *p, int32_t index, const weir_kv_sequence *sequence, int32_t page
)
{
    if (p->heads > 0) {
        void *const *const from = sequence->table.pages + page, **const own = pages_of(p, index);
        for (int64_t h = 0; h < p->heads; h++) own[h] = from[h * sequence->table.capacity];
        weir_kv_block_hold(p->store, own, 1);
        weir_kv_block_set_owner(p->store, own, 1, index);
    }
    prefix_refresh(p, index);
}

void prefix_drop_pages(weir_prefix *p, int32_t index)
{
    if (p->nodes[index].n_tokens == 0 || p->heads == 0) return;
    weir_kv_block_set_owner(p->store, pages_of(p, index), 1, 0);
    weir_kv_block_drop(p->store, pages_of(p, index), 1);
}

/* The sequence computed what the node has. The bits are equal, so its own whole page is replaced by
 * the node's. */
static void adopt(weir_prefix *p, int32_t index, weir_kv_sequence *sequence, int32_t page)
{
    if (p->heads == 0) return;
    if (sequence->table.pages[page] != pages_of(p, index)[0])
        weir_kv_table_replace(&sequence->table, p->store, page, pages_of(p, index));
}

/* True if the node has these tokens, but its page is on disk without other users, or unreadable:
 * the sequence's own, in memory, is better. */
static bool is_worse(
    const weir_prefix *p, int32_t index, const weir_kv_sequence *sequence, int32_t page
)
{
    return is_cold(p, index) && (is_unreadable(p, index) || has_idle_page(p, index)) &&
           !weir_kv_is_cold(p->store, sequence->table.pages[page]);
}

static void use(weir_prefix *p, int32_t index)
{
    node *const run = &p->nodes[index];
    prefix_use_run(p, index);
    if (!run->has_lost_file) return;
    run->has_lost_file = run->is_deleted = false;
    run->n_tried = 0;
}

/* True if another node has this block: it was taken under another salt. */
static bool is_owned(const weir_prefix *p, const weir_kv_sequence *sequence, int32_t page)
{
    return p->heads > 0 && weir_kv_page_owner(p->store, sequence->table.pages[page]) != 0;
}

/* The node for tokens [at, at + n) of the sequence under `parent`: one that has them, one that is
 * extended or gets a better page, or a new one. */
static int32_t keep_run(
    weir_prefix *p, int32_t parent, weir_kv_sequence *sequence, int32_t at, int32_t n
)
{
    const int32_t *const tokens = sequence->tokens + at;
    int32_t same, index = prefix_nearest_child(p, parent, tokens, n, &same);
    const bool is_whole = index != NONE && same == p->nodes[index].n_tokens;
    if (index != NONE && same == n && !(is_whole && is_worse(p, index, sequence, at / RUN))) {
        if (n == RUN && !is_unreadable(p, index)) adopt(p, index, sequence, at / RUN);
        return index;
    }
    if (is_owned(p, sequence, at / RUN)) return NONE;
    if (is_whole) {
        prefix_drop_pages(p, index); /* its rows are in the sequence's pages too */
        prefix_drop_window(p, index);
        memcpy(p->nodes[index].tokens, tokens, (size_t)n * sizeof *tokens);
        p->stats.n_tokens += n - p->nodes[index].n_tokens;
        p->nodes[index].n_tokens = n;
    } else {
        index = new_node(p, parent, tokens, n);
    }
    if (index == NONE) return NONE;
    p->stats.n_inserted++;
    copy_pages(p, index, sequence, at / RUN);
    return index;
}

/* A block belongs to one node, and a sequence that has it has the tokens of all nodes above. */
int32_t prefix_own_node(
    const weir_prefix *p, const weir_kv_sequence *sequence, int32_t salt, int64_t end
)
{
    const weir_kv_table *const table = &sequence->table;
    int64_t page = (end < sequence->n_computed ? end : sequence->n_computed) / RUN;
    if (p->heads == 0 || table->is_pruned || page > table->n_pages) return NONE;
    int32_t owner = 0;
    for (; owner == 0 && page > 0; page--, ++*p->visits)
        owner = weir_kv_page_owner(p->store, table->pages[page - 1]);
    const node *const n = &p->nodes[owner];
    return owner != 0 && n->salt == salt && n->depth == page && n->n_tokens == RUN ? owner : NONE;
}

/* Where to begin an insert: all before is in the tree, but for states, and for window blocks that
 * the sequence has. */
static int32_t first_to_keep(
    const weir_prefix *p, const weir_kv_sequence *sequence, int32_t salt,
    const weir_prefix_snapshot *marks, int32_t n_marks, int32_t end
)
{
    int64_t from = n_marks > 0 && marks[0].at <= end ? marks[0].at - 1 : end;
    if (p->windows != NULL) {
        const int64_t first =
            weir_kv_windows_first(weir_kv_windows_spec_of(p->windows), sequence->n_computed);
        if (first * RUN < from) from = first * RUN;
    }
    return salt != NONE && from >= RUN ? prefix_own_node(p, sequence, salt, from) : NONE;
}

static int32_t keep_salt(weir_prefix *p, const char *salt)
{
    int32_t words[RUN];
    const int32_t found = prefix_find_salt(p, salt);
    if (found != NONE || strlen(salt) > WEIR_PREFIX_SALT) return found;
    prefix_salt_words(words, salt);
    return new_node(p, FOREST, words, 0);
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
    const int32_t root = end > 0 ? keep_salt(prefix, salt_text(salt)) : NONE;
    int32_t at = 0, mark = 0, index = root, last = NONE;
    const int32_t own = first_to_keep(prefix, sequence, root, marks, n_marks, end);
    if (own != NONE) {
        index = last = own;
        at = (prefix->nodes[own].depth + 1) * RUN;
        /* As long as the sequence runs nothing is dropped that it holds. With a policy it may lose
         * rows, and is not inserted when it ends. */
        const bool is_use = !whole_pages || sequence->policy_run != NULL;
        for (int32_t i = own; is_use && i != root; i = prefix->nodes[i].parent) use(prefix, i);
    }
    while (index != NONE && at < end) {
        const int32_t n = end - at < RUN ? end - at : RUN;
        index = keep_run(prefix, index, sequence, at, n);
        if (index == NONE) break;
        use(prefix, index);
        prefix_keep_window(prefix, index, sequence, at / RUN, n);
        last = index;
        for (; mark < n_marks && marks[mark].at <= at + n; mark++)
            prefix_attach(prefix, index, marks[mark].at - at, marks[mark].state);
        at += n;
    }
    if (last != NONE) prefix_use_windows(prefix, last, at, !whole_pages);
    if (last != NONE && !whole_pages) prefix_end_windows(prefix, last, at);
    if (root != NONE && prefix->nodes[root].children == 0) prefix_drop_leaf(prefix, root);
    if (whole_pages && at == end) return n_marks - mark;
    for (; mark < n_marks; mark++) weir_prefix_release_snapshot(prefix, marks[mark].state);
    return 0;
}

weir_prefix_stats weir_prefix_stats_of(const weir_prefix *prefix) { return prefix->stats; }
