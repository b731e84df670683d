/* kernels/abi/ops/experts.h - mixtures of experts: the choice of experts for each row, and the sum
 * of what they computed. Their products are matmul's groups. */
#pragma once
#include "kernels/abi/marshal.h"

enum { WEIR_EXPERTS_MOST_CHOSEN = 64 };

typedef enum weir_expert_scores {
    WEIR_EXPERTS_SOFTMAX, /* s = softmax(logits) over all experts */
    WEIR_EXPERTS_SIGMOID, /* s = sigmoid(logits) */
} weir_expert_scores;
typedef enum weir_expert_shared {
    WEIR_EXPERTS_NONE,
    WEIR_EXPERTS_PLAIN, /* weight 1 */
    WEIR_EXPERTS_GATED, /* weight sigmoid(shared_logits[t]) */
} weir_expert_shared;

/* chosen[t,:] = the n_chosen experts with the highest s + bias, highest first, of equal ones the
 * lower index first; NaN counts as lowest. With n_groups > 1 the experts are in as many groups of
 * equal size, one after another, and only those of the n_groups_used best groups are chosen: groups
 * are compared by their highest s + bias (softmax), or by the sum of their two highest ones
 * (sigmoid).
 * weights[t,j] = s of chosen[t,j]; if `normalise` divided by their sum (+ 1e-20 for sigmoid); times
 * `scale`. With shared experts weights[t,n_chosen] is their weight.
 * shapes : logits [T, n_experts]; bias NULL or [n_experts]; shared_logits [T];
 *          chosen [T, n_chosen]; weights [T, n_chosen + (shared != NONE)]
 * source : softmax Shazeer et al. 2017; groups DeepSeek-V2, section 2.1.2; sigmoid with bias
 *          DeepSeek-V3, section 2.1.2; softmax with bias ERNIE 4.5 */
typedef struct weir_expert_route_args {
    const float *logits, *bias, *shared_logits;
    int32_t *chosen;
    float *weights;
    int64_t n_rows, n_experts, n_chosen, n_groups, n_groups_used;
    weir_expert_scores scores;
    weir_expert_shared shared;
    bool normalise;
    float scale;
} weir_expert_route_args;

static inline bool weir_expert_route_is_valid(const weir_expert_route_args *args)
{
    if (args->n_groups > 1 &&
        (args->n_experts % args->n_groups != 0 || args->n_groups_used < 1 ||
         args->n_groups_used > args->n_groups ||
         args->n_experts / args->n_groups * args->n_groups_used < args->n_chosen))
        return false;
    return args->n_chosen >= 1 && args->n_chosen <= args->n_experts &&
           args->n_chosen <= WEIR_EXPERTS_MOST_CHOSEN &&
           (args->shared == WEIR_EXPERTS_GATED) == (args->shared_logits != NULL);
}
static inline void weir_expert_route_marshal(weir_marshaller *m, weir_expert_route_args *args)
{
    (void)args;
    weir_marshal_refuse(m);
}

/* dst[t,:] = sum over j of weights[t,j] * src[rows[t,j],:], in ascending order of j.
 * shapes : dst [T, dim]; src [*, dim]; rows, weights [T, n_terms] */
typedef struct weir_expert_sum_args {
    float *dst;
    const float *src, *weights;
    const int32_t *rows;
    int64_t n_rows, n_terms, dim;
} weir_expert_sum_args;

static inline bool weir_expert_sum_is_valid(const weir_expert_sum_args *args)
{
    return args->n_terms >= 1 && args->dst != args->src;
}
static inline void weir_expert_sum_marshal(weir_marshaller *m, weir_expert_sum_args *args)
{
    (void)args;
    weir_marshal_refuse(m);
}
