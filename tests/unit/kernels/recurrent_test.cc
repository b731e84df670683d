// tests/unit/kernels/recurrent_test.cc - short convolution and gated delta rule: goldens, parity,
// and cuts of a sequence into calls. Mamba-2's scan is in ssm_test.cc.
#include "tests/unit/kernels/support.h"

#include <algorithm>

namespace weir_test {
namespace {

std::vector<const weir_kernel *> all_rows(weir_op op)
{
    std::vector<const weir_kernel *> rows = omp_rows(op);
    rows.push_back(ref_row(op));
    return rows;
}

// ---- conv1d -------------------------------------------------------------------------------------
struct Convolution {
    Floats y, history;
};

Convolution convolve(
    const weir_kernel &kernel, const Floats &u, const Floats &taps, Floats history,
    int64_t n_channels, int64_t n_taps, const std::vector<int32_t> &cuts
)
{
    Convolution result = { Floats(u.size(), NAN), std::move(history) };
    int32_t row = 0;
    for (int32_t n : cuts) {
        const weir_recurrent_segment segment = { result.history.data(), nullptr, row, n };
        const weir_conv1d_args args = { result.y.data(), u.data(), taps.data(), &segment, 1,
                                        n_channels,      n_taps,   false,       nullptr };
        EXPECT_EQ(run(kernel, &args), WEIR_OK);
        row += n;
    }
    return result;
}

TEST(Conv1d, MatchesG5)
{
    const Floats taps = golden("G5.w"), u = golden("G5.u");
    for (const weir_kernel *kernel : all_rows(WEIR_OP_CONV1D)) {
        for (int32_t n : { 1, 2, 3, 4, 9 }) {
            const Floats first(u.begin(), u.begin() + n * 128);
            const Convolution c = convolve(*kernel, first, taps, Floats(3 * 128, 0), 128, 4, { n });
            expect_close(c.y, golden("G5.y_T" + std::to_string(n)), 1e-6, 1e-5, kernel->name);
            if (n == 2 || n == 9) {
                EXPECT_EQ(c.history, golden("G5.history_T" + std::to_string(n))) << kernel->name;
            }
        }
        const Floats five(u.begin(), u.begin() + 5 * 128);
        for (const std::vector<int32_t> &cuts :
             { std::vector<int32_t>{ 5 }, { 1, 1, 1, 1, 1 }, { 2, 3 } }) {
            const Convolution c = convolve(*kernel, five, taps, golden("G5.history"), 128, 4, cuts);
            expect_close(c.y, golden("G5.y_history_T5"), 1e-6, 1e-5, kernel->name);
        }
    }
}

TEST(Conv1d, ShapesAndSegments)
{
    for (const auto &shape :
         { std::pair<int64_t, int64_t>{ 1, 1 }, { 300, 4 }, { 17, 8 }, { 513, 2 } }) {
        const int64_t channels = shape.first, taps_n = shape.second;
        const Floats u = random_floats((size_t)(40 * channels), 1),
                     taps = random_floats((size_t)(channels * taps_n), 2),
                     bias = random_floats((size_t)channels, 4);
        const Floats start = random_floats((size_t)((taps_n - 1) * channels) * 3, 3);
        auto work = [&](const weir_kernel &kernel) {
            Floats y(u.size(), 5), history = start;
            const size_t each = start.size() / 3;
            const weir_recurrent_segment segments[] = { { history.data(), nullptr, 3, 2 },
                                                        { history.data() + each, nullptr, 5, 0 },
                                                        { history.data() + 2 * each, nullptr, 10,
                                                          30 } };
            const weir_conv1d_args args = {
                y.data(), u.data(),    taps.data(),
                segments, 3,           channels,
                taps_n,   taps_n == 2, taps_n == 4 ? bias.data() : nullptr
            };
            EXPECT_EQ(run(kernel, &args), WEIR_OK);
            return Convolution{ y, history };
        };
        const Convolution want = work(weir_kernel_ref_conv1d);
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_CONV1D)) {
            const Convolution c = work(*kernel);
            expect_close(c.y, want.y, kernel->atol, kernel->rtol, kernel->name);
            EXPECT_EQ(c.history, want.history) << kernel->name;
        }
    }
}

