/* engine/kv/prefix/states.c - recurrent states in slots: acquired, on a node, pinned there.
 *
 * A slot of a node is in three lists: the node's, that of all children of the node's parent, which
 * matching goes through, and that of spare or of other states, least recently used first: what is
 * used goes to the end. */
#include <stdlib.h>
#include <string.h>

#include "engine/kv/prefix/prefix_internal.h"

/* ---- lists ----------------------------------------------------------------------------------- */
void prefix_open_slots(weir_prefix *p)
{
    const slot_list none = { .oldest = NONE, .newest = NONE };
    p->spares = p->used = none;
    p->n_free_slots = p->limits.n_snapshots;
    p->free_slot = p->n_free_slots > 0 ? 0 : NONE;
    for (int32_t i = 0; i < p->n_free_slots; i++)
        p->slots[i] = (slot){ .next = i + 1 < p->n_free_slots ? i + 1 : NONE };
}

static void free_slot(weir_prefix *p, int32_t index)
{
    p->slots[index].state = SLOT_FREE;
    p->slots[index].next = p->free_slot;
    p->free_slot = index;
    p->n_free_slots++;
}

static slot_list *list_of(weir_prefix *p, int32_t index)
{
    return p->slots[index].is_spare ? &p->spares : &p->used;
}

static void unlist(weir_prefix *p, int32_t index)
{
    slot_list *const list = list_of(p, index);
    const int32_t older = p->slots[index].older, newer = p->slots[index].newer;
    *(older != NONE ? &p->slots[older].newer : &list->oldest) = newer;
    *(newer != NONE ? &p->slots[newer].older : &list->newest) = older;
    list->n--;
}

/* Makes it the most recently used one. */
static void list_newest(weir_prefix *p, int32_t index)
{
    slot_list *const list = list_of(p, index);
    slot *const own = &p->slots[index];
    own->last_use = p->clock;
    own->newer = NONE;
    own->older = list->newest;
    *(own->older != NONE ? &p->slots[own->older].newer : &list->oldest) = index;
    list->newest = index;
    list->n++;
}

static void use_as(weir_prefix *p, int32_t index, bool is_spare)
{
    unlist(p, index);
    p->slots[index].is_spare = is_spare;
    list_newest(p, index);
}

void prefix_use_state(weir_prefix *p, int32_t index) { use_as(p, index, false); }

/* ---- on a node ------------------------------------------------------------------------------- */
void prefix_detach(weir_prefix *p, int32_t index)
{
    slot *const own = &p->slots[index];
    const int32_t holder = own->node, parent = p->nodes[holder].parent;
    int32_t *at = &p->nodes[holder].snapshot;
    while (*at != index) at = &p->slots[*at].next;
    *at = own->next;
    *(own->before_below != NONE ? &p->slots[own->before_below].next_below : &p->nodes[parent].below
    ) = own->next_below;
    if (own->next_below != NONE) p->slots[own->next_below].before_below = own->before_below;
    unlist(p, index);
    if (own->pins > 0)
        own->state = SLOT_LEFT;
    else
        free_slot(p, index);
    p->stats.n_snapshots--;
    prefix_reorder(p, holder);
}

/* The least recently used one that is not pinned. Pinned are those of texts that are being written
 * to files: few. */
static int32_t oldest_of(const weir_prefix *p, const slot_list *list)
{
    int32_t s = list->oldest;
    for (; s != NONE && p->slots[s].pins > 0; s = p->slots[s].newer) ++*p->visits;
    return s;
}

float *weir_prefix_acquire_snapshot(weir_prefix *prefix, bool is_spare)
{
    if (prefix->n_free_slots == 0) {
        int32_t oldest = oldest_of(prefix, &prefix->spares);
        if (oldest == NONE && !is_spare) oldest = oldest_of(prefix, &prefix->used);
        if (oldest == NONE) return NULL;
        prefix_detach(prefix, oldest);
    }
    const int32_t taken = prefix->free_slot;
    prefix->free_slot = prefix->slots[taken].next;
    prefix->n_free_slots--;
    prefix->slots[taken].state = SLOT_LENT;
    prefix->slots[taken].is_spare = is_spare;
    ++*prefix->visits;
    return state_of(prefix, taken);
}

