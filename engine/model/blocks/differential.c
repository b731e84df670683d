#include "engine/model/blocks/differential.h"

#include <string.h>

#include "engine/model/blocks/layer_ops.h"

static const weir_differential_options *own(const void *options) { return options; }

int64_t weir_differential_heads(const weir_shape *shape, const void *options)
{
    (void)options;
    return shape->n_heads;
}

int64_t weir_differential_pairs(const weir_shape *shape, const void *options)
{
    (void)options;
    return shape->head_dim / 2;
}

bool weir_differential_is_on(const void *options) { return own(options)->is_on; }
bool weir_differential_with_norm(const void *options)
{
    return own(options)->is_on && own(options)->head_norm == WEIR_HEAD_NORM_FULL;
}
double weir_differential_lambda_bias(const void *options) { return own(options)->lambda_bias; }
double weir_differential_theta(const void *options) { return own(options)->theta; }
double weir_differential_norm(const void *options)
{
    (void)options;
    return 1.0;
}

const char *weir_differential_reject(const void *options)
{
    return own(options)->is_on && own(options)->heads.q_gate
               ? "differential attention has no output gate: q_gate needs plain attention"
               : NULL;
}

int64_t weir_differential_elements(const weir_shape *shape, const void *options, int64_t n_rows)
{
    const int64_t width = weir_heads_width(shape, options);
    const int64_t projected =
        weir_heads_q_width(shape, options) + 2 * weir_heads_kv_width(shape, options);
    return n_rows * (projected + (own(options)->is_on ? 4 * width + shape->n_heads : width));
}

weir_differential_rows weir_differential_place(
    const weir_shape *shape, const void *options, const weir_step *step
)
{
    const int64_t n = step->n_rows, width = weir_heads_width(shape, options),
                  kv_row = weir_heads_kv_width(shape, options);
    weir_differential_rows rows = { .q = step->out.scratch };
    rows.k = rows.q + n * weir_heads_q_width(shape, options);
    rows.v = rows.k + n * kv_row;
    rows.attended = rows.v + n * kv_row;
    if (!own(options)->is_on) return rows;
    rows.doubled = rows.attended + 2 * n * width;
    rows.lambda = rows.doubled + 2 * n * width;
    return rows;
}

static weir_status project_lambda(
    const weir_shape *shape, const weir_differential *w, const weir_step *step, float *lambda
)
{
    if (w->lambda == NULL) {
        weir_stream_clear(
            step->stream, lambda, (size_t)(step->n_rows * shape->n_heads) * sizeof *lambda
        );
        return WEIR_OK;
    }
    return weir_linear(step, lambda, w->lambda, step->in.x);
}

weir_status weir_differential_project(
    const weir_shape *shape, const void *options, const weir_differential *w, const weir_step *step,
    const weir_differential_rows *rows
)
{
    WEIR_TRY(weir_heads_project(shape, options, &w->heads, step, rows->q, rows->k, rows->v));
    WEIR_TRY(weir_heads_rope(shape, options, step, rows->q, rows->k));
    if (!own(options)->is_on) return WEIR_OK;
    WEIR_TRY(project_lambda(shape, w, step, rows->lambda));
    return weir_coda_queries(
        step->stream, &(weir_coda_queries_args){ .dst = rows->doubled,
                                                 .q = rows->q,
                                                 .theta = w->theta,
                                                 .n_rows = step->n_rows,
                                                 .n_heads = shape->n_heads,
                                                 .n_kv_heads = shape->n_kv_heads,
                                                 .head_dim = shape->head_dim,
                                                 .q_stride = shape->n_heads * shape->head_dim }
    );
}

weir_attention_args weir_differential_attention(
    const weir_shape *shape, const void *options, const weir_differential_rows *rows
)
{
    const int64_t hd = shape->head_dim,
                  n_heads = own(options)->is_on ? 2 * shape->n_heads : shape->n_heads;
    const int64_t q_row = own(options)->is_on ? n_heads * hd : weir_heads_q_width(shape, options);
    return (weir_attention_args){ .out = rows->attended,
                                  .q = own(options)->is_on ? rows->doubled : rows->q,
                                  .n_heads = n_heads,
                                  .n_kv_heads = shape->n_kv_heads,
                                  .key_dim = hd,
                                  .value_dim = hd,
                                  .q_stride = q_row,
                                  .q_head_stride = q_row / n_heads,
                                  .out_stride = n_heads * hd,
                                  .scale = weir_heads_scale(shape, options),
                                  .softcap = (float)shape->attention_softcap };
}

weir_status weir_differential_out(
    const weir_shape *shape, const void *options, const weir_differential *w, const weir_step *step,
    const weir_differential_rows *rows
)
{
    if (!own(options)->is_on) {
        WEIR_TRY(weir_heads_gate(shape, options, step, rows->attended, rows->q));
        return weir_heads_out(&w->heads, step, rows->attended);
    }
    WEIR_TRY(weir_coda_combine(
        step->stream, &(weir_coda_combine_args){ .dst = rows->q,
                                                 .src = rows->attended,
                                                 .lambda = rows->lambda,
                                                 .bias = w->lambda_bias,
                                                 .weight = w->norm,
                                                 .n_rows = step->n_rows,
                                                 .n_heads = shape->n_heads,
                                                 .n_kv_heads = shape->n_kv_heads,
                                                 .head_dim = shape->head_dim,
                                                 .lambda_stride = shape->n_heads,
                                                 .eps = (float)own(options)->head_norm_eps }
    ));
    return weir_heads_out(&w->heads, step, rows->q);
}