// ---- gated delta rule ---------------------------------------------------------------------------
struct Delta {
    int64_t k_heads, v_heads, key_dim, value_dim;
    bool tiled = false, by_channel = false;

    int64_t tiles() const { return (value_dim + 15) / 16; }
    int64_t stride() const { return 2 * k_heads * key_dim + v_heads * value_dim; }
    size_t state_floats() const { return (size_t)(v_heads * tiles() * key_dim * 16); }
    int64_t decays() const { return by_channel ? key_dim : 1; } // of a head
};

// [Hv, dk, dv] to the layout of the state, and back.
Floats to_state(const Delta &d, const Floats &plain)
{
    Floats state(d.state_floats(), 0);
    for (int64_t h = 0; h < d.v_heads; h++)
        for (int64_t i = 0; i < d.key_dim; i++)
            for (int64_t j = 0; j < d.value_dim; j++)
                state[(size_t)(((h * d.tiles() + j / 16) * d.key_dim + i) * 16 + j % 16)] =
                    plain[(size_t)((h * d.key_dim + i) * d.value_dim + j)];
    return state;
}

struct DeltaInput {
    Floats qkv, ab, a_neg, dt_bias; // ab: [T, 2, Hv]
    Floats a = {}; // of channels: [T, 2, Hv, key_dim], of which the first half of a row is read
};

DeltaInput random_input(const Delta &d, int32_t rows, uint32_t seed)
{
    DeltaInput in = { random_floats((size_t)(rows * d.stride()), seed),
                      random_floats((size_t)(rows * 2 * d.v_heads), seed + 1, 2),
                      Floats((size_t)d.v_heads),
                      random_floats((size_t)(d.v_heads * d.decays()), seed + 2) };
    if (d.by_channel) in.a = random_floats(in.ab.size() * (size_t)d.key_dim, seed + 3, 2);
    for (size_t h = 0; h < in.a_neg.size(); h++) in.a_neg[h] = -0.05f * (float)(1 + h % 7);
    return in;
}

weir_gated_delta_rule_args args_of(
    const Delta &d, const DeltaInput &in, float *out, const weir_recurrent_segment *segments,
    int64_t n
)
{
    const float *const qkv = in.qkv.data();
    return { out,
             qkv,
             qkv + d.k_heads * d.key_dim,
             qkv + 2 * d.k_heads * d.key_dim,
             d.by_channel ? in.a.data() : in.ab.data(),
             in.ab.data() + d.v_heads,
             in.a_neg.data(),
             in.dt_bias.data(),
             segments,
             n,
             d.k_heads,
             d.v_heads,
             d.key_dim,
             d.value_dim,
             d.stride(),
             2 * d.v_heads,
             d.tiled,
             d.by_channel };
}

bool accepts(const weir_kernel &kernel, const Delta &d)
{
    weir_gated_delta_rule_args args = {};
    args.key_dim = d.key_dim, args.channel_decay = d.by_channel;
    return kernel.reject == nullptr || kernel.reject(nullptr, &args) == nullptr;
}

struct DeltaResult {
    Floats out, state;
};

DeltaResult delta(
    const weir_kernel &kernel, const Delta &d, const DeltaInput &in, Floats state,
    const std::vector<int32_t> &cuts
)
{
    const size_t rows = in.qkv.size() / (size_t)d.stride();
    DeltaResult result = { Floats(rows * (size_t)(d.v_heads * d.value_dim), NAN),
                           std::move(state) };
    int32_t row = 0;
    for (int32_t n : cuts) {
        const weir_recurrent_segment segment = { nullptr, result.state.data(), row, n };
        const weir_gated_delta_rule_args args = args_of(d, in, result.out.data(), &segment, 1);
        EXPECT_EQ(run(kernel, &args), WEIR_OK) << kernel.name;
        row += n;
    }
    return result;
}

