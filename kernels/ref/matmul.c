/* kernels/ref/matmul.c - the specification of all layouts, sums in double. File rows and panels:
 * exact weights, f32 activations. Tiles, AMX and CUDA: packed weights, activations as the layout
 * rounds them (kernels/x86/activations.h, bf16, kernels/cuda/activations.h). */
#include <math.h>

#include "kernels/abi/convert.h"
#include "kernels/abi/ops.h"
#include "kernels/cuda/activations.h"
#include "kernels/cuda/weight.h"
#include "kernels/ref/dequantise.h"
#include "kernels/x86/activations.h"
#include "kernels/x86/amx.h"
#include "kernels/x86/dense.h"
#include "kernels/x86/tiles.h"

enum { COLUMNS = 256, ROWS = 16 }; /* a weight is expanded once for this many rows of the batch */

typedef struct quantised_group {
    float scale;
    int8_t codes[WEIR_TILE_GROUP];
} quantised_group;

static void put(const weir_matmul_output *output, int64_t row, int64_t column, double sum)
{
    float *dst = output->dst + row * output->dst_stride + column;
    const double biased = output->bias ? sum + (double)output->bias[column] : sum;
    *dst = (float)(output->accumulate ? (double)*dst + biased : biased);
}

static weir_status expand(
    float *values, const weir_weight *weight, int64_t row, int64_t column, int64_t count
)
{
    if (weight->layout == WEIR_LAYOUT_DENSE) {
        for (int64_t i = 0; i < count; i++) values[i] = weir_dense_element(weight, row, column + i);
        return WEIR_OK;
    }
    if (weight->layout == WEIR_LAYOUT_AMX) {
        for (int64_t i = 0; i < count; i++) values[i] = weir_amx_element(weight, row, column + i);
        return WEIR_OK;
    }
    const uint8_t *from =
        (const uint8_t *)weight->data + (size_t)row * weir_row_bytes(weight->dtype, weight->n_in);
    return weir_k_ref_dequantise(
        values, from + weir_row_bytes(weight->dtype, column), weight->dtype, count
    );
}

static weir_status multiply_rows(
    const weir_matmul_args *args, const weir_matmul_output *output, int64_t first, int64_t rows
)
{
    const weir_weight *weight = output->weight;
    const bool rounds = weight->layout == WEIR_LAYOUT_AMX;
    for (int64_t n = 0; n < weight->n_out; n++) {
        double sums[ROWS] = { 0 };
        for (int64_t column = 0; column < args->n_in; column += COLUMNS) {
            float values[COLUMNS];
            const int64_t count = args->n_in - column < COLUMNS ? args->n_in - column : COLUMNS;
            WEIR_TRY(expand(values, weight, n, column, count));
            for (int64_t r = 0; r < rows; r++)
                for (int64_t i = 0; i < count; i++) {
                    const float x = args->x[(first + r) * args->x_stride + column + i];
                    sums[r] += (double)values[i] *
                               (double)(rounds ? weir_bf16_to_f32(weir_bf16_from_f32(x)) : x);
                }
        }
        for (int64_t r = 0; r < rows; r++) put(output, first + r, n, sums[r]);
    }
    return WEIR_OK;
}

static void multiply_tiles(
    const weir_matmul_args *args, const weir_matmul_output *output, int64_t first, int64_t rows,
    const quantised_group *groups
)
{
    const int64_t n_groups = args->n_in / WEIR_TILE_GROUP;
    for (int64_t n = 0; n < output->weight->n_out; n++) {
        double sums[ROWS] = { 0 };
        for (int64_t g = 0; g < n_groups; g++) {
            for (int i = 0; i < WEIR_TILE_GROUP; i++) {
                const weir_tile_element e =
                    weir_tiles_element(output->weight, n, g * WEIR_TILE_GROUP + i);
                const double value = (double)e.scale * (double)e.code + (double)e.minimum;
                for (int64_t r = 0; r < rows; r++) {
                    const quantised_group *group = &groups[(first + r) * n_groups + g];
                    sums[r] += value * (double)group->codes[i] * (double)group->scale;
                }
            }
        }
        for (int64_t r = 0; r < rows; r++) put(output, first + r, n, sums[r]);
    }
}

static float f16_factor(const float *x, int64_t n)
{
    float greatest = 0;
    for (int64_t i = 0; i < n; i++)
        greatest = isnan(x[i]) || fabsf(x[i]) > greatest ? fabsf(x[i]) : greatest;
    return weir_cuda_f16_factor(greatest);
}

