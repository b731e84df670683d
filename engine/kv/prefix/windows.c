/* engine/kv/prefix/windows.c - rows of layers with a window in the prefix cache: runs hold the
 * window blocks of their tokens as long as there is memory. A sequence can be continued where the
 * blocks before that place, as far back as the window, are there. The block that was used last the
 * longest time ago is dropped first; a use is that of the rows which the next row reads. So of a
 * cached sequence its end stays longest, and with a disk goes there (window_tier.c). */
#include "engine/kv/prefix/pruned_cache.h"
#include "engine/kv/prefix/tiers_internal.h"
#include "kernels/abi/minmax.h"

/* ---- lists ----------------------------------------------------------------------------------- */
static int64_t first_window(const weir_prefix *p, int64_t row)
{
    return weir_kv_windows_first(weir_kv_windows_spec_of(p->windows), row);
}

static window_list list_of(weir_prefix *p, int32_t index)
{
    const node *const n = &p->nodes[index];
    if (n->window == NONE && n->window_copy == NONE) return WINDOW_NONE;
    if (n->window_copy != NONE && prefix_window_move(p, index) != NULL) return WINDOW_MOVING;
    if (n->window == NONE) return WINDOW_COLD;
    if (n->window_copy != NONE) return WINDOW_WRITTEN;
    return n->is_window_end && p->window_tier != NULL ? WINDOW_UNWRITTEN : WINDOW_OTHER;
}

static void unlist(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    if (n->window_list == WINDOW_NONE) return;
    *(n->window_older != NONE ? &p->nodes[n->window_older].window_newer
                              : &p->window_lists[n->window_list].oldest) = n->window_newer;
    *(n->window_newer != NONE ? &p->nodes[n->window_newer].window_older
                              : &p->window_lists[n->window_list].newest) = n->window_older;
    n->window_list = WINDOW_NONE;
}

/* Looks for its place from the newest one on: what changes lists was mostly used of late. */
void prefix_list_window(weir_prefix *p, int32_t index, bool is_use)
{
    node *const n = &p->nodes[index];
    unlist(p, index);
    const window_list list = list_of(p, index);
    if (list == WINDOW_NONE) return;
    if (is_use) n->window_use = ++p->window_clock;
    int32_t older = p->window_lists[list].newest, newer = NONE;
    for (; older != NONE && p->nodes[older].window_use > n->window_use; ++*p->visits) {
        newer = older;
        older = p->nodes[older].window_older;
    }
    n->window_older = older;
    n->window_newer = newer;
    *(older != NONE ? &p->nodes[older].window_newer : &p->window_lists[list].oldest) = index;
    *(newer != NONE ? &p->nodes[newer].window_older : &p->window_lists[list].newest) = index;
    n->window_list = (uint8_t)list;
}

int32_t prefix_idle_window(const weir_prefix *p, int32_t from)
{
    int32_t i = from;
    for (; i != NONE && weir_kv_window_refs(p->windows, p->nodes[i].window) > 1;
         i = p->nodes[i].window_newer)
        ++*p->visits;
    return i;
}

/* ---- dropping -------------------------------------------------------------------------------- */
static void leave_memory(weir_prefix *p, int32_t index)
{
    weir_kv_window_drop(p->windows, p->nodes[index].window);
    p->nodes[index].window = NONE;
    p->stats.n_windows--;
}

/* What is being written or read is freed when the move ends. */
void prefix_drop_window(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    if (p->windows == NULL || n->window_list == WINDOW_NONE) return;
    prefix_move *const move = prefix_window_move(p, index);
    unlist(p, index);
    if (n->window != NONE) leave_memory(p, index);
    if (move != NULL) {
        move->item = n->window_copy = NONE;
        p->stats.n_cold_windows--;
    } else if (n->window_copy != NONE) {
        prefix_free_window_copy(p, index);
    }
    n->is_window_end = false;
}

/* The older one of the first idle blocks of no end, and of those that are on disk. */
static int32_t next_to_leave(const weir_prefix *p, int32_t from[2])
{
    for (int k = 0; k < 2; k++) from[k] = prefix_idle_window(p, from[k]);
    if (from[0] == NONE || from[1] == NONE) return from[0] != NONE ? 0 : 1;
    return p->nodes[from[0]].window_use < p->nodes[from[1]].window_use ? 0 : 1;
}

