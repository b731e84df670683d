/* engine/kv/policy/triattention.c - rows that later queries would attend to, scored by keys and the
 * model's query statistics alone (TriAttention). Heads vote for sets of rows (docs/policies.md);
 * tri_scores.c scores a single query head. State: none. */
#include <inttypes.h>
#include <math.h>

#include "engine/kv/policy/tri_scores.h"

static size_t floats(int64_t n) { return policy_scratch_size((size_t)n, sizeof(float)); }

static void layout(
    policy_layout *out, const weir_policy_options *options, const weir_policy_shape *shape
)
{
    const int64_t group = shape->n_heads / shape->n_kv_heads;
    out->needs = WEIR_POLICY_KEYS | WEIR_POLICY_CALIBRATION;
    out->table = tri_table_size(shape);
    out->scratch =
        tri_raw_scratch(options, shape) + floats(group * shape->max_rows) + floats(shape->max_rows);
}

static weir_status check(
    const weir_policy_options *options, const weir_policy_shape *shape, weir_error *error
)
{
    if (shape->rotary_dim == 0)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "triattention scores keys by their rotation, this model's keys have none"
        );
    if (options->vote == WEIR_VOTE_PER_LAYER_HEAD || options->split == WEIR_SPLIT_UNIFORM)
        return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG,
        "triattention: with vote=per_head or union heads keep the same rows: split must be uniform"
    );
}

/* ---- votes ----------------------------------------------------------------------------------- */

/* u [at->n] of one (layer, KV head): the greatest z of its group, or their mean. z: the scores of
 * one query head, less their mean, by their deviation. Heads without statistics do not vote. */
static weir_status vote(policy_call *call, const policy_head *at, float *u)
{
    const weir_policy *const policy = call->policy;
    const int64_t group = policy_group(policy);
    const bool is_mean = policy->options.group == WEIR_AGGREGATE_MEAN;
    float *const raw = policy_scratch(call, floats(group * policy->shape.max_rows));
    int64_t n_voters = 0;
    WEIR_TRY(tri_raw(call, at, raw));
    for (int64_t j = 0; j < at->n; j++) u[j] = 0;
    for (int64_t m = 0; m < group; m++) {
        float *const z = raw + m * at->n;
        if (!tri_votes(policy, at->layer, at->head * group + m)) continue;
        tri_normalise(z, at);
        for (int64_t j = 0; j < at->n; j++)
            u[j] = n_voters == 0                 ? z[j]
                   : is_mean                     ? u[j] + z[j]
                   : z[j] > u[j] || z[j] != z[j] ? z[j]
                                                 : u[j];
        n_voters++;
    }
    for (int64_t j = 0; is_mean && n_voters > 0 && j < at->n; j++) u[j] /= (float)n_voters;
    return WEIR_OK;
}

static weir_status score(policy_call *call, const policy_head *at, float *scores)
{
    return vote(call, at, scores);
}

/* ---- sets that heads share ------------------------------------------------------------------- */

static weir_status check_counts(
    const policy_call *call, int64_t layer, int64_t head, int64_t other_layer, int64_t other_head
)
{
    const int64_t n_heads = call->policy->shape.n_kv_heads, *const n = call->rows->n_rows;
    if (n[layer * n_heads + head] == n[other_layer * n_heads + other_head]) return WEIR_OK;
    return weir_error_set(
        call->error, WEIR_EINVAL,
        "triattention keeps the same rows in several heads, but layer %" PRId64
        " has other counts than layer %" PRId64 "; use vote=per_layer_head",
        layer, other_layer
    );
}