void weir_prefix_release_snapshot(weir_prefix *prefix, float *state)
{
    const int32_t index = slot_of(prefix, state);
    WEIR_ASSERT(prefix->slots[index].state == SLOT_LENT);
    free_slot(prefix, index);
}

void prefix_attach(weir_prefix *p, int32_t index, int32_t offset, float *state)
{
    const int32_t mine = slot_of(p, state);
    const bool is_spare = p->slots[mine].is_spare;
    for (int32_t s = p->nodes[index].snapshot; s != NONE; s = p->slots[s].next) {
        if (p->slots[s].offset != offset) continue;
        use_as(p, s, p->slots[s].is_spare && is_spare);
        weir_prefix_release_snapshot(p, state);
        return;
    }
    int32_t *const below = &p->nodes[p->nodes[index].parent].below;
    p->slots[mine] = (slot){ .state = SLOT_KEPT,
                             .node = index,
                             .offset = offset,
                             .next = p->nodes[index].snapshot,
                             .next_below = *below,
                             .before_below = NONE,
                             .is_spare = is_spare };
    if (*below != NONE) p->slots[*below].before_below = mine;
    *below = mine;
    p->nodes[index].snapshot = mine;
    list_newest(p, mine);
    p->stats.n_snapshots++;
    p->stats.n_inserted++;
    prefix_reorder(p, index);
}

/* Spare states are not pinned. */
bool prefix_has_states_before(const weir_prefix *p, int32_t n_states, uint64_t use)
{
    const int32_t half = p->limits.n_snapshots / 2, wanted = n_states < half ? n_states : half;
    int32_t n = p->n_free_slots + p->spares.n;
    for (int32_t s = p->used.oldest; n < wanted && s != NONE && p->slots[s].last_use < use;
         s = p->slots[s].newer) {
        n += p->slots[s].pins == 0;
        ++*p->visits;
    }
    return n >= wanted;
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

/* Adds the states of the node's children on the first n_left of these tokens, if there is none at
 * their place yet; of more than `most` the last ones stay, in order. */
static int32_t add_marks(
    const weir_prefix *p, int32_t parent, const int32_t *tokens, int32_t n_left, int32_t before,
    weir_prefix_snapshot *marks, int32_t n, int32_t most
)
{
    for (int32_t s = p->nodes[parent].below; s != NONE; s = p->slots[s].next_below) {
        const int32_t offset = p->slots[s].offset;
        const weir_prefix_snapshot mark = { before + offset, state_of(p, s) };
        bool is_new = !p->slots[s].is_spare && offset <= n_left &&
                      common(p->nodes[p->slots[s].node].tokens, tokens, offset) == offset;
        ++*p->visits;
        for (int32_t k = 0; k < n; k++) is_new = is_new && marks[k].at != mark.at;
        if (!is_new) continue;
        if (n == most) memmove(marks, marks + 1, (size_t)--n * sizeof *marks);
        marks[n++] = mark;
        qsort(marks, (size_t)n, sizeof *marks, by_place);
    }
    return n;
}

/* States of all children count, as in weir_prefix_match: one may be on a run of another sequence,
 * which can be dropped meanwhile. */
int32_t weir_prefix_pin(
    weir_prefix *prefix, const weir_kv_sequence *sequence, const char *salt,
    weir_prefix_snapshot *marks, int32_t most
)
{
    int32_t n = 0, before = 0, same = RUN, parent = prefix_find_salt(prefix, salt_text(salt));
    while (parent != NONE && same == RUN && before < sequence->n_computed) {
        const int32_t *const tokens = sequence->tokens + before,
                             left = sequence->n_computed - before;
        n = add_marks(prefix, parent, tokens, left, before, marks, n, most);
        parent = prefix_nearest_child(prefix, parent, tokens, left, &same);
        before += same;
    }
    for (int32_t k = 0; k < n; k++) prefix->slots[slot_of(prefix, marks[k].state)].pins++;
    return n;
}

void weir_prefix_unpin(weir_prefix *prefix, const weir_prefix_snapshot *marks, int32_t n_marks)
{
    for (const weir_prefix_snapshot *mark = marks; mark < marks + n_marks; mark++) {
        const int32_t index = slot_of(prefix, mark->state);
        slot *const pinned = &prefix->slots[index];
        WEIR_ASSERT(pinned->pins > 0);
        if (--pinned->pins == 0 && pinned->state == SLOT_LEFT) free_slot(prefix, index);
    }
}
