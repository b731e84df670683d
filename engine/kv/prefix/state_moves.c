/* engine/kv/prefix/state_moves.c - writes and reads recurrent states on a thread; the engine thread
 * begins moves, and ends them between steps (docs/decisions/0045-states.md). Until then a state
 * that is being written is matched in its memory, and one that is being read is on disk. */
#include <string.h>

#include "engine/base/log.h"
#include "engine/kv/prefix/prefix_internal.h"

int32_t weir_prefix_extra_states(const weir_prefix_limits *limits)
{
    enum { SHARE = 16, LEAST = 3 };
    const int32_t n = limits->n_snapshots / SHARE;
    if (limits->n_cold == 0) return 0;
    return n < LEAST ? LEAST : n < STATE_MOVES ? n : STATE_MOVES;
}

/* ---- the thread ------------------------------------------------------------------------------ */
static state_move *next_queued(state_moves *m)
{
    state_move *next = NULL;
    for (state_move *one = m->all; one < m->all + m->most; one++)
        if (one->is_queued &&
            (next == NULL ||
             (one->is_read != next->is_read ? one->is_read : one->number < next->number)))
            next = one;
    return next;
}

static void transfer(weir_prefix *p, state_move *move)
{
    const size_t all = prefix_state_stride(&p->limits);
    float *const state = state_at(p, move->memory);
    if (move->is_read) {
        move->status =
            weir_lower_tier_read(p->tier, move->block, 0, 0, p->transfer, all, &move->why);
        if (move->status == WEIR_OK)
            weir_ledger_copy(p->ledger, state, p->transfer, p->limits.snapshot_bytes);
        return;
    }
    const struct iovec bytes = { p->transfer, all };
    weir_ledger_copy(p->ledger, p->transfer, state, p->limits.snapshot_bytes);
    move->status = weir_lower_tier_write(p->tier, move->block, 0, &bytes, 1, &move->why);
}

