/* engine/model/blocks/attention.c - grouped-query attention (Ainslie et al. 2023), with the options
 * that published models use: biases, RMS norm on q and k, partial RoPE in both pairings, a sliding
 * window, and Qwen3.5's output gate.
 *
 *   q, k, v = W_q x, W_k x, W_v x          q per head [query | gate] with q_gate
 *   q, k    = rope(norm(q)), rope(norm(k)) k and v go to the KV pages
 *   out     = W_o (softmax(q K^T / sqrt(hd)) V * sigmoid(gate)) */
#include <math.h>
#include <string.h>

#include "engine/model/blocks/heads.h"

typedef struct weights {
    weir_heads heads;
} weights;

static const weir_slot slots[] = { WEIR_HEADS_SLOTS(weights, heads), { 0 } };

typedef struct attention_options {
    weir_heads_options heads;
    bool window; /* the shape's sliding window applies */
} attention_options;

static const weir_block_option option_table[] = {
    WEIR_HEADS_OPTIONS(attention_options, heads),
    WEIR_FLAG_OPTION(attention_options, window, "window", false),
    { 0 }
};

/* 0: all earlier rows are attended to. */
static int32_t window_of(const weir_shape *shape, const void *options)
{
    return ((const attention_options *)options)->window ? (int32_t)shape->window : 0;
}

static const char *const *more_shapes(const void *options)
{
    static const char *const window[] = { "window", NULL };
    return window + !((const attention_options *)options)->window;
}

static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    weir_block_kv rows = weir_heads_kv(shape, options);
    rows.geometry.window = window_of(shape, options);
    rows.watched = rows.geometry.window == 0;
    return rows;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)n_segments;
    return n_rows * (weir_heads_q_width(shape, options) + 2 * weir_heads_kv_width(shape, options) +
                     weir_heads_width(shape, options));
}

/* ---- what is watched ------------------------------------------------------------------------- */
static const weir_attention_watch *watch_of(
    const weir_shape *shape, const void *options, const weir_step *step, int64_t sequence
)
{
    return step->watches != NULL && window_of(shape, options) == 0 ? step->watches[sequence] : NULL;
}

/* Returns n elements of queries where the host can read them, until the next call. */
static const float *shown(const weir_step *step, const float *q, int64_t n)
{
    if (step->shown_queries == NULL) return q;
    weir_stream_copy(step->stream, step->shown_queries, q, (size_t)n * sizeof *q);
    return step->shown_queries;
}

/* Stores q [n_rows, H, stride] before rotation for the sequences that need it. */
static void keep_plain(
    const weir_shape *shape, const void *options, const weir_step *step, const float *q,
    int64_t stride
)
{
    const size_t bytes = (size_t)shape->head_dim * sizeof(float);
    for (int64_t i = 0; i < step->n_kv; i++) {
        const weir_attention_watch *const watch = watch_of(shape, options, step, step->kv_owner[i]);
        if (watch == NULL || watch->plain == NULL || step->kv[i].first_head > 0) continue;
        const float *const rows = shown(
            step, q + step->kv[i].first_row * shape->n_heads * stride,
            step->kv[i].n_rows * shape->n_heads * stride
        );
        for (int64_t r = 0; r < step->kv[i].n_rows; r++)
            for (int64_t h = 0; h < shape->n_heads; h++)
                memcpy(
                    watch->plain + (r * shape->n_heads + h) * shape->head_dim,
                    rows + (r * shape->n_heads + h) * stride, bytes
                );
    }
}

/* The queries of all rows. */
typedef struct turned_queries {
    const float *q;
    int64_t row_stride, head_stride;
} turned_queries;

/* The last row of a segment whose logits attention stored. */
static weir_kv_segment last_row(const weir_kv_segment *segment)
{
    weir_kv_segment row = *segment;
    row.first_row += segment->n_rows - 1;
    row.n_past += segment->n_rows - 1;
    row.n_rows = 1;
    return row;
}

