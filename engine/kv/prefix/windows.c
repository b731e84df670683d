/* engine/kv/prefix/windows.c - rows of layers with a window in the prefix cache: runs hold the
 * window blocks of their tokens as long as there is memory. A sequence can be continued where the
 * blocks before that place, as far back as the window, are there. The block that was used last the
 * longest time ago is dropped first; a use is that of the rows which the next row reads. So of a
 * cached sequence its end stays longest. */
#include "engine/kv/prefix/prefix_internal.h"
#include "engine/kv/prefix/pruned_cache.h"

static void list_window(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    n->window_newer = NONE;
    n->window_older = p->window_newest;
    *(n->window_older != NONE ? &p->nodes[n->window_older].window_newer : &p->window_oldest) =
        index;
    p->window_newest = index;
}

static void unlist_window(weir_prefix *p, int32_t index)
{
    const int32_t older = p->nodes[index].window_older, newer = p->nodes[index].window_newer;
    *(older != NONE ? &p->nodes[older].window_newer : &p->window_oldest) = newer;
    *(newer != NONE ? &p->nodes[newer].window_older : &p->window_newest) = older;
}

void prefix_drop_window(weir_prefix *p, int32_t index)
{
    if (p->windows == NULL || p->nodes[index].window == NONE) return;
    unlist_window(p, index);
    weir_kv_window_drop(p->windows, p->nodes[index].window);
    p->nodes[index].window = NONE;
    p->stats.n_windows--;
}

/* Drops blocks that no sequence holds, then pruned sequences, which hold some. */
static void reclaim(void *user, int64_t n_blocks)
{
    weir_prefix *const p = user;
    for (int32_t i = p->window_oldest, next;
         i != NONE && weir_kv_windows_free_blocks(p->windows) < n_blocks; i = next) {
        next = p->nodes[i].window_newer;
        ++*p->visits;
        if (weir_kv_window_refs(p->windows, p->nodes[i].window) == 1) prefix_drop_window(p, i);
    }
    while (weir_kv_windows_free_blocks(p->windows) < n_blocks && weir_pruned_drop_oldest(p)) {
    }
}

void prefix_open_windows(weir_prefix *p)
{
    p->windows = weir_kv_store_windows(p->store);
    p->window_oldest = p->window_newest = NONE;
    if (p->windows != NULL) weir_kv_windows_reclaim_with(p->windows, reclaim, p);
}

void prefix_close_windows(weir_prefix *p)
{
    while (p->window_oldest != NONE) prefix_drop_window(p, p->window_oldest);
    if (p->windows != NULL) weir_kv_windows_reclaim_with(p->windows, NULL, NULL);
}

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
    list_window(p, index);
    p->stats.n_windows++;
}

void prefix_use_windows(weir_prefix *p, int32_t index, int32_t at)
{
    if (p->windows == NULL) return;
    const int64_t first = weir_kv_windows_first(weir_kv_windows_spec_of(p->windows), at);
    for (int32_t i = index; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent)
        if (p->nodes[i].window != NONE) {
            unlist_window(p, i);
            list_window(p, i);
        }
}

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
    const weir_kv_windows_spec *const spec = weir_kv_windows_spec_of(p->windows);
    int64_t first = weir_kv_windows_first(spec, best->at);
    for (int32_t i = best->node; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent) {
        ++*p->visits;
        if (p->nodes[i].window != NONE) continue;
        *best = (place){ p->nodes[i].parent, RUN, p->nodes[i].depth * RUN, NONE };
        first = weir_kv_windows_first(spec, best->at);
    }
    if (best->at == 0) *best = (place){ .node = NONE, .entry = NONE };
}

void prefix_share_windows(weir_prefix *p, weir_kv_sequence *sequence, const place *end)
{
    if (p->windows == NULL) return;
    weir_kv_window_table *const table = &sequence->table.windows;
    const int64_t first = weir_kv_windows_first(weir_kv_windows_spec_of(p->windows), end->at);
    weir_kv_window_begin(table, p->windows, first, p->nodes[end->node].depth + 1);
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent)
        weir_kv_window_share(table, p->windows, p->nodes[i].depth, p->nodes[i].window);
}

bool prefix_windows_are_sound(const weir_prefix *p)
{
    int64_t n = 0, n_listed = 0;
    for (int64_t i = 0; i < node_count(&p->limits); i++) n += p->nodes[i].window != NONE;
    for (int32_t i = p->window_oldest; i != NONE; i = p->nodes[i].window_newer) {
        if (p->nodes[i].window == NONE || p->nodes[i].n_tokens == 0 || n_listed++ == n)
            return false;
        if (weir_kv_window_refs(p->windows, p->nodes[i].window) < 1) return false;
    }
    return n == n_listed && n == p->stats.n_windows;
}
