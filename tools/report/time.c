/* tools/report/time.c - operations and bytes of a decode step: lower bounds for any kernels. */
#include <math.h>

#include "tools/report/report.h"

/* Of attention in one layer, per query head and row: products for the score, sums for the
 * output. */
static double widths(const weir_report_assumptions *a, const weir_report_shape *shape)
{
    if (shape->latent_dim > 0 && !a->every_head_keeps_kv)
        return (double)(2 * shape->latent_dim + shape->rope_dim);
    return (double)(shape->key_dim + shape->value_dim);
}

weir_report_intensity weir_report_intensity_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t batch, int64_t tokens
)
{
    const double layers = shape->n_kv_layers > 0 ? (double)shape->n_kv_layers : 1;
    const double heads = (double)(batch * shape->n_heads), width = widths(a, shape);
    const double kv =
        weir_report_kv_per_token(a, shape, format) / layers * (double)(batch * tokens);
    const double flops = 2 * heads * width * (double)tokens;
    const double bytes = kv + 2 * heads * width; /* queries and outputs, two bytes each */
    return (weir_report_intensity){ .flops = flops,
                                    .bytes = bytes,
                                    .intensity = flops / bytes,
                                    .compute_seconds = flops / a->reference.flops,
                                    .memory_seconds = bytes / a->reference.bandwidth };
}

/* A token uses n_experts_used of n_experts, chosen at random. */
static double experts_touched(const weir_report_shape *shape, double batch)
{
    const double share = (double)shape->n_experts_used / (double)shape->n_experts;
    return 1 - pow(1 - share, batch);
}

weir_report_step weir_report_step_of(
    const weir_report_assumptions *a, const weir_report_shape *shape, weir_kv_format format,
    int64_t batch, int64_t tokens
)
{
    const double n = (double)batch,
                 all = (double)(weir_report_parameters(a, shape) - shape->layer_embedding);
    const double embedding =
        shape->tied || a->narrow_ffn
            ? 0
            : (double)shape->n_vocab * (double)shape->d_model; /* one row per token */
    const double layers = (double)(shape->n_layers - shape->n_dense_layers);
    const double routed =
        layers * (double)shape->n_experts * 3 * (double)shape->d_model * (double)shape->d_expert;
    const double rest = fmax(0, all - embedding - routed);
    /* An engine's own figure excludes the embedding: its rows are read from the file. */
    const bool held = shape->weight_bytes > 0 && !a->narrow_ffn;
    const double per_parameter =
        (double)weir_report_weights(a, shape) / (held ? rest + routed : all);
    const double share =
        shape->n_experts > 0 ? (double)shape->n_experts_used / (double)shape->n_experts : 0;
    const double touched = shape->n_experts > 0 ? experts_touched(shape, n) : 0;
    const double local = (double)shape->n_local_layers,
                 width = ((double)shape->n_kv_layers - local) * widths(a, shape) +
                         local * (double)(shape->local_key_dim + shape->local_value_dim);
    const double attention = 2 * (double)shape->n_heads * width * (double)tokens;
    weir_report_step step = { .weights = (rest + routed * touched) * per_parameter,
                              .kv = n * (double)tokens * weir_report_kv_per_token(a, shape, format),
                              .states =
                                  n * 2 * (double)shape->recurrent_bytes, /* read and written */
                              .flops = n * (2 * (rest + routed * share) + attention) };
    step.bytes = step.weights + step.kv + step.states;
    return step;
}