static bool is_short(const weir_prefix *p, int64_t n_blocks)
{
    return weir_kv_windows_free_blocks(p->windows) < n_blocks;
}

/* Takes blocks that no sequence holds: first what is lost without harm, then ends that are not on
 * disk, then pruned sequences, which hold some. */
static void reclaim(void *user, int64_t n_blocks)
{
    weir_prefix *const p = user;
    int32_t from[2] = { p->window_lists[WINDOW_OTHER].oldest,
                        p->window_lists[WINDOW_WRITTEN].oldest };
    while (is_short(p, n_blocks)) {
        const int k = next_to_leave(p, from);
        const int32_t i = from[k];
        if (i == NONE) break;
        from[k] = p->nodes[i].window_newer;
        if (p->nodes[i].window_copy == NONE) {
            prefix_drop_window(p, i);
            continue;
        }
        leave_memory(p, i);
        prefix_list_window(p, i, false);
    }
    for (int32_t i = p->window_lists[WINDOW_UNWRITTEN].oldest, next; is_short(p, n_blocks);
         i = next) {
        i = prefix_idle_window(p, i);
        if (i == NONE) break;
        next = p->nodes[i].window_newer;
        prefix_drop_window(p, i);
    }
    while (is_short(p, n_blocks) && weir_pruned_drop_oldest(p)) {
    }
}

void prefix_open_windows(weir_prefix *p)
{
    for (int list = 0; list < WINDOW_LISTS; list++)
        p->window_lists[list].oldest = p->window_lists[list].newest = NONE;
    if (p->windows != NULL) weir_kv_windows_reclaim_with(p->windows, reclaim, p);
}

/* The thread has ended. */
void prefix_close_windows(weir_prefix *p)
{
    if (p->windows == NULL) return;
    for (int list = 0; list < WINDOW_LISTS; list++)
        while (p->window_lists[list].oldest != NONE)
            prefix_drop_window(p, p->window_lists[list].oldest);
    for (int32_t i = 0; i < p->window_moves.most; i++)
        if (p->window_moves.all[i].is_begun)
            weir_kv_window_drop(p->windows, p->window_moves.all[i].memory);
    weir_kv_windows_reclaim_with(p->windows, NULL, NULL);
}

/* ---- keeping --------------------------------------------------------------------------------- */
void prefix_keep_window(
    weir_prefix *p, int32_t index, weir_kv_sequence *sequence, int32_t run, int32_t n
)
{
    node *const own = &p->nodes[index];
    weir_kv_window_table *const table = &sequence->table.windows;
    const int32_t block = p->windows != NULL ? weir_kv_window_at(table, run) : NONE;
    if (block == NONE || n < own->n_tokens) return;
    if (own->window != NONE) { /* the bits are equal */
        if (n == RUN) weir_kv_window_share(table, p->windows, run, own->window);
        return;
    }
    weir_kv_window_hold(p->windows, block);
    own->window = block;
    p->stats.n_windows++;
    prefix_list_window(p, index, true);
}

static void set_end(weir_prefix *p, int32_t index, bool is_end)
{
    node *const n = &p->nodes[index];
    if (n->is_window_end == is_end) return;
    n->is_window_end = is_end;
    if (!is_end && n->window_list == WINDOW_COLD) {
        prefix_drop_window(p, index);
        return;
    }
    if (!is_end && n->window_list == WINDOW_WRITTEN) prefix_free_window_copy(p, index);
    prefix_list_window(p, index, false);
}

void prefix_use_windows(weir_prefix *p, int32_t index, int32_t at, bool is_end)
{
    if (p->windows == NULL) return;
    const int64_t first = first_window(p, at);
    for (int32_t i = index; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent) {
        if (p->nodes[i].window_list == WINDOW_NONE) continue;
        p->nodes[i].is_window_end = p->nodes[i].is_window_end || is_end;
        prefix_list_window(p, i, true);
    }
}

