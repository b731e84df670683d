/* engine/kv/prefix/states.c - recurrent states: acquired, on a node, pinned there. An entry of a
 * node is in four lists: the node's, that of all children of its parent (for matching), that of the
 * states after the one before it, and the order of its rank (state_order.c). */
#include <stdlib.h>
#include <string.h>

#include "engine/kv/prefix/tiers_internal.h"

/* ---- entries --------------------------------------------------------------------------------- */
static const snapshot_entry unused_entry = { .memory = NONE, .block = NONE };

void prefix_open_entries(weir_prefix *p)
{
    p->free_entry = p->free_memory = NONE;
    for (int32_t i = p->n_entries - 1; i >= 0; i--) {
        p->entries[i] = unused_entry;
        p->entries[i].next = p->free_entry;
        p->free_entry = i;
    }
    for (int32_t i = n_memory(p) - 1; i >= 0; i--) prefix_give_memory(p, i);
}

void prefix_give_memory(weir_prefix *p, int32_t memory)
{
    p->owners[memory] = p->free_memory;
    p->free_memory = memory;
    p->n_free_memory++;
}

void prefix_free_entry(weir_prefix *p, int32_t index)
{
    snapshot_entry *const own = &p->entries[index];
    if (own->memory != NONE) prefix_give_memory(p, own->memory);
    if (own->block != NONE) prefix_free_block(p, p->tier, own->block);
    *own = unused_entry;
    own->next = p->free_entry;
    p->free_entry = index;
}

void prefix_drop_state(weir_prefix *p, int32_t index)
{
    int64_t *const floor = &p->floors[state_order_of(&p->entries[index])];
    if (p->entries[index].worth > *floor) *floor = p->entries[index].worth;
    prefix_detach(p, index);
}

int32_t prefix_free_states(const weir_prefix *p)
{
    return p->n_free_memory - (p->moves.most - p->moves.n_begun);
}

bool prefix_reclaim_state(weir_prefix *p, weir_state_rank rank, bool keeps_ends)
{
    if (prefix_free_states(p) > 0) return true;
    const int32_t first = prefix_next_state(p, rank);
    if (first == NONE) return false;
    const bool is_end = p->tier != NULL && p->entries[first].rank >= WEIR_STATE_PAST,
               may_go = is_end ? prefix_may_move(p, false)
                               : p->entries[first].demotes && prefix_may_demote(p);
    if (is_end && keeps_ends && !may_go) return false;
    if (may_go && prefix_demote_state(p, first)) return true;
    prefix_drop_state(p, first);
    return true;
}

int32_t prefix_pop_memory(weir_prefix *p)
{
    const int32_t taken = p->free_memory;
    WEIR_ASSERT(taken != NONE);
    p->free_memory = p->owners[taken];
    p->n_free_memory--;
    ++*p->visits;
    return taken;
}

float *weir_prefix_acquire_snapshot(weir_prefix *prefix, weir_state_rank rank, int64_t turn)
{
    if (!prefix_reclaim_state(prefix, rank, rank < WEIR_STATE_PAST)) return NULL;
    const int32_t memory = prefix_pop_memory(prefix), taken = prefix->free_entry;
    prefix->free_entry = prefix->entries[taken].next;
    prefix->entries[taken] = (snapshot_entry
    ){ .state = ENTRY_ACQUIRED, .rank = rank, .memory = memory, .block = NONE, .turn = turn };
    prefix->owners[memory] = taken;
    return state_of(prefix, taken);
}

void weir_prefix_release_snapshot(weir_prefix *prefix, float *state)
{
    const int32_t index = entry_of(prefix, state);
    WEIR_ASSERT(prefix->entries[index].state == ENTRY_ACQUIRED);
    prefix_free_entry(prefix, index);
}

void weir_prefix_demote_snapshot(weir_prefix *prefix, float *state)
{
    prefix->entries[entry_of(prefix, state)].demotes = prefix->tier != NULL;
}

/* ---- on a node ------------------------------------------------------------------------------- */
/* The prompt of the turn that ends here will hardly come again. */
static void forget_prompt(weir_prefix *p, int32_t index)
{
    const int64_t turn = p->entries[index].turn;
    for (int32_t s = p->entries[index].before, before;
         turn != 0 && s != NONE && p->entries[s].turn == turn; s = before) {
        before = p->entries[s].before;
        if (!p->entries[s].demotes) continue;
        p->entries[s].demotes = false;
        if (p->entries[s].rank < WEIR_STATE_PAST && p->entries[s].block != NONE &&
            p->entries[s].pins == 0)
            prefix_drop_state(p, s);
    }
}

void prefix_use_state(weir_prefix *p, int32_t index)
{
    const weir_state_rank rank = p->entries[index].rank;
    if (rank == WEIR_STATE_LAST) forget_prompt(p, index);
    prefix_rank_state(p, index, rank < WEIR_STATE_PAST ? rank + 1 : rank);
}

