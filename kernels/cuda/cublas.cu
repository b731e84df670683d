/* kernels/cuda/cublas.cu - opens cuBLASLt, and the kernel that calls it if pinned: dense weights in
 * bf16 (activations rounded into scratch) and f32 (read in place, without tf32). f16 is rejected:
 * its activations need a scale per row (kernels/cuda/activations.h). Not yet run on a GPU. */
#include "kernels/cuda/cublas.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/weight.h"

#ifndef WEIR_EMULATE_CUDA
#include <cublasLt.h>

#include <cstddef>
/* Compares our constants with the library's, whatever their enumerations. */
constexpr bool weir_lt_is(int own, int theirs) { return own == theirs; }
static_assert(
    weir_lt_is(WEIR_LT_F32, CUDA_R_32F) && weir_lt_is(WEIR_LT_BF16, CUDA_R_16BF), "types"
);
static_assert(
    weir_lt_is(WEIR_LT_COMPUTE_F32, CUBLAS_COMPUTE_32F) &&
        weir_lt_is(WEIR_LT_TRANSPOSED, CUBLAS_OP_T),
    "operations"
);
static_assert(weir_lt_is(WEIR_LT_DESC_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA), "descriptor");
static_assert(weir_lt_is(WEIR_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE), "descriptor");
static_assert(weir_lt_is(WEIR_LT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER), "descriptor");
static_assert(weir_lt_is(WEIR_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS), "epilogue");
static_assert(
    weir_lt_is(WEIR_LT_PREFER_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), "preference"
);
static_assert(
    weir_lt_is(WEIR_LT_PREFER_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), "preference"
);
static_assert(
    weir_lt_is(WEIR_LT_PREFER_ALIGNMENT_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES),
    "preference"
);
static_assert(sizeof(weir_lt_algorithm) == sizeof(cublasLtMatmulAlgo_t), "structs");
static_assert(sizeof(weir_lt_choice) == sizeof(cublasLtMatmulHeuristicResult_t), "structs");
static_assert(
    offsetof(weir_lt_choice, state) == offsetof(cublasLtMatmulHeuristicResult_t, state), "structs"
);
#endif

namespace weir_cublas_matmul {

/* ---- opening --------------------------------------------------------------------------------- */
template <class F> bool find(void *library, const char *name, F *function)
{
    void *const symbol = dlsym(library, name);
    std::memcpy(function, &symbol, sizeof symbol);
    return symbol != nullptr;
}

bool find_all(void *library, weir_lt_functions *lt)
{
    return find(library, "cublasLtCreate", &lt->create) &&
           find(library, "cublasLtDestroy", &lt->destroy) &&
           find(library, "cublasLtMatmulDescCreate", &lt->desc_create) &&
           find(library, "cublasLtMatmulDescSetAttribute", &lt->desc_set) &&
           find(library, "cublasLtMatmulDescDestroy", &lt->desc_destroy) &&
           find(library, "cublasLtMatrixLayoutCreate", &lt->layout_create) &&
           find(library, "cublasLtMatrixLayoutDestroy", &lt->layout_destroy) &&
           find(library, "cublasLtMatmulPreferenceCreate", &lt->preference_create) &&
           find(library, "cublasLtMatmulPreferenceSetAttribute", &lt->preference_set) &&
           find(library, "cublasLtMatmulPreferenceDestroy", &lt->preference_destroy) &&
           find(library, "cublasLtMatmulAlgoGetHeuristic", &lt->choose) &&
           find(library, "cublasLtMatmul", &lt->matmul);
}

weir_status fail(char *text, size_t bytes, const char *why, const char *detail)
{
    if (text && bytes > 0)
        std::snprintf(
            text, bytes, "cuBLASLt: %s%s%s", why, detail ? ": " : "", detail ? detail : ""
        );
    return WEIR_EUNSUPPORTED;
}

/* ---- a product ------------------------------------------------------------------------------- */
constexpr size_t kWorkspace = (size_t)32 << 20; /* what the library needs on sm_90 */
constexpr int64_t kFewRows = 32;

int64_t padded(int64_t n_in) { return (n_in + 7) / 8 * 8; }
bool is_bf16(const weir_matmul_args &args)
{
    return args.n_outputs > 0 && args.outputs[0].weight->dtype == WEIR_BF16;
}

__global__ void __launch_bounds__(256)
    round_rows(const weir_matmul_args args, __nv_bfloat16 *to, int64_t stride)
{
    weir_cuda::begin_kernel();
    const int64_t row = blockIdx.y, column = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (column < stride)
        to[row * stride + column] =
            __float2bfloat16_rn(column < args.n_in ? args.x[row * args.x_stride + column] : 0.0f);
}

const char *reject(const weir_caps *caps, const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    if (caps->cuda_capability < 80) return "needs sm_80";
    if (args.n_rows < kFewRows)
        return "few rows: memory binds, and cuda.matmul reads no more of it";
    if (args.n_rows > 65535) return "more than 65535 rows";
    if (args.n_outputs < 1 || args.n_outputs > WEIR_MATMUL_OUTPUTS) return "too many outputs";
    if (args.n_groups > 0) return "takes one matrix a call";
    for (int32_t o = 0; o < args.n_outputs; o++) {
        const weir_weight &weight = *args.outputs[o].weight;
        if (weight.layout != WEIR_LAYOUT_CUDA) return "weight is not in a GPU's layout";
        if (weight.n_in != args.n_in) return "n_in differs from the weight's";
        if (weight.dtype != WEIR_BF16 && weight.dtype != WEIR_F32)
            return "takes bf16 and f32 weights";
        if (weight.dtype != args.outputs[0].weight->dtype) return "outputs of two types";
        if (reinterpret_cast<uintptr_t>(weight.data) % 16 != 0) return "weight not 16-byte aligned";
    }
    return nullptr;
}

size_t scratch(const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    return kWorkspace + (is_bf16(args) ? (size_t)args.n_rows * (size_t)padded(args.n_in) * 2 : 0);
}

uint32_t alignment_of(const void *pointer)
{
    const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
    return (uint32_t)(address & (~address + 1));
}

/* The library's descriptors of one product. Its matrices are column-major: dst [rows, n_out] is its
 * D [n_out x rows], weights are A^T, x is B. */
struct description {
    const weir_lt_functions &lt;
    weir_lt desc = nullptr, a = nullptr, b = nullptr, d = nullptr, preference = nullptr;
    explicit description(const weir_lt_functions &functions) : lt(functions) {}
    description(const description &) = delete;
    description &operator=(const description &) = delete;
    ~description()
    {
        if (preference) lt.preference_destroy(preference);
        if (d) lt.layout_destroy(d);
        if (b) lt.layout_destroy(b);
        if (a) lt.layout_destroy(a);
        if (desc) lt.desc_destroy(desc);
    }