void prefix_end_windows(weir_prefix *p, int32_t index, int32_t at)
{
    if (p->window_tier == NULL) return;
    int64_t first = first_window(p, at);
    for (int32_t i = index; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent) {
        const node *const n = &p->nodes[i];
        const bool branches = n->children < 0; /* it has several */
        if (branches) first = weir_min(first, first_window(p, (n->depth + 1) * (int64_t)RUN));
        if (n->depth < first) set_end(p, i, false);
    }
}

void weir_prefix_mark_window(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt, int32_t at
)
{
    if (prefix->window_tier == NULL || at <= 0 || at > sequence->n_computed) return;
    int32_t before = 0, same = RUN, index = prefix_find_salt(prefix, salt_text(salt));
    while (index != NONE && same == RUN && before < at) {
        index = prefix_nearest_child(prefix, index, sequence->tokens + before, at - before, &same);
        before += index != NONE ? same : 0;
    }
    if (index != NONE && before == at) prefix_use_windows(prefix, index, at, true);
}

/* ---- matching -------------------------------------------------------------------------------- */
bool prefix_has_window(const weir_prefix *p, int32_t index, int32_t at)
{
    place end = { .node = index, .at = at };
    prefix_find_window(p, &end);
    return end.at == at;
}

/* Goes up until the blocks from one place back to the first that its row reads are there. */
void prefix_find_window(const weir_prefix *p, place *best)
{
    if (p->windows == NULL) return;
    int64_t first = first_window(p, best->at);
    for (int32_t i = best->node; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent) {
        ++*p->visits;
        if (p->nodes[i].window_list != WINDOW_NONE) continue;
        *best = (place){ p->nodes[i].parent, RUN, p->nodes[i].depth * RUN, NONE };
        first = first_window(p, best->at);
    }
    if (best->at == 0) *best = (place){ .node = NONE, .entry = NONE };
}

void prefix_share_windows(weir_prefix *p, weir_kv_sequence *sequence, const place *end)
{
    if (p->windows == NULL) return;
    weir_kv_window_table *const table = &sequence->table.windows;
    const int64_t first = first_window(p, end->at);
    weir_kv_window_begin(table, p->windows, first, p->nodes[end->node].depth + 1);
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent)
        weir_kv_window_share(table, p->windows, p->nodes[i].depth, p->nodes[i].window);
}

/* ---- checking -------------------------------------------------------------------------------- */
static bool list_is_sound(weir_prefix *p, window_list list, int64_t *n_listed)
{
    int32_t older = NONE;
    for (int32_t i = p->window_lists[list].oldest; i != NONE;
         older = i, i = p->nodes[i].window_newer) {
        const node *const n = &p->nodes[i];
        if (n->window_list != list || list_of(p, i) != list || n->n_tokens == 0 ||
            n->window_older != older || ++*n_listed > node_count(&p->limits) ||
            (older != NONE && p->nodes[older].window_use > n->window_use) ||
            (n->window != NONE && weir_kv_window_refs(p->windows, n->window) < 1))
            return false;
    }
    return p->window_lists[list].newest == older;
}

bool prefix_windows_are_sound(weir_prefix *p)
{
    int64_t n = 0, n_cold = 0, n_any = 0, n_listed = 0, n_freed = 0;
    for (int64_t i = 0; i < node_count(&p->limits); i++) {
        n += p->nodes[i].window != NONE;
        n_cold += p->nodes[i].window_copy != NONE;
        n_any += p->nodes[i].window != NONE || p->nodes[i].window_copy != NONE;
    }
    for (int list = 0; list < WINDOW_LISTS; list++)
        if (!list_is_sound(p, (window_list)list, &n_listed)) return false;
    for (int32_t i = 0; i < p->window_moves.most; i++)
        n_freed += p->window_moves.all[i].is_begun && p->window_moves.all[i].item == NONE;
    return n_any == n_listed && n == p->stats.n_windows && n_cold == p->stats.n_cold_windows &&
           (p->window_tier == NULL ||
            n_cold + n_freed ==
                p->limits.n_cold_windows - weir_lower_tier_free_blocks(p->window_tier));
}
