/* engine/model/blocks/mla.c - multi-head latent attention (DeepSeek-V2, section 2.1): keys and
 * values of all heads are linear in one latent per row, so only the latent and one rotated key are
 * kept. Computed in the absorbed form: a query is multiplied by its head's W_UK once instead of
 * every key, and a head's sum of latents by W_UV (docs/decisions/0060). */
#include <math.h>
#include <string.h>

#include "engine/base/array_layout.h"
#include "engine/model/blocks/attend.h"
#include "engine/model/blocks/layer_ops.h"
#include "kernels/abi/minmax.h"

typedef struct mla_options {
    int32_t rope; /* weir_rope_pairing */
    bool no_rope; /* the R dims are not rotated (Kazemnejad et al. 2023, NoPE) */
    double norm_eps; /* of the latents' norms, which published models do not take from the file */
} mla_options;

static const weir_block_option option_table[] = {
    WEIR_WORD_OPTION(mla_options, rope, "rope", "half_split pairs", WEIR_ROPE_PAIRS),
    WEIR_FLAG_OPTION(mla_options, no_rope, "no_rope", false),
    WEIR_REAL_OPTION(mla_options, norm_eps, "norm_eps", 0, 1, 1e-6),
    { 0 }
};

/* H heads, P dims without RoPE, R with; L the latent's width, V a value's. */
typedef struct weights {
    const weir_weight *q; /* [H*(P+R), D], or in two steps: */
    const weir_weight *q_a, *q_b; /* [Q, D] [H*(P+R), Q] */
    const float *q_a_norm; /* [Q] */
    const weir_weight *kv_a; /* [L+R, D] */
    const float *kv_a_norm; /* [L] */
    const weir_weight *k_b, *v_b; /* [H] of [L, P] and [V, L]: W_UK transposed, W_UV */
    const weir_weight *out; /* [D, H*V] */
} weights;

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(heads, shape->n_heads)
WEIR_EXTENT(query, shape->nope_dim + shape->rotary_dim)
WEIR_EXTENT(queries, shape->n_heads *(shape->nope_dim + shape->rotary_dim))
WEIR_EXTENT(direct_queries, shape->q_lora_rank > 0 ? 0 : queries(shape, options))
WEIR_EXTENT(query_latent, shape->q_lora_rank)
WEIR_EXTENT(nope, shape->nope_dim)
WEIR_EXTENT(latent, shape->kv_lora_rank)
WEIR_EXTENT(row, shape->kv_lora_rank + shape->rotary_dim)
WEIR_EXTENT(value, shape->value_dim)
WEIR_EXTENT(values, shape->n_heads * shape->value_dim)

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("attn.q", weights, q, direct_queries, model) },
    { WEIR_MATRIX("attn.q_a", weights, q_a, query_latent, model) },
    { WEIR_VECTOR("attn.q_a_norm", weights, q_a_norm, query_latent) },
    { WEIR_MATRIX("attn.q_b", weights, q_b, queries, query_latent) },
    { WEIR_MATRIX("attn.kv_a", weights, kv_a, row, model) },
    { WEIR_VECTOR("attn.kv_a_norm", weights, kv_a_norm, latent) },
    { WEIR_HEADS("attn.k_b", weights, k_b, heads, latent, nope) },
    { WEIR_HEADS("attn.v_b", weights, v_b, heads, value, latent) },
    { WEIR_MATRIX("attn.out", weights, out, model, values) },
    { 0 }
};

static const char *const shapes[] = { "n_heads",   "q_lora_rank", "kv_lora_rank", "nope_dim",
                                      "value_dim", "rotary_dim",  "rope_theta",   NULL };

static const char *reject(const weir_shape *shape, const void *block_options)
{
    if (row(shape, block_options) > WEIR_KV_DIM_MAX)
        return "a latent and its rotated key are wider than 576 elements together";
    if (shape->attention_temperature_scale > 0.0)
        return "queries of latent attention have no attention_temperature_scale";
    return NULL;
}

static float scale_of(const weir_shape *shape)
{
    const double plain = shape->attention_scale > 0.0 ? shape->attention_scale
                                                      : 1.0 / sqrt((double)query(shape, NULL));
    return (float)(plain * shape->rope_score_scale);
}

static weir_block_kv kv(const weir_shape *shape, const void *block_options)
{
    return (weir_block_kv){ .geometry = { .n_heads = 1,
                                          .key_dim = row(shape, block_options),
                                          .value_dim = shape->kv_lora_rank,
                                          .value_aliases_key = true },
                            .rope = (weir_rope_pairing)((const mla_options *)block_options)->rope,
                            .no_rope = ((const mla_options *)block_options)->no_rope,
                            .rope_last = true,
                            .scale = scale_of(shape),
                            .n_queries = shape->n_heads,
                            .watched = true };
}

