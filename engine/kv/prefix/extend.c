/* engine/kv/prefix/extend.c - matches of sequences that run: others may have computed more of their
 * tokens meanwhile. */
#include "engine/kv/prefix/prefix_internal.h"

weir_prefix_hit weir_prefix_extend(
    weir_prefix *prefix, weir_kv_sequence *sequence, const char *salt, int32_t most, int32_t least
)
{
    place best;
    WEIR_ASSERT(!sequence->table.is_pruned);
    const weir_prefix_hit hit = prefix_find(prefix, sequence, salt, most, &best);
    if (best.node == NONE || best.at < sequence->n_computed + least)
        return (weir_prefix_hit){ sequence->n_computed, hit.n_matched, hit.reason };
    prefix->clock++;
    weir_kv_sequence_reset(sequence);
    prefix_give(prefix, sequence, &best);
    return hit;
}

bool weir_prefix_can_match(const weir_prefix *prefix)
{
    return !has_states(prefix) || prefix->limits.n_snapshots > 0;
}

int32_t weir_prefix_shared_rows(
    const weir_prefix *prefix, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    place best;
    const weir_kv_sequence text = { .tokens = (int32_t *)tokens,
                                    .n_tokens = n_tokens }; /* The sequence is only read. */
    (void)prefix_find(prefix, &text, salt, n_tokens, &best);
    if (prefix->heads == 0 || best.node == NONE) return 0;
    /* The sequences that hold a run hold all above it. */
    int32_t i = best.node, rows = best.at / RUN * RUN;
    for (; prefix->nodes[i].n_tokens > 0 && is_idle(prefix, i); i = prefix->nodes[i].parent)
        rows = prefix->nodes[i].depth * RUN;
    return rows;
}
