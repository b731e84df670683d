/* engine/model/blocks/experts.c - a mixture of experts (Shazeer et al. 2017): a router chooses
 * n_experts_used of n_experts for each row, and their outputs are summed by its weights, with those
 * of experts that every row uses (DeepSeekMoE, Dai et al. 2024). An expert is a SwiGLU, the clamped
 * one of gpt-oss, a GeGLU, or Nemotron-H's ReLU squared without a gate. */
#include <math.h>

#include "engine/base/array_layout.h"
#include "engine/model/blocks/experts_internal.h"

static const weir_block_option option_table[] = {
    WEIR_WORD_OPTION(experts_options, scores, "scores", "softmax sigmoid", WEIR_EXPERTS_SOFTMAX),
    WEIR_WORD_OPTION(
        experts_options, activation, "activation", "swiglu relu2 geglu", EXPERTS_SWIGLU
    ),
    WEIR_FLAG_OPTION(experts_options, normalise, "normalise", true),
    WEIR_REAL_OPTION(experts_options, limit, "limit", 0, 1e6, 0),
    WEIR_WORD_OPTION(experts_options, shared, "shared", "none plain gated", WEIR_EXPERTS_NONE),
    WEIR_FLAG_OPTION(experts_options, router_norm, "router_norm", false),
    WEIR_FLAG_OPTION(experts_options, own_norms, "own_norms", false),
    { 0 }
};

#define DIMENSION(name, field)                                                                     \
    static int64_t name(const weir_shape *shape, const void *block_options)                        \
    {                                                                                              \
        (void)block_options;                                                                       \
        return shape->field;                                                                       \
    }
DIMENSION(model, d_model)
DIMENSION(experts, n_experts)
DIMENSION(inner, d_expert)
DIMENSION(shared_inner, d_shared)
static int64_t one(const weir_shape *shape, const void *block_options)
{
    (void)shape, (void)block_options;
    return 1;
}

static bool has_shared(const void *block_options)
{
    return ((const experts_options *)block_options)->shared != WEIR_EXPERTS_NONE;
}
static bool has_gate(const void *block_options)
{
    return ((const experts_options *)block_options)->activation != EXPERTS_RELU2;
}
static bool has_shared_gate(const void *block_options)
{
    return has_shared(block_options) && has_gate(block_options);
}
static bool has_gated(const void *block_options)
{
    return ((const experts_options *)block_options)->shared == WEIR_EXPERTS_GATED;
}

static bool has_router_norm(const void *block_options)
{
    return ((const experts_options *)block_options)->router_norm;
}
static bool has_own_norms(const void *block_options)
{
    return ((const experts_options *)block_options)->own_norms;
}
static double inverse_root(const weir_shape *shape) { return 1.0 / sqrt((double)shape->d_model); }

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("ffn.router", experts_weights, router, experts, model), .is_exact = true },
    { WEIR_VECTOR("ffn.router_bias", experts_weights, router_bias, experts), .optional = true },
    { WEIR_VECTOR("ffn.router_norm", experts_weights, router_norm, model), .scale = inverse_root,
      .wanted = has_router_norm },
    { WEIR_VECTOR("ffn.selection_bias", experts_weights, selection_bias, experts),
      .optional = true },
    { WEIR_EXPERTS("ffn.experts.gate", experts_weights, gate, experts, inner, model),
      .wanted = has_gate },
    { WEIR_EXPERTS("ffn.experts.up", experts_weights, up, experts, inner, model) },
    { WEIR_EXPERTS("ffn.experts.down", experts_weights, down, experts, model, inner) },
    { WEIR_VECTOR("ffn.experts.scale", experts_weights, scales, experts), .optional = true },
    { WEIR_VECTOR("ffn.experts.norm", experts_weights, norm, model), .wanted = has_own_norms },
    { WEIR_VECTOR("ffn.experts.norm_after", experts_weights, norm_after, model),
      .wanted = has_own_norms },
    { WEIR_VECTOR("ffn.shared.norm_after", experts_weights, shared_norm_after, model),
      .wanted = has_own_norms },
    { WEIR_VECTOR("ffn.experts.gate_bias", experts_weights, gate_bias, experts, inner),
      .optional = true, .wanted = has_gate },
    { WEIR_VECTOR("ffn.experts.up_bias", experts_weights, up_bias, experts, inner),
      .optional = true },
    { WEIR_VECTOR("ffn.experts.down_bias", experts_weights, down_bias, experts, model),
      .optional = true },
    { WEIR_MATRIX("ffn.shared_gate", experts_weights, shared_gate, one, model), .is_exact = true,
      .wanted = has_gated },
    { WEIR_MATRIX("ffn.shared.gate", experts_weights, all_gate, shared_inner, model),
      .wanted = has_shared_gate },
    { WEIR_MATRIX("ffn.shared.up", experts_weights, all_up, shared_inner, model),
      .wanted = has_shared },
    { WEIR_MATRIX("ffn.shared.down", experts_weights, all_down, model, shared_inner),
      .wanted = has_shared },
    { 0 }
};

