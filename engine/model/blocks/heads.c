#include "engine/model/blocks/heads.h"

#include <math.h>

#include "engine/model/blocks/attend.h"
#include "engine/model/blocks/layer_ops.h"

static const weir_heads_options *own(const void *options) { return options; }

static bool is_over_all(const void *options) { return own(options)->qk_norm_over == WEIR_NORM_ALL; }

WEIR_SHARED_EXTENT(weir_heads_model, shape->d_model)
WEIR_SHARED_EXTENT(weir_heads_one, 1)
WEIR_SHARED_EXTENT(
    weir_heads_dim, own(options)->local_heads ? shape->head_dim_local : shape->head_dim
)
WEIR_SHARED_EXTENT(
    weir_heads_kv_heads, own(options)->local_heads ? shape->n_kv_heads_local : shape->n_kv_heads
)
WEIR_SHARED_EXTENT(weir_heads_width, shape->n_heads *weir_heads_dim(shape, options))
WEIR_SHARED_EXTENT(
    weir_heads_q_width, weir_heads_width(shape, options) * (own(options)->q_gate ? 2 : 1)
)
WEIR_SHARED_EXTENT(
    weir_heads_kv_width, weir_heads_kv_heads(shape, options) * weir_heads_dim(shape, options)
)
WEIR_SHARED_EXTENT(
    weir_heads_q_norm,
    is_over_all(options) ? weir_heads_width(shape, options) : weir_heads_dim(shape, options)
)
WEIR_SHARED_EXTENT(
    weir_heads_k_norm,
    is_over_all(options) ? weir_heads_kv_width(shape, options) : weir_heads_dim(shape, options)
)

/* Of each head, the first ones. */
static int64_t rotary_dim(const weir_shape *shape, const void *options)
{
    return own(options)->rope_local ? weir_shape_local_rotary(shape) : shape->rotary_dim;
}

const char *const weir_heads_shapes[] = { "n_heads",    "n_kv_heads", "head_dim",
                                          "rotary_dim", "rope_theta", NULL };

float weir_heads_scale(const weir_shape *shape, const void *options)
{
    return shape->attention_scale > 0.0 ? (float)shape->attention_scale
                                        : 1.0f / sqrtf((float)weir_heads_dim(shape, options));
}

weir_block_kv weir_heads_kv(const weir_shape *shape, const void *options)
{
    const int64_t dim = weir_heads_dim(shape, options);
    return (weir_block_kv){ .geometry = { .n_heads = weir_heads_kv_heads(shape, options),
                                          .key_dim = dim,
                                          .value_dim = dim },
                            .rope = (weir_rope_pairing)own(options)->rope,
                            .no_rope = own(options)->no_rope,
                            .rope_local = own(options)->rope_local,
                            .scale = weir_heads_scale(shape, options),
                            .n_queries = shape->n_heads,
                            .is_shared = own(options)->shared };
}

bool weir_heads_with_norm(const void *options)
{
    return own(options)->qk_norm && !own(options)->qk_norm_optional;
}
bool weir_heads_may_have_norm(const void *options)
{
    return own(options)->qk_norm && own(options)->qk_norm_optional;
}

bool weir_heads_with_k(const void *options) { return !own(options)->shared; }
bool weir_heads_with_v(const void *options)
{
    return !own(options)->shared && !own(options)->v_optional;
}
bool weir_heads_may_have_v(const void *options)
{
    return !own(options)->shared && own(options)->v_optional;
}
bool weir_heads_with_k_norm(const void *options)
{
    return weir_heads_with_k(options) && weir_heads_with_norm(options);
}
bool weir_heads_may_have_k_norm(const void *options)
{
    return weir_heads_with_k(options) && weir_heads_may_have_norm(options);
}
bool weir_heads_with_v_norm(const void *options)
{
    return weir_heads_with_k(options) && own(options)->v_norm;
}
double weir_heads_unit(const void *options) { return (void)options, 1.0; }