// Goldens give g and beta; a and b are chosen so that the kernel computes them: a_neg -1,
// softplus(a) = -g, sigmoid(b) = beta.
DeltaInput golden_input(const Delta &d, const std::string &name, size_t rows)
{
    const Floats q = golden(name + ".q"), k = golden(name + ".k"), v = golden(name + ".v"),
                 g = golden(name + ".g"), beta = golden(name + ".beta");
    DeltaInput in = { {}, {}, Floats((size_t)d.v_heads, -1), Floats((size_t)d.v_heads, 0) };
    const size_t qk = (size_t)(d.k_heads * d.key_dim), vv = (size_t)(d.v_heads * d.value_dim),
                 hv = (size_t)d.v_heads;
    for (size_t t = 0; t < rows; t++) {
        in.qkv.insert(
            in.qkv.end(), q.begin() + (ptrdiff_t)(t * qk), q.begin() + (ptrdiff_t)((t + 1) * qk)
        );
        in.qkv.insert(
            in.qkv.end(), k.begin() + (ptrdiff_t)(t * qk), k.begin() + (ptrdiff_t)((t + 1) * qk)
        );
        in.qkv.insert(
            in.qkv.end(), v.begin() + (ptrdiff_t)(t * vv), v.begin() + (ptrdiff_t)((t + 1) * vv)
        );
        for (size_t h = 0; h < hv; h++)
            in.ab.push_back((float)std::log(std::expm1(-(double)g[t * hv + h])));
        for (size_t h = 0; h < hv; h++)
            in.ab.push_back((float
            )std::log((double)beta[t * hv + h] / (1.0 - (double)beta[t * hv + h])));
    }
    return in;
}

TEST(GatedDeltaRule, MatchesG8)
{
    for (const auto &[name, value_dim] : { std::pair{ "G8", 16 }, std::pair{ "G8_dv", 24 } }) {
        const Delta d = { 2, 6, 16, value_dim };
        const DeltaInput in = golden_input(d, name, 7);
        for (const weir_kernel *kernel : all_rows(WEIR_OP_GATED_DELTA_RULE)) {
            const DeltaResult r =
                delta(*kernel, d, in, to_state(d, golden(std::string(name) + ".S0")), { 7 });
            expect_close(r.out, golden(std::string(name) + ".o"), 2e-6, 1e-5, kernel->name);
            expect_close(
                r.state, to_state(d, golden(std::string(name) + ".S")), 2e-6, 1e-5, kernel->name
            );
        }
    }
}

TEST(GatedDeltaRule, MatchesG9)
{
    const Delta d = { 2, 2, 16, 16 };
    for (int32_t n : { 1, 5, 63, 64, 65, 130 }) {
        const DeltaInput in = golden_input(d, "G9", (size_t)n);
        for (const std::string start : { "zero", "S0" }) {
            const Floats all = golden("G9.o_" + start), first(all.begin(), all.begin() + n * 32);
            const Floats state =
                start == "zero" ? Floats(d.state_floats(), 0) : to_state(d, golden("G9.S0"));
            for (const weir_kernel *kernel : all_rows(WEIR_OP_GATED_DELTA_RULE)) {
                const DeltaResult r = delta(*kernel, d, in, state, { n });
                expect_close(r.out, first, 5e-5, 1e-4, kernel->name + (" " + start));
                expect_close(
                    r.state, to_state(d, golden("G9.S_" + start + "_T" + std::to_string(n))), 5e-5,
                    1e-4, kernel->name + (" " + start)
                );
            }
        }
    }
}