static const char *const shapes[] = { "n_experts", "n_experts_used", "d_expert", NULL };
static const char *const *more_shapes(const void *block_options)
{
    static const char *const none[] = { NULL }, *const shared[] = { "d_shared", NULL };
    return has_shared(block_options) ? shared : none;
}

static weir_status check(const void *block_options, weir_error *error)
{
    const experts_options *const o = block_options;
    if (o->limit > 0.0 && o->activation != EXPERTS_SWIGLU)
        return weir_error_set(
            error, WEIR_ECONFIG, "limit is one of SwiGLU, and activation is another"
        );
    if (o->own_norms && o->shared != WEIR_EXPERTS_PLAIN)
        return weir_error_set(error, WEIR_ECONFIG, "own_norms = true needs shared = \"plain\"");
    return WEIR_OK;
}

static const char *reject(const weir_shape *shape, const void *block_options)
{
    if (shape->n_experts_used > shape->n_experts)
        return "more experts are used by a token than there are";
    if (shape->n_experts_used > WEIR_EXPERTS_MOST_CHOSEN)
        return "a token uses more than 64 experts";
    const int64_t n_groups = shape->n_expert_groups, n_used = shape->n_expert_groups_used;
    if (n_groups > 1 && (shape->n_experts % n_groups != 0 || n_used < 1 || n_used > n_groups))
        return "the groups of experts are not equal, or more are used than there are";
    if (n_groups > 1 && shape->n_experts / n_groups * n_used < shape->n_experts_used)
        return "the groups that a token uses have fewer experts than it uses";
    if (has_shared(block_options) && shape->d_shared < 1)
        return "shared experts have no width (d_shared)";
    if ((has_router_norm(block_options) || has_own_norms(block_options)) &&
        shape->residual_scale > 0.0 && (shape->residual_scale < 1.0 || shape->residual_scale > 1.0))
        return "norms of the residual stream are not supported with a residual_scale";
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */
static experts_memory memory_of(
    const weir_shape *shape, const experts_options *o, float *scratch, int64_t n_rows
)
{
    weir_arrays arrays = { .base = (char *)scratch };
    const int64_t d = shape->d_model, n_experts = shape->n_experts,
                  n_shared = o->shared != WEIR_EXPERTS_NONE ? n_rows : 0;
    experts_memory m = { .n_pairs = n_rows * shape->n_experts_used,
                         /* With norms the shared ones are added apart. */
                         .n_terms = shape->n_experts_used + (n_shared > 0 && !o->own_norms) };
    const int64_t n_groups = n_experts < m.n_pairs ? n_experts : m.n_pairs;
    const int64_t routed = m.n_pairs * shape->d_expert, shared = n_shared * shape->d_shared,
                  most = routed > shared ? routed : shared;
    WEIR_ARRAYS_PLACE(&arrays, m.groups, n_groups);
    WEIR_ARRAYS_PLACE(&arrays, m.logits, n_rows * n_experts);
    WEIR_ARRAYS_PLACE(&arrays, m.shared_logits, n_shared);
    WEIR_ARRAYS_PLACE(&arrays, m.weights, n_rows * m.n_terms);
    WEIR_ARRAYS_PLACE(&arrays, m.chosen, m.n_pairs);
    WEIR_ARRAYS_PLACE(&arrays, m.rows, m.n_pairs);
    WEIR_ARRAYS_PLACE(&arrays, m.terms, n_rows * m.n_terms);
    WEIR_ARRAYS_PLACE(&arrays, m.starts, n_experts);
    WEIR_ARRAYS_PLACE(&arrays, m.order, n_groups);
    WEIR_ARRAYS_PLACE(&arrays, m.in, o->own_norms || o->router_norm ? n_rows * d : 0);
    WEIR_ARRAYS_PLACE(&arrays, m.y, (m.n_pairs + n_shared) * d);
    m.x = m.y;
    WEIR_ARRAYS_PLACE(&arrays, m.gate, most);
    WEIR_ARRAYS_PLACE(&arrays, m.up, experts_have_gate(o) ? most : 0);
    m.n_elements = (int64_t)(arrays.bytes / sizeof(float));
    return m;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *block_options, int64_t n_rows, int64_t n_segments
)
{
    (void)n_segments;
    return memory_of(shape, block_options, NULL, n_rows).n_elements;
}

/* ---- forward --------------------------------------------------------------------------------- */
weir_status experts_norm(
    const weir_step *step, int64_t dim, float *dst, float *src, const float *weight, float eps
)
{
    return weir_rmsnorm(
        step->stream, &(weir_rmsnorm_args){ .dst = dst,
                                            .src = src,
                                            .weight = weight,
                                            .n_rows = step->n_rows,
                                            .n_groups = 1,
                                            .dim = dim,
                                            .dst_stride = dim,
                                            .dst_group_stride = dim,
                                            .src_stride = dim,
                                            .src_group_stride = dim,
                                            .eps = eps }
    );
}

/* dst [n, D] = norm(src), by the weight. */
static weir_status norm(const experts_call *c, float *dst, float *src, const float *weight)
{
    return experts_norm(c->step, c->shape->d_model, dst, src, weight, (float)c->shape->norm_eps);
}

/* What reads the residual stream has its own norm of it, in m->in. *in becomes the rows. */
static weir_status read_stream(const experts_call *c, const float *weight, const float **in)
{
    *in = weight != NULL ? c->m->in : c->step->in.x;
    return weight != NULL ? norm(c, c->m->in, c->step->in.stream, weight) : WEIR_OK;
}

static weir_status route(const experts_call *c)
{
    const weir_shape *const shape = c->shape;
    const experts_memory *const m = c->m;
    const weir_expert_shared shared =
        c->o->own_norms ? WEIR_EXPERTS_NONE : (weir_expert_shared)c->o->shared;
    const bool is_gated = shared == WEIR_EXPERTS_GATED;
    const weir_linear_output outputs[] = { { m->logits, c->w->router, c->w->router_bias },
                                           { m->shared_logits, c->w->shared_gate, NULL } };
    const float *in;
    WEIR_TRY(read_stream(c, c->w->router_norm, &in));
    WEIR_TRY(weir_linear_outputs(c->step, is_gated ? 2 : 1, outputs, in));
    return weir_expert_route(
        c->step->stream, &(weir_expert_route_args
                         ){ .logits = m->logits,
                            .bias = c->w->selection_bias,
                            .shared_logits = is_gated ? m->shared_logits : NULL,
                            .chosen = m->chosen,
                            .weights = m->weights,
                            .n_rows = c->step->n_rows,
                            .n_experts = shape->n_experts,
                            .n_chosen = shape->n_experts_used,
                            .n_groups = shape->n_expert_groups,
                            .n_groups_used = shape->n_expert_groups_used,
                            .scores = (weir_expert_scores)c->o->scores,
                            .shared = shared,
                            .normalise = c->o->normalise,
                            .scale = shape->expert_scale > 0.0 ? (float)shape->expert_scale : 1.0f }
    );
}

/* Multiplies the weight of each chosen expert by the expert's own factor. */
static void scale_weights(const experts_call *c)
{
    const int64_t k = c->shape->n_experts_used;
    const bool is_planning = weir_stream_is_planning(c->step->stream); /* nothing is chosen */
    for (int64_t t = 0; c->w->scales != NULL && !is_planning && t < c->step->n_rows; t++)
        for (int64_t j = 0; j < k; j++)
            c->m->weights[t * c->m->n_terms + j] *= c->w->scales[c->m->chosen[t * k + j]];
}

weir_status experts_gate(const experts_call *c, int64_t n_rows, int64_t width)
{
    static const weir_glu_kind kinds[] = { [EXPERTS_SWIGLU] = WEIR_GLU_SWIGLU,
                                           [EXPERTS_RELU2] = WEIR_GLU_RELU2,
                                           [EXPERTS_GEGLU] = WEIR_GLU_GEGLU };
    return weir_glu(
        c->step->stream,
        &(weir_glu_args){ .dst = c->m->gate,
                          .gate = c->m->gate,
                          .up = c->m->up,
                          .n_rows = n_rows,
                          .dim = width,
                          .dst_stride = width,
                          .gate_stride = width,
                          .up_stride = width,
                          .kind = c->o->limit > 0.0 ? WEIR_GLU_CLAMPED : kinds[c->o->activation],
                          .limit = (float)c->o->limit }
    );
}

/* The outputs of the shared experts are the last rows of m->y. */
static weir_status run_shared(const experts_call *c, float *out)
{
    const experts_memory *const m = c->m;
    const experts_weights *const w = c->w;
    const weir_linear_output gated[] = { { m->gate, w->all_gate, NULL },
                                         { m->up, w->all_up, NULL } },
                             plain[] = { { m->gate, w->all_up, NULL } };
    WEIR_TRY(
        experts_have_gate(c->o) ? weir_linear_outputs(c->step, 2, gated, c->step->in.x)
                                : weir_linear_outputs(c->step, 1, plain, c->step->in.x)
    );
    WEIR_TRY(experts_gate(c, c->step->n_rows, c->shape->d_shared));
    return weir_linear(c->step, out, w->all_down, m->gate);
}

static weir_status add_up(const experts_call *c)
{
    const experts_memory *const m = c->m;
    const int64_t d = c->shape->d_model;
    float *const shared = m->y + m->n_pairs * d, *const out = c->step->out.x;
    if (has_shared(c->o)) WEIR_TRY(run_shared(c, shared));
    WEIR_TRY(weir_expert_sum(
        c->step->stream, &(weir_expert_sum_args){ .dst = out,
                                                  .src = m->y,
                                                  .weights = m->weights,
                                                  .rows = m->terms,
                                                  .n_rows = c->step->n_rows,
                                                  .n_terms = m->n_terms,
                                                  .dim = d }
    ));
    if (!c->o->own_norms) return WEIR_OK;
    WEIR_TRY(norm(c, out, out, c->w->norm_after));
    WEIR_TRY(norm(c, shared, shared, c->w->shared_norm_after));
    return weir_add(
        c->step->stream, &(weir_add_args){ .dst = out,
                                           .src = shared,
                                           .n_rows = c->step->n_rows,
                                           .dim = d,
                                           .dst_stride = d,
                                           .src_stride = d }
    );
}

/* Routes rows, sorts (row, expert) pairs by expert, multiplies each expert's rows by its matrices,
 * and sums the outputs of each row (docs/decisions/0055). */
static weir_status forward(
    const weir_shape *shape, const void *block_options, const void *block_weights,
    const weir_step *step
)
{
    const experts_memory m = memory_of(shape, block_options, step->out.scratch, step->n_rows);
    experts_call c = {
        .shape = shape, .o = block_options, .w = block_weights, .step = step, .m = &m
    };
    WEIR_ASSERT(m.groups != NULL && m.chosen != NULL && m.rows != NULL); /* read here */
    WEIR_ASSERT(m.terms != NULL && m.starts != NULL && m.order != NULL);
    WEIR_TRY(route(&c));
    scale_weights(&c);
    WEIR_TRY(read_stream(&c, c.w->norm, &c.in));
    WEIR_TRY(experts_run(&c));
    return add_up(&c);
}

const weir_block weir_block_experts = {
    .name = "experts",
    .kind = WEIR_BLOCK_FFN,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(experts_weights),
    .options = option_table,
    .options_bytes = sizeof(experts_options),
    .host_only = "experts are computed on the host only",
    .scratch_elements = scratch_elements,
    .forward = forward,
    .check = check,
    .more_shapes = more_shapes,
    .reject = reject,
};
