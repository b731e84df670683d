/* engine/kv/prefix/sequences.c - whole cached sequences: their names, their tokens, and which are
 * dropped next. */
#include <string.h>

#include "engine/kv/prefix/pruned_cache_internal.h"
#include "engine/kv/prefix/tiers_internal.h"

/* ---- cached sequences ------------------------------------------------------------------------ */
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
static void copy_sequence(
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
    if (found != NULL) copy_sequence(prefix, found->node, found->offset, sequence, salt);
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
        if (n->children == 0 && !n->is_deleted &&
            (cursor->last_use == 0 || n->last_use < cursor->last_use))
            break;
    }
    prefix->walk = found != NONE ? prefix->nodes[found].older : NONE;
    if (found == NONE) return false;
    cursor->last_use = prefix->nodes[found].last_use;
    copy_sequence(prefix, found, prefix->nodes[found].n_tokens, sequence, salt);
    text[0] = '\0';
    for (const name *n = prefix->names; n < prefix->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' && n->node == found && n->offset == prefix->nodes[found].n_tokens)
            memcpy(text, n->text, sizeof n->text);
    return true;
}

/* ---- sequences that will be dropped ---------------------------------------------------------- */
enum { VISITS = 256 }; /* of one call, in the mean */

/* Tokens that were not tried to be saved and would be dropped with this leaf, up to `enough`: those
 * of its last runs that no other sequence shares. Those above a run that was tried were tried. */
static int32_t loss_of(const weir_prefix *p, int32_t leaf, int32_t enough)
{
    int32_t n = 0, child = NONE;
    for (int32_t i = leaf; p->nodes[i].n_tokens > 0 && n < enough && has_idle_page(p, i);
         child = i, i = p->nodes[i].parent) {
        const node *const run = &p->nodes[i];
        ++*p->visits;
        if (child != NONE && run->children != child) break; /* it has another one */
        n += run->n_tokens - run->n_tried;
        if (run->n_tried > 0) break;
    }
    return n;
}

/* States on disk go first, then past ends. */
static bool is_dropped_before(const weir_prefix *p, int32_t a, int32_t b)
{
    const int left = state_order_of(&p->entries[a]), right = state_order_of(&p->entries[b]);
    if (left == right) return prefix_state_goes_before(p, a, b);
    return left == ORDER_COLD_STATES || (right != ORDER_COLD_STATES && left < right);
}

/* The first end of a turn that this sequence would lose; NONE: it has none. */
static int32_t first_end_of(const weir_prefix *p, int32_t leaf)
{
    int32_t first = NONE;
    for (int32_t i = leaf; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent) {
        ++*p->visits;
        for (int32_t s = p->nodes[i].snapshot; s != NONE; s = p->entries[s].next)
            if (p->entries[s].rank >= WEIR_STATE_PAST && p->entries[s].pins == 0 &&
                (first == NONE || is_dropped_before(p, s, first)))
                first = s;
    }
    return first;
}

static void begin_search(weir_prefix *p)
{
    p->search = (victim_search
    ){ .is_begun = true, .at = p->oldest, .end = p->clock, .debt = p->search.debt };
}

/* Pages that are free when all runs before those of the last use that it went by are dropped. */
static weir_kv_pages free_before(const weir_prefix *p)
{
    return weir_kv_pages_plus(weir_kv_store_free(p->store), p->search.before);
}

/* Goes by the next run. */
static void go_by(weir_prefix *p)
{
    victim_search *const search = &p->search;
    const int32_t index = search->at;
    const int32_t window = p->nodes[index].window;
    search->n_windows += window != NONE && weir_kv_window_refs(p->windows, window) == 1;
    if (has_idle_page(p, index))
        search->same_use =
            weir_kv_pages_plus(search->same_use, is_sink(p, index) ? p->sink_block : p->block);
    search->at = p->nodes[index].newer;
}

/* True if n_blocks window blocks are free when those of the runs that it went by are taken. */
static bool has_windows_before(const weir_prefix *p, int64_t n_blocks)
{
    return p->windows == NULL || weir_kv_windows_free_blocks(p->windows) +
                                         prefix_free_cold_windows(p) + p->search.n_windows >=
                                     n_blocks;
}

bool weir_prefix_has_free_windows(const weir_prefix *prefix, int64_t n_blocks)
{
    return prefix->windows == NULL ||
           weir_kv_windows_free_blocks(prefix->windows) + prefix_free_cold_windows(prefix) >=
               n_blocks;
}

/* The next run, in the order of use, that ends a sequence which loses `least` tokens with it; the
 * search is not past it then. NONE: it ended, which it also does where the runs that it went by
 * have all that is wanted, if states do not matter; or `last_visit` was reached. */
