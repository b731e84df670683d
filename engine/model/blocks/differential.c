#include "engine/model/blocks/differential.h"

#include <math.h>
#include <string.h>

int64_t weir_differential_heads(const weir_shape *shape, const weir_block_options *options)
{
    (void)options;
    return shape->n_heads;
}

int64_t weir_differential_pairs(const weir_shape *shape, const weir_block_options *options)
{
    (void)options;
    return shape->head_dim / 2;
}

bool   weir_differential_with_norm(const weir_block_options *options) { return options->coda.head_norm == WEIR_HEAD_NORM_FULL; }
double weir_differential_lambda_bias(const weir_block_options *options) { return options->coda.lambda_bias; }
double weir_differential_theta(const weir_block_options *options) { return options->coda.theta; }
double weir_differential_norm(const weir_block_options *options)
{
    (void)options;
    return 1.0;
}

int64_t weir_differential_elements(const weir_shape *shape, int64_t n_rows)
{
    return n_rows * (5 * shape->n_heads * shape->head_dim + 2 * shape->n_kv_heads * shape->head_dim + shape->n_heads);
}

weir_differential_rows weir_differential_place(const weir_shape *shape, const weir_step *step)
{
    const int64_t          n = step->n_rows, q_row = shape->n_heads * shape->head_dim, kv_row = shape->n_kv_heads * shape->head_dim;
    weir_differential_rows rows = { .q = step->scratch };
    rows.k = rows.q + n * q_row;
    rows.v = rows.k + n * kv_row;
    rows.doubled = rows.v + n * kv_row;
    rows.attended = rows.doubled + 2 * n * q_row;
    rows.lambda = rows.attended + 2 * n * q_row;
    rows.end = rows.lambda + n * shape->n_heads;
    return rows;
}

static weir_status project_lambda(const weir_shape *shape, const weir_differential *w, const weir_step *step, float *lambda)
{
    const int64_t d = shape->d_model;
    if (w->lambda == NULL) {
        if (!weir_stream_is_planning(step->stream)) memset(lambda, 0, (size_t)(step->n_rows * shape->n_heads) * sizeof *lambda);
        return WEIR_OK;
    }
    return weir_matmul(step->stream,
                       &(weir_matmul_args){ .x = step->normed,
                                            .n_rows = step->n_rows,
                                            .n_in = d,
                                            .x_stride = d,
                                            .n_outputs = 1,
                                            .outputs = { { .weight = w->lambda, .dst = lambda, .dst_stride = shape->n_heads } } });
}

weir_status weir_differential_project(const weir_shape *shape, const weir_block_options *options, const weir_differential *w,
                                      const weir_step *step, const weir_differential_rows *rows)
{
    WEIR_TRY(weir_heads_project(shape, options, &w->heads, step, rows->q, rows->k, rows->v));
    WEIR_TRY(project_lambda(shape, w, step, rows->lambda));
    WEIR_TRY(weir_heads_turn(shape, options, step, rows->q, shape->n_heads, shape->head_dim));
    WEIR_TRY(weir_heads_turn(shape, options, step, rows->k, shape->n_kv_heads, shape->head_dim));
    return weir_coda_queries(step->stream, &(weir_coda_queries_args){ .dst = rows->doubled,
                                                                      .q = rows->q,
                                                                      .theta = w->theta,
                                                                      .n_rows = step->n_rows,
                                                                      .n_heads = shape->n_heads,
                                                                      .n_kv_heads = shape->n_kv_heads,
                                                                      .head_dim = shape->head_dim,
                                                                      .q_stride = shape->n_heads * shape->head_dim });
}

weir_attention_args weir_differential_attention(const weir_shape *shape, const weir_differential_rows *rows)
{
    const int64_t hd = shape->head_dim, width = 2 * shape->n_heads * hd;
    return (weir_attention_args){ .out = rows->attended,
                                  .q = rows->doubled,
                                  .n_heads = 2 * shape->n_heads,
                                  .n_kv_heads = shape->n_kv_heads,
                                  .key_dim = hd,
                                  .value_dim = hd,
                                  .q_stride = width,
                                  .q_head_stride = hd,
                                  .out_stride = width,
                                  .scale = 1.0f / sqrtf((float)hd) };
}

weir_status weir_differential_out(const weir_shape *shape, const weir_block_options *options, const weir_differential *w,
                                  const weir_step *step, const weir_differential_rows *rows)
{
    WEIR_TRY(weir_coda_combine(step->stream, &(weir_coda_combine_args){ .dst = rows->q,
                                                                        .src = rows->attended,
                                                                        .lambda = rows->lambda,
                                                                        .bias = w->lambda_bias,
                                                                        .weight = w->norm,
                                                                        .n_rows = step->n_rows,
                                                                        .n_heads = shape->n_heads,
                                                                        .n_kv_heads = shape->n_kv_heads,
                                                                        .head_dim = shape->head_dim,
                                                                        .lambda_stride = shape->n_heads,
                                                                        .eps = (float)options->coda.head_norm_eps }));
    return weir_heads_out(shape, &w->heads, step, rows->q);
}
