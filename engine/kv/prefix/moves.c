/* engine/kv/prefix/moves.c - the thread that writes recurrent states and window blocks to disk and
 * reads them; the engine thread begins moves, and ends them between steps (state_moves.c,
 * window_tier.c; docs/decisions/0045-states.md, 0076-windows-on-disk.md). */
#include "engine/kv/prefix/tiers_internal.h"

/* ---- the thread ------------------------------------------------------------------------------ */
static void find_next(prefix_moves *of, prefix_move **next)
{
    for (prefix_move *one = of->all; one < of->all + of->most; one++)
        if (one->is_queued &&
            (*next == NULL ||
             (one->is_read != (*next)->is_read ? one->is_read : one->number < (*next)->number)))
            *next = one;
}

/* Reads go first. */
static prefix_move *next_queued(weir_prefix *p)
{
    prefix_move *next = NULL;
    find_next(&p->moves, &next);
    find_next(&p->window_moves, &next);
    return next;
}

static bool is_window(const weir_prefix *p, const prefix_move *move)
{
    return move >= p->window_moves.all && move < p->window_moves.all + MOST_MOVES;
}

static void transfer(weir_prefix *p, prefix_move *move)
{
    const bool is_of_window = is_window(p, move);
    weir_lower_tier *const tier = is_of_window ? p->window_tier : p->tier;
    const size_t bytes = is_of_window ? p->limits.window_bytes : p->limits.snapshot_bytes,
                 all = prefix_disk_stride(bytes);
    void *const memory = is_of_window ? weir_kv_window_memory(p->windows, move->memory)
                                      : (void *)state_at(p, move->memory);
    if (move->is_read) {
        move->status = weir_lower_tier_read(tier, move->block, 0, 0, p->transfer, all, &move->why);
        if (move->status == WEIR_OK) weir_ledger_copy(p->ledger, memory, p->transfer, bytes);
        return;
    }
    const struct iovec on_disk = { p->transfer, all };
    weir_ledger_copy(p->ledger, p->transfer, memory, bytes);
    move->status = weir_lower_tier_write(tier, move->block, 0, &on_disk, 1, &move->why);
}

/* A tier whose file has no block and may be truncated, or NULL. */
static weir_lower_tier *tier_to_shrink(const weir_prefix *p)
{
    weir_lower_tier *const tiers[] = { p->tier, p->window_tier };
    for (int i = 0; i < 2; i++)
        if (tiers[i] != NULL && weir_lower_tier_may_shrink(tiers[i])) return tiers[i];
    return NULL;
}

static void *move_all(void *user)
{
    weir_prefix *const p = user;
    prefix_mover *const m = &p->mover;
    weir_worker_lock(&m->worker);
    for (;;) {
        prefix_move *move;
        weir_lower_tier *tier = NULL;
        while ((move = next_queued(p)) == NULL && (tier = tier_to_shrink(p)) == NULL &&
               !m->worker.is_closing)
            weir_worker_wait(&m->worker);
        if (m->worker.is_closing) break;
        if (move == NULL) {
            weir_worker_unlock(&m->worker);
            weir_lower_tier_shrink(tier);
            weir_worker_lock(&m->worker);
            continue;
        }
        move->is_queued = false;
        weir_worker_unlock(&m->worker);
        transfer(p, move);
        weir_worker_lock(&m->worker);
        move->is_done = true;
        m->n_undone--;
        weir_worker_report(&m->worker);
    }
    weir_worker_unlock(&m->worker);
    return NULL;
}

weir_status prefix_open_moves(weir_prefix *p, weir_error *error)
{
    p->moves.most = p->tier != NULL ? weir_prefix_extra_states(&p->limits) : 0;
    p->window_moves.most =
        p->window_tier != NULL ? weir_prefix_extra_windows(weir_kv_windows_spec_of(p->windows)) : 0;
    if (p->moves.most + p->window_moves.most == 0) return WEIR_OK;
    return weir_worker_open(&p->mover.worker, move_all, p, "moves what is cached", error);
}

void prefix_free_block(weir_prefix *p, weir_lower_tier *tier, int32_t block)
{
    if (!weir_lower_tier_free(tier, block)) return;
    weir_worker_lock(&p->mover.worker);
    weir_worker_wake(&p->mover.worker);
    weir_worker_unlock(&p->mover.worker);
}

void prefix_close_moves(weir_prefix *p) { weir_worker_close(&p->mover.worker); }

void weir_prefix_wait_for_moves(weir_prefix *prefix)
{
    prefix_mover *const m = &prefix->mover;
    if (!m->worker.has_thread) return;
    weir_worker_lock(&m->worker);
    while (m->n_undone > 0) weir_worker_wait(&m->worker);
    weir_worker_unlock(&m->worker);
}

void weir_prefix_listen_to_moves(weir_prefix *prefix, void (*listener)(void *user), void *user)
{
    if (prefix != NULL) weir_worker_listen(&prefix->mover.worker, listener, user);
}

/* ---- the engine thread ----------------------------------------------------------------------- */
int32_t weir_prefix_moves(const weir_prefix *prefix)
{
    return prefix != NULL ? prefix->moves.n_begun + prefix->window_moves.n_begun : 0;
}

void prefix_begin_move(weir_prefix *p, prefix_moves *of, const prefix_move *with)
{
    prefix_move *move = of->all;
    while (move->is_begun) move++;
    WEIR_ASSERT(move < of->all + of->most);
    of->n_begun++;
    of->n_reading += with->is_read;
    of->n_writing += !with->is_read;
    weir_worker_lock(&p->mover.worker);
    *move = *with;
    move->number = p->mover.n_all++;
    move->is_begun = move->is_queued = true;
    p->mover.n_undone++;
    weir_worker_wake(&p->mover.worker);
    weir_worker_unlock(&p->mover.worker);
}

void prefix_moves_done(weir_prefix *p, const prefix_moves *of, bool is_done[MOST_MOVES])
{
    weir_worker_lock(&p->mover.worker);
    for (int32_t i = 0; i < MOST_MOVES; i++) is_done[i] = of->all[i].is_begun && of->all[i].is_done;
    weir_worker_unlock(&p->mover.worker);
}

bool weir_prefix_end_moves(weir_prefix *prefix)
{
    const bool states = prefix_end_state_moves(prefix), windows = prefix_end_window_moves(prefix);
    return states || windows;
}

/* Those that are done and wait only for what others pinned are left out. */
bool weir_prefix_will_end_moves(weir_prefix *prefix)
{
    bool any = false;
    if (weir_prefix_moves(prefix) == 0) return false;
    if (prefix->window_moves.n_begun > 0) return true;
    prefix_moves *const m = &prefix->moves;
    weir_worker_lock(&prefix->mover.worker);
    for (const prefix_move *one = m->all; one < m->all + m->most; one++)
        any = any || (one->is_begun && (!one->is_done || (one->is_read && !one->is_here) ||
                                        prefix->entries[one->item].pins == 1));
    weir_worker_unlock(&prefix->mover.worker);
    return any;
}
