#include "engine/model/blocks/heads.h"

#include <math.h>

#include "engine/model/blocks/attend.h"
#include "engine/model/blocks/layer_ops.h"

static const weir_heads_options *own(const void *options) { return options; }

static bool is_over_all(const void *options) { return own(options)->qk_norm_over == WEIR_NORM_ALL; }

#define EXTENT(name, expression)                                                                   \
    int64_t name(const weir_shape *shape, const void *options)                                     \
    {                                                                                              \
        (void)shape, (void)options;                                                                \
        return expression;                                                                         \
    }
EXTENT(weir_heads_model, shape->d_model)
EXTENT(weir_heads_one, 1)
EXTENT(weir_heads_dim, shape->head_dim)
EXTENT(weir_heads_q_width, shape->n_heads * shape->head_dim * (own(options)->q_gate ? 2 : 1))
EXTENT(weir_heads_kv_width, shape->n_kv_heads * shape->head_dim)
EXTENT(weir_heads_width, shape->n_heads * shape->head_dim)
EXTENT(weir_heads_q_norm, is_over_all(options) ? shape->n_heads * shape->head_dim : shape->head_dim)
EXTENT(
    weir_heads_k_norm, is_over_all(options) ? shape->n_kv_heads * shape->head_dim : shape->head_dim
)
#undef EXTENT

const char *const weir_heads_shapes[] = { "n_heads",    "n_kv_heads", "head_dim",
                                          "rotary_dim", "rope_theta", NULL };

float weir_heads_scale(const weir_shape *shape)
{
    return shape->attention_scale > 0.0 ? (float)shape->attention_scale
                                        : 1.0f / sqrtf((float)shape->head_dim);
}

weir_block_kv weir_heads_kv(const weir_shape *shape, const void *options)
{
    return (weir_block_kv){ .geometry = { .n_heads = shape->n_kv_heads,
                                          .key_dim = shape->head_dim,
                                          .value_dim = shape->head_dim },
                            .rope = (weir_rope_pairing)own(options)->rope,
                            .no_rope = own(options)->no_rope,
                            .rope_local = own(options)->rope_local,
                            .scale = weir_heads_scale(shape),
                            .n_queries = shape->n_heads };
}

bool weir_heads_with_norm(const void *options)
{
    return own(options)->qk_norm && !own(options)->qk_norm_optional;
}
bool weir_heads_may_have_norm(const void *options)
{
    return own(options)->qk_norm && own(options)->qk_norm_optional;
}

weir_status weir_heads_check(const void *options, weir_error *error)
{
    if (!is_over_all(options) || (own(options)->qk_norm && !own(options)->q_gate)) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECONFIG, "qk_norm_over = \"all\" needs qk_norm = true and q_gate = false"
    );
}

static weir_head_rows queries(const weir_shape *shape, const void *options, float *q)
{
    const int64_t n = shape->n_heads;
    return (weir_head_rows){ q, n, shape->head_dim, weir_heads_q_width(shape, options) / n };
}

static weir_head_rows keys(const weir_shape *shape, float *k)
{
    return (weir_head_rows){ k, shape->n_kv_heads, shape->head_dim, shape->head_dim };
}

/* What one norm covers; over all heads, which are contiguous then. */
static weir_head_rows norm_rows(const void *options, weir_head_rows heads)
{
    const int64_t width = heads.n * heads.dim;
    return is_over_all(options) ? (weir_head_rows){ heads.x, 1, width, width } : heads;
}

weir_status weir_heads_project(
    const weir_shape *shape, const void *options, const weir_heads *w, const weir_step *step,
    float *q, float *k, float *v
)
{
    WEIR_TRY(weir_linear_outputs(
        step, 3,
        (const weir_linear_output[]
        ){ { q, w->q, w->q_bias }, { k, w->k, w->k_bias }, { v, w->v, w->v_bias } },
        step->in.x
    ));
    WEIR_TRY(weir_norm_heads(
        step, norm_rows(options, queries(shape, options, q)), w->q_norm, shape->norm_eps
    ));
    return weir_norm_heads(step, norm_rows(options, keys(shape, k)), w->k_norm, shape->norm_eps);
}

weir_status weir_heads_rope(
    const weir_shape *shape, const void *options, const weir_step *step, float *q, float *k
)
{
    const weir_rope_pairing pairing = (weir_rope_pairing)own(options)->rope;
    const weir_rope_table rope = own(options)->rope_local ? step->in.local_rope : step->in.rope;
    const weir_head_rows heads = queries(shape, options, q);
    weir_attend_show_plain(step, q, heads.n, heads.dim, heads.stride);
    if (own(options)->no_rope) return WEIR_OK;
    WEIR_TRY(weir_rope_heads(step, rope, heads, shape->rotary_dim, pairing));
    return weir_rope_heads(step, rope, keys(shape, k), shape->rotary_dim, pairing);
}

weir_status weir_heads_gate(
    const weir_shape *shape, const void *options, const weir_step *step, float *x, const float *q
)
{
    const int64_t hd = shape->head_dim, width = shape->n_heads * hd;
    if (!own(options)->q_gate) return WEIR_OK;
    return weir_sigmoid_gate(
        step->stream, &(weir_sigmoid_gate_args){ .x = x,
                                                 .gate = q + hd,
                                                 .n_rows = step->n_rows,
                                                 .n_heads = shape->n_heads,
                                                 .dim = hd,
                                                 .x_stride = width,
                                                 .x_head_stride = hd,
                                                 .gate_stride = 2 * width,
                                                 .gate_head_stride = 2 * hd }
    );
}

weir_status weir_heads_out(const weir_heads *w, const weir_step *step, const float *x)
{
    return weir_linear_outputs(
        step, 1, &(weir_linear_output){ step->out.x, w->out, w->out_bias }, x
    );
}