/* An activation as a GPU rounds it for weights of that type. */
static double rounded(
    weir_dtype kept, const weir_matmul_args *args, const quantised_group *groups, int64_t row,
    int64_t i, float factor
)
{
    const float x = args->x[row * args->x_stride + i];
    switch (kept) {
    case WEIR_F32: return (double)x;
    case WEIR_BF16: return (double)weir_bf16_to_f32(weir_bf16_from_f32(x));
    case WEIR_F16: return (double)weir_f16_to_f32(weir_f16_from_f32(x * factor)) / (double)factor;
    default: break;
    }
    const quantised_group *const group =
        &groups[row * (args->n_in / WEIR_TILE_GROUP) + i / WEIR_TILE_GROUP];
    return (double)group->codes[i % WEIR_TILE_GROUP] * (double)group->scale;
}

static void multiply_cuda(
    const weir_matmul_args *args, const weir_matmul_output *output, int64_t first, int64_t rows,
    const quantised_group *groups
)
{
    const weir_dtype kept = output->weight->dtype;
    float factors[ROWS];
    for (int64_t r = 0; r < rows; r++)
        factors[r] = kept == WEIR_F16
                         ? f16_factor(args->x + (first + r) * args->x_stride, args->n_in)
                         : 1.0f;
    for (int64_t n = 0; n < output->weight->n_out; n++) {
        double sums[ROWS] = { 0 };
        for (int64_t i = 0; i < args->n_in; i++) {
            const double value = weir_cuda_element(output->weight, n, i);
            for (int64_t r = 0; r < rows; r++)
                sums[r] += value * rounded(kept, args, groups, first + r, i, factors[r]);
        }
        for (int64_t r = 0; r < rows; r++) put(output, first + r, n, sums[r]);
    }
}

static const char *reject(const weir_caps *caps, const void *op_args)
{
    const weir_matmul_args *args = op_args;
    (void)caps;
    for (int o = 0; o < args->n_outputs; o++)
        if (args->outputs[o].weight->layout == WEIR_LAYOUT_ONEDNN)
            return "weight is packed by oneDNN";
    return NULL;
}

/* Includes space for quantised activations, even if no output reads tiles. */
static size_t scratch(const void *op_args)
{
    const weir_matmul_args *args = op_args;
    return (size_t)args->n_rows * (size_t)(args->n_in / WEIR_TILE_GROUP) * sizeof(quantised_group);
}

static weir_status multiply(const weir_matmul_args *args, quantised_group *groups)
{
    const int64_t n_groups = args->n_in / WEIR_TILE_GROUP;
    for (int64_t row = 0; row < args->n_rows; row++)
        for (int64_t g = 0; g < n_groups; g++) {
            quantised_group *to = &groups[row * n_groups + g];
            to->scale = weir_activation_quantise(
                            to->codes, args->x + row * args->x_stride + g * WEIR_TILE_GROUP
            )
                            .scale;
        }
    for (int o = 0; o < args->n_outputs; o++) {
        if (args->outputs[o].weight->n_in != args->n_in) return WEIR_EINVAL;
        for (int64_t first = 0; first < args->n_rows; first += ROWS) {
            const int64_t rows = args->n_rows - first < ROWS ? args->n_rows - first : ROWS;
            if (args->outputs[o].weight->layout == WEIR_LAYOUT_TILES)
                multiply_tiles(args, &args->outputs[o], first, rows, groups);
            else if (args->outputs[o].weight->layout == WEIR_LAYOUT_CUDA)
                multiply_cuda(args, &args->outputs[o], first, rows, groups);
            else
                WEIR_TRY(multiply_rows(args, &args->outputs[o], first, rows));
        }
    }
    return WEIR_OK;
}

/* A group is a call on its rows, with its matrix. */
static weir_matmul_args group_call(const weir_matmul_args *args, const weir_matmul_group *group)
{
    weir_matmul_args call = *args;
    call.x += group->first * args->x_stride;
    call.n_rows = group->n_rows;
    call.n_groups = 0;
    for (int32_t o = 0; o < args->n_outputs; o++) {
        weir_matmul_output *const output = &call.outputs[o];
        output->weight += group->matrix;
        output->dst += group->first * output->dst_stride;
        if (output->bias) output->bias += group->matrix * output->weight->n_out;
    }
    return call;
}

static weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const weir_matmul_args *args = op_args;
    if (args->n_outputs < 0 || args->n_outputs > WEIR_MATMUL_OUTPUTS ||
        context->scratch_bytes < scratch(args))
        return WEIR_EINVAL;
    if (args->n_groups == 0) return multiply(args, context->scratch);
    for (int32_t g = 0; g < args->n_groups; g++) {
        const weir_matmul_args call = group_call(args, &args->groups[g]);
        WEIR_TRY(multiply(&call, context->scratch));
    }
    return WEIR_OK;
}

extern const weir_kernel weir_kernel_ref_matmul;
const weir_kernel weir_kernel_ref_matmul = {
    .op = WEIR_OP_MATMUL,
    .backend = WEIR_BACKEND_REF,
    .name = "ref.matmul",
    .reject = reject,
    .scratch = scratch,
    .run = run,
};
