/* engine/kv/policy/h2o.c - heavy hitters (Zhang et al. 2023, H2O): score_j += sum of P_qj over the
 * queries of a step and the heads of the set. Of all rows but sinks and recent ones those with the
 * highest scores stay (docs/policies.md). */
#include "engine/kv/policy/policy_ops.h"

enum { SUM, FIRST_POSITION };

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    (void)shape;
    out->needs = WEIR_POLICY_MASS;
    out->row_values = options->normalise ? 2 : 1; /* positions are whole numbers below 2^24 */
    out->is_per_layer = options->scope == WEIR_SCOPE_LAYER;
}

static int64_t n_members(const weir_policy *policy) /* query heads of a set */
{
    return policy->layout.is_per_layer ? policy->shape.n_heads : policy_group(policy);
}

static void observe(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *o
)
{
    const float decay = (float)policy->options.decay;
    for (int64_t set = 0; set < policy_n_sets(policy); set++) {
        const int64_t n = o->n_rows[set];
        float *const sums = policy_values(policy, state, o->layer, set, SUM);
        for (int64_t j = 0; j < n && decay < 1; j++) sums[j] *= decay;
        for (int64_t h = set * n_members(policy); h < (set + 1) * n_members(policy); h++) {
            const float *const mass = o->mass + h * o->stride;
            for (int64_t j = 0; j < n; j++) sums[j] += mass[j];
        }
        if (!policy->options.normalise) continue;
        float *const positions = policy_values(policy, state, o->layer, set, FIRST_POSITION);
        for (int64_t i = 0; i < o->n_queries; i++)
            positions[n - o->n_queries + i] = (float)(o->first_position + i);
    }
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    const weir_policy *const policy = call->policy;
    WEIR_ASSERT(policy_n_values(policy, call->state, at->layer, at->head) == at->n);
    const float *const sums = policy_values(policy, call->state, at->layer, at->head, SUM);
    for (int64_t j = 0; j < at->n; j++) scores[j] = sums[j];
    if (!policy->options.normalise) return WEIR_OK;
    const float *const positions =
        policy_values(policy, call->state, at->layer, at->head, FIRST_POSITION);
    const float members = (float)n_members(policy);
    for (int64_t j = 0; j < at->n; j++)
        scores[j] /= members * ((float)call->rows->next_position - positions[j]);
    return WEIR_OK;
}

static const policy_default defaults_of_h2o[] = {
    { "sinks", "4" },     { "recent", "64" },       { "every", "1" }, { "trigger", "forwards" },
    { "scope", "layer" }, { "normalise", "false" }, { "decay", "1" }, { NULL, NULL },
};
const weir_policy_ops policy_h2o = { .name = "h2o",
                                     .summary =
                                         "rows that got the most attention, sinks and recent ones",
                                     .matrix_options = "recent=16",
                                     .defaults = defaults_of_h2o,
                                     .layout = layout,
                                     .observe = observe,
                                     .score = score };

static const policy_default defaults_of_observed[] = {
    { "scope", "kv_head" }, { "normalise", "true" }, { "decay", "1" }, { NULL, NULL }
};
const weir_policy_ops policy_observed = {
    .name = "observed",
    .summary = "rows that got the most attention from each query that saw them",
    .defaults = defaults_of_observed,
    .layout = layout,
    .observe = observe,
    .score = score
};