/* For a segment with pages on disk, as in weir_heads_attend. */
static weir_status find_mass_in_ranges(
    const weir_step *step, weir_attention_mass_args piece, int64_t segment
)
{
    weir_attention_mass_segment part = step->mass[segment];
    bool is_last = false;
    piece.segments = &part;
    piece.n_segments = 1;
    while (!is_last) {
        const weir_kv_range range = weir_heads_take_range(step, segment, &part.rows);
        part.first_slot = range.first_split * WEIR_ATTENTION_SPLIT;
        part.end_slot = range.is_last ? 0 : range.end_split * WEIR_ATTENTION_SPLIT;
        is_last = range.is_last;
        const weir_status status = weir_attention_mass(step->stream, &piece);
        step->source->give(step->source->user);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Attention mass that the rows of a sequence, segments [first, end), gave to earlier rows. */
static weir_status find_mass(
    const weir_shape *shape, const weir_step *step, const weir_attention_watch *watch,
    const turned_queries *queries, int64_t first, int64_t end
)
{
    const int64_t group = shape->n_heads / shape->n_kv_heads;
    const bool rereads = weir_attention_watch_rereads(watch, step->kv[first].n_rows);
    for (int64_t i = first; i < end; i++) {
        const int64_t at = step->kv[i].first_head * group * watch->stride;
        step->mass[i] =
            (weir_attention_mass_segment){ .rows = rereads ? step->kv[i] : last_row(&step->kv[i]),
                                           .mass = watch->mass != NULL ? watch->mass + at : NULL,
                                           .below = watch->below != NULL ? watch->below + at : NULL,
                                           .last = watch->last != NULL ? watch->last + at : NULL,
                                           .stride = watch->stride };
    }
    const weir_attention_mass_args args = { .q = queries->q,
                                            .lse = step->lse,
                                            .segments = step->mass + first,
                                            .n_segments = end - first,
                                            .n_heads = shape->n_heads,
                                            .n_kv_heads = shape->n_kv_heads,
                                            .key_dim = shape->head_dim,
                                            .q_stride = queries->row_stride,
                                            .q_head_stride = queries->head_stride,
                                            .scale = 1.0f / sqrtf((float)shape->head_dim),
                                            .k_format = step->kv_format.k,
                                            .sinks = step->sinks };
    return rereads && weir_heads_is_cold(step, first) ? find_mass_in_ranges(step, args, first)
                                                      : weir_attention_mass(step->stream, &args);
}

/* Observed sequences, one by one: they may share the buffers for the mass. */
static weir_status show(
    const weir_shape *shape, const void *options, const weir_step *step,
    const turned_queries *queries
)
{
    for (int64_t first = 0, end; first < step->n_kv; first = end) {
        const weir_attention_watch *const watch =
            watch_of(shape, options, step, step->kv_owner[first]);
        for (end = first + 1; end < step->n_kv && step->kv_owner[end] == step->kv_owner[first];)
            end++;
        if (watch == NULL) continue;
        const bool is_planned = watch->seen == NULL;
        const weir_status status = weir_attention_watch_wants_mass(watch)
                                       ? find_mass(shape, step, watch, queries, first, end)
                                       : WEIR_OK;
        if (is_planned && status == WEIR_EUNSUPPORTED)
            continue; /* not supported: refused earlier (weir_model_shows_mass) */
        WEIR_TRY(status);
        if (is_planned) continue;
        const float *q = queries->q + step->kv[first].first_row * queries->row_stride;
        q = shown(step, q, step->kv[first].n_rows * queries->row_stride);
        watch->seen(watch->user, step->kv_layer, q, queries->row_stride, queries->head_stride);
    }
    return WEIR_OK;
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const int64_t n = step->n_rows, hd = shape->head_dim;
    const int64_t q_row = weir_heads_q_width(shape, options),
                  kv_row = weir_heads_kv_width(shape, options),
                  o_row = weir_heads_width(shape, options);
    const int64_t q_head = q_row / shape->n_heads;

    float *const q = step->scratch; /* [n, H, hd (| gate)] */
    float *const k = q + n * q_row; /* [n, G, hd]          */
    float *const v = k + n * kv_row; /* [n, G, hd]          */
    float *const out = v + n * kv_row; /* [n, H, hd]          */

    WEIR_TRY(weir_heads_project(shape, options, &w->heads, step, q, k, v));
    if (step->watches != NULL) keep_plain(shape, options, step, q, q_head);
    WEIR_TRY(weir_heads_turn(shape, options, step, q, shape->n_heads, q_head));
    WEIR_TRY(weir_heads_turn(shape, options, step, k, shape->n_kv_heads, hd));
    WEIR_TRY(weir_heads_attend(
        step, k, v,
        (weir_attention_args){ .out = out,
                               .q = q,
                               .n_heads = shape->n_heads,
                               .n_kv_heads = shape->n_kv_heads,
                               .key_dim = hd,
                               .value_dim = hd,
                               .q_stride = q_row,
                               .q_head_stride = q_head,
                               .out_stride = o_row,
                               .window = window_of(shape, options),
                               .scale = 1.0f / sqrtf((float)hd),
                               .lse = step->watches != NULL ? step->lse : NULL }
    ));
    if (step->watches != NULL)
        WEIR_TRY(show(shape, options, step, &(turned_queries){ q, q_row, q_head }));
    WEIR_TRY(weir_heads_gate(shape, options, step, out, q));
    return weir_heads_out(&w->heads, step, out);
}

const weir_block weir_block_attention = {
    .name = "attention",
    .kind = WEIR_BLOCK_MIXER,
    .slots = slots,
    .shapes = weir_heads_shapes,
    .weights_bytes = sizeof(weights),
    .options = option_table,
    .options_bytes = sizeof(attention_options),
    .kv = kv,
    .more_shapes = more_shapes,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
