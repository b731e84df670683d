/* engine/kv/policy/scissorhands.c - rows that were important stay important (Liu et al. 2023,
 * Scissorhands): score_j = -(how often row j got less than the mean attention 1 / n), over the last
 * steps and the heads of the set (docs/policies.md). */
#include "engine/kv/policy/policy_ops.h"

/* History is kept in two halves: between history / 2 and history steps count, for 8 bytes per row
 * and set. */
enum { EARLIER, NOW };

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    (void)shape;
    out->needs = WEIR_POLICY_BELOW;
    out->row_values = 2;
    out->is_per_layer = options->scope == WEIR_SCOPE_LAYER;
}

static void begin_half(float *earlier, float *now, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        earlier[j] = now[j];
        now[j] = 0;
    }
}

static void add_head(float *now, const weir_policy_observation *o, int64_t query_head, int64_t n)
{
    const bool is_probability = o->below == NULL; /* of the only query */
    const float *const row = (is_probability ? o->mass : o->below) + query_head * o->stride;
    const float mean = 1.0f / (float)n;
    for (int64_t j = 0; j < n; j++)
        now[j] += is_probability ? (row[j] < mean ? 1.0f : 0.0f) : row[j];
}

static void observe(
    const weir_policy *policy, weir_policy_state *state, const weir_policy_observation *o
)
{
    const int64_t half = policy->options.history / 2,
                  n_members = policy->shape.n_heads / policy_n_sets(policy);
    WEIR_ASSERT(o->below != NULL || o->n_queries == 1);
    for (int64_t set = 0; set < policy_n_sets(policy); set++) {
        const int64_t n = o->n_rows[set];
        float *const now = policy_values(policy, state, o->layer, set, NOW);
        if (state->n_forwards % half == 0)
            begin_half(policy_values(policy, state, o->layer, set, EARLIER), now, n);
        for (int64_t h = set * n_members; h < (set + 1) * n_members; h++) add_head(now, o, h, n);
    }
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    WEIR_ASSERT(policy_n_values(call->policy, call->state, at->layer, at->head) == at->n);
    const float *const earlier =
        policy_values(call->policy, call->state, at->layer, at->head, EARLIER);
    const float *const now = policy_values(call->policy, call->state, at->layer, at->head, NOW);
    for (int64_t j = 0; j < at->n; j++) scores[j] = -(earlier[j] + now[j]);
    return WEIR_OK;
}

static const policy_default defaults[] = { { "recent", "10" },
                                           { "every", "512" },
                                           { "history", "400" },
                                           { "scope", "kv_head" },
                                           { NULL, NULL } };
const weir_policy_ops policy_scissorhands = {
    .name = "scissorhands",
    .summary = "rows that rarely got less than the mean attention",
    .matrix_options = "",
    .defaults = defaults,
    .layout = layout,
    .observe = observe,
    .score = score
};