// Gates of G6: decay and beta of the kernel, seen through a state of one element (k = q = unit, v =
// 0 or 1).
TEST(GatedDeltaRule, GatesMatchG6)
{
    const Floats a = golden("G6.a"), b = golden("G6.b"), a_log = golden("G6.A_log"),
                 g = golden("G6.g"), beta = golden("G6.beta");
    const Delta d = { 6, 6, 2, 1 };
    for (const weir_kernel *kernel : all_rows(WEIR_OP_GATED_DELTA_RULE)) {
        for (size_t t = 0; t < 8; t++) {
            DeltaInput in = { Floats((size_t)d.stride(), 0), {}, Floats(6), golden("G6.dt_bias") };
            for (size_t h = 0; h < 6; h++) {
                in.a_neg[h] = -std::exp(a_log[h]);
                in.qkv[2 * h] = 1e4f; // q along dimension 0
                in.qkv[12 + 2 * h + 1] = 1e4f; // k along dimension 1
                in.qkv[24 + h] = 1; // v
            }
            in.ab.insert(
                in.ab.end(), a.begin() + (ptrdiff_t)(6 * t), a.begin() + (ptrdiff_t)(6 * t + 6)
            );
            in.ab.insert(
                in.ab.end(), b.begin() + (ptrdiff_t)(6 * t), b.begin() + (ptrdiff_t)(6 * t + 6)
            );
            Floats start(d.state_floats(), 0), decay(6), updated(6), want_decay(6), want_beta(6);
            for (size_t h = 0; h < 6; h++) start[h * 32] = 1; // S[0][0]
            const DeltaResult r = delta(*kernel, d, in, start, { 1 });
            for (size_t h = 0; h < 6; h++) {
                decay[h] = r.state[h * 32];
                updated[h] = r.state[h * 32 + 16];
                want_decay[h] = std::exp(g[6 * t + h]);
                want_beta[h] = beta[6 * t + h];
            }
            expect_close(decay, want_decay, 1e-7, 2e-5, kernel->name);
            expect_close(updated, want_beta, 1e-7, 2e-5, kernel->name);
        }
    }
}

TEST(GatedDeltaRule, OmpMatchesRef)
{
    for (const Delta &d :
         { Delta{ 1, 1, 2, 1 }, Delta{ 2, 4, 16, 24, true }, Delta{ 2, 6, 64, 64 },
           Delta{ 2, 2, 128, 128 }, Delta{ 1, 3, 30, 40 }, Delta{ 1, 2, 256, 48, true },
           Delta{ 1, 1, 2, 1, false, true }, Delta{ 2, 4, 16, 24, true, true },
           Delta{ 2, 2, 64, 32, false, true }, Delta{ 1, 3, 30, 40, false, true } }) {
        for (int32_t n : { 1, 5, 63, 64, 65, 130 }) {
            const DeltaInput in = random_input(d, n, (uint32_t)n);
            Floats start =
                to_state(d, random_floats((size_t)(d.v_heads * d.key_dim * d.value_dim), 9));
            const DeltaResult want = delta(weir_kernel_ref_gated_delta_rule, d, in, start, { n });
            for (const weir_kernel *kernel : omp_rows(WEIR_OP_GATED_DELTA_RULE)) {
                if (!accepts(*kernel, d)) continue;
                const DeltaResult r = delta(*kernel, d, in, start, { n });
                const std::string what = kernel->name + (" dims " + std::to_string(d.key_dim)) +
                                         "," + std::to_string(d.value_dim) + " rows " +
                                         std::to_string(n);
                expect_close(r.out, want.out, kernel->atol, kernel->rtol, what);
                expect_close(r.state, want.state, kernel->atol, kernel->rtol, what + " state");
            }
        }
    }
}

/* Channels with the same decay are a head with it; only the scan has decays of channels. */
TEST(GatedDeltaRule, EqualDecaysOfChannelsAreThatOfAHead)
{
    const Delta head = { 2, 4, 32, 24, true }, channels = { 2, 4, 32, 24, true, true };
    const DeltaInput in = random_input(head, 50, 5);
    DeltaInput wide = in;
    wide.a.clear();
    wide.dt_bias.clear();
    for (const float a : in.ab) wide.a.insert(wide.a.end(), 32, a);
    for (const float bias : in.dt_bias) wide.dt_bias.insert(wide.dt_bias.end(), 32, bias);
    const Floats start = to_state(head, random_floats((size_t)(4 * 32 * 24), 6));
    for (const weir_kernel *kernel : all_rows(WEIR_OP_GATED_DELTA_RULE)) {
        const bool is_scan = std::string(kernel->name).find(".chunk.") == std::string::npos;
        ASSERT_EQ(accepts(*kernel, channels), is_scan) << kernel->name;
        if (!is_scan) continue;
        const DeltaResult want = delta(*kernel, head, in, start, { 50 }),
                          got = delta(*kernel, channels, wide, start, { 50 });
        expect_close(got.out, want.out, 1e-5, 2e-5, kernel->name);
        expect_close(got.state, want.state, 1e-5, 2e-5, kernel->name);
    }
}

