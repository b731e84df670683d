/* engine/kv/prefix/states.c - recurrent states in slots: acquired, on a node, pinned there. */
#include <stdlib.h>
#include <string.h>

#include "engine/kv/prefix/prefix_internal.h"

void prefix_detach(weir_prefix *p, int32_t index)
{
    int32_t *at = &p->nodes[p->slots[index].node].snapshot;
    while (*at != index) at = &p->slots[*at].next;
    *at = p->slots[index].next;
    p->slots[index].state = p->slots[index].pins > 0 ? SLOT_LEFT : SLOT_FREE;
    p->stats.n_snapshots--;
}

/* True if slot `a` is to be taken before `b`. */
static bool goes_before(const slot *a, const slot *b)
{
    if ((a->state == SLOT_FREE) != (b->state == SLOT_FREE)) return a->state == SLOT_FREE;
    if (a->is_spare != b->is_spare) return a->is_spare;
    return a->last_use < b->last_use;
}

float *weir_prefix_acquire_snapshot(weir_prefix *prefix, bool is_spare)
{
    int32_t found = NONE;
    for (int32_t i = 0; i < prefix->limits.n_snapshots; i++) {
        const slot *const s = &prefix->slots[i];
        if (s->state == SLOT_LENT || s->pins > 0) continue;
        if (is_spare && s->state == SLOT_KEPT && !s->is_spare) continue;
        if (found == NONE || goes_before(s, &prefix->slots[found])) found = i;
    }
    if (found == NONE) return NULL;
    slot *const taken = &prefix->slots[found];
    if (taken->state == SLOT_KEPT) prefix_detach(prefix, found);
    taken->state = SLOT_LENT;
    taken->is_spare = is_spare;
    return state_of(prefix, found);
}

void weir_prefix_release_snapshot(weir_prefix *prefix, float *state)
{
    WEIR_ASSERT(prefix->slots[slot_of(prefix, state)].state == SLOT_LENT);
    prefix->slots[slot_of(prefix, state)].state = SLOT_FREE;
}

void prefix_attach(weir_prefix *p, int32_t index, int32_t offset, float *state)
{
    const int32_t mine = slot_of(p, state);
    for (int32_t s = p->nodes[index].snapshot; s != NONE; s = p->slots[s].next) {
        if (p->slots[s].offset != offset) continue;
        p->slots[s].last_use = p->clock;
        p->slots[s].is_spare = p->slots[s].is_spare && p->slots[mine].is_spare;
        weir_prefix_release_snapshot(p, state);
        return;
    }
    p->slots[mine] = (slot){ .state = SLOT_KEPT,
                             .node = index,
                             .next = p->nodes[index].snapshot,
                             .offset = offset,
                             .is_spare = p->slots[mine].is_spare,
                             .last_use = p->clock };
    p->nodes[index].snapshot = mine;
    p->stats.n_snapshots++;
    p->stats.n_inserted++;
}

bool prefix_has_states_before(const weir_prefix *p, int32_t n_states, uint64_t use)
{
    const int32_t half = p->limits.n_snapshots / 2;
    int32_t n = 0;
    for (int32_t i = 0; i < p->limits.n_snapshots; i++) {
        const slot *const s = &p->slots[i];
        n += s->state == SLOT_FREE ||
             (s->state == SLOT_KEPT && s->pins == 0 && (s->is_spare || s->last_use < use));
    }
    return n >= (n_states < half ? n_states : half);
}

bool weir_prefix_has_free_states(const weir_prefix *prefix, int32_t n_states)
{
    return prefix_has_states_before(prefix, n_states, 0);
}

/* ---- pinned ---------------------------------------------------------------------------------- */
static int by_place(const void *a, const void *b)
{
    const weir_prefix_snapshot *const left = a, *const right = b;
    return (left->at > right->at) - (left->at < right->at);
}

/* States of all children count, as in weir_prefix_match: one may be on a run of another sequence,
 * which can be dropped meanwhile. */
int32_t weir_prefix_pin(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt,
    weir_prefix_snapshot *marks, int32_t most
)
{
    int32_t n = 0, before = 0, same = RUN, parent = find_salt(prefix, salt_text(salt));
    while (parent != NONE && same == RUN && before < sequence->n_computed) {
        const int32_t *const tokens = sequence->tokens + before,
                             left = sequence->n_computed - before;
        for (int32_t i = prefix->nodes[parent].child; i != NONE; i = prefix->nodes[i].next) {
            const node *const child = &prefix->nodes[i];
            const int32_t equal =
                common(child->tokens, tokens, child->n_tokens < left ? child->n_tokens : left);
            for (int32_t s = child->snapshot; s != NONE; s = prefix->slots[s].next) {
                const weir_prefix_snapshot mark = { before + prefix->slots[s].offset,
                                                    state_of(prefix, s) };
                bool is_new = prefix->slots[s].offset <= equal && !prefix->slots[s].is_spare;
                for (int32_t k = 0; k < n; k++) is_new = is_new && marks[k].at != mark.at;
                if (!is_new) continue;
                if (n == most) memmove(marks, marks + 1, (size_t)--n * sizeof *marks);
                marks[n++] = mark;
                qsort(marks, (size_t)n, sizeof *marks, by_place);
            }
        }
        parent = nearest_child(prefix, parent, tokens, left, &same);
        before += same;
    }
    for (int32_t k = 0; k < n; k++) prefix->slots[slot_of(prefix, marks[k].state)].pins++;
    return n;
}

void weir_prefix_unpin(weir_prefix *prefix, const weir_prefix_snapshot *marks, int32_t n_marks)
{
    for (const weir_prefix_snapshot *mark = marks; mark < marks + n_marks; mark++) {
        slot *const pinned = &prefix->slots[slot_of(prefix, mark->state)];
        WEIR_ASSERT(pinned->pins > 0);
        if (--pinned->pins == 0 && pinned->state == SLOT_LEFT) pinned->state = SLOT_FREE;
    }
}
