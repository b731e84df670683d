/* kernels/omp/expert_route.c - the choice of experts for each row, and their weights. One team per
 * row: n_chosen passes over n_experts keys. A pass takes the first key below the one before it in
 * the order (key descending, index ascending), so nothing is marked. */
#include <math.h>

#include "kernels/omp/lanes.h"

#pragma omp declare target
/* NaN counts as lowest. */
WEIR_INLINE float ordered(float key) { return key == key ? key : -INFINITY; }

/* The next expert after (highest, last) in the order; last < 0: the first of all. */
WEIR_INLINE int32_t next_expert(const float *keys, int64_t n_experts, float highest, int32_t last)
{
    int32_t best = -1;
    float best_key = -INFINITY;
    for (int64_t e = 0; e < n_experts; e++) {
        const float key = ordered(keys[e]);
        const bool is_after = last < 0 || key < highest || (key == highest && e > last);
        if (!is_after || (best >= 0 && key <= best_key)) continue;
        best = (int32_t)e;
        best_key = key;
    }
    return best;
}

/* Sets the keys of experts whose group is not used to the lowest. scores [n_groups]: scratch. */
WEIR_INLINE void drop_groups(
    float *keys, float *scores, int64_t n_experts, int64_t n_groups, int64_t n_used, bool by_two
)
{
    const int64_t size = n_experts / n_groups;
    for (int64_t g = 0; g < n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int64_t e = g * size; e < (g + 1) * size; e++) {
            const float key = ordered(keys[e]);
            second = key > first ? first : key > second ? key : second;
            first = key > first ? key : first;
        }
        scores[g] = by_two && size > 1 ? first + second : first;
    }
    float score = 0.0f;
    int32_t last = -1;
    for (int64_t i = 0; i < n_groups; i++) {
        last = next_expert(scores, n_groups, score, last);
        score = ordered(scores[last]);
        for (int64_t e = last * size; i >= n_used && e < (last + 1) * size; e++)
            keys[e] = -INFINITY;
    }
}

WEIR_INLINE float softmax_factor(const float *logits, int64_t n_experts, float highest)
{
    float sum = 0.0f;
    LANES_SUM(sum)
    for (int64_t e = 0; e < n_experts; e++) sum += lane_exp(logits[e] - highest);
    return 1.0f / sum;
}

WEIR_INLINE float highest_of(const float *logits, int64_t n_experts)
{
    float highest = -INFINITY;
    for (int64_t e = 0; e < n_experts; e++)
        if (logits[e] > highest) highest = logits[e];
    return highest;
}

/* What experts are chosen by; without a bias logits are ordered as their softmax is. */
WEIR_INLINE void keys_of(
    float *keys, const float *logits, const float *bias, int64_t n_experts, bool is_sigmoid
)
{
    const bool is_score = !is_sigmoid && bias;
    const float highest = is_score ? highest_of(logits, n_experts) : 0.0f,
                factor = is_score ? softmax_factor(logits, n_experts, highest) : 0.0f;
    LANES
    for (int64_t e = 0; e < n_experts; e++) {
        if (is_sigmoid)
            keys[e] = lane_sigmoid(logits[e]) + (bias ? bias[e] : 0.0f);
        else
            keys[e] = is_score ? lane_exp(logits[e] - highest) * factor + bias[e] : logits[e];
    }
}

WEIR_INLINE void weigh(
    const float *logits, const int32_t *chosen, float *weights, int64_t n_chosen, float factor,
    float floor, bool normalise, float scale, bool is_sigmoid, float highest
)
{
    float sum = floor;
    for (int64_t j = 0; j < n_chosen; j++) {
        const float logit = logits[chosen[j]];
        weights[j] = is_sigmoid ? lane_sigmoid(logit) : lane_exp(logit - highest) * factor;
        sum += weights[j];
    }
    const float by = normalise ? scale / sum : scale;
    for (int64_t j = 0; j < n_chosen; j++) weights[j] *= by;
}
#pragma omp end declare target

static size_t scratch(const void *op_args)
{
    const weir_expert_route_args *const args = op_args;
    return (size_t)(args->n_rows * (args->n_experts + args->n_groups)) * sizeof(float);
}

static weir_status WEIR_K(expert_route)(const weir_kernel_context *context, const void *op_args)
{
    const weir_expert_route_args *const args = op_args;
    const float *const logits = args->logits, *const bias = args->bias,
                       *const shared_logits = args->shared_logits;
    float *const weights = args->weights, *const all_keys = context->scratch; /* and scores */
    int32_t *const chosen = args->chosen;
    const int64_t n_rows = args->n_rows, n_experts = args->n_experts, k = args->n_chosen,
                  n_groups = args->n_groups, n_used = args->n_groups_used;
    const weir_expert_shared shared = args->shared;
    const int64_t n_weights = k + (shared != WEIR_EXPERTS_NONE);
    const bool is_sigmoid = args->scores == WEIR_EXPERTS_SIGMOID, normalise = args->normalise;
    const float scale = args->scale;
    if (n_rows <= 0) return WEIR_OK;
    if (context->scratch_bytes < scratch(args)) return WEIR_EINVAL;

    TEAMS(n_rows, logits, bias, shared_logits, weights, chosen, all_keys)
    {
        TEAM_LANES
        for (int64_t t = lane_first_unit(); t < n_rows; t += lane_unit_step()) {
            if (lane_thread() != 0) continue;
            const float *const row = logits + t * n_experts;
            float *const keys = all_keys + t * (n_experts + n_groups), *const to =
                                                                           weights + t * n_weights;
            int32_t *const experts = chosen + t * k;
            keys_of(keys, row, bias, n_experts, is_sigmoid);
            if (n_groups > 1)
                drop_groups(keys, keys + n_experts, n_experts, n_groups, n_used, is_sigmoid);
            for (int64_t j = 0; j < k; j++)
                experts[j] =
                    j == 0 ? next_expert(keys, n_experts, 0.0f, -1)
                           : next_expert(
                                 keys, n_experts, ordered(keys[experts[j - 1]]), experts[j - 1]
                             );
            const float highest = bias ? highest_of(row, n_experts) : row[experts[0]];
            const bool needs_all = !is_sigmoid && !normalise;
            weigh(
                row, experts, to, k, needs_all ? softmax_factor(row, n_experts, highest) : 1.0f,
                is_sigmoid ? 1e-20f : 0.0f, normalise, scale, is_sigmoid, highest
            );
            if (shared == WEIR_EXPERTS_PLAIN) to[k] = 1.0f;
            if (shared == WEIR_EXPERTS_GATED) to[k] = lane_sigmoid(shared_logits[t]);
        }
    }
    return WEIR_OK;
}

/* Tolerance: exponentials are accurate to 2e-7; up to 64 of them are summed for `normalise`. */
extern const weir_kernel WEIR_K_ROW(expert_route);
const weir_kernel WEIR_K_ROW(expert_route) = {
    .op = WEIR_OP_EXPERT_ROUTE,
    .backend = WEIR_BACKEND_OMP,
    .name = WEIR_K_NAME("expert_route"),
    .atol = 1e-30,
    .rtol = 1e-5,
    .scratch = scratch,
    .run = WEIR_K(expert_route),
};