void prefix_detach(weir_prefix *p, int32_t index)
{
    snapshot_entry *const own = &p->entries[index];
    const int32_t holder = own->node, parent = p->nodes[holder].parent;
    int32_t *at = &p->nodes[holder].snapshot;
    prefix_unorder_state(p, index);
    p->stats.n_cold_snapshots -= own->block != NONE;
    while (*at != index) at = &p->entries[*at].next;
    *at = own->next;
    *(own->before_below != NONE ? &p->entries[own->before_below].next_below
                                : &p->nodes[parent].below) = own->next_below;
    if (own->next_below != NONE) p->entries[own->next_below].before_below = own->before_below;
    if (own->pins > 0)
        own->state = ENTRY_DETACHED;
    else
        prefix_free_entry(p, index);
    p->stats.n_snapshots--;
    prefix_reorder(p, holder);
}

/* The end of the last turn: the one that it continues is past now. */
static void rank_last(weir_prefix *p, int32_t index)
{
    int32_t before = p->entries[index].before;
    while (before != NONE && p->entries[before].rank < WEIR_STATE_PAST)
        before = p->entries[before].before;
    if (before != NONE && p->entries[before].rank == WEIR_STATE_LAST)
        prefix_rank_state(p, before, WEIR_STATE_PAST);
    if (p->entries[index].rank != WEIR_STATE_LAST) prefix_rank_state(p, index, WEIR_STATE_LAST);
}

/* It is the last state of its turn, until another one is attached after it. */
static void end_turn(weir_prefix *p, int32_t index)
{
    const int64_t turn = p->entries[index].turn;
    for (int32_t s = index; turn != 0 && s != NONE && p->entries[s].turn == turn;
         s = p->entries[s].before)
        p->entries[s].end = index;
    if (p->entries[index].rank == WEIR_STATE_LAST) rank_last(p, index);
}

void prefix_leave_answer(weir_prefix *p, int32_t index)
{
    const int32_t end = p->entries[index].end;
    if (p->entries[end].state == ENTRY_ATTACHED && p->entries[end].turn == p->entries[index].turn &&
        p->entries[end].rank == WEIR_STATE_LAST)
        prefix_rank_state(p, end, WEIR_STATE_SPARE);
}

/* The state of the node after this many of its tokens. */
static int32_t find_on_node(const weir_prefix *p, int32_t index, int32_t offset)
{
    int32_t s = p->nodes[index].snapshot;
    while (s != NONE && p->entries[s].offset != offset) s = p->entries[s].next;
    return s;
}

static void put_on_node(weir_prefix *p, int32_t index, int32_t offset, int32_t mine)
{
    int32_t *const below = &p->nodes[p->nodes[index].parent].below;
    p->entries[mine] = (snapshot_entry){ .state = ENTRY_ATTACHED,
                                         .rank = p->entries[mine].rank,
                                         .node = index,
                                         .offset = offset,
                                         .next = p->nodes[index].snapshot,
                                         .next_below = *below,
                                         .before_below = NONE,
                                         .first_after = NONE,
                                         .memory = p->entries[mine].memory,
                                         .block = NONE,
                                         .demotes = p->entries[mine].demotes,
                                         .end = mine,
                                         .turn = p->entries[mine].turn };
    if (*below != NONE) p->entries[*below].before_below = mine;
    *below = mine;
    p->nodes[index].snapshot = mine;
    prefix_order_state(p, mine);
    p->stats.n_snapshots++;
    p->stats.n_inserted++;
    prefix_reorder(p, index);
}

void prefix_attach(weir_prefix *p, int32_t index, int32_t offset, float *state)
{
    const int32_t mine = entry_of(p, state), equal = find_on_node(p, index, offset);
    if (equal == NONE) {
        put_on_node(p, index, offset, mine);
        end_turn(p, mine);
        return;
    }
    const weir_state_rank rank = p->entries[mine].rank;
    if (p->entries[equal].memory == NONE && prefix_move_of(p, equal) == NULL) {
        p->entries[equal].memory = p->entries[mine].memory;
        p->entries[mine].memory = NONE;
        p->owners[p->entries[equal].memory] = equal;
        prefix_return_state(p, equal);
    }
    if (p->entries[mine].turn != 0) p->entries[equal].turn = p->entries[mine].turn;
    p->entries[equal].demotes = p->entries[equal].demotes || p->entries[mine].demotes;
    prefix_rank_state(p, equal, rank > p->entries[equal].rank ? rank : p->entries[equal].rank);
    end_turn(p, equal);
    prefix_free_entry(p, mine);
}

/* ---- to disk and back ------------------------------------------------------------------------ */
void prefix_move_state(weir_prefix *p, int32_t index, int32_t block)
{
    snapshot_entry *const own = &p->entries[index];
    int64_t *const floor = &p->floors[own->rank];
    if (own->worth > *floor) *floor = own->worth;
    prefix_leave_order(p, index);
    own->block = block;
    own->was_read = false;
    prefix_order_state(p, index);
    p->stats.n_cold_snapshots++;
}

void prefix_leave_memory(weir_prefix *p, int32_t index)
{
    prefix_give_memory(p, p->entries[index].memory);
    p->entries[index].memory = NONE;
}

