// What the prefix index must answer, by walks over the whole tree: slow and plain.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

extern "C" {
#include "engine/kv/prefix/tiers_internal.h"
}

namespace prefix_reference {

inline bool has_pages(const weir_prefix *p, int32_t i)
{
    return i != FOREST && p->nodes[i].parent != NONE && p->nodes[i].n_tokens > 0;
}
inline int32_t end_of(const weir_prefix *p) { return (int32_t)node_count(&p->limits); }
inline std::vector<int32_t> children(const weir_prefix *p, int32_t parent)
{
    std::vector<int32_t> found;
    for (int32_t i = FOREST + 1; i < end_of(p); i++)
        if (p->nodes[i].parent == parent) found.push_back(i);
    return found;
}
inline bool is_leaf(const weir_prefix *p, int32_t i)
{
    return has_pages(p, i) && children(p, i).empty();
}

// ---- counts
// Pages that only the tree holds, or that cached sequences hold besides.
inline weir_kv_pages idle_pages(const weir_prefix *p, int32_t i)
{
    weir_kv_pages n = {};
    for (int64_t h = 0; h < p->heads; h++)
        if (weir_kv_page_users(p->store, pages_of(p, i)[h]) == 1)
            weir_kv_pages_add(p->store, &n, pages_of(p, i)[h]);
    return n;
}
inline bool is_idle(const weir_prefix *p, int32_t i)
{
    const weir_kv_pages n = idle_pages(p, i);
    return p->heads == 0 || n.sinks + weir_kv_pages_others(n) > 0;
}
// Adds the pages of what can be dropped at and below a node; false if the node itself cannot be.
inline bool add_droppable(const weir_prefix *p, int32_t i, weir_kv_pages *n)
{
    bool is_free = !has_pages(p, i) || is_idle(p, i);
    for (const int32_t child : children(p, i)) is_free = add_droppable(p, child, n) && is_free;
    if (is_free && has_pages(p, i)) *n = weir_kv_pages_plus(*n, idle_pages(p, i));
    return is_free;
}
inline weir_kv_pages reclaimable(const weir_prefix *p)
{
    weir_kv_pages n = weir_kv_store_kept(p->store);
    (void)add_droppable(p, FOREST, &n);
    return n;
}
inline int64_t idle_cold(const weir_prefix *p)
{
    int64_t n = 0;
    for (int32_t i = FOREST + 1; i < end_of(p); i++)
        n += has_pages(p, i) && is_idle(p, i) && is_cold(p, i);
    return n;
}

// ---- who goes first
enum class Leaves { any, no_sinks, in_memory };
inline int32_t worst_leaf(const weir_prefix *p, Leaves which)
{
    int32_t worst = NONE;
    bool worst_is_dead = false;
    for (int32_t i = FOREST + 1; i < end_of(p); i++) {
        const node &n = p->nodes[i];
        if (!is_leaf(p, i) || !is_idle(p, i)) continue;
        if (which != Leaves::any && is_sink(p, i)) continue;
        if (which == Leaves::in_memory && is_cold(p, i)) continue;
        const bool is_dead = has_states(p) && n.snapshot == NONE;
        if (worst != NONE && (worst_is_dead > is_dead ||
                              (worst_is_dead == is_dead && p->nodes[worst].last_use <= n.last_use)))
            continue;
        worst = i;
        worst_is_dead = is_dead;
    }
    return worst;
}
inline std::vector<void *const *> lru_blocks(const weir_prefix *p, size_t most)
{
    std::vector<int32_t> found;
    for (int32_t i = FOREST + 1; i < end_of(p) && p->heads > 0; i++)
        if (has_pages(p, i) && is_idle(p, i) &&
            weir_kv_may_leave(p->store, (void *const *)pages_of(p, i), 1))
            found.push_back(i);
    std::sort(found.begin(), found.end(), [&](int32_t a, int32_t b) {
        return std::make_pair(p->nodes[a].last_use, a) < std::make_pair(p->nodes[b].last_use, b);
    });
    if (found.size() > most) found.resize(most);
    std::vector<void *const *> blocks;
    for (const int32_t i : found) blocks.push_back((void *const *)pages_of(p, i));
    return blocks;
}
// The leaf whose first page the sequence writes to next, if that can be dropped.
inline int32_t tail_of(const weir_prefix *p, const weir_kv_sequence &s)
{
    const int64_t page = s.n_computed / RUN;
    if (p->heads == 0 || page >= s.table.n_pages || s.table.is_pruned) return NONE;
    for (int32_t i = FOREST + 1; i < end_of(p); i++)
        if (is_leaf(p, i) && pages_of(p, i)[0] == s.table.pages[page])
            return weir_kv_page_refs(p->store, s.table.pages[page]) == 2 ? i : NONE;
    return NONE;
}
// The runs that only the tree and the sequence hold, from its end up.
inline std::vector<int32_t> shared_end_of(const weir_prefix *p, const weir_kv_sequence &s)
{
    std::vector<int32_t> found;
    for (int32_t i = FOREST + 1; i < end_of(p) && p->heads > 0; i++) {
        if (!is_leaf(p, i)) continue;
        for (int32_t at = i; has_pages(p, at); at = p->nodes[at].parent) {
            const std::vector<int32_t> below = children(p, at);
            void *const page = pages_of(p, at)[0];
            if (p->nodes[at].depth >= s.table.n_pages || page != s.table.pages[p->nodes[at].depth])
                break;
            if (weir_kv_page_refs(p->store, page) != 2 || below.size() > (at == i ? 0 : 1)) break;
            found.push_back(at);
        }
    }
    return found;
}
// The first attached entry of a rank, by worth and use, that is not pinned.
inline int32_t first_entry(const weir_prefix *p, weir_state_rank rank)
{
    int32_t found = NONE;
    for (int32_t i = 0; i < p->n_entries; i++) {
        const snapshot_entry &s = p->entries[i];
        if (s.state != ENTRY_ATTACHED || s.pins > 0 || s.rank != rank || s.block != NONE) continue;
        if (found == NONE ||
            std::make_pair(s.worth, s.last_use) <
                std::make_pair(p->entries[found].worth, p->entries[found].last_use))
            found = i;
    }
    return found;
}
inline int32_t count_entries(const weir_prefix *p, weir_state_rank least)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_entries; i++)
        n += p->entries[i].state == ENTRY_ATTACHED && p->entries[i].rank >= least &&
             p->entries[i].block == NONE;
    return n;
}
// The entry that is taken from its node for a state of this rank; NONE: a free one, or none.
inline int32_t next_entry(const weir_prefix *p, weir_state_rank rank)
{
    if (prefix_free_states(p) > 0) return NONE;
    const int32_t spare = first_entry(p, WEIR_STATE_SPARE),
                  checkpoint = first_entry(p, WEIR_STATE_CHECKPOINT),
                  past = first_entry(p, WEIR_STATE_PAST), last = first_entry(p, WEIR_STATE_LAST);
    const int32_t n_last = count_entries(p, WEIR_STATE_LAST),
                  n_past = count_entries(p, WEIR_STATE_PAST) - n_last;
    if (spare != NONE || rank == WEIR_STATE_SPARE) return spare;
    const bool is_end = rank >= WEIR_STATE_PAST;
    const bool ends_go = n_past + n_last + is_end > most_ends(p);
    int32_t end = n_past >= reserved_states(p) ? past : last;
    if (end == NONE) end = past != NONE ? past : last;
    if (ends_go && end != NONE) return end;
    return checkpoint == NONE && is_end ? end : checkpoint;
}
inline bool has_states_before(const weir_prefix *p, int32_t n_states, int32_t entry_index)
{
    int32_t n = most_ends(p) - count_entries(p, WEIR_STATE_PAST) + prefix_free_cold_states(p);
    const auto key = [p](int32_t i) {
        const snapshot_entry &s = p->entries[i];
        return std::make_tuple(s.block != NONE ? -1 : (int)s.rank, s.worth, s.last_use, i);
    };
    for (int32_t i = 0; i < p->n_entries; i++) {
        const snapshot_entry &s = p->entries[i];
        const bool counts = s.rank >= WEIR_STATE_PAST || s.block != NONE;
        n += s.state == ENTRY_ATTACHED && s.pins == 0 && counts && key(i) < key(entry_index);
    }
    return n >= std::min(n_states, p->limits.n_snapshots / 2);
}

