/* engine/kv/prefix/state_order.c - which state goes first when there is no memory for another: by
 * rank, and within a rank by worth, as Greedy-Dual has it (N. Young, "The k-server dual and loose
 * competitiveness for paging", 1994; docs/decisions/0045-states.md). Each rank is a binary heap. */
#include "engine/kv/prefix/prefix_internal.h"

/* ---- what goes before it --------------------------------------------------------------------- */
static int32_t nearest_before(const weir_prefix *p, int32_t index)
{
    int32_t most = p->entries[index].offset - 1;
    for (int32_t i = p->entries[index].node; p->nodes[i].n_tokens > 0; i = p->nodes[i].parent) {
        int32_t best = NONE;
        for (int32_t s = p->nodes[i].snapshot; s != NONE; s = p->entries[s].next)
            if (p->entries[s].offset <= most &&
                (best == NONE || p->entries[s].offset > p->entries[best].offset))
                best = s;
        ++*p->visits;
        if (best != NONE) return best;
        most = RUN;
    }
    return NONE;
}

static int32_t cost_of(const weir_prefix *p, int32_t index)
{
    const int32_t before = p->entries[index].before;
    return tokens_of_state(p, index) - (before != NONE ? tokens_of_state(p, before) : 0);
}

static void put_after(weir_prefix *p, int32_t index, int32_t before)
{
    snapshot_entry *const own = &p->entries[index];
    own->before = before;
    own->previous_after = NONE;
    own->next_after = before != NONE ? p->entries[before].first_after : NONE;
    if (own->next_after != NONE) p->entries[own->next_after].previous_after = index;
    if (before != NONE) p->entries[before].first_after = index;
}

static void take_from_before(weir_prefix *p, int32_t index)
{
    const snapshot_entry *const own = &p->entries[index];
    if (own->next_after != NONE) p->entries[own->next_after].previous_after = own->previous_after;
    if (own->previous_after != NONE)
        p->entries[own->previous_after].next_after = own->next_after;
    else if (own->before != NONE)
        p->entries[own->before].first_after = own->next_after;
}

/* ---- heaps ----------------------------------------------------------------------------------- */
static int32_t *heap_of(const weir_prefix *p, int which)
{
    return p->state_orders + (int64_t)which * p->n_entries;
}

bool prefix_state_goes_before(const weir_prefix *p, int32_t a, int32_t b)
{
    const snapshot_entry *const left = &p->entries[a], *const right = &p->entries[b];
    if (left->worth != right->worth) return left->worth < right->worth;
    return left->last_use != right->last_use ? left->last_use < right->last_use : a < b;
}

static void put(weir_prefix *p, int32_t *heap, int32_t at, int32_t index)
{
    heap[at] = index;
    p->entries[index].place = at;
    ++*p->visits;
}

/* Moves the entry, which may be put at `at`, to where it belongs. */
static void place_entry(weir_prefix *p, int which, int32_t at, int32_t index)
{
    int32_t *const heap = heap_of(p, which);
    const int32_t n = p->n_ordered[which];
    for (int32_t up; at > 0 && prefix_state_goes_before(p, index, heap[up = (at - 1) / 2]); at = up)
        put(p, heap, at, heap[up]);
    for (int32_t down; (down = 2 * at + 1) < n; at = down) {
        if (down + 1 < n && prefix_state_goes_before(p, heap[down + 1], heap[down])) down++;
        if (!prefix_state_goes_before(p, heap[down], index)) break;
        put(p, heap, at, heap[down]);
    }
    put(p, heap, at, index);
}

static void add(weir_prefix *p, int32_t index)
{
    snapshot_entry *const own = &p->entries[index];
    const int which = state_order_of(own);
    own->worth = p->floors[which] + cost_of(p, index);
    own->last_use = p->clock;
    place_entry(p, which, p->n_ordered[which]++, index);
}

static void take_out(weir_prefix *p, int32_t index)
{
    const int which = state_order_of(&p->entries[index]);
    const int32_t at = p->entries[index].place, last = --p->n_ordered[which];
    if (at != last) place_entry(p, which, at, heap_of(p, which)[last]);
}

