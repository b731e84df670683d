/* kernels/omp/attention_plan.h - divides a call of attention into units, by positions and widths
 * alone, so that the host, the scratch and every team agree. */
#pragma once
#include "kernels/omp/attention_tile.h"

/* What all units of a call share. */
typedef struct attention_call {
    /* partials: NULL: one call does everything; lse: NULL: not requested. */
    float *out, *split_partials, *partials, *lse;
    const float *q, *sink_logits; /* sink_logits: NULL: none */
    const weir_kv_segment *segments;
    int64_t n_segments, n_heads, n_kv_heads, group, key_dim, value_dim, q_stride, q_head_stride,
        out_stride;
    int32_t window, first_split, end_split;
    float scale, softcap; /* times log2(e); softcap: 0: none */
    /* The first n_sinks pages have the last two. */
    weir_kv_format k_format, v_format, k_sinks, v_sinks;
    int32_t n_sinks;
    bool is_last; /* writes `out` */
    bool aliases; /* values are the beginnings of keys; V's formats are K's */
} attention_call;

#pragma omp declare target

typedef struct segment_plan {
    int32_t first_split, n_splits; /* of this call */
    /* KV heads; query rows of each; blocks of at most unit_rows; units of all KV heads. */
    int64_t n_heads, n_rows, n_blocks, n_units;
    /* Blocks of the first first_tokens tokens, then of each page_tokens. */
    int64_t first_tokens, page_tokens, first_blocks, page_blocks;
    bool partial; /* one unit per split, merged by the second region                    */
} segment_plan;

WEIR_INLINE weir_kv_pair pair_of(const attention_call *call, int32_t page)
{
    if (READS_CODED && page < call->n_sinks) return (weir_kv_pair){ call->k_sinks, call->v_sinks };
    return (weir_kv_pair){ call->k_format, call->v_format };
}

/* GPUs reject them: more code in one kernel would spill there. */
WEIR_INLINE bool has_aliases(const attention_call *call) { return READS_CODED && call->aliases; }

WEIR_INLINE bool cut_at_pages(const attention_call *call)
{
    const weir_kv_pair first = pair_of(call, 0);
    return READS_CODED &&
           (weir_kv_seals_pages(call->k_format) || weir_kv_seals_pages(call->v_format) ||
            weir_kv_seals_pages(first.k) || weir_kv_seals_pages(first.v));
}

/* True if this side is multiplied and summed rotated. */
WEIR_INLINE bool is_rotated(const attention_call *call, weir_kv_side side)
{
    const weir_kv_pair first = pair_of(call, 0);
    const weir_kv_format at_first = side == WEIR_KV_K ? first.k : first.v,
                         later = side == WEIR_KV_K ? call->k_format : call->v_format;
    return any_rotated(at_first, later);
}

WEIR_INLINE segment_plan
plan_segment(const attention_call *call, const weir_kv_segment *segment, int32_t unit_rows)
{
    segment_plan plan = { 0 };
    if (segment->n_rows <= 0) return plan;
    const int32_t first =
        segment->n_past >= call->window ? (segment->n_past - call->window + 1) / SPLIT : 0;
    const int32_t end = (segment->n_past + segment->n_rows - 1) / SPLIT + 1;
    plan.first_split = first > call->first_split ? first : call->first_split;
    plan.n_splits = (end < call->end_split ? end : call->end_split) - plan.first_split;
    if (plan.n_splits < 0) plan.n_splits = 0;
    plan.n_heads = weir_kv_segment_heads(segment, call->n_kv_heads);
    plan.n_rows = segment->n_rows * call->group;
    plan.page_tokens = cut_at_pages(call) ? WEIR_PAGE_TOKENS : INT32_MAX;
    plan.first_tokens =
        plan.page_tokens - (cut_at_pages(call) ? segment->n_past % WEIR_PAGE_TOKENS : 0);
    if (plan.first_tokens > segment->n_rows) plan.first_tokens = segment->n_rows;
    plan.first_blocks = (plan.first_tokens * call->group + unit_rows - 1) / unit_rows;
    plan.page_blocks = (plan.page_tokens * call->group + unit_rows - 1) / unit_rows;
    const int64_t rest = segment->n_rows - plan.first_tokens;
    plan.n_blocks = plan.first_blocks + rest / plan.page_tokens * plan.page_blocks +
                    (rest % plan.page_tokens * call->group + unit_rows - 1) / unit_rows;
    plan.partial = plan.n_splits > 1 && plan.n_rows <= SPLIT_ROWS;
    plan.n_units = plan.n_blocks * plan.n_heads * (plan.partial ? plan.n_splits : 1);
    return plan;
}
#pragma omp end declare target
