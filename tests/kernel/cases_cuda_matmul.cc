// Cases of matmul with weights in the layout of GPUs, which need no stream to be packed: every type
// that is kept, both ways of reading a matrix.
#include <stdexcept>

#include "kernels/cuda/weight.h"
#include "kernels/ref/levels.h"
#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

struct Matmul {
    int64_t n_rows, n_in;
    std::vector<int64_t> n_out;
    std::vector<weir_dtype> dtypes; // of the outputs, in turn
    bool bias = false, accumulate = false;
    int64_t pad = 0;
    Fill fill = Fill::Normal;
};

weir_weight *weight_of(Builder &b, weir_dtype dtype, int64_t n_out, int64_t n_in)
{
    void *file = b.bytes(weir_row_bytes(dtype, n_in) * (size_t)n_out, 2); // file bytes: not aligned
    auto *weight = b.one<weir_weight>();
    fill_weights(b, file, dtype, n_out * n_in);
    weight->n_out = n_out, weight->n_in = n_in, weight->dtype = weir_cuda_dtype(dtype, false),
    weight->layout = WEIR_LAYOUT_CUDA;
    if (!weir_cuda_weight_bytes(&weight->bytes, weight->dtype, n_out, n_in))
        throw std::runtime_error("matmul case: no layout");
    void *packed = b.bytes(weight->bytes);
    if (weir_cuda_pack_rows(packed, weight->dtype, file, dtype, n_in, 0, n_out) != WEIR_OK)
        throw std::runtime_error("matmul case: packing");
    weight->data = packed;
    return weight;
}

Case matmul(Matmul m)
{
    double weights = 0, outputs = 0;
    std::string name = label("matmul_cuda", { m.n_rows, m.n_in, m.pad });
    for (size_t o = 0; o < m.n_out.size(); o++) {
        const weir_dtype dtype = m.dtypes[o % m.dtypes.size()];
        weights += (double)weir_row_bytes(dtype, m.n_in) * (double)m.n_out[o];
        outputs += (double)m.n_out[o];
        name += "x" + std::to_string(m.n_out[o]) + "_" + weir_dtype_of(dtype).name;
    }
    name +=
        std::string(m.bias ? "_bias" : "") + (m.accumulate ? "_accumulate" : "") + suffix(m.fill);
    return { name,
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_matmul_args>();
                 args->x_stride = m.n_in + m.pad;
                 args->x = b.input((size_t)(m.n_rows * args->x_stride), m.fill);
                 args->n_rows = m.n_rows, args->n_in = m.n_in,
                 args->n_outputs = (int32_t)m.n_out.size();
                 for (size_t o = 0; o < m.n_out.size(); o++) {
                     const int64_t stride = m.n_out[o] + m.pad;
                     const size_t n = (size_t)(m.n_rows * stride);
                     float *dst = m.accumulate ? b.inout(n) : b.output(n);
                     const float *bias = m.bias ? b.input((size_t)m.n_out[o]) : nullptr;
                     args->outputs[o] = {
                         weight_of(b, m.dtypes[o % m.dtypes.size()], m.n_out[o], m.n_in), dst, bias,
                         stride, m.accumulate
                     };
                 }
                 return args;
             },
             { weights + (double)m.n_rows * ((double)m.n_in + outputs) * 4,
               2.0 * (double)(m.n_rows * m.n_in) * outputs } };
}

} // namespace

std::vector<Case> cuda_matmul_cases(weir_op op)
{
    std::vector<Case> cases;
    if (op != WEIR_OP_MATMUL) return cases;
    for (const weir_dtype dtype : file_dtypes()) {
        cases.push_back(matmul({ 1, 512, { 100 }, { dtype } }));
        if (weir_levels_of(dtype)) continue; // kept as f16
        cases.push_back(matmul({ 5, 256, { 64, 17, 130 }, { dtype }, true, false, 32 }));
        cases.push_back(matmul({ 13, 768, { 33 }, { dtype }, false, true, 5 }));
        cases.push_back(matmul({ 37, 768, { 65 }, { dtype }, true, true }));
        cases.push_back(matmul({ 131, 256, { 40 }, { dtype }, true, true, 1 }));
        cases.push_back(matmul({ 3, 4608, { 17 }, { dtype } })); // slices of 512
        cases.push_back(matmul({ 2, 256, { 16 }, { dtype }, false, false, 0, Fill::Zero }));
    }
    for (const weir_dtype dtype :
         { WEIR_Q8_0, WEIR_Q4_0, WEIR_Q4_1, WEIR_Q5_1 }) // half a step at the end
        for (const int64_t rows : { 2, 40, 130 })
            cases.push_back(matmul({ rows, 352, { 20 }, { dtype } }));
    for (const weir_dtype dtype : { WEIR_F32, WEIR_BF16, WEIR_F16 }) {
        for (const int64_t rows : { 1, 3, 8, 9, 70, 130 })
            cases.push_back(matmul({ rows, 300, { 33 }, { dtype } }));
        cases.push_back(matmul({ 41, 1, { 1 }, { dtype }, true, false, 3 }));
        cases.push_back(matmul({ 6, 129, { 16 }, { dtype } }));
    }
    cases.push_back(matmul({ 200, 256, { 150 }, { WEIR_Q4_K } })); // more than a block both ways
    cases.push_back(matmul({ 200, 256, { 150 }, { WEIR_BF16 } }));
    cases.push_back(matmul(
        { 3, 256, { 40, 24, 24, 16 }, { WEIR_Q4_K, WEIR_F16, WEIR_F32, WEIR_BF16 }, true, true, 4 }
    ));
    cases.push_back(
        matmul({ 36, 256, { 40, 24, 24, 16 }, { WEIR_Q6_K, WEIR_F16, WEIR_F32, WEIR_BF16 } })
    );
    for (const weir_dtype dtype :
         { WEIR_Q8_0, WEIR_BF16, WEIR_F32 }) // outputs of one type are one launch for few rows
        for (const int64_t rows : { 3, 131 })
            cases.push_back(matmul({ rows, 256, { 40, 24, 7 }, { dtype }, true, true }));
    cases.push_back(matmul({ 4, 256, { 32 }, { WEIR_F16 }, false, false, 0, Fill::Tiny }));
    return cases;
}

std::vector<Case> cuda_matmul_benches(weir_op op)
{
    std::vector<Case> cases;
    if (op != WEIR_OP_MATMUL) return cases;
    for (const weir_dtype dtype :
         { WEIR_BF16, WEIR_F16, WEIR_F32, WEIR_Q8_0, WEIR_Q4_0, WEIR_Q4_K, WEIR_Q6_K })
        for (const int64_t rows : { 1, 8, 32, 64, 512 }) {
            cases.push_back(matmul({ rows, 1024, { 3584, 3584 }, { dtype } }));
            cases.push_back(matmul({ rows, 4096, { 14336 }, { dtype } }));
        }
    return cases;
}

} // namespace weir_test
