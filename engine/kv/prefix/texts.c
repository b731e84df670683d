/* engine/kv/prefix/texts.c - whole cached sequences: their names, their tokens, and which are
 * dropped next. */
#include <string.h>

#include "engine/kv/prefix/prefix_internal.h"
#include "engine/kv/prefix/pruned_cache.h"

/* ---- kept texts ------------------------------------------------------------------------------ */
/* Tokens above a node. */
static int32_t tokens_before(const weir_prefix *p, int32_t index)
{
    int32_t n = 0;
    for (int32_t i = p->nodes[index].parent; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent)
        n += p->nodes[i].n_tokens;
    return n;
}

/* The node with the last of the sequence's computed tokens that is cached. */
static int32_t last_node(
    const weir_prefix *p, const weir_kv_sequence *sequence, const char *salt, int32_t *n_kept
)
{
    int32_t index = NONE, parent = prefix_find_salt(p, salt_text(salt)), same = RUN;
    *n_kept = 0;
    while (parent != NONE && same == RUN && *n_kept < sequence->n_computed) {
        parent = prefix_nearest_child(
            p, parent, sequence->tokens + *n_kept, sequence->n_computed - *n_kept, &same
        );
        if (parent != NONE) index = parent;
        *n_kept += same;
    }
    return index;
}

/* The entry of the name, else a free one, else that of the least recently used sequence. */
static name *place_for_name(weir_prefix *p, const char *text)
{
    name *best = NULL;
    for (name *n = p->names; n < p->names + WEIR_PREFIX_NAMES; n++) {
        if (strcmp(n->text, text) == 0) return n;
        if (best == NULL ||
            (best->text[0] != '\0' &&
             (n->text[0] == '\0' || p->nodes[n->node].last_use < p->nodes[best->node].last_use)))
            best = n;
    }
    return best;
}

void prefix_unname(weir_prefix *p, const char *text)
{
    for (name *n = p->names; n < p->names + WEIR_PREFIX_NAMES; n++)
        if (strcmp(n->text, text) == 0) *n = (name){ .text = "" };
}

void weir_prefix_name(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, const char *text
)
{
    int32_t n_kept;
    const int32_t index = last_node(prefix, sequence, salt, &n_kept);
    if (index == NONE || text[0] == '\0' || strlen(text) > WEIR_PREFIX_NAME) return;
    weir_pruned_remove_name(prefix, text);
    name *const place = place_for_name(prefix, text);
    *place = (name){ .node = index, .offset = n_kept - tokens_before(prefix, index) };
    memcpy(place->text, text, strlen(text) + 1);
}

/* Copies the tokens down to `offset` of a node to the sequence. */
static void copy_text(
    const weir_prefix *p, int32_t index, int32_t offset, weir_kv_sequence *sequence, char *salt
)
{
    int32_t at = tokens_before(p, index), n = offset, i = index;
    WEIR_ASSERT(sequence->n_computed == 0 && at + offset <= weir_kv_store_spec(p->store)->max_rows);
    sequence->n_tokens = at + offset;
    for (; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent, n = RUN, at -= RUN)
        memcpy(sequence->tokens + at, p->nodes[i].tokens, (size_t)n * sizeof *sequence->tokens);
    memcpy(salt, p->nodes[i].tokens, WEIR_PREFIX_SALT + 1);
}

static const name *find_name(const weir_prefix *p, const char *text)
{
    for (const name *n = p->names; n < p->names + WEIR_PREFIX_NAMES && text[0] != '\0'; n++)
        if (strcmp(n->text, text) == 0) return n;
    return NULL;
}

bool weir_prefix_named(
    const weir_prefix *prefix, const char *text, weir_kv_sequence *sequence,
    char salt[WEIR_PREFIX_SALT + 1]
)
{
    const name *const found = find_name(prefix, text);
    if (found != NULL) copy_text(prefix, found->node, found->offset, sequence, salt);
    return found != NULL;
}

bool weir_prefix_has_name(const weir_prefix *prefix, const char *text)
{
    return find_name(prefix, text) != NULL;
}

/* The first run in the order of use that may follow the cursor: mostly where the last call ended,
 * also if what it returned was used or dropped since. */
static int32_t run_after(const weir_prefix *p, const weir_prefix_cursor *cursor)
{
    const int32_t at = p->walk;
    if (cursor->last_use == 0) return p->newest;
    const int32_t newer = at != NONE ? p->nodes[at].newer : p->oldest;
    const bool is_next = (at == NONE || p->nodes[at].last_use <= cursor->last_use) &&
                         (newer == NONE || p->nodes[newer].last_use >= cursor->last_use);
    return is_next ? at : p->newest;
}

