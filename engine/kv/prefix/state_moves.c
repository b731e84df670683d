/* engine/kv/prefix/state_moves.c - begins and ends moves of recurrent states (moves.c,
 * docs/decisions/0045-states.md). Until a move ends, a state that is being written is matched in
 * its memory, and one that is being read is on disk. */
#include "engine/base/log.h"
#include "engine/kv/prefix/tiers_internal.h"

int32_t weir_prefix_extra_states(const weir_prefix_limits *limits)
{
    enum { SHARE = 16, LEAST = 3 };
    const int32_t n = limits->n_snapshots / SHARE;
    if (limits->n_cold == 0) return 0;
    return n < LEAST ? LEAST : n < MOST_MOVES ? n : MOST_MOVES;
}

/* ---- beginning ------------------------------------------------------------------------------- */
prefix_move *prefix_move_of(weir_prefix *p, int32_t entry)
{
    for (prefix_move *one = p->moves.all; one < p->moves.all + p->moves.most; one++)
        if (one->is_begun && one->item == entry) return one;
    return NULL;
}

bool prefix_may_move(const weir_prefix *p, bool is_read)
{
    const prefix_moves *const m = &p->moves;
    return m->n_begun < m->most && (is_read || m->n_writing < m->most - 1);
}

bool prefix_may_demote(const weir_prefix *p)
{
    return prefix_may_move(p, false) && p->moves.n_writing < p->moves.most - 2 &&
           prefix_free_cold_states(p) > 0;
}

void prefix_move_entry(weir_prefix *p, int32_t index, int32_t memory, bool is_read)
{
    p->entries[index].pins++;
    prefix_begin_move(
        p, &p->moves,
        &(prefix_move
        ){ .item = index, .memory = memory, .block = p->entries[index].block, .is_read = is_read }
    );
}

/* ---- ending ---------------------------------------------------------------------------------- */
static void end(weir_prefix *p, prefix_move *move)
{
    p->entries[move->item].pins--;
    p->moves.n_begun--;
    p->moves.n_reading -= move->is_read && !move->is_here;
    p->moves.n_writing -= !move->is_read;
    move->is_begun = false;
}

static void fail(weir_prefix *p, const prefix_move *move)
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
static bool end_write(weir_prefix *p, prefix_move *move)
{
    snapshot_entry *const own = &p->entries[move->item];
    if (own->pins > 1) return false;
    end(p, move);
    if (move->status != WEIR_OK) fail(p, move);
    p->stats.snapshots_out += move->status == WEIR_OK;
    if (own->state == ENTRY_DETACHED)
        prefix_free_entry(p, move->item);
    else if (move->status != WEIR_OK)
        prefix_drop_state(p, move->item);
    else
        prefix_leave_memory(p, move->item);
    return true;
}

/* The state is in memory, and on disk, until the moves are ended once more. */
static bool end_read(weir_prefix *p, prefix_move *move)
{
    snapshot_entry *const own = &p->entries[move->item];
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
        prefix_free_entry(p, move->item);
    else
        prefix_drop_state(p, move->item);
    return true;
}

/* Keeps the memory of a state that was used, if there is room for one more, or if it was read for
 * the second time: most ends of turns are continued once. */
static bool end_stay(weir_prefix *p, prefix_move *move)
{
    snapshot_entry *const own = &p->entries[move->item];
    const bool stays = own->state == ENTRY_ATTACHED && move->is_used &&
                       (own->was_read || prefix_free_states(p) > 0) &&
                       prefix_reclaim_state(p, own->rank, true);
    if (!stays && own->pins > 1) return false;
    end(p, move);
    own->was_read = own->was_read || move->is_used;
    if (own->state == ENTRY_DETACHED)
        prefix_free_entry(p, move->item);
    else if (stays)
        prefix_return_state(p, move->item);
    else
        prefix_leave_memory(p, move->item);
    return true;
}

void weir_prefix_hold_read(weir_prefix *prefix, bool holds)
{
    if (prefix != NULL) prefix->moves.holds_read = holds;
}

bool prefix_end_state_moves(weir_prefix *p)
{
    bool is_done[MOST_MOVES], any = false;
    if (p->moves.n_begun == 0) return false;
    prefix_moves_done(p, &p->moves, is_done);
    for (int32_t i = 0; i < p->moves.most; i++) {
        prefix_move *const move = &p->moves.all[i];
        if (!is_done[i] || (move->is_here && p->moves.holds_read)) continue;
        const bool is_ended = move->is_here   ? end_stay(p, move)
                              : move->is_read ? end_read(p, move)
                                              : end_write(p, move);
        any = any || is_ended;
    }
    return any;
}
