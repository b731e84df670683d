/* tests/unit/model/toy_mixer.c - attention with keys of 24 and values of 16 elements, and an echo s
 * (a running mean of its inputs). q, k = rope(norm(W_q x)), rope(norm(W_k x)), v = W_v x,
 * s = s + decay (x - s), out = W_out attention(q, k, v) + s. */
#include <math.h>
#include <string.h>

#include "engine/model/blocks/attend.h"
#include "engine/model/blocks/layer_ops.h"
#include "tests/unit/model/toy_blocks.h"

typedef struct weights {
    const weir_weight *q, *k, *v, *out; /* [H*24, D] [G*24, D] [G*16, D] [D, H*16]: G KV heads */
    const float *norms; /* [2, 2, 3, 2, 2]: 24 of queries, then 24 of keys */
} weights;

/* The layer's own; of its own, with what the toy layer before it wrote; those of that layer. */
typedef enum rows_kind { ROWS_OWN, ROWS_COPIED, ROWS_SHARED } rows_kind;

typedef struct toy_options {
    double decay;
    int32_t kv_heads; /* 0: those of the shape */
    int32_t rows; /* rows_kind */
} toy_options;

static const weir_block_option options_table[] = {
    WEIR_REAL_OPTION(toy_options, decay, "decay", 0, 1, 0.5),
    WEIR_INT_OPTION(toy_options, kv_heads, "kv_heads", 0, 64, 0),
    WEIR_WORD_OPTION(toy_options, rows, "rows", "own copied shared", ROWS_OWN),
    { 0 }
};

static int64_t kv_heads(const weir_shape *shape, const void *options)
{
    const toy_options *const own = options;
    return own->kv_heads > 0 ? own->kv_heads : shape->n_kv_heads;
}

WEIR_EXTENT(model, shape->d_model)
WEIR_EXTENT(q_width, shape->n_heads *TOY_KEY_DIM)
WEIR_EXTENT(k_width, kv_heads(shape, options) * TOY_KEY_DIM)
WEIR_EXTENT(v_width, kv_heads(shape, options) * TOY_VALUE_DIM)
WEIR_EXTENT(out_width, shape->n_heads *TOY_VALUE_DIM)
WEIR_EXTENT(two, 2)
WEIR_EXTENT(three, 3)

static const weir_parameter parameters[] = {
    { WEIR_MATRIX("toy.q", weights, q, q_width, model) },
    { WEIR_MATRIX("toy.k", weights, k, k_width, model) },
    { WEIR_MATRIX("toy.v", weights, v, v_width, model) },
    { WEIR_MATRIX("toy.out", weights, out, model, out_width) },
    { WEIR_VECTOR("toy.norms", weights, norms, two, two, three, two, two) },
    { 0 }
};

static const char *const shapes[] = { "n_heads", "n_kv_heads", "rope_theta", NULL };

static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    return (weir_block_kv){ .geometry = { .n_heads = kv_heads(shape, options),
                                          .key_dim = TOY_KEY_DIM,
                                          .value_dim = TOY_VALUE_DIM },
                            .is_shared = ((const toy_options *)options)->rows == ROWS_SHARED,
                            .scale = 1.0f / sqrtf((float)TOY_KEY_DIM),
                            .n_queries = shape->n_heads };
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)n_segments;
    return n_rows * (q_width(shape, options) + k_width(shape, options) + v_width(shape, options) +
                     out_width(shape, options));
}

/* Norm and RoPE of heads of 24 elements, in place. */
static weir_status norm_and_rope(
    const weir_shape *shape, const weir_step *step, float *x, const float *weight, int64_t n_heads
)
{
    const weir_head_rows heads = { x, n_heads, TOY_KEY_DIM, TOY_KEY_DIM };
    WEIR_TRY(weir_norm_heads(step, heads, weight, shape->norm_eps));
    return weir_rope_heads(step, step->in.rope, heads, TOY_KEY_DIM, WEIR_ROPE_HALF_SPLIT);
}