bool weir_prefix_next(
    weir_prefix *prefix, weir_prefix_cursor *cursor, weir_kv_sequence *sequence,
    char salt[WEIR_PREFIX_SALT + 1], char text[WEIR_PREFIX_NAME + 1]
)
{
    int32_t found = run_after(prefix, cursor);
    for (; found != NONE; found = prefix->nodes[found].older) {
        const node *const n = &prefix->nodes[found];
        ++*prefix->visits;
        if (n->children == 0 && (cursor->last_use == 0 || n->last_use < cursor->last_use)) break;
    }
    prefix->walk = found != NONE ? prefix->nodes[found].older : NONE;
    if (found == NONE) return false;
    cursor->last_use = prefix->nodes[found].last_use;
    copy_text(prefix, found, prefix->nodes[found].n_tokens, sequence, salt);
    text[0] = '\0';
    for (const name *n = prefix->names; n < prefix->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' && n->node == found && n->offset == prefix->nodes[found].n_tokens)
            memcpy(text, n->text, sizeof n->text);
    return true;
}

/* ---- texts that will be dropped -------------------------------------------------------------- */
/* Tokens that were not tried to be saved and would be dropped with this leaf, up to `enough`: those
 * of its runs that no other sequence shares. */
static int32_t loss_of(const weir_prefix *p, int32_t leaf, int32_t enough)
{
    int32_t n = 0, child = NONE;
    for (int32_t i = leaf; p->nodes[i].n_tokens > 0 && n < enough && has_idle_page(p, i);
         child = i, i = p->nodes[i].parent) {
        if (child != NONE && p->nodes[i].children != child) break; /* it has another one */
        n += p->nodes[i].n_tokens - p->nodes[i].n_tried;
    }
    return n;
}

/* States on disk go first, then past ends. */
static bool is_dropped_before(const weir_prefix *p, int32_t a, int32_t b)
{
    const int left = state_order_of(&p->slots[a]), right = state_order_of(&p->slots[b]);
    if (left == right) return prefix_state_goes_before(p, a, b);
    return left == ORDER_COLD_STATES || (right != ORDER_COLD_STATES && left < right);
}

/* The first end of a turn that this sequence would lose; NONE: it has none. */
static int32_t first_end_of(const weir_prefix *p, int32_t leaf)
{
    int32_t first = NONE;
    for (int32_t i = leaf; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent)
        for (int32_t s = p->nodes[i].snapshot; s != NONE; s = p->slots[s].next)
            if (p->slots[s].rank >= WEIR_STATE_PAST && p->slots[s].pins == 0 &&
                (first == NONE || is_dropped_before(p, s, first)))
                first = s;
    return first;
}

/* The first run, in the order of use, that ends a sequence which loses `least` tokens with it.
 * `before`: adds the idle runs that were used before it. Gives up (NONE) where they have all pages
 * that are wanted, if states do not matter. */
static int32_t find_victim(
    const weir_prefix *p, weir_kv_pages wanted, int32_t least, bool states_matter,
    weir_kv_pages *before
)
{
    weir_kv_pages same_use = { 0 };
    uint64_t use = 0;
    for (int32_t i = p->oldest; i != NONE; i = p->nodes[i].newer) {
        ++*p->visits;
        if (p->nodes[i].last_use != use) {
            *before = weir_kv_pages_plus(*before, same_use);
            if (!states_matter && weir_kv_pages_fit(wanted, *before)) return NONE;
            same_use = (weir_kv_pages){ 0 };
            use = p->nodes[i].last_use;
        }
        if (!has_idle_page(p, i)) continue;
        if (p->nodes[i].children == 0 && loss_of(p, i, least) >= least) return i;
        same_use = weir_kv_pages_plus(same_use, is_sink(p, i) ? p->sink_block : p->block);
    }
    return NONE;
}

bool weir_prefix_next_victim(
    weir_prefix *prefix, weir_kv_pages wanted, int32_t n_states, int32_t least,
    weir_kv_sequence *sequence, char salt[WEIR_PREFIX_SALT + 1]
)
{
    weir_kv_pages before = weir_kv_store_free(prefix->store);
    const bool states_matter = !weir_prefix_has_free_states(prefix, n_states);
    const int32_t found = find_victim(prefix, wanted, least, states_matter, &before);
    if (found == NONE) return false;
    const int32_t end = first_end_of(prefix, found);
    if (weir_kv_pages_fit(wanted, before) &&
        (end == NONE || prefix_has_states_before(prefix, n_states, end)))
        return false;
    copy_text(prefix, found, prefix->nodes[found].n_tokens, sequence, salt);
    return true;
}

void weir_prefix_mark_saved(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, int32_t n_saved, const char *salt
)
{
    int32_t index = prefix_find_salt(prefix, salt_text(salt)), same = RUN;
    for (int32_t at = 0; index != NONE && same == RUN && at < n_tokens; at += same) {
        index = prefix_nearest_child(prefix, index, tokens + at, n_tokens - at, &same);
        if (index == NONE) return;
        node *const run = &prefix->nodes[index];
        const int32_t saved = n_saved - at < same ? n_saved - at : same;
        if (same > run->n_tried) run->n_tried = same;
        if (saved > run->n_saved) run->n_saved = saved;
        if (saved > 0) run->has_lost_file = false;
    }
}

/* Runs that another file holds too are marked with it: saving their sequence finds that file.
 * Nothing is saved again before it was used again: otherwise cached sequences, if there are more
 * than files, would displace each other's files endlessly. */
void weir_prefix_mark_unsaved(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    int32_t index = prefix_find_salt(prefix, salt_text(salt)), same = RUN;
    for (int32_t at = 0; index != NONE && same == RUN && at < n_tokens; at += same) {
        index = prefix_nearest_child(prefix, index, tokens + at, n_tokens - at, &same);
        if (index == NONE) return;
        prefix->nodes[index].n_saved = 0;
        prefix->nodes[index].has_lost_file = true;
    }
}