void prefix_order_state(weir_prefix *p, int32_t index)
{
    put_after(p, index, nearest_before(p, index));
    add(p, index);
}

void prefix_leave_order(weir_prefix *p, int32_t index)
{
    take_out(p, index);
    take_from_before(p, index);
}

/* Those after it now have what was before it. */
void prefix_unorder_state(weir_prefix *p, int32_t index)
{
    const snapshot_entry *const own = &p->entries[index];
    const int32_t cost = cost_of(p, index);
    prefix_leave_order(p, index);
    for (int32_t s = own->first_after, next; s != NONE; s = next) {
        next = p->entries[s].next_after;
        put_after(p, s, own->before);
        p->entries[s].worth += cost;
        place_entry(p, state_order_of(&p->entries[s]), p->entries[s].place, s);
    }
}

void prefix_rank_state(weir_prefix *p, int32_t index, weir_state_rank rank)
{
    prefix_leave_order(p, index);
    p->entries[index].rank = rank;
    prefix_order_state(p, index);
}

/* ---- which goes ------------------------------------------------------------------------------ */
/* The first one of an order, from place `at` down, that is not pinned. Pinned are those of
 * sequences that are being written to files: few. */
static int32_t first_below(const weir_prefix *p, int which, int32_t at)
{
    if (at >= p->n_ordered[which]) return NONE;
    const int32_t index = heap_of(p, which)[at];
    ++*p->visits;
    if (p->entries[index].pins == 0) return index;
    const int32_t left = first_below(p, which, 2 * at + 1),
                  right = first_below(p, which, 2 * at + 2);
    if (left == NONE || right == NONE) return left != NONE ? left : right;
    return prefix_state_goes_before(p, left, right) ? left : right;
}

int32_t prefix_first_state(const weir_prefix *p, int which) { return first_below(p, which, 0); }

static int32_t first_end(const weir_prefix *p)
{
    const int32_t past = prefix_first_state(p, WEIR_STATE_PAST),
                  last = prefix_first_state(p, WEIR_STATE_LAST);
    const bool past_goes = p->n_ordered[WEIR_STATE_PAST] >= reserved_states(p) || last == NONE;
    return past_goes && past != NONE ? past : last != NONE ? last : past;
}

int32_t prefix_next_state(const weir_prefix *p, weir_state_rank rank)
{
    const int32_t spare = prefix_first_state(p, WEIR_STATE_SPARE);
    if (spare != NONE || rank == WEIR_STATE_SPARE) return spare;
    const int32_t n_ends = p->n_ordered[WEIR_STATE_PAST] + p->n_ordered[WEIR_STATE_LAST];
    const bool is_end = rank >= WEIR_STATE_PAST,
               ends_go = is_end ? n_ends >= most_ends(p) : n_ends > most_ends(p);
    const int32_t checkpoint = prefix_first_state(p, WEIR_STATE_CHECKPOINT),
                  end = ends_go || is_end ? first_end(p) : NONE;
    return end != NONE && (ends_go || checkpoint == NONE) ? end : checkpoint;
}

static int32_t count_before(
    const weir_prefix *p, int which, int32_t at, int32_t entry, int32_t most
)
{
    if (most <= 0 || at >= p->n_ordered[which]) return 0;
    const int32_t index = heap_of(p, which)[at];
    ++*p->visits;
    if (which == state_order_of(&p->entries[entry]) && !prefix_state_goes_before(p, index, entry))
        return 0;
    int32_t n = p->entries[index].pins == 0;
    n += count_before(p, which, 2 * at + 1, entry, most - n);
    return n + count_before(p, which, 2 * at + 2, entry, most - n);
}

int32_t prefix_ends_before(const weir_prefix *p, int32_t entry, int32_t most)
{
    static const int orders[] = { ORDER_COLD_STATES, WEIR_STATE_PAST, WEIR_STATE_LAST };
    int32_t n = 0;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        n += count_before(p, orders[i], 0, entry, most - n);
        if (orders[i] == state_order_of(&p->entries[entry])) break;
    }
    return n;
}