static void *move_states(void *user)
{
    weir_prefix *const p = user;
    state_moves *const m = &p->moves;
    weir_worker_lock(&m->worker);
    for (;;) {
        state_move *move;
        while ((move = next_queued(m)) == NULL && !weir_lower_tier_may_shrink(p->tier) &&
               !m->worker.is_closing)
            weir_worker_wait(&m->worker);
        if (m->worker.is_closing) break;
        if (move == NULL) {
            weir_worker_unlock(&m->worker);
            weir_lower_tier_shrink(p->tier);
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
    state_moves *const m = &p->moves;
    m->most = weir_prefix_extra_states(&p->limits);
    return weir_worker_open(&m->worker, move_states, p, "moves recurrent states", error);
}

void prefix_free_block(weir_prefix *p, int32_t block)
{
    state_moves *const m = &p->moves;
    if (!weir_lower_tier_free(p->tier, block)) return;
    weir_worker_lock(&m->worker);
    weir_worker_wake(&m->worker);
    weir_worker_unlock(&m->worker);
}

void prefix_close_moves(weir_prefix *p) { weir_worker_close(&p->moves.worker); }

void weir_prefix_wait_for_moves(weir_prefix *prefix)
{
    state_moves *const m = &prefix->moves;
    if (!m->worker.has_thread) return;
    weir_worker_lock(&m->worker);
    while (m->n_undone > 0) weir_worker_wait(&m->worker);
    weir_worker_unlock(&m->worker);
}

void weir_prefix_listen_to_moves(weir_prefix *prefix, void (*listener)(void *user), void *user)
{
    if (prefix != NULL) weir_worker_listen(&prefix->moves.worker, listener, user);
}

/* ---- beginning ------------------------------------------------------------------------------- */
int32_t weir_prefix_moves(const weir_prefix *prefix)
{
    return prefix != NULL ? prefix->moves.n_begun : 0;
}

state_move *prefix_move_of(weir_prefix *p, int32_t entry)
{
    for (state_move *one = p->moves.all; one < p->moves.all + p->moves.most; one++)
        if (one->is_begun && one->entry == entry) return one;
    return NULL;
}

bool prefix_may_move(const weir_prefix *p, bool is_read)
{
    const state_moves *const m = &p->moves;
    return m->n_begun < m->most && (is_read || m->n_writing < m->most - 1);
}

bool prefix_may_demote(const weir_prefix *p)
{
    return prefix_may_move(p, false) && p->moves.n_writing < p->moves.most - 2 &&
           prefix_free_cold_states(p) > 0;
}

void prefix_begin_move(weir_prefix *p, int32_t index, int32_t memory, bool is_read)
{
    state_moves *const m = &p->moves;
    state_move *move = m->all;
    while (move->is_begun) move++;
    WEIR_ASSERT(move < m->all + m->most);
    p->entries[index].pins++;
    m->n_begun++;
    m->n_reading += is_read;
    m->n_writing += !is_read;
    weir_worker_lock(&m->worker);
    *move = (state_move){ .entry = index,
                          .block = p->entries[index].block,
                          .memory = memory,
                          .number = m->n_all++,
                          .is_begun = true,
                          .is_read = is_read,
                          .is_queued = true };
    m->n_undone++;
    weir_worker_wake(&m->worker);
    weir_worker_unlock(&m->worker);
}

/* ---- ending ---------------------------------------------------------------------------------- */
static void end(weir_prefix *p, state_move *move)
{
    p->entries[move->entry].pins--;
    p->moves.n_begun--;
    p->moves.n_reading -= move->is_read && !move->is_here;
    p->moves.n_writing -= !move->is_read;
    move->is_begun = false;
}

static void fail(weir_prefix *p, const state_move *move)
{
    if (p->stats.snapshot_errors++ > 0) return;
    weir_log(
        WEIR_LOG_WARNING,
        move->is_read ? "a recurrent state is computed again: %s"
                      : "recurrent states are dropped: %s",
        move->why.text
    );
}

/* The state leaves its memory. Not while others read that. */
static bool end_write(weir_prefix *p, state_move *move)
{
    snapshot_entry *const own = &p->entries[move->entry];
    if (own->pins > 1) return false;
    end(p, move);
    if (move->status != WEIR_OK) fail(p, move);
    p->stats.snapshots_out += move->status == WEIR_OK;
    if (own->state == ENTRY_DETACHED)
        prefix_free_entry(p, move->entry);
    else if (move->status != WEIR_OK)
        prefix_drop_state(p, move->entry);
    else
        prefix_leave_memory(p, move->entry);
    return true;
}

/* The state is in memory, and on disk, until the moves are ended once more. */
static bool end_read(weir_prefix *p, state_move *move)
{
    snapshot_entry *const own = &p->entries[move->entry];
    if (move->status != WEIR_OK) fail(p, move);
    p->stats.snapshots_back += move->status == WEIR_OK;
    if (move->status == WEIR_OK && own->state == ENTRY_ATTACHED) {
        own->memory = move->memory;
        p->moves.n_reading--;
        move->is_here = true;
        return true;
    }
    end(p, move);
    prefix_give_memory(p, move->memory);
    if (own->state == ENTRY_DETACHED)
        prefix_free_entry(p, move->entry);
    else
        prefix_drop_state(p, move->entry);
    return true;
}

/* Keeps the memory of a state that was used, if there is room for one more, or if it was read for
 * the second time: most ends of turns are continued once. */
static bool end_stay(weir_prefix *p, state_move *move)
{
    snapshot_entry *const own = &p->entries[move->entry];
    const bool stays = own->state == ENTRY_ATTACHED && move->is_used &&
                       (own->was_read || prefix_free_states(p) > 0) &&
                       prefix_reclaim_state(p, own->rank, true);
    if (!stays && own->pins > 1) return false;
    end(p, move);
    own->was_read = own->was_read || move->is_used;
    if (own->state == ENTRY_DETACHED)
        prefix_free_entry(p, move->entry);
    else if (stays)
        prefix_return_state(p, move->entry);
    else
        prefix_leave_memory(p, move->entry);
    return true;
}

/* Those that are done and wait only for what others pinned are left out. */
bool weir_prefix_will_end_moves(weir_prefix *prefix)
{
    bool any = false;
    if (weir_prefix_moves(prefix) == 0) return false;
    state_moves *const m = &prefix->moves;
    weir_worker_lock(&m->worker);
    for (const state_move *one = m->all; one < m->all + m->most; one++)
        any = any || (one->is_begun && (!one->is_done || (one->is_read && !one->is_here) ||
                                        prefix->entries[one->entry].pins == 1));
    weir_worker_unlock(&m->worker);
    return any;
}

bool weir_prefix_end_moves(weir_prefix *prefix)
{
    state_moves *const m = &prefix->moves;
    bool is_done[STATE_MOVES] = { false }, any = false;
    if (m->n_begun == 0) return false;
    weir_worker_lock(&m->worker);
    for (int32_t i = 0; i < m->most; i++) is_done[i] = m->all[i].is_begun && m->all[i].is_done;
    weir_worker_unlock(&m->worker);
    for (int32_t i = 0; i < m->most; i++) {
        state_move *const move = &m->all[i];
        if (!is_done[i]) continue;
        const bool is_ended = move->is_here   ? end_stay(prefix, move)
                              : move->is_read ? end_read(prefix, move)
                                              : end_write(prefix, move);
        any = any || is_ended;
    }
    return any;
}
