/* kernels/ref/expert_route.c - the choice of experts for each row, and their weights. */
#include <math.h>

#include "kernels/ref/row.h"

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

static double softmax(const weir_expert_route_args *args, const float *logits, int64_t e)
{
    double sum = 0.0;
    for (int64_t i = 0; i < args->n_experts; i++) sum += exp((double)logits[i] - (double)logits[e]);
    return 1.0 / sum;
}

/* What experts are chosen by, and what it orders like. NaN counts as lowest. */
static float key_of(const weir_expert_route_args *args, const float *logits, int64_t e)
{
    const double bias = args->bias ? (double)args->bias[e] : 0.0;
    float key = logits[e];
    if (args->scores == WEIR_EXPERTS_SIGMOID) key = (float)(sigmoid((double)logits[e]) + bias);
    if (args->scores == WEIR_EXPERTS_SOFTMAX && args->bias)
        key = (float)(softmax(args, logits, e) + bias);
    return isnan(key) ? -INFINITY : key;
}

static float group_score(const weir_expert_route_args *args, const float *logits, int64_t group)
{
    const int64_t size = args->n_experts / args->n_groups;
    float first = -INFINITY, second = -INFINITY;
    for (int64_t e = group * size; e < (group + 1) * size; e++) {
        const float key = key_of(args, logits, e);
        if (key > first) {
            second = first;
            first = key;
        } else if (key > second) {
            second = key;
        }
    }
    return args->scores == WEIR_EXPERTS_SIGMOID && size > 1 ? first + second : first;
}

/* True if fewer than n_groups_used groups are better than the expert's. */
static bool may_choose(const weir_expert_route_args *args, const float *logits, int64_t e)
{
    if (args->n_groups <= 1) return true;
    const int64_t own = e / (args->n_experts / args->n_groups);
    const float score = group_score(args, logits, own);
    int64_t n_better = 0;
    for (int64_t g = 0; g < args->n_groups; g++) {
        const float other = group_score(args, logits, g);
        n_better += other > score || (other == score && g < own);
    }
    return n_better < args->n_groups_used;
}

static bool is_chosen(const int32_t *chosen, int64_t n, int64_t e)
{
    for (int64_t j = 0; j < n; j++)
        if (chosen[j] == e) return true;
    return false;
}

static void choose(const weir_expert_route_args *args, const float *logits, int32_t *chosen)
{
    for (int64_t j = 0; j < args->n_chosen; j++) {
        int64_t best = -1;
        float highest = 0.0f;
        for (int64_t e = 0; e < args->n_experts; e++) {
            const float key = key_of(args, logits, e);
            if (is_chosen(chosen, j, e) || !may_choose(args, logits, e)) continue;
            if (best < 0 || key > highest) {
                best = e;
                highest = key;
            }
        }
        chosen[j] = (int32_t)best;
    }
}

static void weigh(
    const weir_expert_route_args *args, const float *logits, const int32_t *chosen, float *weights
)
{
    const bool is_sigmoid = args->scores == WEIR_EXPERTS_SIGMOID;
    const double highest = is_sigmoid ? 0.0 : (double)logits[chosen[0]];
    double all = 0.0, sum = 0.0;
    for (int64_t e = 0; e < args->n_experts; e++) all += exp((double)logits[e] - highest);
    for (int64_t j = 0; j < args->n_chosen; j++) {
        const double logit = (double)logits[chosen[j]];
        const double score = is_sigmoid ? sigmoid(logit) : exp(logit - highest) / all;
        weights[j] = (float)score;
        sum += score;
    }
    if (is_sigmoid) sum += 1e-20;
    for (int64_t j = 0; j < args->n_chosen; j++)
        weights[j] =
            (float)((double)weights[j] / (args->normalise ? sum : 1.0) * (double)args->scale);
}

static weir_status weir_k_ref_expert_route(const weir_kernel_context *context, const void *op_args)
{
    const weir_expert_route_args *const args = op_args;
    (void)context;
    const int64_t k = args->n_chosen, n_weights = k + (args->shared != WEIR_EXPERTS_NONE);
    for (int64_t t = 0; t < args->n_rows; t++) {
        const float *const logits = args->logits + t * args->n_experts;
        float *const weights = args->weights + t * n_weights;
        choose(args, logits, args->chosen + t * k);
        weigh(args, logits, args->chosen + t * k, weights);
        if (args->shared == WEIR_EXPERTS_PLAIN) weights[k] = 1.0f;
        if (args->shared == WEIR_EXPERTS_GATED)
            weights[k] = (float)sigmoid((double)args->shared_logits[t]);
    }
    return WEIR_OK;
}

WEIR_REF_ROW(expert_route, WEIR_OP_EXPERT_ROUTE)
