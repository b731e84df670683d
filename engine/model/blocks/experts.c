/* engine/model/blocks/experts.c - a mixture of experts (Shazeer et al. 2017): a router chooses
 * n_experts_used of n_experts for each row, and their outputs are summed by its weights, with those
 * of experts that every row uses (DeepSeekMoE, Dai et al. 2024). An expert is a SwiGLU, the clamped
 * one of gpt-oss, or Nemotron-H's ReLU squared without a gate. */
#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/model/blocks/layer_ops.h"
#include "engine/model/expert_cache.h"

typedef struct options {
    int32_t scores, shared; /* weir_expert_scores, weir_expert_shared */
    int32_t activation;
    bool normalise;
    double limit; /* of clamped SwiGLU; 0: SwiGLU */
} options;

enum { SWIGLU, RELU2 }; /* activation */

static const weir_block_option option_table[] = {
    WEIR_WORD_OPTION(options, scores, "scores", "softmax sigmoid", WEIR_EXPERTS_SOFTMAX),
    WEIR_WORD_OPTION(options, activation, "activation", "swiglu relu2", SWIGLU),
    WEIR_FLAG_OPTION(options, normalise, "normalise", true),
    WEIR_REAL_OPTION(options, limit, "limit", 0, 1e6, 0),
    WEIR_WORD_OPTION(options, shared, "shared", "none plain gated", WEIR_EXPERTS_NONE),
    { 0 }
};