static int32_t find_victim(
    weir_prefix *p, const weir_prefix_wanted *wanted, int32_t least, bool states_matter,
    int64_t last_visit
)
{
    victim_search *const search = &p->search;
    for (; search->at != NONE && p->nodes[search->at].last_use <= search->end; go_by(p)) {
        const int32_t i = search->at;
        if (*p->visits >= last_visit) return NONE;
        ++*p->visits;
        if (p->nodes[i].last_use != search->use) {
            search->before = weir_kv_pages_plus(search->before, search->same_use);
            search->same_use = (weir_kv_pages){ 0 };
            search->use = p->nodes[i].last_use;
            if (!states_matter && weir_kv_pages_fit(wanted->pages, free_before(p)) &&
                has_windows_before(p, wanted->n_windows))
                break;
        }
        if (p->nodes[i].children == 0 && loss_of(p, i, least) >= least) return i;
    }
    search->is_begun = false;
    return NONE;
}

/* True if the sequence will be dropped, or an end of its turns, or its window, before there is what
 * is wanted. */
static bool is_endangered(const weir_prefix *p, int32_t leaf, const weir_prefix_wanted *wanted)
{
    const int32_t end = first_end_of(p, leaf);
    return !weir_kv_pages_fit(wanted->pages, free_before(p)) ||
           !has_windows_before(p, wanted->n_windows) ||
           (end != NONE && !prefix_has_states_before(p, wanted->n_states, end));
}

/* Searches from where the last call ended; once more if this search found something before, and
 * what it went by may have changed since. */
static weir_prefix_victim search_victim(
    weir_prefix *p, const weir_prefix_wanted *wanted, int32_t least, int64_t last_visit
)
{
    const bool states_matter = !weir_prefix_has_free_states(p, wanted->n_states);
    victim_search *const search = &p->search;
    do {
        if (!search->is_begun) begin_search(p);
        const int32_t found = find_victim(p, wanted, least, states_matter, last_visit);
        if (found != NONE && is_endangered(p, found, wanted)) {
            search->has_found = true;
            return WEIR_VICTIM_FOUND;
        }
        if (found == NONE && search->is_begun) return WEIR_VICTIM_LATER;
        search->is_begun = false;
    } while (search->has_found);
    return WEIR_VICTIM_NONE;
}

weir_prefix_victim weir_prefix_next_victim(
    weir_prefix *prefix, const weir_prefix_wanted *wanted, int32_t least,
    weir_kv_sequence *sequence, char salt[WEIR_PREFIX_SALT + 1]
)
{
    victim_search *const search = &prefix->search;
    const int64_t last_visit = *prefix->visits + VISITS - search->debt;
    weir_prefix_victim result = WEIR_VICTIM_LATER;
    if (*prefix->visits < last_visit) result = search_victim(prefix, wanted, least, last_visit);
    search->debt = *prefix->visits > last_visit ? *prefix->visits - last_visit : 0;
    if (result == WEIR_VICTIM_FOUND)
        copy_sequence(prefix, search->at, prefix->nodes[search->at].n_tokens, sequence, salt);
    return result;
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

/* Of the sequence that ends with this run: what no other one shares. */
static void forget(weir_prefix *p, int32_t end)
{
    for (int32_t i = end, child = 0; p->nodes[i].n_tokens > 0 && p->nodes[i].children == child;
         child = i, i = p->nodes[i].parent) {
        node *const run = &p->nodes[i];
        run->n_saved = 0;
        run->n_tried = run->n_tokens;
        run->has_lost_file = run->is_deleted = true;
    }
}

void weir_prefix_forget(
    weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    int32_t index = prefix_find_salt(prefix, salt_text(salt)), end = index, same = RUN;
    for (int32_t at = 0; index != NONE && same == RUN && at < n_tokens; at += same) {
        index = prefix_nearest_child(prefix, index, tokens + at, n_tokens - at, &same);
        if (index != NONE && same == prefix->nodes[index].n_tokens) end = index;
    }
    if (end != NONE) forget(prefix, end);
    pruned_forget(prefix, tokens, n_tokens, salt_text(salt));
}

bool weir_prefix_forget_name(weir_prefix *prefix, const char *text)
{
    const name *const own = find_name(prefix, text);
    const bool any = own != NULL || weir_pruned_has_name(prefix, text);
    if (own != NULL && own->offset == prefix->nodes[own->node].n_tokens) forget(prefix, own->node);
    prefix_unname(prefix, text);
    pruned_forget_name(prefix, text);
    return any;
}
