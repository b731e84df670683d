#include "engine/model/blocks/heads.h"

#include "engine/model/blocks/linear.h"

static const weir_heads_options *own(const void *options) { return options; }

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
#undef EXTENT

const char *const weir_heads_shapes[] = { "n_heads",    "n_kv_heads", "head_dim",
                                          "rotary_dim", "rope_theta", NULL };

weir_block_kv weir_heads_kv(const weir_shape *shape, const void *options)
{
    return (weir_block_kv){ .geometry = { .n_heads = shape->n_kv_heads,
                                          .key_dim = shape->head_dim,
                                          .value_dim = shape->head_dim },
                            .rope = (weir_rope_pairing)own(options)->rope,
                            .n_queries = shape->n_heads };
}

bool weir_heads_with_norm(const void *options) { return own(options)->qk_norm; }

/* Heads of `stride` elements in rows of `n_heads * stride`, in place. */
static weir_status normalise(
    const weir_shape *shape, const weir_step *step, float *x, const float *norm, int64_t n_heads,
    int64_t stride
)
{
    if (norm == NULL) return WEIR_OK;
    return weir_rmsnorm(
        step->stream, &(weir_rmsnorm_args){ .dst = x,
                                            .src = x,
                                            .weight = norm,
                                            .n_rows = step->n_rows,
                                            .n_groups = n_heads,
                                            .dim = shape->head_dim,
                                            .dst_stride = n_heads * stride,
                                            .dst_group_stride = stride,
                                            .src_stride = n_heads * stride,
                                            .src_group_stride = stride,
                                            .eps = (float)shape->norm_eps }
    );
}

weir_status weir_heads_project(
    const weir_shape *shape, const void *options, const weir_heads *w, const weir_step *step,
    float *q, float *k, float *v
)
{
    const int64_t q_row = weir_heads_q_width(shape, options);
    WEIR_TRY(weir_linear(
        step, step->normed, 3,
        (const weir_linear_output[]
        ){ { q, w->q, w->q_bias }, { k, w->k, w->k_bias }, { v, w->v, w->v_bias } }
    ));
    WEIR_TRY(normalise(shape, step, q, w->q_norm, shape->n_heads, q_row / shape->n_heads));
    return normalise(shape, step, k, w->k_norm, shape->n_kv_heads, shape->head_dim);
}

weir_status weir_heads_turn(
    const weir_shape *shape, const void *options, const weir_step *step, float *x, int64_t n_heads,
    int64_t stride
)
{
    return weir_rope(
        step->stream, &(weir_rope_args){ .x = x,
                                         .positions = step->positions,
                                         .frequencies = step->rope.frequencies,
                                         .magnitude = step->rope.magnitude,
                                         .n_rows = step->n_rows,
                                         .n_heads = n_heads,
                                         .rotary_dim = shape->rotary_dim,
                                         .row_stride = n_heads * stride,
                                         .head_stride = stride,
                                         .pairing = (weir_rope_pairing)own(options)->rope }
    );
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
    return weir_linear(step, x, 1, &(weir_linear_output){ step->mixed, w->out, w->out_bias });
}

bool weir_heads_is_cold(const weir_step *step, int64_t segment)
{
    const weir_kv_source *const source = step->source;
    return source != NULL && source->is_cold(source->user, step->kv_layer, step->kv_owner[segment]);
}

weir_kv_range weir_heads_take_range(const weir_step *step, int64_t segment, weir_kv_segment *rows)
{
    weir_kv_range range;
    step->source->take(step->source->user, step->kv_layer, step->kv_owner[segment], &range);
    rows->pages = range.pages;
    rows->page_stride = range.page_stride;
    return range;
}

/* For a segment with pages on disk, range by range: any partition gives the bits of one call. It is
 * a whole sequence: none that lost rows has pages there. */
static weir_status attend_in_ranges(
    const weir_step *step, weir_attention_args piece, int64_t segment
)
{
    weir_kv_segment rows = step->kv[segment];
    piece.segments = &rows;
    piece.n_segments = 1;
    piece.partials = step->partials;
    while (!piece.is_last) {
        const weir_kv_range range = weir_heads_take_range(step, segment, &rows);
        piece.first_split = range.first_split;
        piece.end_split = range.end_split;
        piece.is_last = range.is_last;
        const weir_status status = weir_attention(step->stream, &piece);
        step->source->give(step->source->user);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Segments with all pages in memory are one call. */
static weir_status attend(const weir_step *step, const weir_attention_args *args)
{
    weir_attention_args warm = *args;
    int32_t n_warm = 0;
    if (step->source == NULL) return weir_attention(step->stream, args);
    for (int64_t i = 0; i < step->n_kv; i++)
        if (!weir_heads_is_cold(step, i)) step->warm[n_warm++] = step->kv[i];
    warm.segments = step->warm;
    warm.n_segments = n_warm;
    if (n_warm > 0) WEIR_TRY(weir_attention(step->stream, &warm));
    for (int64_t i = 0; n_warm < step->n_kv && i < step->n_kv; i++)
        if (weir_heads_is_cold(step, i)) WEIR_TRY(attend_in_ranges(step, *args, i));
    return WEIR_OK;
}

weir_status weir_heads_attend(
    const weir_step *step, const float *k, const float *v, weir_attention_args args
)
{
    args.segments = step->kv;
    args.n_segments = step->n_kv;
    args.k_format = step->kv_format.k;
    args.v_format = step->kv_format.v;
    args.sinks = step->sinks;
    if (k == NULL) return attend(step, &args);
    WEIR_TRY(weir_kv_write(
        step->stream, &(weir_kv_write_args){ .k = k,
                                             .v = v,
                                             .segments = args.segments,
                                             .n_segments = args.n_segments,
                                             .n_kv_heads = args.n_kv_heads,
                                             .key_dim = args.key_dim,
                                             .value_dim = args.value_dim,
                                             .k_stride = args.n_kv_heads * args.key_dim,
                                             .v_stride = args.n_kv_heads * args.value_dim,
                                             .k_format = args.k_format,
                                             .v_format = args.v_format,
                                             .sinks = args.sinks }
    ));
    return attend(step, &args);
}
