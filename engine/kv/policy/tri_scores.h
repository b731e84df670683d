/* engine/kv/policy/tri_scores.h - TriAttention's scores of single query heads. */
#pragma once
#include "engine/kv/policy/policy_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRI_OFFSETS = 17 }; /* distances ahead: 1, 2, 4 .. 65536 */

/* The factors of a rotated key for query head `query_head` of `layer` at position t: weight
 * [key_dim], in the layout of keys, for the part that depends on distance; length [rotary_dim / 2]
 * for the lengths of the key's bands. offset: index of TRI_OFFSETS, or -1 for their mean. */
void tri_weights(
    const weir_policy *policy, int64_t layer, int64_t query_head, int64_t t, int offset,
    float *weight, float *length
);
/* raw [group, at->n]: scores of each query head of the group. */
WEIR_MUST_CHECK weir_status tri_raw(policy_call *call, const policy_head *at, float *raw);
size_t tri_raw_scratch(const weir_policy_options *options, const weir_policy_shape *shape);
/* Replaces scores by z-scores over the candidates; population deviation, at least 1e-6. */
void tri_normalise(float *scores, const policy_head *at);
/* True if the statistics have queries of this head. */
bool tri_votes(const weir_policy *policy, int64_t layer, int64_t query_head);
int64_t tri_table_size(const weir_policy_shape *shape);
void tri_prepare(const weir_policy *policy, double *table);

#ifdef __cplusplus
}
#endif