    bool describe(const weir_lt_shape &s, const float *bias)
    {
        const int32_t transposed = WEIR_LT_TRANSPOSED, epilogue = WEIR_LT_EPILOGUE_BIAS;
        const uint64_t n_in = (uint64_t)s.n_in, n_out = (uint64_t)s.n_out,
                       n_rows = (uint64_t)s.n_rows;
        const bool narrow = s.type == WEIR_LT_BF16;
        const int64_t leading =
            (int64_t)weir_cuda_row_stride(narrow ? WEIR_BF16 : WEIR_F32, s.n_in) / (narrow ? 2 : 4);
        return lt.desc_create(&desc, WEIR_LT_COMPUTE_F32, WEIR_LT_F32) == 0 &&
               lt.desc_set(desc, WEIR_LT_DESC_TRANSPOSE_A, &transposed, sizeof transposed) == 0 &&
               (!bias ||
                (lt.desc_set(desc, WEIR_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue) == 0 &&
                 lt.desc_set(desc, WEIR_LT_DESC_BIAS, &bias, sizeof bias) == 0)) &&
               lt.layout_create(&a, s.type, n_in, n_out, leading) == 0 &&
               lt.layout_create(&b, s.type, n_in, n_rows, s.x_stride) == 0 &&
               lt.layout_create(&d, WEIR_LT_F32, n_out, n_rows, s.dst_stride) == 0;
    }