void prefix_return_state(weir_prefix *p, int32_t index)
{
    snapshot_entry *const own = &p->entries[index];
    prefix_leave_order(p, index);
    prefix_free_block(p, p->tier, own->block);
    own->block = NONE;
    prefix_order_state(p, index);
    p->stats.n_cold_snapshots--;
}

void weir_prefix_end_turn(weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt)
{
    place last;
    const weir_kv_sequence computed = { .tokens = sequence->tokens,
                                        .n_tokens = sequence->n_computed };
    (void)prefix_find(prefix, &computed, salt, sequence->n_computed, &last);
    if (last.entry != NONE) rank_last(prefix, last.entry);
}

bool prefix_has_states_before(const weir_prefix *p, int32_t n_states, int32_t entry)
{
    const int32_t half = p->limits.n_snapshots / 2, wanted = n_states < half ? n_states : half;
    const int32_t n_free = most_ends(p) - p->n_ordered[WEIR_STATE_PAST] -
                           p->n_ordered[WEIR_STATE_LAST] + prefix_free_cold_states(p);
    if (entry == NONE || n_free >= wanted) return n_free >= wanted;
    return prefix_ends_before(p, entry, wanted - n_free) >= wanted - n_free;
}

bool weir_prefix_has_free_states(const weir_prefix *prefix, int32_t n_states)
{
    return prefix_has_states_before(prefix, n_states, NONE);
}

/* ---- pinned ---------------------------------------------------------------------------------- */
static int by_place(const void *a, const void *b)
{
    const weir_prefix_snapshot *const left = a, *const right = b;
    return (left->at > right->at) - (left->at < right->at);
}

/* Adds the states of the node's children on the first n_left of these tokens, if there is none at
 * their place yet; of more than `most` the last ones stay, in order. */
static int32_t add_marks(
    const weir_prefix *p, int32_t parent, const int32_t *tokens, int32_t n_left, int32_t before,
    weir_prefix_snapshot *marks, int32_t n, int32_t most
)
{
    for (int32_t s = p->nodes[parent].below; s != NONE; s = p->entries[s].next_below) {
        const int32_t offset = p->entries[s].offset;
        ++*p->visits;
        if (p->entries[s].memory == NONE) continue;
        const weir_prefix_snapshot mark = { before + offset, state_of(p, s) };
        bool is_new = p->entries[s].rank != WEIR_STATE_SPARE && offset <= n_left &&
                      common(p->nodes[p->entries[s].node].tokens, tokens, offset) == offset;
        for (int32_t k = 0; k < n; k++) is_new = is_new && marks[k].at != mark.at;
        if (!is_new) continue;
        if (n == most) memmove(marks, marks + 1, (size_t)--n * sizeof *marks);
        marks[n++] = mark;
        qsort(marks, (size_t)n, sizeof *marks, by_place);
    }
    return n;
}

/* The last state is what makes the sequence worth keeping, so it comes back from disk, and stays if
 * there is room. False: not yet. */
static bool has_last(weir_prefix *p, const weir_kv_sequence *sequence, const char *salt)
{
    place last;
    const weir_kv_sequence computed = { .tokens = sequence->tokens,
                                        .n_tokens = sequence->n_computed };
    (void)prefix_find(p, &computed, salt, sequence->n_computed, &last);
    if (last.entry == NONE || prefix_read_state(p, last.entry) != NULL) return true;
    prefix_move *const move = prefix_move_of(p, last.entry);
    if (move != NULL) move->is_used = p->entries[last.entry].was_read = true;
    return false;
}

/* States of all children count, as in weir_prefix_match: one may be on a run of another sequence,
 * which can be dropped meanwhile. */
int32_t weir_prefix_pin(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt,
    weir_prefix_snapshot *marks, int32_t most
)
{
    int32_t n = 0, before = 0, same = RUN, parent = prefix_find_salt(prefix, salt_text(salt));
    if (prefix->tier != NULL && !has_last(prefix, sequence, salt)) return WEIR_PREFIX_WAITS;
    while (parent != NONE && same == RUN && before < sequence->n_computed) {
        const int32_t *const tokens = sequence->tokens + before,
                             left = sequence->n_computed - before;
        n = add_marks(prefix, parent, tokens, left, before, marks, n, most);
        parent = prefix_nearest_child(prefix, parent, tokens, left, &same);
        before += same;
    }
    for (int32_t k = 0; k < n; k++) prefix->entries[entry_of(prefix, marks[k].state)].pins++;
    return n;
}

void weir_prefix_unpin(weir_prefix *prefix, const weir_prefix_snapshot *marks, int32_t n_marks)
{
    for (const weir_prefix_snapshot *mark = marks; mark < marks + n_marks; mark++) {
        const int32_t index = entry_of(prefix, mark->state);
        snapshot_entry *const pinned = &prefix->entries[index];
        WEIR_ASSERT(pinned->pins > 0);
        if (--pinned->pins == 0 && pinned->state == ENTRY_DETACHED)
            prefix_free_entry(prefix, index);
    }
}
