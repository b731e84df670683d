/* engine/model/blocks/attention_mamba2.c - attention and Mamba-2 side by side in one layer, which
 * read the same rows and whose outputs are added (Falcon-H1, Zuo et al. 2025): a layer with KV rows
 * and a state. */
#include "engine/model/blocks/attention.h"
#include "engine/model/blocks/layer_ops.h"
#include "engine/model/blocks/mamba2.h"

typedef struct weights {
    weir_attention_weights attention;
    weir_mamba2 ssm;
} weights;

typedef struct both_options {
    weir_attention_options attention;
    weir_mamba2_options own;
} both_options;

WEIR_MAMBA2_CHOICES(both_options, own)

static const weir_parameter parameters[] = { WEIR_ATTENTION_PARAMETERS,
                                             WEIR_MAMBA2_PARAMETERS(weights, ssm),
                                             { 0 } };

static const weir_block_option option_table[] = { WEIR_ATTENTION_OPTIONS,
                                                  WEIR_MAMBA2_OPTIONS(both_options, own),
                                                  { 0 } };

static const char *const shapes[] = { "n_heads",    "n_kv_heads",       "head_dim", "rotary_dim",
                                      "rope_theta", WEIR_MAMBA2_SHAPES, NULL };

static weir_status check(const void *options, weir_error *error)
{
    return weir_block_attention.check(options, error);
}

static const char *reject(const weir_shape *shape, const void *options)
{
    const char *const why = weir_mamba2_reject(shape);
    return why != NULL ? why : weir_block_attention.reject(shape, options);
}

static weir_block_kv kv(const weir_shape *shape, const void *options)
{
    return weir_block_attention.kv(shape, options);
}

static const char *const *more_shapes(const void *options)
{
    return weir_block_attention.more_shapes(options);
}

/* What Mamba-2 adds, and the scratch of one after the other. */
static int64_t scratch_elements(
    const weir_shape *shape, const void *options, int64_t n_rows, int64_t n_segments
)
{
    const int64_t a = weir_block_attention.scratch_elements(shape, options, n_rows, n_segments),
                  b = weir_mamba2_scratch(shape, n_rows);
    return n_rows * shape->d_model + (a > b ? a : b);
}

static weir_status forward(
    const weir_shape *shape, const void *options, const void *block_weights, const weir_step *step
)
{
    const weights *const w = block_weights;
    const int64_t d = shape->d_model;
    float *const added = step->out.scratch; /* [n, D] */
    weir_step part = *step;
    part.out = (weir_step_outputs){ .x = added, .scratch = added + step->n_rows * d };
    WEIR_TRY(weir_mamba2_forward(shape, &w->ssm, &part));
    part.out.x = step->out.x;
    WEIR_TRY(weir_block_attention.forward(shape, options, &w->attention, &part));
    return weir_add(
        step->stream, &(weir_add_args){ .dst = step->out.x,
                                        .src = added,
                                        .n_rows = step->n_rows,
                                        .dim = d,
                                        .dst_stride = d,
                                        .src_stride = d }
    );
}

const weir_block weir_block_attention_mamba2 = {
    .name = "attention_mamba2",
    .kind = WEIR_BLOCK_MIXER,
    .parameters = parameters,
    .shapes = shapes,
    .weights_bytes = sizeof(weights),
    .options = option_table,
    .options_bytes = sizeof(both_options),
    .state = &weir_mamba2_state,
    .check = check,
    .reject = reject,
    .kv = kv,
    .more_shapes = more_shapes,
    .scratch_elements = scratch_elements,
    .forward = forward,
};
