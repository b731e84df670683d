/* engine/model/blocks/experts_internal.h - shared by the files of the block `experts`. */
#pragma once
#include "engine/model/blocks/layer_ops.h"

enum { EXPERTS_SWIGLU, EXPERTS_RELU2, EXPERTS_GEGLU }; /* activation */

typedef struct experts_options {
    int32_t scores, shared; /* weir_expert_scores, weir_expert_shared */
    int32_t activation;
    bool normalise;
    double limit; /* of clamped SwiGLU; 0: SwiGLU */
    /* The router reads the residual stream, after a norm times 1 / sqrt(d_model). */
    bool router_norm;
    /* Chosen experts read the residual stream after a norm of their own; their sum and the output
     * of the shared ones have a norm each (Gemma 4: two feed-forward blocks in parallel). */
    bool own_norms;
} experts_options;

typedef struct experts_weights {
    const weir_weight *router; /* [E, D] */
    const float *router_bias, *selection_bias; /* [E] */
    const float *router_norm; /* [D] */
    const float *scales; /* NULL or [E]: factors of the weights of chosen experts */
    const float *norm, *norm_after, *shared_norm_after; /* [D] */
    const weir_weight *gate, *up, *down; /* [E] of [I, D] [I, D] [D, I] */
    const float *gate_bias, *up_bias, *down_bias; /* NULL or [E, I] [E, I] [E, D] */
    const weir_weight *shared_gate; /* [1, D] */
    const weir_weight *all_gate, *all_up, *all_down; /* shared experts: [S, D] [S, D] [D, S] */
} experts_weights;

/* A pair is a row with one of its experts; the pairs of an expert are adjacent. */
typedef struct experts_memory {
    int64_t n_pairs, n_terms; /* terms: of a row's sum */
    float *logits, *shared_logits; /* [n, E] [n] */
    float *weights; /* [n, n_terms] */
    int32_t *chosen; /* [n, k] experts */
    int32_t *rows; /* [n_pairs] the row of a pair */
    int32_t *terms; /* [n, n_terms] rows of `y` */
    int32_t *starts; /* [E] the first pair of an expert, or their number */
    int32_t *order; /* [min(E, n_pairs)] experts that have pairs, in the order of their groups */
    weir_matmul_group *groups; /* [min(E, n_pairs)] */
    float *in; /* [n, D] the residual stream after a norm, of blocks with such */
    float *x; /* [n_pairs, D] rows of pairs */
    float *y; /* [n_pairs + n, D] outputs of experts, then of shared ones; x is in the first part */
    float *gate, *up; /* [n_pairs, I], or [n, S]; without gates `gate` has up's product */
    int64_t n_elements;
} experts_memory;

/* The arguments of a forward pass. */
typedef struct experts_call {
    const weir_shape *shape;
    const experts_options *o;
    const experts_weights *w;
    const weir_step *step;
    const experts_memory *m;
    const float *in; /* [n, D] what the chosen experts read */
} experts_call;

static inline bool experts_have_gate(const experts_options *o)
{
    return o->activation != EXPERTS_RELU2;
}

/* experts.c: the activation of rows in m->gate and m->up. */
WEIR_MUST_CHECK weir_status experts_gate(const experts_call *c, int64_t n_rows, int64_t width);
/* The same: dst [n, dim] = norm(src), by the weight. */
WEIR_MUST_CHECK weir_status experts_norm(
    const weir_step *step, int64_t dim, float *dst, float *src, const float *weight, float eps
);
/* experts_ahead.c: reads ahead what rows of the step will probably choose in the next layer with
 * experts. Uses what is free between the choice of experts and the copy of their rows. */
WEIR_MUST_CHECK weir_status experts_read_ahead(const experts_call *c);
/* experts_groups.c: multiplies the rows of each chosen expert by its matrices; the outputs are in
 * m->y, and m->terms says which are a row's. While planning it asks the kernels for their
 * scratch. */
WEIR_MUST_CHECK weir_status experts_run(const experts_call *c);
