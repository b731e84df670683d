// Cases of the ops that look at one row at a time: embed, norms, rope, gates, add.
#include <cmath>

#include "tests/kernel/cases_internal.h"

namespace weir_test {
namespace {

Case embed(int64_t n_rows, int64_t dim, weir_dtype dtype, int64_t n_vocab = 50)
{
    const weir_dtype_info info = weir_dtype_of(dtype);
    return {
        label("embed", { n_rows, dim }) + "_" + info.name,
        [=](Builder &b, bool) {
            auto *args = b.one<weir_embed_args>();
            const size_t row = weir_row_bytes(dtype, dim);
            auto *table = static_cast<uint8_t *>(b.bytes(row * (size_t)n_vocab, 2)
            ); // file bytes: not aligned
            fill_weights(b, table, dtype, n_vocab * dim);
            auto *ids = b.array<int32_t>((size_t)n_rows);
            for (int64_t i = 0; i < n_rows; i++)
                ids[i] = i == 0 ? (int32_t)n_vocab - 1 : (int32_t)b.below((uint32_t)n_vocab);
            *args = { b.output((size_t)(n_rows * dim)), table, ids, n_rows, dim, n_vocab, dtype };
            return args;
        },
        { (double)(n_rows * dim) * 4 + (double)n_rows * (double)weir_row_bytes(dtype, dim), 0 }
    };
}

struct Norm {
    int64_t n_rows, n_groups, dim, pad;
    bool add, alias;
    Fill fill = Fill::Normal;
    float eps = 1e-6f;
};

Case rmsnorm(Norm s)
{
    return { label("rmsnorm", { s.n_rows, s.n_groups, s.dim, s.pad }) + (s.add ? "_add" : "") +
                 (s.alias ? "_alias" : "") + suffix(s.fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_rmsnorm_args>();
                 const int64_t group = s.dim + s.pad, stride = s.n_groups * group + s.pad;
                 const size_t n = (size_t)(s.n_rows * stride);
                 args->src = b.inout(n, s.fill);
                 args->dst = s.alias ? args->src : b.output(n);
                 args->weight = b.input((size_t)s.dim);
                 if (s.add)
                     args->add = b.input((size_t)(s.n_rows * (s.dim + 3)), s.fill),
                     args->add_stride = s.dim + 3;
                 args->n_rows = s.n_rows, args->n_groups = s.n_groups, args->dim = s.dim,
                 args->eps = s.eps;
                 args->dst_stride = args->src_stride = stride,
                 args->dst_group_stride = args->src_group_stride = group;
                 return args;
             },
             { (double)(s.n_rows * s.n_groups * s.dim) * (s.add ? 16 : 8),
               (double)(s.n_rows * s.n_groups * s.dim) * 4 } };
}

Case gated_rmsnorm(
    int64_t n_rows, int64_t dim, bool alias, Fill fill = Fill::Normal, int64_t n_weights = 1,
    bool gate_first = false
)
{
    return { label("gated_rmsnorm", { n_rows, dim, n_weights, gate_first }) +
                 (alias ? "_alias" : "") + suffix(fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_gated_rmsnorm_args>();
                 const size_t n = (size_t)(n_rows * dim);
                 float *src = alias ? b.inout(n, fill) : b.input(n, fill);
                 *args = { alias ? src : b.output(n),
                           src,
                           b.input(n, Fill::Normal, 4),
                           b.input((size_t)(n_weights * dim)),
                           n_rows,
                           dim,
                           n_weights,
                           1e-6f,
                           gate_first };
                 return args;
             },
             { (double)(n_rows * dim) * (gate_first ? 20 : 12), (double)(n_rows * dim) * 12 } };
}

Case rope(
    int64_t n_rows, int64_t n_heads, int64_t rotary_dim, int64_t pad, weir_rope_pairing pairing,
    int32_t first = 0, float magnitude = 1, int32_t length = 0
)
{
    return {
        label("rope", { n_rows, n_heads, rotary_dim, pad, first }) +
            (pairing == WEIR_ROPE_PAIRS ? "_pairs" : "_half") + (length > 0 ? "_temperature" : ""),
        [=](Builder &b, bool) {
            auto *args = b.one<weir_rope_args>();
            const int64_t head = rotary_dim + pad, stride = n_heads * head + pad;
            auto *positions = b.array<int32_t>((size_t)n_rows);
            auto *frequencies = b.array<float>((size_t)rotary_dim / 2);
            for (int64_t t = 0; t < n_rows; t++) positions[t] = first + (int32_t)t;
            for (int64_t i = 0; i < rotary_dim / 2; i++)
                frequencies[i] = powf(1e7f, -2.0f * (float)i / (float)rotary_dim);
            *args = { b.inout((size_t)(n_rows * stride)),
                      positions,
                      frequencies,
                      n_rows,
                      n_heads,
                      rotary_dim,
                      stride,
                      head,
                      magnitude,
                      pairing,
                      0.1f,
                      length };
            return args;
        },
        { (double)(n_rows * n_heads * rotary_dim) * 8, (double)(n_rows * n_heads * rotary_dim) * 3 }
    };
}

enum class Alias { None, Gate, Up, GateAndOneUp }; /* GateAndOneUp: up is one row for all */

Case glu(
    int64_t n_rows, int64_t dim, int64_t pad, Alias alias, Fill fill = Fill::Normal,
    weir_glu_kind kind = WEIR_GLU_SWIGLU
)
{
    return { label("glu", { n_rows, dim, pad, (int64_t)alias, (int64_t)kind }) + suffix(fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_glu_args>();
                 const int64_t stride = dim + pad;
                 const size_t n = (size_t)(n_rows * stride);
                 const bool is_one = alias == Alias::GateAndOneUp,
                            is_gate = is_one || alias == Alias::Gate;
                 float *gate = is_gate ? b.inout(n, fill, 3) : b.input(n, fill, 3);
                 float *up = alias == Alias::Up ? b.inout(n) : b.input(is_one ? (size_t)dim : n);
                 float *dst = is_gate ? gate : alias == Alias::Up ? up : b.output(n);
                 *args = { dst, gate, up, n_rows, dim, stride, stride, stride, kind, 2 };
                 if (is_one) args->up_stride = 0;
                 return args;
             },
             { (double)(n_rows * dim) * 12, (double)(n_rows * dim) * 12 } };
}

Case sigmoid_gate(
    int64_t n_rows, int64_t n_heads, int64_t dim, int64_t pad, Fill fill = Fill::Normal
)
{
    return { label("sigmoid_gate", { n_rows, n_heads, dim, pad }) + suffix(fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_sigmoid_gate_args>();
                 const int64_t head = dim + pad, stride = n_heads * head, gate_head = 2 * dim + pad,
                               gate = n_heads * gate_head + pad;
                 *args = { b.inout((size_t)(n_rows * stride)),
                           b.input((size_t)(n_rows * gate), fill, 4),
                           n_rows,
                           n_heads,
                           dim,
                           stride,
                           head,
                           gate,
                           gate_head };
                 return args;
             },
             { (double)(n_rows * n_heads * dim) * 12, (double)(n_rows * n_heads * dim) * 10 } };
}

Case add(int64_t n_rows, int64_t dim, int64_t pad, Fill fill = Fill::Normal)
{
    return { label("add", { n_rows, dim, pad }) + suffix(fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_add_args>();
                 const int64_t stride = dim + pad;
                 *args = { b.inout((size_t)(n_rows * stride), fill),
                           b.input((size_t)(n_rows * (stride + 8)), fill),
                           n_rows,
                           dim,
                           stride,
                           stride + 8 };
                 return args;
             },
             { (double)(n_rows * dim) * 12, (double)(n_rows * dim) } };
}

Case softcap(int64_t n_rows, int64_t dim, int64_t pad, float cap, Fill fill = Fill::Normal)
{
    return { label("softcap", { n_rows, dim, pad, (int64_t)cap }) + suffix(fill),
             [=](Builder &b, bool) {
                 auto *args = b.one<weir_softcap_args>();
                 const int64_t stride = dim + pad;
                 *args = { b.inout((size_t)(n_rows * stride), fill, 4), n_rows, dim, stride, cap };
                 return args;
             },
             { (double)(n_rows * dim) * 8, (double)(n_rows * dim) * 20 } };
}

}  // namespace

std::vector<Case> rowwise_cases(weir_op op)
{
    switch (op) {
    case WEIR_OP_EMBED: {
        std::vector<Case> cases = { embed(0, 64, WEIR_F32), embed(7, 33, WEIR_F32),
                                    embed(3, 100, WEIR_F16), embed(5, 257, WEIR_BF16) };
        for (const weir_dtype dtype : file_dtypes())
            if (weir_dtype_of(dtype).quantised) cases.push_back(embed(3, 512, dtype));
        return cases;
    }
    case WEIR_OP_RMSNORM:
        return { rmsnorm({ 0, 1, 64, 0, false, false }),
                 rmsnorm({ 1, 1, 1, 0, false, false }),
                 rmsnorm({ 5, 1, 7, 3, false, false }),
                 rmsnorm({ 3, 1, 1024, 0, false, false }),
                 rmsnorm({ 17, 1, 1024, 0, true, false }),
                 rmsnorm({ 2, 1, 2047, 9, true, false }),
                 rmsnorm({ 4, 8, 256, 0, false, true }),
                 rmsnorm({ 3, 5, 100, 4, false, true }),
                 rmsnorm({ 4, 1, 333, 1, false, true }),
                 rmsnorm({ 3, 1, 512, 0, true, false, Fill::Zero }),
                 rmsnorm({ 3, 1, 512, 0, false, false, Fill::Large }),
                 rmsnorm({ 3, 2, 512, 0, false, false, Fill::Tiny }),
                 rmsnorm({ 3, 1, 515, 0, true, false, Fill::Mixed }) };
    case WEIR_OP_GATED_RMSNORM:
        return { gated_rmsnorm(0, 128, false),
                 gated_rmsnorm(1, 1, false),
                 gated_rmsnorm(48, 128, true),
                 gated_rmsnorm(5, 100, false),
                 gated_rmsnorm(3, 257, true),
                 gated_rmsnorm(4, 128, false, Fill::Zero),
                 gated_rmsnorm(4, 128, false, Fill::Large),
                 gated_rmsnorm(6, 100, false, Fill::Normal, 3),
                 gated_rmsnorm(6, 1536, true, Fill::Normal, 2, true),
                 gated_rmsnorm(5, 33, false, Fill::Normal, 1, true),
                 gated_rmsnorm(4, 128, false, Fill::Zero, 1, true),
                 gated_rmsnorm(4, 128, true, Fill::Large, 4, true) };
    case WEIR_OP_ROPE:
        return { rope(0, 2, 64, 0, WEIR_ROPE_HALF_SPLIT),
                 rope(5, 3, 64, 192, WEIR_ROPE_HALF_SPLIT),
                 rope(5, 3, 64, 0, WEIR_ROPE_PAIRS),
                 rope(2, 1, 2, 1, WEIR_ROPE_HALF_SPLIT),
                 rope(3, 2, 6, 5, WEIR_ROPE_PAIRS),
                 rope(4, 8, 128, 0, WEIR_ROPE_HALF_SPLIT, 30000),
                 rope(4, 2, 64, 0, WEIR_ROPE_HALF_SPLIT, 262000, 1.2f),
                 rope(7, 2, 100, 28, WEIR_ROPE_HALF_SPLIT, 1000),
                 rope(9, 2, 64, 0, WEIR_ROPE_PAIRS, 30, 1.2f, 4) };
    case WEIR_OP_GLU:
        return { glu(0, 64, 0, Alias::None),
                 glu(1, 1, 0, Alias::None),
                 glu(3, 3584, 0, Alias::Gate),
                 glu(5, 101, 3, Alias::Up),
                 glu(4, 100, 7, Alias::None),
                 glu(2, 256, 0, Alias::None, Fill::Large),
                 glu(2, 256, 0, Alias::None, Fill::Mixed),
                 glu(3, 2060, 4, Alias::Gate, Fill::Normal, WEIR_GLU_GEGLU),
                 glu(2, 256, 0, Alias::None, Fill::Large, WEIR_GLU_GEGLU),
                 glu(2, 77, 1, Alias::Up, Fill::Mixed, WEIR_GLU_GEGLU),
                 glu(5, 101, 3, Alias::Up, Fill::Normal, WEIR_GLU_BILINEAR),
                 glu(4, 1100, 4, Alias::GateAndOneUp, Fill::Normal, WEIR_GLU_BILINEAR),
                 glu(3, 1024, 0, Alias::GateAndOneUp),
                 glu(3, 2060, 4, Alias::Gate, Fill::Normal, WEIR_GLU_CLAMPED),
                 glu(2, 256, 0, Alias::None, Fill::Large, WEIR_GLU_CLAMPED),
                 glu(2, 77, 1, Alias::Up, Fill::Mixed, WEIR_GLU_CLAMPED),
                 glu(3, 2060, 4, Alias::Gate, Fill::Normal, WEIR_GLU_RELU2),
                 glu(2, 77, 1, Alias::None, Fill::Mixed, WEIR_GLU_RELU2) };
    case WEIR_OP_SIGMOID_GATE:
        return { sigmoid_gate(0, 2, 64, 0),
                 sigmoid_gate(1, 1, 1, 0),
                 sigmoid_gate(5, 8, 256, 0),
                 sigmoid_gate(3, 3, 37, 2),
                 sigmoid_gate(2, 2, 128, 0, Fill::Large),
                 sigmoid_gate(2, 2, 128, 0, Fill::Zero) };
    case WEIR_OP_ADD:
        return { add(0, 64, 0), add(1, 1, 0), add(5, 1024, 0), add(3, 1023, 2),
                 add(2, 77, 1, Fill::Mixed) };
    case WEIR_OP_SOFTCAP:
        return { softcap(0, 64, 0, 30),
                 softcap(1, 1, 0, 30),
                 softcap(3, 2061, 3, 30),
                 softcap(3, 515, 1, 2),
                 softcap(2, 77, 0, 30, Fill::Large),
                 softcap(2, 77, 0, 30, Fill::Zero) };
    default: return {};
    }
}

std::vector<Case> rowwise_benches(weir_op op)
{
    std::vector<Case> cases;
    for (const int64_t rows : { 1, 512 }) switch (op) {
        case WEIR_OP_EMBED: cases.push_back(embed(rows, 1024, WEIR_Q8_0, 20000)); break;
        case WEIR_OP_RMSNORM:
            cases.push_back(rmsnorm({ rows, 1, 1024, 0, true, false }));
            cases.push_back(rmsnorm({ rows, 8, 256, 0, false, true }));
            break;
        case WEIR_OP_GATED_RMSNORM:
            cases.push_back(gated_rmsnorm(rows * 16, 128, true));
            cases.push_back(gated_rmsnorm(rows, 3072, true, Fill::Normal, 1, true));
            break;
        case WEIR_OP_ROPE:
            cases.push_back(rope(rows, 8, 64, 192, WEIR_ROPE_HALF_SPLIT, 5000));
            break;
        case WEIR_OP_GLU: cases.push_back(glu(rows, 3584, 0, Alias::Gate)); break;
        case WEIR_OP_SIGMOID_GATE: cases.push_back(sigmoid_gate(rows, 8, 256, 0)); break;
        case WEIR_OP_ADD: cases.push_back(add(rows, 1024, 0)); break;
        case WEIR_OP_SOFTCAP: cases.push_back(softcap(rows > 1 ? 8 : 1, 256000, 0, 30)); break;
        default: break;
        }
    return cases;
}

}  // namespace weir_test