/* ---- memory ---------------------------------------------------------------------------------- */
/* Rows by head have all rows of the first head first, [H, n, *]; by row, [n, H, *]. One row is the
 * same both ways. The two buffers take turns as source and destination. */
typedef struct memory {
    float *k; /* [n, L+R] latents and rotated keys */
    float *first, *second;
    int32_t *by_head, *by_row; /* [n*H] the place of each row by head in rows by row; the reverse */
    weir_matmul_group *groups; /* [H] */
    int64_t n_elements;
} memory;

static memory memory_of(const weir_shape *shape, float *scratch, int64_t n)
{
    weir_arrays arrays = { .base = (char *)scratch };
    const int64_t h = shape->n_heads, q = queries(shape, NULL), v = values(shape, NULL),
                  widest = weir_max(weir_max(h * row(shape, NULL), q), weir_max(v, 1));
    memory m = { 0 };
    WEIR_ARRAYS_PLACE(&arrays, m.groups, h);
    WEIR_ARRAYS_PLACE(&arrays, m.by_head, n * h);
    WEIR_ARRAYS_PLACE(&arrays, m.by_row, n * h);
    WEIR_ARRAYS_PLACE(&arrays, m.k, n * row(shape, NULL));
    WEIR_ARRAYS_PLACE(&arrays, m.first, n * weir_max(widest, shape->q_lora_rank));
    WEIR_ARRAYS_PLACE(&arrays, m.second, n * weir_max(widest, shape->q_lora_rank));
    m.n_elements = (int64_t)(arrays.bytes / sizeof(float));
    return m;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *block_options, int64_t n_rows, int64_t n_segments
)
{
    (void)block_options, (void)n_segments;
    return memory_of(shape, NULL, n_rows).n_elements;
}

/* ---- forward --------------------------------------------------------------------------------- */
/* Kernels that plan read the groups only. */
static void number_rows(const weir_shape *shape, const weir_step *step, const memory *m)
{
    const int64_t n_heads = shape->n_heads, n = step->n_rows;
    const bool has_rows = !weir_stream_is_planning(step->stream);
    for (int64_t h = 0; h < n_heads; h++) {
        m->groups[h] = (weir_matmul_group){ .first = h * n, .n_rows = n, .matrix = (int32_t)h };
        for (int64_t t = 0; has_rows && t < n; t++) {
            m->by_head[h * n + t] = (int32_t)(t * n_heads + h);
            m->by_row[t * n_heads + h] = (int32_t)(h * n + t);
        }
    }
}

/* dst[i,:] = src[order[i],:], rows of `dim`. */
static weir_status reorder(
    const weir_shape *shape, const weir_step *step, float *dst, const float *src,
    const int32_t *order, int64_t dim
)
{
    const int64_t n = step->n_rows * shape->n_heads;
    return weir_embed(
        step->stream, &(weir_embed_args){ .dst = dst,
                                          .table = src,
                                          .ids = order,
                                          .n_rows = n,
                                          .dim = dim,
                                          .n_vocab = n,
                                          .dtype = WEIR_F32 }
    );
}

/* dst = W_h x for the rows of each head h, both by head. */
static weir_status multiply_heads(
    const weir_shape *shape, const weir_step *step, const memory *m, const weir_weight *matrices,
    float *dst, int64_t dst_stride, const float *x, int64_t x_stride
)
{
    const weir_matmul_output output = { .weight = matrices, .dst = dst, .dst_stride = dst_stride };
    return weir_matmul(
        step->stream, &(weir_matmul_args){ .x = x,
                                           .n_rows = step->n_rows * shape->n_heads,
                                           .n_in = matrices->n_in,
                                           .x_stride = x_stride,
                                           .n_outputs = 1,
                                           .outputs = { output },
                                           .n_groups = (int32_t)shape->n_heads,
                                           .groups = m->groups }
    );
}

/* Computes the latents with their rotated keys, and the queries [n, H, P+R], rotated; no_rope: not
 * rotated. `between` is free. */