/* Row by row, so that any cut gives the same bits. */
static void add_echo(const weir_shape *shape, const toy_options *options, const weir_step *step)
{
    const int64_t d = shape->d_model;
    const float decay = (float)options->decay;
    if (weir_stream_is_planning(step->stream)) return;
    for (int64_t r = 0; r < step->in.n_rounds; r++) {
        const weir_recurrent_round *const round = &step->in.rounds[r];
        for (int64_t i = 0; i < step->n_segments; i++) {
            const weir_recurrent_segment *const s = &round->segments[i];
            float *const mean = s->state;
            for (int64_t row = s->first_row; row < s->first_row + s->n_rows; row++)
                for (int64_t c = 0; c < d; c++) {
                    mean[c] += decay * (step->in.x[row * d + c] - mean[c]);
                    step->out.x[row * d + c] += mean[c];
                }
        }
        for (int32_t c = 0; c < round->n_copies; c++)
            memcpy(round->copies[c].dst, round->copies[c].src, round->copies[c].bytes);
    }
}

/* Keys and values of the toy layer before, for ROWS_COPIED: engines of this test run one step at a
 * time. */
enum { COPIED_FLOATS = 1 << 20 };
static float copied_k[COPIED_FLOATS], copied_v[COPIED_FLOATS];

static void copy_rows(rows_kind rows, float *k, int64_t n_k, float *v, int64_t n_v)
{
    WEIR_ASSERT(n_k <= COPIED_FLOATS && n_v <= COPIED_FLOATS);
    const bool takes = rows == ROWS_COPIED;
    memcpy(takes ? k : copied_k, takes ? copied_k : k, (size_t)n_k * sizeof *k);
    memcpy(takes ? v : copied_v, takes ? copied_v : v, (size_t)n_v * sizeof *v);
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const rows_kind rows = (rows_kind)((const toy_options *)options)->rows;
    const int64_t n = step->n_rows, h = shape->n_heads, g = kv_heads(shape, options);
    const int64_t q_row = h * TOY_KEY_DIM, k_row = g * TOY_KEY_DIM, v_row = g * TOY_VALUE_DIM,
                  out_row = h * TOY_VALUE_DIM;
    float *const q = step->out.scratch, *const k = q + n * q_row, *const v = k + n * k_row,
                 *const out = v + n * v_row;
    WEIR_TRY(weir_linear_outputs(
        step, 3,
        (const weir_linear_output[]){ { q, w->q, NULL }, { k, w->k, NULL }, { v, w->v, NULL } },
        step->in.x
    ));
    WEIR_TRY(norm_and_rope(shape, step, q, w->norms, h));
    const float *const k_norm = w->norms != NULL ? w->norms + TOY_KEY_DIM : NULL; /* planning */
    WEIR_TRY(norm_and_rope(shape, step, k, k_norm, g));
    if (!weir_stream_is_planning(step->stream) && rows != ROWS_SHARED)
        copy_rows(rows, k, n * k_row, v, n * v_row);
    WEIR_TRY(weir_attend(
        step, rows == ROWS_SHARED ? NULL : k, rows == ROWS_SHARED ? NULL : v,
        (weir_attention_args){ .out = out,
                               .q = q,
                               .n_heads = h,
                               .n_kv_heads = g,
                               .key_dim = TOY_KEY_DIM,
                               .value_dim = TOY_VALUE_DIM,
                               .q_stride = q_row,
                               .q_head_stride = TOY_KEY_DIM,
                               .out_stride = out_row,
                               .scale = 1.0f / sqrtf((float)TOY_KEY_DIM) }
    ));
    WEIR_TRY(weir_linear(step, step->out.x, w->out, out));
    add_echo(shape, options, step);
    return WEIR_OK;
}

static bool check(const weir_shape *shape, const void *options, const void *state, int64_t n_tokens)
{
    const float *const mean = state;
    (void)options;
    for (int64_t c = 0; c < shape->d_model; c++)
        if (!isfinite(mean[c])) return false;
    return n_tokens > 0;
}

static const weir_state_ops state = { .elements = model, .check = check };

const weir_block toy_mixer = {
    .name = "toy_mixer",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .options = options_table,
    .options_bytes = sizeof(toy_options),
    .host_only = "the toy is computed on the CPU",
    .state = &state,
    .kv = kv,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