class DeltaScan : public ::testing::TestWithParam<bool> {};

TEST_P(DeltaScan, BitsDoNotDependOnCutsOrBatch)
{
    const Delta d = { 2, 4, 32, 72, false, GetParam() };
    const DeltaInput in = random_input(d, 40, 5);
    const Floats start = to_state(d, random_floats((size_t)(4 * 32 * 72), 6));
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_GATED_DELTA_RULE)) {
        if (std::string(kernel->name).find(".scan.") == std::string::npos) continue;
        const DeltaResult whole = delta(*kernel, d, in, start, { 40 });
        for (const std::vector<int32_t> &cuts :
             { std::vector<int32_t>(40, 1), { 17, 1, 22 }, { 32, 8 } }) {
            const DeltaResult cut = delta(*kernel, d, in, start, cuts);
            EXPECT_TRUE(same_bits(whole.out, cut.out)) << kernel->name;
            EXPECT_TRUE(same_bits(whole.state, cut.state)) << kernel->name;
        }
        const auto call = [&](float *out, const weir_recurrent_segment *segments, int64_t n) {
            const weir_gated_delta_rule_args args = args_of(d, in, out, segments, n);
            return run(*kernel, &args);
        };
        SCOPED_TRACE(kernel->name);
        expect_two_sequences(start, whole, delta(*kernel, d, in, start, { 10 }), 4 * 72, call);
    }
}

// In one key head, and so in the value heads that read it: the others have the bits they have
// without it.
TEST_P(DeltaScan, GarbageStaysInItsHeads)
{
    const Delta d = { 2, 4, 32, 32, false, GetParam() };
    const DeltaInput clean = random_input(d, 70, 5);
    DeltaInput in = clean;
    const float bad[] = { NAN, INFINITY, -INFINITY, 1e38f, -1e38f };
    const auto is_first = [](size_t i, size_t n) { return i % n < n / 2; };
    for (size_t i = 0; i < in.qkv.size(); i += 97) { /* of a row: q, k [2, 32], v [4, 32] */
        const size_t at = i % (size_t)d.stride();
        if (at < 128 ? is_first(at, 64) : is_first(at - 128, 128)) in.qkv[i] = bad[i % 5];
    }
    for (size_t i = 0; i < in.ab.size(); i += 13)
        if (is_first(i, 4)) in.ab[i] = bad[i % 5];
    for (size_t i = 0; i < in.a.size(); i += 131)
        if (is_first(i, 128)) in.a[i] = bad[i % 5];
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_GATED_DELTA_RULE)) {
        if (!accepts(*kernel, d)) continue;
        const Floats start(d.state_floats(), 0);
        const DeltaResult want = delta(*kernel, d, clean, start, { 70 }),
                          got = delta(*kernel, d, in, start, { 70 });
        bool is_bad = false;
        for (size_t i = 0; i < got.out.size(); i++) {
            if (is_first(i, 128))
                is_bad = is_bad || !std::isfinite(got.out[i]);
            else
                ASSERT_EQ(memcmp(&got.out[i], &want.out[i], sizeof(float)), 0)
                    << kernel->name << " " << i;
        }
        EXPECT_TRUE(is_bad) << kernel->name << ": nothing was tested";
        const auto second = (ptrdiff_t)(d.state_floats() / 2);
        EXPECT_TRUE(same_bits(
            { got.state.begin() + second, got.state.end() },
            { want.state.begin() + second, want.state.end() }
        )) << kernel->name;
    }
}

INSTANTIATE_TEST_SUITE_P(Decays, DeltaScan, ::testing::Bool(), [](const auto &info) {
    return info.param ? "OfChannels" : "OfHeads";
});

} // namespace
} // namespace weir_test