typedef struct weights {
    const weir_weight *router; /* [E, D] */
    const float *router_bias, *selection_bias; /* [E] */
    const weir_weight *gate, *up, *down; /* [E] of [I, D] [I, D] [D, I] */
    const float *gate_bias, *up_bias, *down_bias; /* NULL or [E, I] [E, I] [E, D] */
    const weir_weight *shared_gate; /* [1, D] */
    const weir_weight *all_gate, *all_up, *all_down; /* shared experts: [S, D] [S, D] [D, S] */
} weights;

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
    return ((const options *)block_options)->shared != WEIR_EXPERTS_NONE;
}
static bool has_gate(const void *block_options)
{
    return ((const options *)block_options)->activation == SWIGLU;
}
static bool has_shared_gate(const void *block_options)
{
    return has_shared(block_options) && has_gate(block_options);
}
static bool has_gated(const void *block_options)
{
    return ((const options *)block_options)->shared == WEIR_EXPERTS_GATED;
}
static bool has_sigmoid(const void *block_options)
{
    return ((const options *)block_options)->scores == WEIR_EXPERTS_SIGMOID;
}

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("ffn.router", weights, router, experts, model), .is_exact = true },
    { WEIR_VECTOR("ffn.router_bias", weights, router_bias, experts), .optional = true },
    { WEIR_VECTOR("ffn.selection_bias", weights, selection_bias, experts), .optional = true,
      .wanted = has_sigmoid },
    { WEIR_EXPERTS("ffn.experts.gate", weights, gate, experts, inner, model), .wanted = has_gate },
    { WEIR_EXPERTS("ffn.experts.up", weights, up, experts, inner, model) },
    { WEIR_EXPERTS("ffn.experts.down", weights, down, experts, model, inner) },
    { WEIR_VECTOR("ffn.experts.gate_bias", weights, gate_bias, experts, inner), .optional = true,
      .wanted = has_gate },
    { WEIR_VECTOR("ffn.experts.up_bias", weights, up_bias, experts, inner), .optional = true },
    { WEIR_VECTOR("ffn.experts.down_bias", weights, down_bias, experts, model), .optional = true },
    { WEIR_MATRIX("ffn.shared_gate", weights, shared_gate, one, model), .is_exact = true,
      .wanted = has_gated },
    { WEIR_MATRIX("ffn.shared.gate", weights, all_gate, shared_inner, model),
      .wanted = has_shared_gate },
    { WEIR_MATRIX("ffn.shared.up", weights, all_up, shared_inner, model), .wanted = has_shared },
    { WEIR_MATRIX("ffn.shared.down", weights, all_down, model, shared_inner),
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
    const options *const o = block_options;
    if (o->limit == 0.0 || has_gate(o)) return WEIR_OK;
    return weir_error_set(error, WEIR_ECONFIG, "limit is one of SwiGLU, and activation is relu2");
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
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* A pair is a row with one of its experts; the pairs of an expert are adjacent. */
typedef struct memory {
    int64_t n_pairs, n_terms; /* terms: of a row's sum */
    float *logits, *shared_logits; /* [n, E] [n] */
    float *weights; /* [n, n_terms] */
    int32_t *chosen; /* [n, k] experts */
    int32_t *rows; /* [n_pairs] the row of a pair */
    int32_t *terms; /* [n, n_terms] rows of `y` */
    int32_t *starts; /* [E] the first pair of an expert, or their number */
    int32_t *order; /* [min(E, n_pairs)] experts that have pairs, in the order of their groups */
    weir_matmul_group *groups; /* [min(E, n_pairs)] */
    float *x; /* [n_pairs, D] rows of pairs */
    float *y; /* [n_pairs + n, D] outputs of experts, then of shared ones; x is in the first part */
    float *gate, *up; /* [n_pairs, I], or [n, S]; without gates `gate` has up's product */
    int64_t n_elements;
} memory;

static memory memory_of(const weir_shape *shape, const options *o, float *scratch, int64_t n_rows)
{
    weir_arrays arrays = { .base = (char *)scratch };
    const int64_t d = shape->d_model, n_experts = shape->n_experts,
                  n_shared = o->shared != WEIR_EXPERTS_NONE ? n_rows : 0;
    memory m = { .n_pairs = n_rows * shape->n_experts_used,
                 .n_terms = shape->n_experts_used + (n_shared > 0) };
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
    WEIR_ARRAYS_PLACE(&arrays, m.y, (m.n_pairs + n_shared) * d);
    m.x = m.y;
    WEIR_ARRAYS_PLACE(&arrays, m.gate, most);
    WEIR_ARRAYS_PLACE(&arrays, m.up, has_gate(o) ? most : 0);
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
static weir_status route(
    const weir_shape *shape, const options *o, const weights *w, const weir_step *step,
    const memory *m
)
{
    const bool is_gated = o->shared == WEIR_EXPERTS_GATED;
    const weir_linear_output outputs[] = { { m->logits, w->router, w->router_bias },
                                           { m->shared_logits, w->shared_gate, NULL } };
    WEIR_TRY(weir_linear_outputs(step, is_gated ? 2 : 1, outputs, step->in.x));
    return weir_expert_route(
        step->stream, &(weir_expert_route_args
                      ){ .logits = m->logits,
                         .bias = w->selection_bias,
                         .shared_logits = is_gated ? m->shared_logits : NULL,
                         .chosen = m->chosen,
                         .weights = m->weights,
                         .n_rows = step->n_rows,
                         .n_experts = shape->n_experts,
                         .n_chosen = shape->n_experts_used,
                         .n_groups = shape->n_expert_groups,
                         .n_groups_used = shape->n_expert_groups_used,
                         .scores = (weir_expert_scores)o->scores,
                         .shared = (weir_expert_shared)o->shared,
                         .normalise = o->normalise,
                         .scale = shape->expert_scale > 0.0 ? (float)shape->expert_scale : 1.0f }
    );
}

/* Sorts pairs by expert, within an expert by row (a counting sort). With a cache experts that are
 * in memory come first; it is begun. Returns the number of groups. */
static int32_t group_pairs(const weir_shape *shape, const weir_step *step, const memory *m)
{
    const int64_t k = shape->n_experts_used, n_experts = shape->n_experts;
    int32_t *const starts = m->starts, n_groups = 0, first = 0;
    memset(starts, 0, (size_t)n_experts * sizeof *starts);
    for (int64_t i = 0; i < m->n_pairs; i++) starts[m->chosen[i]]++;
    for (int32_t e = 0; e < n_experts; e++)
        if (starts[e] > 0) m->order[n_groups++] = e;
    if (step->expert_watch != NULL)
        step->expert_watch->see(step->expert_watch->user, step->layer, m->order, n_groups);
    if (step->experts != NULL)
        weir_expert_cache_begin(step->experts, step->layer, m->order, n_groups);
    for (int32_t g = 0; g < n_groups; g++) {
        const int32_t e = m->order[g], n_rows = starts[e];
        m->groups[g] = (weir_matmul_group){ .first = first, .n_rows = n_rows, .matrix = e };
        starts[e] = first;
        first += n_rows;
    }
    for (int64_t t = 0; t < step->n_rows; t++) {
        int32_t *const terms = m->terms + t * m->n_terms;
        for (int64_t j = 0; j < k; j++) {
            terms[j] = starts[m->chosen[t * k + j]]++;
            m->rows[terms[j]] = (int32_t)t;
        }
        if (m->n_terms > k) terms[k] = (int32_t)(m->n_pairs + t);
    }
    return n_groups;
}

static weir_status gate_rows(
    const options *o, const weir_step *step, const memory *m, int64_t n_rows, int64_t width
)
{
    const weir_glu_kind gated = o->limit > 0.0 ? WEIR_GLU_CLAMPED : WEIR_GLU_SWIGLU;
    return weir_glu(
        step->stream, &(weir_glu_args){ .dst = m->gate,
                                        .gate = m->gate,
                                        .up = m->up,
                                        .n_rows = n_rows,
                                        .dim = width,
                                        .dst_stride = width,
                                        .gate_stride = width,
                                        .up_stride = width,
                                        .kind = has_gate(o) ? gated : WEIR_GLU_RELU2,
                                        .limit = (float)o->limit }
    );
}

static weir_status gather_rows(const weir_shape *shape, const weir_step *step, const memory *m)
{
    return weir_embed(
        step->stream, &(weir_embed_args){ .dst = m->x,
                                          .table = step->in.x,
                                          .ids = m->rows,
                                          .n_rows = m->n_pairs,
                                          .dim = shape->d_model,
                                          .n_vocab = step->n_rows,
                                          .dtype = WEIR_F32 }
    );
}

/* Multiplies the rows of n_groups groups, which begin at pair `first` and are counted from it. */
static weir_status run_groups(
    const weir_shape *shape, const options *o, const weights *w, const weir_step *step,
    const memory *m, int64_t first, weir_matmul_group *groups, int32_t n_groups
)
{
    const int64_t d = shape->d_model, inner_width = shape->d_expert,
                  n_rows = groups[n_groups - 1].first + groups[n_groups - 1].n_rows;
    weir_matmul_args args = { .x = m->x + first * d,
                              .n_rows = n_rows,
                              .n_in = d,
                              .x_stride = d,
                              .n_groups = n_groups,
                              .groups = groups };
    if (has_gate(o))
        args.outputs[args.n_outputs++] = (weir_matmul_output
        ){ .weight = w->gate, .dst = m->gate, .bias = w->gate_bias, .dst_stride = inner_width };
    args.outputs[args.n_outputs++] = (weir_matmul_output){ .weight = w->up,
                                                           .dst = has_gate(o) ? m->up : m->gate,
                                                           .bias = w->up_bias,
                                                           .dst_stride = inner_width };
    WEIR_TRY(weir_matmul(step->stream, &args));
    WEIR_TRY(gate_rows(o, step, m, n_rows, inner_width));
    args.x = m->gate;
    args.n_in = args.x_stride = inner_width;
    args.n_outputs = 1;
    args.outputs[0] = (weir_matmul_output
    ){ .weight = w->down, .dst = m->y + first * d, .bias = w->down_bias, .dst_stride = d };
    return weir_matmul(step->stream, &args);
}

/* The next groups, whose experts are in memory. */
static weir_status run_cached(
    const weir_shape *shape, const options *o, const weights *w, const weir_step *step,
    const memory *m, int32_t n_groups
)
{
    weir_status status = WEIR_OK;
    for (int32_t g = 0, n = 0; status == WEIR_OK && g < n_groups; g += n) {
        weir_matmul_group *const groups = m->groups + g;
        const int64_t first = groups->first;
        status = weir_expert_cache_take(step->experts, &n);
        if (status != WEIR_OK) break;
        for (int32_t i = 0; i < n; i++) groups[i].first -= first;
        status = run_groups(shape, o, w, step, m, first, groups, n);
        weir_expert_cache_give(step->experts);
    }
    weir_expert_cache_end(step->experts);
    return status;
}

static weir_status run_experts(
    const weir_shape *shape, const options *o, const weights *w, const weir_step *step,
    const memory *m
)
{
    const int32_t n_groups = group_pairs(shape, step, m);
    const weir_status status = gather_rows(shape, step, m);
    if (step->experts == NULL)
        return status == WEIR_OK ? run_groups(shape, o, w, step, m, 0, m->groups, n_groups)
                                 : status;
    if (status == WEIR_OK) return run_cached(shape, o, w, step, m, n_groups);
    weir_expert_cache_end(step->experts);
    return status;
}

static weir_status run_shared(
    const weir_shape *shape, const options *o, const weights *w, const weir_step *step,
    const memory *m
)
{
    const weir_linear_output gated[] = { { m->gate, w->all_gate, NULL },
                                         { m->up, w->all_up, NULL } },
                             plain[] = { { m->gate, w->all_up, NULL } };
    WEIR_TRY(
        has_gate(o) ? weir_linear_outputs(step, 2, gated, step->in.x)
                    : weir_linear_outputs(step, 1, plain, step->in.x)
    );
    WEIR_TRY(gate_rows(o, step, m, step->n_rows, shape->d_shared));
    return weir_linear(step, m->y + m->n_pairs * shape->d_model, w->all_down, m->gate);
}

static weir_status add_up(
    const weir_shape *shape, const options *o, const weights *w, const weir_step *step,
    const memory *m
)
{
    if (has_shared(o)) WEIR_TRY(run_shared(shape, o, w, step, m));
    return weir_expert_sum(
        step->stream, &(weir_expert_sum_args){ .dst = step->out.x,
                                               .src = m->y,
                                               .weights = m->weights,
                                               .rows = m->terms,
                                               .n_rows = step->n_rows,
                                               .n_terms = m->n_terms,
                                               .dim = shape->d_model }
    );
}

/* While planning nothing is chosen. Kernels for groups of many rows and of few are asked; their
 * scratch does not depend on the groups. */
static weir_status plan_experts(
    const weir_shape *shape, const options *o, const weights *w, const weir_step *step,
    const memory *m
)
{
    const int64_t most = shape->n_experts < m->n_pairs ? shape->n_experts : m->n_pairs;
    WEIR_TRY(gather_rows(shape, step, m));
    m->groups[0] = (weir_matmul_group){ .n_rows = m->n_pairs };
    WEIR_TRY(run_groups(shape, o, w, step, m, 0, m->groups, 1));
    for (int64_t g = 0; g < most; g++)
        m->groups[g] = (weir_matmul_group
        ){ .first = g, .n_rows = g + 1 < most ? 1 : m->n_pairs - g, .matrix = (int32_t)g };
    return run_groups(shape, o, w, step, m, 0, m->groups, (int32_t)most);
}

/* Routes rows, sorts (row, expert) pairs by expert, multiplies each expert's rows by its matrices,
 * and sums the outputs of each row (docs/decisions/0055). */
static weir_status forward(
    const weir_shape *shape, const void *block_options, const void *block_weights,
    const weir_step *step
)
{
    const options *const o = block_options;
    const weights *const w = block_weights;
    const memory m = memory_of(shape, o, step->out.scratch, step->n_rows);
    WEIR_ASSERT(m.groups != NULL && m.chosen != NULL && m.rows != NULL); /* read here */
    WEIR_ASSERT(m.terms != NULL && m.starts != NULL && m.order != NULL);
    WEIR_TRY(route(shape, o, w, step, &m));
    WEIR_TRY(
        weir_stream_is_planning(step->stream) ? plan_experts(shape, o, w, step, &m)
                                              : run_experts(shape, o, w, step, &m)
    );
    return add_up(shape, o, w, step, &m);
}

const weir_block weir_block_experts = {
    .name = "experts",
    .kind = WEIR_BLOCK_FFN,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .options = option_table,
    .options_bytes = sizeof(options),
    .host_only = "experts are computed on the host only",
    .scratch_elements = scratch_elements,
    .forward = forward,
    .check = check,
    .more_shapes = more_shapes,
    .reject = reject,
};