static weir_status plan_per_head(policy_call *call, int64_t head)
{
    const int64_t n_layers = call->policy->shape.n_layers;
    call->scratch_used = 0;
    float *const sum = call->scores, *const u =
                                         policy_scratch(call, floats(call->policy->shape.max_rows));
    const size_t used = call->scratch_used;
    const int64_t n_over = call->plan->n_over;
    for (int64_t layer = 0; layer < n_layers; layer++) {
        const policy_head at = policy_head_at(call, layer, head);
        WEIR_TRY(check_counts(call, layer, head, 0, head));
        call->scratch_used = used;
        if (at.n > at.budget) WEIR_TRY(vote(call, &at, u));
        for (int64_t j = 0; j < at.n && at.n > at.budget; j++)
            sum[j] = (layer == 0 ? 0 : sum[j]) + u[j];
    }
    call->plan->n_over = n_over;
    for (int64_t layer = 0; layer < n_layers; layer++) {
        const policy_head at = policy_head_at(call, layer, head);
        if (at.n > at.budget)
            policy_keep(call, &at, sum);
        else
            policy_keep_all(call, &at);
    }
    return WEIR_OK;
}

/* top [n]: the maximum z of all voters so far. */
static weir_status gather_votes(
    policy_call *call, const policy_head *at, float *top, bool *is_first
)
{
    const weir_policy *const policy = call->policy;
    const int64_t group = policy_group(policy);
    float *const raw = policy_scratch(call, floats(group * policy->shape.max_rows));
    WEIR_TRY(tri_raw(call, at, raw));
    for (int64_t m = 0; m < group; m++) {
        float *const z = raw + m * at->n;
        if (!tri_votes(policy, at->layer, at->head * group + m)) continue;
        tri_normalise(z, at);
        for (int64_t j = 0; j < at->n; j++) top[j] = *is_first || z[j] > top[j] ? z[j] : top[j];
        *is_first = false;
    }
    return WEIR_OK;
}

/* The published code takes the union of every voter's best n rows and keeps its n largest. A row
 * among the n largest of all is also among the best n of the voter that rates it highest, ties
 * included, so the union need not be formed. */
static weir_status plan_union(policy_call *call)
{
    const weir_policy_shape *const shape = &call->policy->shape;
    float *const top = call->scores;
    bool is_first = true;
    for (int64_t j = 0; j < call->rows->n_rows[0]; j++) top[j] = 0;
    for (int64_t i = 0; i < shape->n_layers * shape->n_kv_heads; i++) {
        const policy_head at = policy_head_at(call, i / shape->n_kv_heads, i % shape->n_kv_heads);
        WEIR_TRY(check_counts(call, at.layer, at.head, 0, 0));
        call->scratch_used = 0;
        if (at.n > at.budget) WEIR_TRY(gather_votes(call, &at, top, &is_first));
    }
    call->plan->n_over = 0; /* counted again */
    for (int64_t i = 0; i < shape->n_layers * shape->n_kv_heads; i++) {
        const policy_head at = policy_head_at(call, i / shape->n_kv_heads, i % shape->n_kv_heads);
        if (at.n > at.budget)
            policy_keep(call, &at, top);
        else
            policy_keep_all(call, &at);
    }
    return WEIR_OK;
}

static weir_status plan_each(policy_call *call)
{
    for (int64_t layer = 0; layer < call->policy->shape.n_layers; layer++)
        WEIR_TRY(policy_plan_layer(call, layer));
    return WEIR_OK;
}

static weir_status plan(policy_call *call)
{
    switch ((weir_policy_vote)call->policy->options.vote) {
    case WEIR_VOTE_PER_LAYER_HEAD: return plan_each(call);
    case WEIR_VOTE_UNION: return plan_union(call);
    case WEIR_VOTE_PER_HEAD: break;
    }
    for (int64_t head = 0; head < call->policy->shape.n_kv_heads; head++)
        WEIR_TRY(plan_per_head(call, head));
    return WEIR_OK;
}

static const policy_default defaults[] = {
    { "sinks", "4" },      { "vote", "per_head" }, { "aggregate", "mean" },
    { "group", "max" },    { "trig", "true" },     { "concentration", "true" },
    { "calibration", "" }, { "foreign", "false" }, { NULL, NULL },
};
const weir_policy_ops policy_triattention = {
    .name = "triattention",
    .summary = "rows that later queries would attend to, by the model's query statistics",
    .matrix_options = "",
    .defaults = defaults,
    .layout = layout,
    .check = check,
    .prepare = tri_prepare,
    .score = score,
    .plan = plan
};
