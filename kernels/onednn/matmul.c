/* kernels/onednn/matmul.c - the product on dense weights: bf16 with activations rounded to bf16,
 * once for all outputs, or all in f32; adds bias and previous contents. That a row has the same
 * bits in every batch was observed for oneDNN 2.6 with packed weights, and a test checks it. */
#include "kernels/abi/convert.h"
#include "kernels/abi/share.h"
#include "kernels/onednn/kernels.h"
#include "kernels/onednn/weight.h"

/* Below this, waking the threads costs more than the loop. */
enum { SERIAL_ELEMENTS = 16384 };

typedef struct plan {
    size_t input_offset, product_offset, spill_offset, bytes; /* oneDNN's own scratch comes first */
} plan;

static size_t aligned(size_t n) { return (n + 63) & ~(size_t)63; }

/* True for results that oneDNN may write in place; others go through scratch: its fast kernels take
 * no row stride. */
static bool is_direct(const weir_matmul_args *args, const weir_matmul_output *output)
{
    return !output->accumulate &&
           (output->dst_stride == output->weight->n_out || args->n_rows == 1);
}

static bool is_copied(const weir_matmul_args *args)
{
    return args->outputs[0].weight->dtype == WEIR_BF16 ||
           (args->x_stride != args->n_in && args->n_rows > 1) ||
           weir_onednn_padded_rows(args->n_rows) != args->n_rows;
}

/* `padded`: rows of the input's copy, 0: none; `spills`: the last rows go through scratch. */
static plan place(const weir_matmul_args *args, int32_t n_threads, size_t padded, bool spills)
{
    const size_t element = args->outputs[0].weight->dtype == WEIR_BF16 ? 2 : 4;
    plan p = { .input_offset = aligned(weir_onednn_scratch_bytes(n_threads)) };
    p.product_offset = p.input_offset + aligned(padded * (size_t)args->n_in * element);
    size_t widest = 0, widest_copied = 0;
    for (int o = 0; o < args->n_outputs; o++) {
        const size_t n = (size_t)args->outputs[o].weight->n_out;
        if (n > widest) widest = n;
        if (!is_direct(args, &args->outputs[o]) && n > widest_copied) widest_copied = n;
    }
    p.spill_offset =
        p.product_offset + aligned((size_t)args->n_rows * widest_copied * sizeof(float));
    p.bytes = p.spill_offset + (spills ? WEIR_ONEDNN_PADDED * widest * sizeof(float) : 0);
    return p;
}

static plan make_plan(const weir_matmul_args *args, int32_t n_threads)
{
    const int64_t padded = weir_onednn_padded_rows(args->n_rows);
    return place(args, n_threads, is_copied(args) ? (size_t)padded : 0, padded != args->n_rows);
}

static const char *reject_dtype(const weir_matmul_args *args, weir_dtype dtype)
{
    if (args->n_outputs < 1 || args->n_outputs > WEIR_MATMUL_OUTPUTS) return "needs 1 to 4 outputs";
    if (args->n_rows < 1) return "needs rows";
    if (args->n_groups > 0) return "takes one matrix a call";
    for (int o = 0; o < args->n_outputs; o++) {
        const weir_weight *weight = args->outputs[o].weight;
        if (weight->layout != WEIR_LAYOUT_ONEDNN) return "weight is not packed by oneDNN";
        if (weight->dtype != dtype)
            return dtype == WEIR_BF16 ? "weight is not bf16" : "weight is not f32";
        if (weight->n_in != args->n_in) return "n_in differs from the weight's";
    }
    return NULL;
}

static const char *reject_bf16(const weir_caps *caps, const void *args)
{
    return caps->avx512_bf16 ? reject_dtype(args, WEIR_BF16) : "needs AVX-512 BF16";
}
static const char *reject_f32(const weir_caps *caps, const void *args)
{
    return caps->x86_v4 ? reject_dtype(args, WEIR_F32) : "needs AVX-512 (x86-64-v4)";
}

/* Of any call with at most as many rows: fewer may be copied and spill where these do not. */
static size_t scratch(const void *args)
{
    const int64_t n_rows = ((const weir_matmul_args *)args)->n_rows;
    return place(args, 0, (size_t)n_rows + WEIR_ONEDNN_PADDED, true).bytes;
}

/* The resolver that chooses a clone runs before TSan is initialised. */
#if __has_feature(thread_sanitizer)
#define CLONES
#else
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
CLONES static void round_row(uint16_t *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = weir_bf16_from_f32(src[i]);
}

