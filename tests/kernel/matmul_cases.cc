// Cases of matmul: every file type, packed as the engine packs it, with ragged shapes, bias,
// accumulation and several outputs.
#include "tests/kernel/matmul_cases.h"

#include <map>
#include <memory>
#include <stdexcept>

#include "offload/weights.h"
#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

struct Matmul {
    int64_t n_rows, n_in;
    std::vector<int64_t> n_out;
    weir_dtype dtype;
    weir_activations activations = WEIR_ACTIVATIONS_FAST;
    bool bias = false, accumulate = false;
    int64_t pad = 0;
    Fill fill = Fill::Normal;
    const char *level = nullptr; // weights are packed as a machine of this level would
};

weir_stream *stream_of(const char *level)
{
    struct Close {
        void operator()(weir_stream *stream) const { weir_stream_close(stream); }
    };
    static std::map<std::string, std::unique_ptr<weir_stream, Close>> streams;
    auto &slot = streams[level];
    if (!slot) {
        weir_stream *stream = nullptr;
        weir_stream_options options = {};
        options.n_threads = 2, options.isa = level;
        weir_error error = {};
        if (weir_stream_open(&stream, &options, &error) != WEIR_OK)
            throw std::runtime_error(error.text);
        slot.reset(stream);
    }
    return slot.get();
}

// The packed weight; for the specification plain rows, unless the layout says how activations are
// rounded.
weir_weight *weight_of(
    Builder &b, weir_stream *stream, const Matmul &m, int64_t n_out, bool specification
)
{
    const size_t bytes = weir_row_bytes(m.dtype, m.n_in) * (size_t)n_out;
    void *file = b.bytes(bytes, 2); // file bytes: not aligned
    fill_weights(b, file, m.dtype, n_out * m.n_in);
    auto *weight = b.one<weir_weight>();
    const weir_matrix_source source = { file, n_out, m.n_in, m.dtype, false };
    weir_error error = {};
    if (weir_weight_plan(weight, stream, &source, m.activations, &error) != WEIR_OK)
        throw std::runtime_error(error.text);
    if (specification && weight->layout != WEIR_LAYOUT_TILES && weight->layout != WEIR_LAYOUT_AMX) {
        *weight = {};
        weight->data = file;
        weight->bytes = bytes;
        weight->n_out = n_out, weight->n_in = m.n_in, weight->dtype = m.dtype,
        weight->layout = WEIR_LAYOUT_ROWS;
        return weight;
    }
    if (weir_weight_pack(weight, stream, &source, b.bytes(weight->bytes), &error) != WEIR_OK)
        throw std::runtime_error(error.text);
    b.at_end([weight] { weir_weight_release(weight); });
    return weight;
}

Case matmul(weir_stream *stream, Matmul m)
{
    double weights = 0, outputs = 0;
    std::string name = label("matmul", { m.n_rows, m.n_in, m.pad });
    for (const int64_t n : m.n_out) {
        weights += (double)weir_row_bytes(m.dtype, m.n_in) * (double)n;
        outputs += (double)n;
        name += "x" + std::to_string(n);
    }
    name += std::string("_") + weir_dtype_of(m.dtype).name +
            (m.activations == WEIR_ACTIVATIONS_F32 ? "_exact" : "") + (m.bias ? "_bias" : "") +
            (m.accumulate ? "_accumulate" : "") + suffix(m.fill) +
            (m.level ? std::string("_on_") + m.level : "");
    if (m.level) stream = stream_of(m.level);
    return { name,
             [=](Builder &b, bool specification) {
                 auto *args = b.one<weir_matmul_args>();
                 args->x_stride = m.n_in + m.pad;
                 args->x = b.input((size_t)(m.n_rows * args->x_stride), m.fill);
                 args->n_rows = m.n_rows;
                 args->n_in = m.n_in;
                 args->n_outputs = (int32_t)m.n_out.size();
                 for (size_t o = 0; o < m.n_out.size(); o++) {
                     const int64_t stride = m.n_out[o] + m.pad;
                     const size_t n = (size_t)(m.n_rows * stride);
                     float *dst = m.accumulate ? b.inout(n) : b.output(n);
                     const float *bias = m.bias ? b.input((size_t)m.n_out[o]) : nullptr;
                     args->outputs[o] = { weight_of(b, stream, m, m.n_out[o], specification), dst,
                                          bias, stride, m.accumulate };
                 }
                 return args;
             },
             { weights + (double)m.n_rows * ((double)m.n_in + outputs) * 4,
               2.0 * (double)(m.n_rows * m.n_in) * outputs } };
}

} // namespace

