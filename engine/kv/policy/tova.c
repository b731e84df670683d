/* engine/kv/policy/tova.c - rows that the last query attends to (Oren et al. 2024, TOVA): score_j =
 * mean over all heads of a layer of P_j of the last query. The last row stays; one set of rows per
 * layer. State: one f32 per row, rewritten in every step. */
#include <math.h>

#include "engine/kv/policy/policy_ops.h"

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    (void)options, (void)shape;
    out->needs = WEIR_POLICY_LAST;
    out->row_values = 1;
    out->is_per_layer = true;
    out->n_last = 1;
}

static void observe(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *o
)
{
    WEIR_ASSERT(o->last != NULL || o->n_queries == 1);
    const float *const last = o->last != NULL ? o->last : o->mass;
    const int64_t n = o->n_rows[0], n_heads = policy->shape.n_heads;
    float *const mean = policy_values(policy, state, o->layer, 0, 0);
    for (int64_t j = 0; j < n; j++) mean[j] = 0;
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t j = 0; j < n; j++) mean[j] += last[h * o->stride + j];
    for (int64_t j = 0; j < n; j++) mean[j] /= (float)n_heads;
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    WEIR_ASSERT(policy_n_values(call->policy, call->state, at->layer, at->head) == at->n);
    const float *const mean = policy_values(call->policy, call->state, at->layer, at->head, 0);
    for (int64_t j = 0; j < at->n - 1; j++) scores[j] = mean[j];
    scores[at->n - 1] = INFINITY;
    return WEIR_OK;
}

static const policy_default defaults[] = { { "every", "1" }, { NULL, NULL } };
const weir_policy_ops policy_tova = { .name = "tova",
                                      .summary = "rows that the last query attends to",
                                      .matrix_options = "",
                                      .defaults = defaults,
                                      .layout = layout,
                                      .observe = observe,
                                      .score = score };
