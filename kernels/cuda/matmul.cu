/* kernels/cuda/matmul.cu - the CUDA matmul: one row of the table for all types of WEIR_LAYOUT_CUDA,
 * as the outputs of a call may differ in theirs. Checks and launches: activations once for each
 * type that the weights need, then the outputs of each type (docs/kernels.md). */
#include "kernels/cuda/matmul.h"

namespace weir_cuda_matmul {

struct needs {
    bool codes, bf16, f16, f32;
};

needs needs_of(const weir_matmul_args &args)
{
    needs n = {};
    const bool is_inside = rounds_inside(args.n_rows, tiles_of(args.n_in, WEIR_CUDA_STEP));
    for (int32_t o = 0; o < args.n_outputs; o++) switch ((int)args.outputs[o].weight->dtype) {
        case WEIR_F32: n.f32 = true; break;
        case WEIR_BF16: n.bf16 = !is_inside; break;
        case WEIR_F16: n.f16 = !is_inside; break;
        default: n.codes = true; break;
        }
    return n;
}

/* Parts of scratch, each 64-byte aligned; with base NULL only their sum is valid. */
size_t place(activations *x, const weir_matmul_args &args, char *base)
{
    const needs n = needs_of(args);
    const auto rows = (size_t)tiles_of(args.n_rows, kTile) * kTile, steps = (size_t)x->steps;
    size_t end = 0;
    const auto place = [&](bool is_needed, size_t bytes) {
        char *const at = is_needed && base ? base + end : nullptr;
        end += is_needed ? (bytes + 63) / 64 * 64 : 0;
        return at;
    };
    x->codes = reinterpret_cast<uint8_t *>(place(n.codes, rows * steps * WEIR_CUDA_STEP));
    x->scales = reinterpret_cast<float *>(place(n.codes, rows * steps * 2 * sizeof(float)));
    x->sums = reinterpret_cast<float *>(place(n.codes, rows * steps * 2 * sizeof(float)));
    x->half_sums = reinterpret_cast<float *>(place(n.codes, rows * steps * 4 * sizeof(float)));
    x->bf16 = reinterpret_cast<uint8_t *>(place(n.bf16, rows * steps * WEIR_CUDA_STEP * 2));
    x->f16 = reinterpret_cast<uint8_t *>(place(n.f16, rows * steps * WEIR_CUDA_STEP * 2));
    x->inverses = reinterpret_cast<float *>(place(n.f16, rows * sizeof(float)));
    x->f32 = reinterpret_cast<float *>(place(n.f32, rows * steps * WEIR_CUDA_STEP * sizeof(float)));
    return end;
}

activations activations_of(const weir_matmul_args &args)
{
    activations x = {};
    x.n_rows = args.n_rows;
    x.steps = (args.n_in + WEIR_CUDA_STEP - 1) / WEIR_CUDA_STEP;
    return x;
}

const char *reject_weight(const weir_matmul_args &args, const weir_weight &weight)
{
    weir_cuda_format format;
    if (weight.layout != WEIR_LAYOUT_CUDA) return "weight is not in a GPU's layout";
    if (weight.n_in != args.n_in) return "n_in differs from the weight's";
    if (weight.n_out < 1 || weight.n_out > 65535 * 128 / WEIR_MATMUL_OUTPUTS)
        return "n_out is not 1 to 2 million"; /* blocks are an axis of the grid */
    if (reinterpret_cast<uintptr_t>(weight.data) % 16 != 0) return "weight not 16-byte aligned";
    if (weight.dtype == WEIR_F32 || weight.dtype == WEIR_BF16 || weight.dtype == WEIR_F16)
        return nullptr;
    if (!weir_cuda_format_of(weight.dtype, &format)) return "type without a GPU layout";
    return weight.n_in % weir_dtype_of(weight.dtype).block_elements != 0
               ? "rows are no whole blocks"
               : nullptr;
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args.n_outputs < 0 || args.n_outputs > WEIR_MATMUL_OUTPUTS) return "too many outputs";
    if (args.n_groups > 0) return "takes one matrix a call";
    if (args.n_in < 1 || args.n_in > INT32_MAX - WEIR_CUDA_STEP) return "n_in is not 1 to 2^31";
    /* Tiles of rows are an axis of the grid. */
    if (args.n_rows > 65535 - kTile) return "more than 65527 rows";
    for (int32_t o = 0; o < args.n_outputs; o++)
        if (const char *why = reject_weight(args, *args.outputs[o].weight)) return why;
    return nullptr;
}

size_t scratch(const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    activations x = activations_of(args);
    return place(&x, args, nullptr) + joint_bytes(args);
}

product product_of(
    const weir_matmul_args &args, const weir_matmul_output &output, const activations &x
)
{
    const weir_weight &weight = *output.weight;
    weir_cuda_format format;
    product p = {};
    p.weight = static_cast<const uint8_t *>(weight.data);
    p.n_out = weight.n_out, p.n_rows = args.n_rows;
    p.n_tiles = tiles_of(args.n_rows, kTile);
    p.steps = x.steps, p.slice_steps = slice_steps_of(x.steps),
    p.n_slices = (x.steps + p.slice_steps - 1) / p.slice_steps;
    p.x = x, p.dst = output.dst, p.dst_stride = output.dst_stride, p.bias = output.bias,
    p.accumulate = output.accumulate;
    if (weir_cuda_format_of(weight.dtype, &format))
        p.planes = weir_cuda_planes_of(format, weight.n_in);
    p.row_bytes = (int64_t)weir_cuda_row_stride(weight.n_in);
    p.panel_bytes = (int64_t)weir_cuda_half_panel(weight.n_in);
    return p;
}

void multiply(group &g, weir_dtype kept, const call &c)
{
    weir_cuda_format format;
    if (weir_cuda_format_of(kept, &format)) return multiply_codes(g, kept, c.stream);
    if (kept == WEIR_F32) return multiply_floats(g, c.stream);
    multiply_halves(g, kept, c);
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    const auto stream = static_cast<cudaStream_t>(context->cuda_stream);
    if (context->scratch_bytes < scratch(op_args)) return WEIR_EINVAL;
    if (args.n_rows <= 0 || args.n_outputs <= 0) return WEIR_OK;
    activations x = activations_of(args);
    auto *const base = static_cast<char *>(context->scratch);
    const size_t end = place(&x, args, base);
    const call c = { args, reinterpret_cast<float4 *>(base + end), stream };
    prepare(args, x, stream);
    bool is_done[WEIR_MATMUL_OUTPUTS] = {};
    for (int32_t first = 0; first < args.n_outputs; first++) {
        const weir_dtype kept = args.outputs[first].weight->dtype;
        group g = {};
        for (int32_t o = first; o < args.n_outputs; o++) {
            if (is_done[o] || args.outputs[o].weight->dtype != kept) continue;
            is_done[o] = true;
            g.p[g.n++] = product_of(args, args.outputs[o], x);
        }
        if (g.n > 0) multiply(g, kept, c);
    }
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cuda_matmul

/* Tolerance: sums of thousands of f32 in 16 slices, compared with sums in double of the same
 * rounded operands; tensor cores truncate where f32 addition rounds. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_matmul;
const weir_kernel weir_kernel_cuda_matmul = {
    WEIR_OP_MATMUL,           WEIR_BACKEND_CUDA,         "cuda.matmul",         2e-5, 2e-5,
    weir_cuda_matmul::reject, weir_cuda_matmul::scratch, weir_cuda_matmul::run, 0
};
}
