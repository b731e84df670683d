/* engine/kv/prefix/window_tier.c - window blocks on disk, in a lower tier of their own with one
 * block for each (docs/decisions/0076-windows-on-disk.md). What rows after an end of a cached
 * sequence read is written while it is in memory, before that is short, so that a sequence that
 * needs a block takes it at once; it is read before the sequence is continued. They take the space
 * of KV blocks that are free on disk, and leave it when blocks need it. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/kv/prefix/tiers_internal.h"
#include "kernels/abi/minmax.h"

int32_t weir_prefix_extra_windows(const weir_kv_windows_spec *spec)
{
    enum { LEAST = 3 };
    return (int32_t)weir_max(weir_min(weir_kv_windows_most(spec) / 2, MOST_MOVES), LEAST);
}

size_t prefix_window_stride(const weir_prefix_limits *limits)
{
    return prefix_disk_stride(limits->window_bytes);
}

weir_status prefix_open_window_tier(weir_prefix *p, weir_error *error)
{
    if (p->windows == NULL) return WEIR_OK;
    return prefix_open_tier_of(
        p, &p->window_tier, p->limits.n_cold_windows, prefix_window_stride(&p->limits),
        "rows of layers with a window", error
    );
}

weir_lower_tier *weir_prefix_window_tier(const weir_prefix *prefix) { return prefix->window_tier; }

/* ---- space ----------------------------------------------------------------------------------- */
int64_t prefix_free_cold_windows(const weir_prefix *p)
{
    if (p->window_tier == NULL) return 0;
    const int64_t n = weir_lower_tier_free_blocks(p->window_tier);
    if (weir_kv_store_lower_tier(p->store) == NULL) return n;
    if (!weir_lower_tier_gives_back(p->window_tier)) return 0;
    const int64_t most = prefix_free_disk(p, 0) / (int64_t)prefix_window_stride(&p->limits);
    return weir_max(weir_min(n, most), 0);
}

void prefix_free_window_copy(weir_prefix *p, int32_t index)
{
    prefix_free_block(p, p->window_tier, p->nodes[index].window_copy);
    p->nodes[index].window_copy = NONE;
    p->stats.n_cold_windows--;
}

bool prefix_drop_cold_window(weir_prefix *p)
{
    const int32_t written = p->window_lists[WINDOW_WRITTEN].oldest,
                  cold = p->window_lists[WINDOW_COLD].oldest;
    if (written != NONE) {
        prefix_free_window_copy(p, written);
        prefix_list_window(p, written, false);
    } else if (cold != NONE) {
        prefix_drop_window(p, cold);
    }
    return written != NONE || cold != NONE;
}

/* Those that were used before this one leave the disk for it. */
static bool find_space(weir_prefix *p, int32_t index)
{
    while (prefix_free_cold_windows(p) < 1) {
        const int32_t cold = p->window_lists[WINDOW_COLD].oldest;
        if (cold == NONE || p->nodes[cold].window_use > p->nodes[index].window_use) return false;
        prefix_drop_window(p, cold);
    }
    return true;
}

/* ---- moving ---------------------------------------------------------------------------------- */
prefix_move *prefix_window_move(weir_prefix *p, int32_t index)
{
    for (prefix_move *one = p->window_moves.all; one < p->window_moves.all + p->window_moves.most;
         one++)
        if (one->is_begun && one->item == index) return one;
    return NULL;
}

/* The move holds the block, so what writes to its last rows copies it first. */
static bool begin_write(weir_prefix *p, int32_t index)
{
    node *const n = &p->nodes[index];
    int32_t block;
    if (!find_space(p, index) || weir_lower_tier_alloc(p->window_tier, &block, NULL) != WEIR_OK)
        return false;
    n->window_copy = block;
    p->stats.n_cold_windows++;
    weir_kv_window_hold(p->windows, n->window);
    if (p->window_moves.n_writing == 0) p->window_written_ns = weir_clock_ns();
    prefix_begin_move(
        p, &p->window_moves,
        &(prefix_move){ .item = index, .memory = n->window, .block = block, .is_read = false }
    );
    prefix_list_window(p, index, false);
    return true;
}

/* Writes leave one move for reads. */
static bool may_write(const weir_prefix *p)
{
    const prefix_moves *const m = &p->window_moves;
    return m->n_begun < m->most && m->n_writing < m->most - 1;
}

static bool write_first(weir_prefix *p)
{
    const int32_t first = prefix_idle_window(p, p->window_lists[WINDOW_UNWRITTEN].oldest);
    return first != NONE && may_write(p) && begin_write(p, first);
}

/* Blocks that two steps and two sequences that start can take. */
static int64_t wanted_blocks(const weir_prefix *p)
{
    const weir_kv_windows_spec *const spec = weir_kv_windows_spec_of(p->windows);
    return 2 * (spec->step_rows / WEIR_PAGE_TOKENS + 1 + weir_kv_windows_most(spec));
}

/* Those of a list that no sequence holds, at most `most`. */
static int64_t count_idle(const weir_prefix *p, window_list list, int64_t most)
{
    int64_t n = 0;
    for (int32_t i = p->window_lists[list].oldest; n < most; n++) {
        i = prefix_idle_window(p, i);
        if (i == NONE) break;
        i = p->nodes[i].window_newer;
    }
    return n;
}

