/* engine/kv/prefix/check.c - checks the tree's invariants, for tests. */
#include "engine/kv/prefix/pruned_cache_internal.h"

/* A node is marked if a sequence uses it, and is listed if no child is marked. */
static bool marks_are_sound(const weir_prefix *p, int32_t index)
{
    const node *const n = &p->nodes[index];
    int32_t n_used = 0;
    for (int32_t child = n->child; child != NONE; child = p->nodes[child].next)
        n_used += p->nodes[child].is_used;
    if (n_used != n->n_used || (n->tip != NONE) != (n->is_used && n_used == 0) ||
        (n->tip != NONE && p->tips[n->tip] != index))
        return false;
    if (n->depth != (index == FOREST ? -2 : p->nodes[n->parent].depth + 1)) return false;
    if (n->n_tokens == 0) return !n->is_used;
    return n->is_used || is_idle(p, index);
}

static bool node_is_sound(const weir_prefix *p, int32_t index, int64_t *n_slots)
{
    const node *const n = &p->nodes[index];
    if (!marks_are_sound(p, index)) return false;
    if (n->has_lost_file && n->n_saved > 0) return false;
    if (n->n_saved < 0 || n->n_saved > n->n_tried || n->n_tried > n->n_tokens) return false;
    if (n->n_tokens > 0 && n->n_tokens < RUN && (n->child != NONE || p->is_paged)) return false;
    for (int64_t h = 0; n->n_tokens > 0 && h < p->heads; h++)
        if (weir_kv_page_refs(p->store, pages_of(p, index)[h]) < 1) return false;
    for (int32_t s = n->snapshot; s != NONE; s = p->slots[s].next, (*n_slots)++)
        if (p->slots[s].state != SLOT_KEPT || p->slots[s].node != index || p->slots[s].offset < 1 ||
            p->slots[s].offset > n->n_tokens)
            return false;
    for (int32_t child = n->child; child != NONE; child = p->nodes[child].next)
        if (p->nodes[child].parent != index || !node_is_sound(p, child, n_slots)) return false;
    return true;
}

bool weir_prefix_is_sound(const weir_prefix *prefix, weir_error *error)
{
    int64_t n_kept = 0, n_nodes = 0, n_tokens = 0, n_slots = 0, n_used = 0, n_sinks = 0,
            n_used_sinks = 0;
    for (int32_t i = 0; i < prefix->limits.n_snapshots; i++)
        n_slots += prefix->slots[i].state == SLOT_KEPT;
    for (int32_t i = FOREST + 1; i < (int32_t)node_count(&prefix->limits); i++) {
        const node *const n = &prefix->nodes[i];
        n_nodes += n->parent != NONE && n->n_tokens > 0;
        n_tokens += n->n_tokens;
        n_used += n->is_used;
        n_sinks += n->parent != NONE && n->n_tokens > 0 && is_sink(prefix, i);
        n_used_sinks += n->is_used && is_sink(prefix, i);
    }
    bool names_are_sound = true;
    if (!pruned_is_sound(prefix))
        return weir_error_set(error, WEIR_EINVAL, "the list of pruned sequences is inconsistent") ==
               WEIR_OK;
    for (const name *n = prefix->names; n < prefix->names + WEIR_PREFIX_NAMES; n++)
        if (n->text[0] != '\0' && (prefix->nodes[n->node].parent == NONE || n->offset < 1 ||
                                   n->offset > prefix->nodes[n->node].n_tokens))
            names_are_sound = false;
    if (!names_are_sound)
        (void)weir_error_set(error, WEIR_EINVAL, "a name of the prefix tree refers to no node");
    else if (!node_is_sound(prefix, FOREST, &n_kept))
        (void)weir_error_set(error, WEIR_EINVAL, "a node of the prefix tree is inconsistent");
    else if (n_kept != n_slots || n_kept != prefix->stats.n_snapshots)
        (void)weir_error_set(error, WEIR_EINVAL, "states of the prefix tree are lost");
    else if (n_nodes != prefix->stats.n_nodes || n_tokens != prefix->stats.n_tokens ||
             n_used != prefix->n_used || n_sinks != prefix->n_sinks ||
             n_used_sinks != prefix->n_used_sinks)
        (void)weir_error_set(error, WEIR_EINVAL, "nodes of the prefix tree are lost");
    else
        return true;
    return false;
}
