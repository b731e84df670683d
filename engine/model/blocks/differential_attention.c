/* engine/model/blocks/differential_attention.c - differential attention over all rows of the
 * sequence: CoDA-GQA-L before its memory is bounded, and its first training stage. */
#include "engine/model/blocks/attend.h"
#include "engine/model/blocks/differential.h"

typedef struct weights {
    weir_differential differential;
} weights;

static const weir_parameter parameters[] = { WEIR_DIFFERENTIAL_PARAMETERS(weights, differential),
                                             { 0 } };

static void complete(void *options, weir_kv_format state_format)
{
    (void)state_format;
    ((weir_differential_options *)options)->is_on = true;
}

/* Each query head has two queries. */
static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    weir_block_kv rows = weir_heads_kv(shape, options);
    rows.n_queries = 2 * shape->n_heads;
    return rows;
}

static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    (void)n_segments;
    return weir_differential_elements(shape, options, n_rows);
}

static const char *reject(const weir_shape *shape, const void *options)
{
    if (shape->head_dim % 2 != 0 || shape->head_dim > 512)
        return "heads have an even number of dimensions, at most 512";
    const char *const why = weir_heads_reject(shape, options);
    return why != NULL ? why : weir_differential_reject(options);
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const weir_differential_rows rows = weir_differential_place(shape, options, step);
    WEIR_TRY(weir_differential_project(shape, options, &w->differential, step, &rows));
    WEIR_TRY(weir_attend(step, rows.k, rows.v, weir_differential_attention(shape, options, &rows)));
    return weir_differential_out(shape, options, &w->differential, step, &rows);
}

const weir_block weir_block_differential_attention = {
    .name = "differential_attention",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = weir_heads_shapes,
    .weights_bytes = sizeof(weights),
    .options = weir_differential_option_table,
    .options_bytes = sizeof(weir_differential_options),
    .check = weir_heads_check,
    .kv = kv,
    .complete = complete,
    .scratch_elements = scratch_elements,
    .forward = forward,
    .reject = reject,
};