std::vector<Case> matmul_cases(weir_stream *stream)
{
    std::vector<Case> cases;
    for (const weir_dtype dtype : file_dtypes()) {
        cases.push_back(matmul(stream, { 1, 512, { 100 }, dtype }));
        cases.push_back(matmul(
            stream, { 5, 256, { 64, 17, 130 }, dtype, WEIR_ACTIVATIONS_FAST, true, false, 32 }
        ));
        for (const int64_t rows : { 37, 64 }) // AMX takes 48 and more
            cases.push_back(
                matmul(stream, { rows, 768, { 65 }, dtype, WEIR_ACTIVATIONS_FAST, false, true })
            );
    }
    for (const weir_dtype dtype : { WEIR_F32, WEIR_BF16, WEIR_F16, WEIR_Q8_0, WEIR_Q4_K }) {
        cases.push_back(matmul(stream, { 1, 512, { 96 }, dtype, WEIR_ACTIVATIONS_F32 }));
        cases.push_back(
            matmul(stream, { 9, 512, { 96, 33 }, dtype, WEIR_ACTIVATIONS_F32, true, true, 4 })
        );
    }
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_Q8_0, WEIR_Q4_0 }) {
        cases.push_back(matmul(
            stream, { 3, 256, { 48 }, dtype, WEIR_ACTIVATIONS_FAST, false, false, 0, Fill::Zero }
        ));
        cases.push_back(matmul(stream, { 130, 1024, { 200 }, dtype }));
    }
    const auto fast = WEIR_ACTIVATIONS_FAST;
    for (const weir_dtype dtype :
         { WEIR_F32, WEIR_BF16, WEIR_F16 }) { // dense panels, whatever this machine has
        for (const int64_t rows : { 1, 2, 3, 4, 5, 6, 7, 70 })
            cases.push_back(matmul(
                stream, { rows, 300, { 33 }, dtype, fast, false, false, 0, Fill::Normal, "v2" }
            ));
        cases.push_back(matmul(
            stream, { 11, 129, { 64, 7, 130 }, dtype, fast, true, true, 5, Fill::Normal, "v2" }
        ));
        cases.push_back(
            matmul(stream, { 200, 1, { 1 }, dtype, fast, true, false, 3, Fill::Normal, "v2" })
        );
    }
    // AVX-512, also where there are tile registers.
    for (const weir_dtype dtype : { WEIR_F32, WEIR_BF16, WEIR_F16 })
        for (const int64_t rows : { 1, 5, 70 })
            if (weir_stream_caps(stream)->x86_v4)
                cases.push_back(matmul(
                    stream,
                    { rows, 300, { 33, 200 }, dtype, fast, true, true, 5, Fill::Normal, "v4" }
                ));
    cases.push_back(matmul(
        stream,
        { 9, 512, { 96, 33 }, WEIR_Q4_K, WEIR_ACTIVATIONS_F32, true, true, 4, Fill::Normal, "v2" }
    ));
    return cases;
}

std::vector<Case> matmul_benches(weir_stream *stream)
{
    std::vector<Case> cases;
    for (const weir_dtype dtype :
         { WEIR_BF16, WEIR_F32, WEIR_Q8_0, WEIR_Q4_0, WEIR_Q4_K, WEIR_Q6_K })
        for (const int64_t rows : { 1, 8, 64, 512 })
            cases.push_back(matmul(stream, { rows, 1024, { 3584, 3584 }, dtype }));
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F32 })
        for (const int64_t rows : { 1, 8, 64, 512 })
            cases.push_back(matmul(
                stream, { rows,
                          1024,
                          { 3584, 3584 },
                          dtype,
                          WEIR_ACTIVATIONS_FAST,
                          false,
                          false,
                          0,
                          Fill::Normal,
                          "v2" }
            ));
    cases.push_back(matmul(stream, { 1, 1024, { 65536 }, WEIR_Q8_0 }));
    return cases;
}

} // namespace weir_test
