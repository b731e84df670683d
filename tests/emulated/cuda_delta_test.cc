// The CUDA scan of the gated delta rule on an emulated GPU: against ref on all widths, and the
// promise that cuts of a sequence and the batch change no bit.
#include "tests/unit/kernels/support.h"

extern "C" const weir_kernel weir_kernel_cuda_gated_delta_rule;

namespace weir_test {
namespace {

const weir_kernel &scan = weir_kernel_cuda_gated_delta_rule;

struct Heads {
    int64_t n_k_heads, n_v_heads, key_dim, value_dim;
    bool is_tiled;
};

struct Result {
    Floats out, state;
};

// Sequences of these lengths, each of them in calls of `cut` rows; 0: all of all sequences in one
// call.
Result run_rows(
    const weir_kernel &kernel, const Heads &h, const std::vector<int32_t> &lengths, int32_t cut
)
{
    int32_t n_rows = 0;
    for (const int32_t n : lengths) n_rows += n;
    const int64_t tiles = (h.value_dim + WEIR_DELTA_LANES - 1) / WEIR_DELTA_LANES,
                  each = h.n_v_heads * tiles * h.key_dim * WEIR_DELTA_LANES;
    const int64_t keys = h.n_k_heads * h.key_dim, stride = 2 * keys + h.n_v_heads * h.value_dim + 5;
    const Floats qkv = random_floats((size_t)(n_rows * stride), 3),
                 gates = random_floats((size_t)(n_rows * 2 * h.n_v_heads), 4, 2);
    const Floats a_neg((size_t)h.n_v_heads, -0.7f), dt_bias = random_floats((size_t)h.n_v_heads, 5);
    Result result = { Floats((size_t)(n_rows * h.n_v_heads * h.value_dim), NAN),
                      random_floats(lengths.size() * (size_t)each, 6, 0.3f) };
    for (size_t i = 0; i < result.state.size(); i++) /* lanes past value_dim are zero */
        if ((int64_t)i / WEIR_DELTA_LANES / h.key_dim % tiles * WEIR_DELTA_LANES +
                (int64_t)i % WEIR_DELTA_LANES >=
            h.value_dim)
            result.state[i] = 0;
    std::vector<weir_recurrent_segment> segments;
    int32_t row = 0;
    for (size_t s = 0; s < lengths.size(); s++) {
        for (int32_t first = 0; first < lengths[s] || first == 0;
             first += cut > 0 ? cut : lengths[s] + 1) {
            const int32_t left = lengths[s] - first, n = cut > 0 && cut < left ? cut : left;
            segments.push_back({ nullptr, result.state.data() + (int64_t)s * each, row, n });
            row += n;
        }
    }
    const size_t at_once = cut > 0 ? 1 : segments.size();
    for (size_t s = 0; s < segments.size(); s += at_once) {
        weir_gated_delta_rule_args args = {};
        args.out = result.out.data(), args.q = qkv.data(), args.k = qkv.data() + keys,
        args.v = qkv.data() + 2 * keys;
        args.a = gates.data(), args.b = gates.data() + h.n_v_heads, args.a_neg = a_neg.data(),
        args.dt_bias = dt_bias.data();
        args.segments = &segments[s], args.n_segments = (int64_t)at_once,
        args.n_k_heads = h.n_k_heads, args.n_v_heads = h.n_v_heads;
        args.key_dim = h.key_dim, args.value_dim = h.value_dim, args.qkv_stride = stride,
        args.ab_stride = 2 * h.n_v_heads;
        args.tiled_heads = h.is_tiled;
        EXPECT_EQ(run(kernel, &args), WEIR_OK);
    }
    return result;
}

TEST(CudaGatedDeltaRule, MatchesRefOnEveryWidth)
{
    for (const Heads &h :
         { Heads{ 1, 1, 1, 1, false }, Heads{ 2, 4, 32, 16, true }, Heads{ 2, 6, 64, 40, false },
           Heads{ 1, 2, 77, 17, false }, Heads{ 2, 2, 128, 128, true },
           Heads{ 1, 1, 200, 32, false }, Heads{ 1, 2, 256, 64, true } }) {
        const Result got = run_rows(scan, h, { 1, 0, 37, 4, 5 }, 0),
                     want = run_rows(weir_kernel_ref_gated_delta_rule, h, { 1, 0, 37, 4, 5 }, 0);
        expect_close(got.out, want.out, scan.atol, scan.rtol, "out");
        expect_close(got.state, want.state, scan.atol, scan.rtol, "state");
    }
}

// Long sequences have other blocks than short ones, and a launch of one or few alone other
// registers.
TEST(CudaGatedDeltaRule, BitsDoNotDependOnCutsOrBatch)
{
    for (const Heads &h : { Heads{ 2, 4, 64, 24, true }, Heads{ 1, 2, 128, 64, false },
                            Heads{ 1, 1, 72, 20, false }, Heads{ 1, 1, 256, 32, false } }) {
        const Result whole = run_rows(scan, h, { 23, 0, 1, 9, 40, 2 }, 0);
        for (const int32_t cut : { 1, 4, 7, 15, 16, 100 }) {
            const Result pieces = run_rows(scan, h, { 23, 0, 1, 9, 40, 2 }, cut);
            EXPECT_TRUE(same_bits(pieces.out, whole.out)) << cut;
            EXPECT_TRUE(same_bits(pieces.state, whole.state)) << cut;
        }
    }
}

// More sequences than a launch takes, the long ones among them anywhere.
TEST(CudaGatedDeltaRule, TakesAnyNumberOfSequences)
{
    const Heads h = { 1, 3, 32, 40, false };
    std::vector<int32_t> lengths(300, 1);
    lengths[0] = 0, lengths[7] = 17, lengths[128] = 0, lengths[255] = 33, lengths[299] = 2;
    const Result got = run_rows(scan, h, lengths, 0), pieces = run_rows(scan, h, lengths, 5),
                 want = run_rows(weir_kernel_ref_gated_delta_rule, h, lengths, 0);
    expect_close(got.out, want.out, scan.atol, scan.rtol, "out");
    expect_close(got.state, want.state, scan.atol, scan.rtol, "state");
    EXPECT_TRUE(same_bits(pieces.out, got.out));
    EXPECT_TRUE(same_bits(pieces.state, got.state));
}

} // namespace
} // namespace weir_test