// ---- what is saved before it goes
inline int32_t loss_of(const weir_prefix *p, int32_t leaf)
{
    int32_t n = 0;
    for (int32_t i = leaf; has_pages(p, i) && is_idle(p, i); i = p->nodes[i].parent) {
        if (i != leaf && children(p, i).size() > 1) break;
        n += p->nodes[i].n_tokens - p->nodes[i].n_tried;
        if (p->nodes[i].n_tried > 0) break;
    }
    return n;
}
inline int32_t next_victim(
    const weir_prefix *p, weir_kv_pages wanted, int32_t n_states, int32_t least
)
{
    int32_t found = NONE;
    for (int32_t i = FOREST + 1; i < end_of(p); i++)
        if (is_leaf(p, i) && loss_of(p, i) >= least &&
            (found == NONE || p->nodes[i].last_use < p->nodes[found].last_use))
            found = i;
    if (found == NONE) return NONE;
    weir_kv_pages before = weir_kv_store_free(p->store);
    const uint64_t use = p->nodes[found].last_use;
    for (int32_t i = FOREST + 1; i < end_of(p); i++)
        for (int64_t h = 0; has_pages(p, i) && p->nodes[i].last_use < use && h < p->heads; h++)
            if (is_idle(p, i)) weir_kv_pages_add(p->store, &before, pages_of(p, i)[h]);
    bool loses_states = false; // the end of one of its turns
    for (int32_t i = found; has_pages(p, i); i = p->nodes[i].parent)
        for (int32_t s = p->nodes[i].snapshot; s != NONE; s = p->entries[s].next)
            loses_states =
                loses_states || (p->entries[s].rank >= WEIR_STATE_PAST && p->entries[s].pins == 0 &&
                                 !has_states_before(p, n_states, s));
    return weir_kv_pages_fit(wanted, before) && !loses_states ? NONE : found;
}