static void copy_rows(void *dst, const weir_matmul_args *args, weir_share rows)
{
    for (int64_t row = rows.first; row < rows.end; row++) {
        const float *src = args->x + row * args->x_stride;
        if (args->outputs[0].weight->dtype == WEIR_BF16)
            round_row((uint16_t *)dst + row * args->n_in, src, args->n_in);
        else
            memcpy((float *)dst + row * args->n_in, src, (size_t)args->n_in * sizeof(float));
    }
}

static void clear_padding(char *input, const weir_matmul_args *args)
{
    const size_t row_bytes =
        (size_t)args->n_in * (args->outputs[0].weight->dtype == WEIR_BF16 ? 2 : 4);
    memset(
        input + (size_t)args->n_rows * row_bytes, 0,
        (size_t)(weir_onednn_padded_rows(args->n_rows) - args->n_rows) * row_bytes
    );
}

/* dst (+)= product + bias for one row; product may be dst. */
static void finish_row(const weir_matmul_output *output, const float *product, int64_t row)
{
    const int64_t n = output->weight->n_out;
    float *dst = output->dst + row * output->dst_stride;
    const float *bias = output->bias;
    for (int64_t i = 0; i < n; i++) {
        const float biased = bias ? product[i] + bias[i] : product[i];
        dst[i] = output->accumulate ? dst[i] + biased : biased;
    }
}

static void finish_rows(
    const weir_matmul_output *output, const float *products, int64_t stride, weir_share rows
)
{
    for (int64_t row = rows.first; row < rows.end; row++)
        finish_row(output, products + row * stride, row);
}

static weir_status multiply(
    const weir_kernel_context *context, const weir_matmul_args *args,
    const weir_matmul_output *output, const void *input, float *product, float *lower
)
{
    const int64_t n = output->weight->n_out;
    const bool direct = is_direct(args, output);
    float *dst = direct ? output->dst : product;
    WEIR_TRY(weir_onednn_multiply(
        output->weight->packed_state, dst, input, args->n_rows, context->scratch, lower,
        context->n_threads
    ));
    if (direct && !output->bias) return WEIR_OK;
    const int64_t stride = direct ? output->dst_stride : n;
    if (args->n_rows * n <= SERIAL_ELEMENTS) {
        finish_rows(output, dst, stride, (weir_share){ 0, args->n_rows });
    } else {
#pragma omp parallel num_threads(context->n_threads)
        finish_rows(output, dst, stride, weir_share_of(args->n_rows));
    }
    return WEIR_OK;
}

static weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const weir_matmul_args *args = op_args;
    const plan p = make_plan(args, context->n_threads);
    if (context->scratch_bytes < p.bytes) return WEIR_EINVAL;
    const bool padded = weir_onednn_padded_rows(args->n_rows) != args->n_rows;
    char *memory = context->scratch;
    const void *input = args->x;
    if (is_copied(args)) {
        input = memory + p.input_offset;
        if (args->n_rows * args->n_in <= SERIAL_ELEMENTS) {
            copy_rows(memory + p.input_offset, args, (weir_share){ 0, args->n_rows });
        } else {
#pragma omp parallel num_threads(context->n_threads)
            copy_rows(memory + p.input_offset, args, weir_share_of(args->n_rows));
        }
        clear_padding(memory + p.input_offset, args);
    }
    for (int o = 0; o < args->n_outputs; o++)
        WEIR_TRY(multiply(
            context, args, &args->outputs[o], input, (float *)(memory + p.product_offset),
            padded ? (float *)(memory + p.spill_offset) : NULL
        ));
    return WEIR_OK;
}

/* The reference does not round activations: bf16 has 8 bits, so a product of unit rows is off by
 * 2^-9 of its norm. */
const weir_kernel weir_kernel_onednn_matmul_bf16 = {
    .op = WEIR_OP_MATMUL,
    .backend = WEIR_BACKEND_ONEDNN,
    .name = "onednn.matmul.bf16",
    .atol = 5e-2,
    .rtol = 2e-2,
    .reject = reject_bf16,
    .scratch = scratch,
    .run = run,
    .thread_scratch = WEIR_ONEDNN_THREAD_SCRATCH,
};
const weir_kernel weir_kernel_onednn_matmul_f32 = {
    .op = WEIR_OP_MATMUL,
    .backend = WEIR_BACKEND_ONEDNN,
    .name = "onednn.matmul.f32",
    .atol = 1e-4,
    .rtol = 1e-5,
    .reject = reject_f32,
    .scratch = scratch,
    .run = run,
    .thread_scratch = WEIR_ONEDNN_THREAD_SCRATCH,
};