    bool choose(weir_lt handle, const weir_lt_shape &s, weir_lt_algorithm *out)
    {
        const uint64_t workspace = kWorkspace;
        const uint32_t alignments[4] = { 16, s.alignment_x, s.alignment_dst, s.alignment_dst };
        weir_lt_choice choice = {};
        int found = 0;
        if (lt.preference_create(&preference) != 0) return false;
        if (lt.preference_set(preference, WEIR_LT_PREFER_WORKSPACE, &workspace, sizeof workspace) !=
            0)
            return false;
        for (int i = 0; i < 4; i++)
            if (lt.preference_set(
                    preference, WEIR_LT_PREFER_ALIGNMENT_A + i, &alignments[i], sizeof alignments[i]
                ) != 0)
                return false;
        if (lt.choose(handle, desc, a, b, d, d, preference, 1, &choice, &found) != 0 || found < 1 ||
            choice.state != 0)
            return false;
        *out = choice.algorithm;
        return true;
    }
};

bool algorithm_of(
    weir_cublas *cublas, description &of, const weir_lt_shape &shape, weir_lt_algorithm *out
)
{
    const uint32_t n =
        cublas->n_kept < WEIR_CUBLAS_KEPT ? cublas->n_kept : (uint32_t)WEIR_CUBLAS_KEPT;
    for (uint32_t i = 0; i < n; i++)
        if (std::memcmp(&cublas->kept[i].shape, &shape, sizeof shape) == 0) {
            *out = cublas->kept[i].algorithm;
            return true;
        }
    if (!of.choose(cublas->handle, shape, out)) return false;
    auto &slot = cublas->kept[cublas->n_kept++ % WEIR_CUBLAS_KEPT];
    slot.shape = shape;
    slot.algorithm = *out;
    return true;
}

weir_status multiply(
    weir_cublas *cublas, const weir_matmul_args &args, const weir_matmul_output &output,
    const void *x, int64_t x_stride, const weir_kernel_context *context
)
{
    weir_lt_shape shape;
    std::memset(&shape, 0, sizeof shape); /* its bytes are compared */
    shape.n_out = output.weight->n_out, shape.n_in = args.n_in, shape.n_rows = args.n_rows;
    shape.x_stride = x_stride, shape.dst_stride = output.dst_stride;
    shape.alignment_x = alignment_of(x), shape.alignment_dst = alignment_of(output.dst);
    shape.type = output.weight->dtype == WEIR_BF16 ? (int32_t)WEIR_LT_BF16 : (int32_t)WEIR_LT_F32,
    shape.has_bias = output.bias != nullptr;
    description of(cublas->lt);
    weir_lt_algorithm algorithm;
    if (!of.describe(shape, output.bias) || !algorithm_of(cublas, of, shape, &algorithm))
        return WEIR_EDEVICE;
    const float one = 1.0f, beta = output.accumulate ? 1.0f : 0.0f;
    const int failed = cublas->lt.matmul(
        cublas->handle, of.desc, &one, output.weight->data, of.a, x, of.b, &beta, output.dst, of.d,
        output.dst, of.d, &algorithm, context->scratch, kWorkspace, context->cuda_stream
    );
    return failed == 0 ? WEIR_OK : WEIR_EDEVICE;
}

weir_status run(const weir_kernel_context *context, const void *op_args)
{
    const auto &args = *static_cast<const weir_matmul_args *>(op_args);
    const auto cublas = static_cast<weir_cublas *>(context->cublas);
    if (!cublas) return WEIR_EUNSUPPORTED;
    if (context->scratch_bytes < scratch(op_args)) return WEIR_EINVAL;
    const void *x = args.x;
    int64_t x_stride = args.x_stride;
    if (is_bf16(args)) {
        auto *const to =
            reinterpret_cast<__nv_bfloat16 *>(static_cast<char *>(context->scratch) + kWorkspace);
        x = to, x_stride = padded(args.n_in);
        const dim3 grid((unsigned)((x_stride + 255) / 256), (unsigned)args.n_rows);
        WEIR_LAUNCH(
            round_rows, grid, 256, 0, static_cast<cudaStream_t>(context->cuda_stream), args, to,
            x_stride
        );
    }
    for (int32_t o = 0; o < args.n_outputs; o++)
        WEIR_TRY(multiply(cublas, args, args.outputs[o], x, x_stride, context));
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_EDEVICE;
}

} // namespace weir_cublas_matmul

weir_status weir_cublas_open(void **out, char *text, size_t text_bytes)
{
    using namespace weir_cublas_matmul;
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libcublasLt.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) return fail(text, text_bytes, "is not installed", dlerror());
    auto *const cublas = static_cast<weir_cublas *>(std::calloc(1, sizeof(weir_cublas)));
    weir_status status = WEIR_ENOMEM;
    if (cublas) {
        status = WEIR_OK;
        if (!find_all(library, &cublas->lt))
            status = fail(text, text_bytes, "lacks a function", dlerror());
        else if (cublas->lt.create(&cublas->handle) != 0)
            status = fail(text, text_bytes, "does not start on this device", nullptr);
    }
    if (status != WEIR_OK) {
        std::free(cublas);
        dlclose(library);
        return status;
    }
    cublas->library = library;
    *out = cublas;
    return WEIR_OK;
}

void weir_cublas_close(void *opened)
{
    auto *const cublas = static_cast<weir_cublas *>(opened);
    if (!cublas) return;
    cublas->lt.destroy(cublas->handle);
    if (cublas->library) dlclose(cublas->library);
    std::free(cublas);
}

/* Tolerance: as cuda.matmul, in an order that the library chooses. */
extern "C" {
extern const weir_kernel weir_kernel_cuda_cublas_matmul;
const weir_kernel weir_kernel_cuda_cublas_matmul = { WEIR_OP_MATMUL,
                                                     WEIR_BACKEND_CUDA,
                                                     "cublaslt.matmul",
                                                     2e-5,
                                                     2e-5,
                                                     weir_cublas_matmul::reject,
                                                     weir_cublas_matmul::scratch,
                                                     weir_cublas_matmul::run,
                                                     0 };
}