// ---- what is found
struct Found {
    int32_t n_rows = 0, n_matched = 0;
    bool is_open = false; // of several nearest runs some are unreadable: it may end there or not
};
inline Found find(
    const weir_prefix *p, const int32_t *tokens, int32_t n_tokens, const char *salt, int32_t most
)
{
    Found found;
    int32_t at = NONE;
    for (const int32_t i : children(p, FOREST))
        if (strcmp((const char *)p->nodes[i].tokens, salt) == 0) at = i;
    for (int32_t same = RUN; at != NONE && same == RUN && found.n_matched < n_tokens;) {
        int32_t nearest = NONE, nearest_same = 0;
        const int32_t before = found.n_matched;
        const auto same_as = [&](int32_t i) {
            return common(
                p->nodes[i].tokens, tokens + before,
                std::min(p->nodes[i].n_tokens, n_tokens - before)
            );
        };
        for (const int32_t i : children(p, at))
            if (same_as(i) > nearest_same) nearest_same = same_as(nearest = i);
        for (const int32_t i : children(p, at))
            found.is_open = found.is_open || (nearest != NONE && same_as(i) == nearest_same &&
                                              is_unreadable(p, i) != is_unreadable(p, nearest));
        if (nearest == NONE || is_unreadable(p, nearest)) break;
        for (const int32_t i : children(p, at)) {
            const int32_t end = std::min(same_as(i), most - before);
            if (is_unreadable(p, i) || (p->is_paged && end < RUN)) continue;
            if (!has_states(p) && end > 0) found.n_rows = std::max(found.n_rows, before + end);
            for (int32_t s = p->nodes[i].snapshot; s != NONE; s = p->entries[s].next)
                if (p->entries[s].offset <= end && (!p->is_paged || p->entries[s].offset == RUN))
                    found.n_rows = std::max(found.n_rows, before + p->entries[s].offset);
        }
        at = nearest;
        same = nearest_same;
        found.n_matched += same;
    }
    return found;
}

// ---- the comparison
inline bool same(weir_kv_pages a, weir_kv_pages b)
{
    return weir_kv_pages_fit(a, b) && weir_kv_pages_fit(b, a);
}
inline int32_t first_of(const weir_prefix *p, std::initializer_list<order> orders)
{
    int32_t first = NONE;
    for (const order which : orders) {
        const int32_t i = prefix_first(p, which);
        if (i != NONE && (first == NONE || prefix_goes_before(p, i, first))) first = i;
    }
    return first;
}
// Counts, victims and blocks to demote are those of the walks.
inline void expect_same(weir_prefix *p)
{
    EXPECT_TRUE(same(weir_prefix_reclaimable(p), reclaimable(p)));
    EXPECT_EQ(weir_prefix_idle_cold(p), idle_cold(p));
    EXPECT_EQ(first_of(p, { ORDER_SINKS, ORDER_MEMORY, ORDER_COLD }), worst_leaf(p, Leaves::any));
    EXPECT_EQ(first_of(p, { ORDER_MEMORY, ORDER_COLD }), worst_leaf(p, Leaves::no_sinks));
    EXPECT_EQ(prefix_first(p, ORDER_MEMORY), worst_leaf(p, Leaves::in_memory));
    std::vector<void *const *> blocks(5);
    blocks.resize((size_t)weir_prefix_lru_blocks(p, blocks.data(), 5));
    EXPECT_EQ(blocks, lru_blocks(p, 5));
}

} // namespace prefix_reference