void weir_prefix_demote_windows(weir_prefix *prefix)
{
    if (prefix == NULL || prefix->window_tier == NULL ||
        prefix->window_lists[WINDOW_UNWRITTEN].oldest == NONE || !may_write(prefix))
        return;
    const int64_t free =
        weir_kv_windows_free_blocks(prefix->windows) + prefix->window_moves.n_writing;
    int64_t missing = wanted_blocks(prefix) - free;
    if (missing > 0) missing -= count_idle(prefix, WINDOW_WRITTEN, missing);
    while (missing-- > 0 && write_first(prefix)) {
    }
}

/* A sequence does not wait for a disk that hangs. */
static bool are_written(const weir_prefix *p)
{
    static const int64_t patience_ns = 200000000;
    return p->window_moves.n_writing > 0 && weir_clock_ns() - p->window_written_ns < patience_ns;
}

bool prefix_waits_for_windows(weir_prefix *p)
{
    if (p->window_tier == NULL || p->window_lists[WINDOW_UNWRITTEN].oldest == NONE) return false;
    int64_t missing = wanted_blocks(p) - weir_kv_windows_free_blocks(p->windows);
    if (missing > 0) missing -= count_idle(p, WINDOW_OTHER, missing);
    if (missing > 0) missing -= count_idle(p, WINDOW_WRITTEN, missing);
    if (missing <= 0) return false;
    while (write_first(p)) {
    }
    return are_written(p);
}

/* True if there is memory for what is read. Rather than dropping an end, it waits until one is
 * written. */
static bool has_memory(weir_prefix *p)
{
    const bool any = weir_kv_windows_free_blocks(p->windows) > 0 ||
                     prefix_idle_window(p, p->window_lists[WINDOW_OTHER].oldest) != NONE ||
                     prefix_idle_window(p, p->window_lists[WINDOW_WRITTEN].oldest) != NONE;
    if (!any && (are_written(p) || write_first(p))) return false;
    return weir_kv_windows_find_free(p->windows, 1);
}

static void begin_read(weir_prefix *p, int32_t index)
{
    if (p->window_moves.n_begun == p->window_moves.most || !has_memory(p)) return;
    prefix_begin_move(
        p, &p->window_moves,
        &(prefix_move){ .item = index,
                        .memory = weir_kv_window_take(p->windows),
                        .block = p->nodes[index].window_copy,
                        .is_read = true }
    );
    prefix_list_window(p, index, false);
}

bool prefix_has_windows_here(const weir_prefix *p, const place *end)
{
    if (p->window_tier == NULL || end->node == NONE) return true;
    const int64_t first = weir_kv_windows_first(weir_kv_windows_spec_of(p->windows), end->at);
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent)
        if (p->nodes[i].window == NONE) return false;
    return true;
}

bool prefix_read_windows(weir_prefix *p, const place *end)
{
    if (prefix_has_windows_here(p, end)) return true;
    const int64_t first = weir_kv_windows_first(weir_kv_windows_spec_of(p->windows), end->at);
    prefix_use_windows(p, end->node, end->at, true); /* so none of them goes for another */
    for (int32_t i = end->node; p->nodes[i].n_tokens > 0 && p->nodes[i].depth >= first;
         i = p->nodes[i].parent)
        if (p->nodes[i].window_list == WINDOW_COLD) begin_read(p, i);
    return false;
}

/* ---- ending ---------------------------------------------------------------------------------- */
static void fail(weir_prefix *p, const prefix_move *move)
{
    if (p->stats.window_errors++ > 0) return;
    weir_log(
        WEIR_LOG_WARNING,
        move->is_read ? "rows of layers with a window are computed again: %s"
                      : "rows of layers with a window stay in memory, and may be dropped there: %s",
        move->why.text
    );
}

/* One that was written stays where it is, on disk, too. */
static void end_write(weir_prefix *p, const prefix_move *move)
{
    weir_kv_window_drop(p->windows, move->memory);
    p->window_written_ns = weir_clock_ns();
    if (move->item == NONE) return;
    node *const n = &p->nodes[move->item];
    n->is_window_end = n->is_window_end && move->status == WEIR_OK; /* tried once */
    p->stats.windows_out += move->status == WEIR_OK;
    if (!n->is_window_end) prefix_free_window_copy(p, move->item);
}

static void end_read(weir_prefix *p, const prefix_move *move)
{
    node *const n = move->item != NONE ? &p->nodes[move->item] : NULL;
    const bool is_right = n != NULL && move->status == WEIR_OK;
    p->stats.windows_back += move->status == WEIR_OK;
    if (is_right && n->window == NONE) {
        n->window = move->memory;
        p->stats.n_windows++;
    } else {
        weir_kv_window_drop(p->windows, move->memory);
    }
    if (n != NULL && !is_right) prefix_free_window_copy(p, move->item);
}

static void end(weir_prefix *p, prefix_move *move)
{
    move->is_begun = false;
    p->window_moves.n_begun--;
    p->window_moves.n_reading -= move->is_read;
    p->window_moves.n_writing -= !move->is_read;
    if (move->status != WEIR_OK) fail(p, move);
    if (move->item == NONE) prefix_free_block(p, p->window_tier, move->block);
    if (move->is_read)
        end_read(p, move);
    else
        end_write(p, move);
    if (move->item != NONE) prefix_list_window(p, move->item, false);
}

bool prefix_end_window_moves(weir_prefix *p)
{
    bool is_done[MOST_MOVES], any = false;
    if (p->window_moves.n_begun == 0) return false;
    prefix_moves_done(p, &p->window_moves, is_done);
    for (int32_t i = 0; i < p->window_moves.most; i++)
        if (is_done[i]) end(p, &p->window_moves.all[i]);
    for (int32_t i = 0; i < p->window_moves.most; i++) any = any || is_done[i];
    return any;
}