static weir_status project(
    const weir_shape *shape, const mla_options *o, const weights *w, const weir_step *step,
    const memory *m, float *q, float *between
)
{
    const int64_t width = query(shape, o), all = row(shape, o), rope = shape->rotary_dim,
                  rank = shape->kv_lora_rank, q_rank = shape->q_lora_rank;
    const weir_rope_pairing pairing = (weir_rope_pairing)o->rope;
    const weir_linear_output outputs[] = {
        { m->k, w->kv_a, NULL }, { q_rank > 0 ? between : q, q_rank > 0 ? w->q_a : w->q, NULL }
    };
    WEIR_TRY(weir_linear_outputs(step, 2, outputs, step->in.x));
    if (q_rank > 0) {
        const weir_head_rows latents = { between, 1, q_rank, q_rank };
        WEIR_TRY(weir_norm_heads(step, latents, w->q_a_norm, o->norm_eps));
        WEIR_TRY(weir_linear(step, q, w->q_b, between));
    }
    WEIR_TRY(
        weir_norm_heads(step, (weir_head_rows){ m->k, 1, rank, all }, w->kv_a_norm, o->norm_eps)
    );
    if (o->no_rope) return WEIR_OK;
    const weir_head_rows key = { m->k + rank, 1, rope, all },
                         rotated = { q + shape->nope_dim, shape->n_heads, rope, width };
    WEIR_TRY(weir_rope_heads(step, step->in.rope, key, rope, pairing));
    return weir_rope_heads(step, step->in.rope, rotated, rope, pairing);
}

/* Queries for latent rows, by head: dst [H, n, L+R] = [W_UK^T q | rotated q], q [H, n, P+R]. */
static weir_status absorb(
    const weir_shape *shape, const weights *w, const weir_step *step, const memory *m, float *dst,
    const float *q
)
{
    const int64_t width = query(shape, NULL), all = row(shape, NULL), rank = shape->kv_lora_rank;
    WEIR_TRY(multiply_heads(shape, step, m, w->k_b, dst, all, q, width));
    if (weir_stream_is_planning(step->stream)) return WEIR_OK;
    for (int64_t i = 0; i < step->n_rows * shape->n_heads; i++)
        memcpy(
            dst + i * all + rank, q + i * width + shape->nope_dim,
            (size_t)shape->rotary_dim * sizeof *q
        );
    return WEIR_OK;
}

/* c = norm(W_DKV x), k = rope(W_KR x); q = W_UQ norm(W_DQ x) or W_Q x, its last R dims rotated.
 * u_h = softmax(scale (W_UK_h^T q_h . c + q_h . k)) c; out = W_O [W_UV_h u_h]. */
static weir_status forward(
    const weir_shape *shape, const void *block_options, const void *block_weights,
    const weir_step *step
)
{
    const mla_options *const o = block_options;
    const weights *const w = block_weights;
    const int64_t n = step->n_rows, n_heads = shape->n_heads, all = row(shape, o),
                  rank = shape->kv_lora_rank, v_dim = shape->value_dim;
    const memory m = memory_of(shape, step->out.scratch, n);
    const bool one = n == 1; /* by head is by row */
    float *const a = m.first, *const b = m.second;
    WEIR_ASSERT(m.groups != NULL && m.by_head != NULL && m.by_row != NULL); /* read here */
    number_rows(shape, step, &m);

    WEIR_TRY(project(shape, o, w, step, &m, one ? b : a, one ? a : b));
    if (!one) WEIR_TRY(reorder(shape, step, b, a, m.by_head, query(shape, o)));
    WEIR_TRY(absorb(shape, w, step, &m, a, b));
    WEIR_TRY(weir_attend(
        step, m.k, NULL,
        (weir_attention_args){ .out = b,
                               .q = a,
                               .n_heads = n_heads,
                               .n_kv_heads = 1,
                               .key_dim = all,
                               .value_dim = rank,
                               .q_stride = all,
                               .q_head_stride = n * all,
                               .out_stride = n_heads * rank,
                               .scale = scale_of(shape),
                               .value_aliases_key = true,
                               .softcap = (float)shape->attention_softcap }
    ));
    if (!one) WEIR_TRY(reorder(shape, step, a, b, m.by_head, rank));
    float *const sums = one ? b : a, *const out = one ? a : b;
    WEIR_TRY(multiply_heads(shape, step, &m, w->v_b, out, v_dim, sums, rank));
    if (!one) WEIR_TRY(reorder(shape, step, a, b, m.by_row, v_dim));
    return weir_linear(step, step->out.x, w->out, a);
}

const weir_block weir_block_mla = {
    .name = "mla",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .options = option_table,
    .options_bytes = sizeof(mla_options),
    .host_only = "latent attention is computed on the host only",
    .scratch_elements = scratch_elements,
    .forward = forward,
    .kv = kv,
    .reject = reject,
};