weir_status weir_heads_check(const void *options, weir_error *error)
{
    const weir_heads_options *const o = own(options);
    if (is_over_all(options) && (!o->qk_norm || o->q_gate))
        return weir_error_set(
            error, WEIR_ECONFIG, "qk_norm_over = \"all\" needs qk_norm = true and q_gate = false"
        );
    if (o->v_optional && !o->v_norm)
        return weir_error_set(error, WEIR_ECONFIG, "v_optional = true needs v_norm = true");
    return WEIR_OK;
}

const char *weir_heads_reject(const weir_shape *shape, const void *options)
{
    if (shape->n_heads % weir_heads_kv_heads(shape, options) != 0)
        return "the query heads do not divide into the KV heads";
    if (!own(options)->no_rope && rotary_dim(shape, options) > weir_heads_dim(shape, options))
        return "RoPE rotates more dimensions than a head has";
    if (shape->attention_temperature_scale > 0.0) {
        if (shape->attention_temperature_length == 0)
            return "attention_temperature_scale needs an attention_temperature_length";
        if (own(options)->no_rope || rotary_dim(shape, options) != weir_heads_dim(shape, options))
            return "attention_temperature_scale needs RoPE of all dimensions of a head";
    }
    return NULL;
}

static weir_head_rows queries(const weir_shape *shape, const void *options, float *q)
{
    const int64_t n = shape->n_heads;
    return (weir_head_rows){ q, n, weir_heads_dim(shape, options),
                             weir_heads_q_width(shape, options) / n };
}

/* Keys or values. */
static weir_head_rows rows_of(const weir_shape *shape, const void *options, float *x)
{
    const int64_t dim = weir_heads_dim(shape, options);
    return (weir_head_rows){ x, weir_heads_kv_heads(shape, options), dim, dim };
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
    weir_linear_output outputs[3] = { { q, w->q, w->q_bias } };
    int32_t n = 1;
    if (w->k != NULL) outputs[n++] = (weir_linear_output){ k, w->k, w->k_bias };
    if (w->v != NULL) outputs[n++] = (weir_linear_output){ v, w->v, w->v_bias };
    WEIR_TRY(weir_linear_outputs(step, n, outputs, step->in.x));
    WEIR_TRY(weir_norm_heads(
        step, norm_rows(options, queries(shape, options, q)), w->q_norm, shape->norm_eps
    ));
    if (w->k == NULL) return WEIR_OK;
    WEIR_TRY(weir_norm_heads_of(
        step, rows_of(shape, options, v), w->v != NULL ? v : k, w->v_norm, shape->norm_eps
    ));
    return weir_norm_heads(
        step, norm_rows(options, rows_of(shape, options, k)), w->k_norm, shape->norm_eps
    );
}

weir_status weir_heads_rope(
    const weir_shape *shape, const void *options, const weir_step *step, float *q, float *k
)
{
    const weir_rope_pairing pairing = (weir_rope_pairing)own(options)->rope;
    const weir_rope_table rope = own(options)->rope_local ? step->in.local_rope : step->in.rope;
    const weir_head_rows heads = queries(shape, options, q);
    const int64_t rotary = rotary_dim(shape, options);
    weir_attend_show_plain(step, q, heads.n, heads.dim, heads.stride);
    if (own(options)->no_rope) return WEIR_OK;
    weir_rope_table of_queries = rope;
    if (shape->attention_temperature_scale > 0.0) {
        of_queries.temperature_scale = (float)shape->attention_temperature_scale;
        of_queries.temperature_length = (int32_t)shape->attention_temperature_length;
    }
    WEIR_TRY(weir_rope_heads(step, of_queries, heads, rotary, pairing));
    if (own(options)->shared) return WEIR_OK;
    return weir_rope_heads(step, rope, rows_of(shape, options, k), rotary, pairing);
}

weir_status weir_heads_gate(
    const weir_shape *shape, const void *options, const weir_step *step, float *x, const float *q
)
{
    const int64_t hd = weir_heads_dim(shape, options), width = shape->n_heads * hd;
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
