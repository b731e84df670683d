// tests/unit/kernels/ssm_test.cc - the scan of Mamba-2: values by hand, parity, and cuts of a
// sequence into calls.
#include "tests/unit/kernels/support.h"

#include <algorithm>

namespace weir_test {
namespace {

struct Ssm {
    int64_t n_heads, n_groups, head_dim, n_state;
    float dt_min = 0, dt_max = INFINITY;

    int64_t width() const { return n_heads * head_dim; }
    int64_t stride() const { return width() + 2 * n_groups * n_state; }
    int64_t tiles() const { return (head_dim + 15) / 16; }
    size_t place(int64_t h, int64_t i, int64_t n) const
    {
        return (size_t)(((h * tiles() + i / 16) * n_state + n) * 16 + i % 16);
    }
    size_t state_floats() const { return (size_t)(n_heads * tiles() * n_state * 16); }
};

struct Input {
    Floats xbc, dt, a_neg, dt_bias, skip;
};

Input random_input(const Ssm &d, int32_t rows, uint32_t seed)
{
    const auto heads = (size_t)d.n_heads;
    Input in = { random_floats((size_t)(rows * d.stride()), seed),
                 random_floats((size_t)rows * heads, seed + 1, 4), Floats(heads),
                 random_floats(heads, seed + 2), random_floats(heads, seed + 3) };
    for (size_t h = 0; h < heads; h++) in.a_neg[h] = -0.1f * (float)(1 + h % 7);
    return in;
}

Floats random_state(const Ssm &d, uint32_t seed)
{
    const Floats values = random_floats((size_t)(d.width() * d.n_state), seed);
    Floats state(d.state_floats(), 0);
    size_t at = 0;
    for (int64_t h = 0; h < d.n_heads; h++)
        for (int64_t i = 0; i < d.head_dim; i++)
            for (int64_t n = 0; n < d.n_state; n++) state[d.place(h, i, n)] = values[at++];
    return state;
}

weir_ssm_scan_args args_of(
    const Ssm &d, const Input &in, float *out, const weir_recurrent_segment *segments, int64_t n
)
{
    const float *const x = in.xbc.data();
    return { out,
             x,
             x + d.width(),
             x + d.width() + d.n_groups * d.n_state,
             in.dt.data(),
             in.a_neg.data(),
             in.dt_bias.data(),
             in.skip.data(),
             segments,
             n,
             d.n_heads,
             d.n_groups,
             d.head_dim,
             d.n_state,
             d.stride(),
             d.n_heads,
             d.dt_min,
             d.dt_max };
}

struct Result {
    Floats out, state;
};

Result scan(
    const weir_kernel &kernel, const Ssm &d, const Input &in, Floats state,
    const std::vector<int32_t> &cuts, int n_threads = 2
)
{
    const size_t rows = in.xbc.size() / (size_t)d.stride();
    Result result = { Floats(rows * (size_t)d.width(), NAN), std::move(state) };
    int32_t row = 0;
    for (const int32_t n : cuts) {
        const weir_recurrent_segment segment = { nullptr, result.state.data(), row, n };
        const weir_ssm_scan_args args = args_of(d, in, result.out.data(), &segment, 1);
        EXPECT_EQ(run(kernel, &args, n_threads), WEIR_OK) << kernel.name;
        row += n;
    }
    return result;
}

std::vector<const weir_kernel *> all_rows()
{
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_SSM_SCAN);
    rows.push_back(ref_row(WEIR_OP_SSM_SCAN));
    return rows;
}

/* One head of one dimension, two states. softplus(ln(e - 1)) = 1, so the step is 1 and S decays by
 * half: S = (1 + 2 * 3, 2 + 2 * 5), out = 7 * 10 + 12 * 100 + 0.5 * 2. A limit of 0.5 halves the
 * step, and with it the exponent of the decay. */
TEST(SsmScan, ByHand)
{
    const auto start = [](const Ssm &d) {
        Floats state(d.state_floats(), 0);
        state[d.place(0, 0, 0)] = 2, state[d.place(0, 0, 1)] = 4;
        return state;
    };
    const Input in = {
        { 2, 3, 5, 10, 100 }, { 0 }, { -std::log(2.0f) }, { std::log(std::exp(1.0f) - 1) }, { 0.5f }
    };
    for (const weir_kernel *kernel : all_rows()) {
        Ssm d = { 1, 1, 1, 2 };
        Result r = scan(*kernel, d, in, start(d), { 1 });
        expect_close({ r.state[0], r.state[16] }, { 7, 12 }, 0, 1e-6, kernel->name);
        expect_close(r.out, { 1271 }, 0, 1e-6, kernel->name);
        d.dt_max = 0.5f;
        r = scan(*kernel, d, in, start(d), { 1 });
        const float a = 2 * std::sqrt(0.5f) + 3, b = 4 * std::sqrt(0.5f) + 5;
        expect_close({ r.state[0], r.state[16] }, { a, b }, 0, 1e-6, kernel->name);
        expect_close(r.out, { 10 * a + 100 * b + 1 }, 0, 1e-6, kernel->name);
        d.dt_max = INFINITY, d.dt_min = 2;
        r = scan(*kernel, d, in, start(d), { 1 });
        expect_close({ r.state[0], r.state[16] }, { 12.5f, 21 }, 0, 1e-6, kernel->name);
    }
}

/* A step is softplus(x), to its last digits where it is small: S = step. */
TEST(SsmScan, SmallSteps)
{
    const Ssm d = { 6, 1, 1, 1 };
    const Input in = { { 1, 1, 1, 1, 1, 1, 1, 0 },
                       { -40, -16, -5, 0, 19, 30 },
                       Floats(6, 0),
                       Floats(6, 0),
                       Floats(6, 0) };
    for (const weir_kernel *kernel : all_rows()) {
        const Result r = scan(*kernel, d, in, Floats(d.state_floats(), 0), { 1 });
        Floats steps, want;
        for (size_t h = 0; h < 6; h++) {
            steps.push_back(r.state[h * 16]);
            want.push_back((float)std::log1p(std::exp((double)in.dt[h])));
        }
        expect_close(steps, want, 0, 1e-6, kernel->name);
    }
}

TEST(SsmScan, OmpMatchesRef)
{
    for (const Ssm &d : { Ssm{ 4, 2, 64, 128 }, Ssm{ 6, 3, 80, 16 }, Ssm{ 2, 1, 24, 7, 0.5f, 2 },
                          Ssm{ 3, 1, 1, 1 }, Ssm{ 1, 1, 200, 33 } }) {
        for (const int32_t n : { 1, 2, 3, 4, 5, 130 }) {
            const Input in = random_input(d, n, (uint32_t)n);
            const Floats start = random_state(d, 9);
            const Result want = scan(*ref_row(WEIR_OP_SSM_SCAN), d, in, start, { n });
            for (const weir_kernel *kernel : omp_rows(WEIR_OP_SSM_SCAN)) {
                const Result r = scan(*kernel, d, in, start, { n });
                const std::string what = kernel->name + (" dims " + std::to_string(d.head_dim)) +
                                         "," + std::to_string(d.n_state) + " rows " +
                                         std::to_string(n);
                expect_close(r.out, want.out, kernel->atol, kernel->rtol, what);
                expect_close(r.state, want.state, kernel->atol, kernel->rtol, what + " state");
            }
        }
    }
}

TEST(SsmScan, BitsDoNotDependOnCutsOrBatchOrThreads)
{
    const Ssm d = { 4, 2, 72, 33 };
    const Input in = random_input(d, 40, 5);
    const Floats start = random_state(d, 6);
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_SSM_SCAN)) {
        const Result whole = scan(*kernel, d, in, start, { 40 });
        for (const std::vector<int32_t> &cuts :
             { std::vector<int32_t>(40, 1), { 17, 1, 22 }, { 32, 8 }, { 3, 2, 35 } }) {
            for (const int n_threads : { 1, 2, 3 }) {
                const Result cut = scan(*kernel, d, in, start, cuts, n_threads);
                EXPECT_TRUE(same_bits(whole.out, cut.out)) << kernel->name;
                EXPECT_TRUE(same_bits(whole.state, cut.state)) << kernel->name;
            }
        }
        const auto call = [&](float *out, const weir_recurrent_segment *segments, int64_t n) {
            const weir_ssm_scan_args args = args_of(d, in, out, segments, n);
            return run(*kernel, &args);
        };
        SCOPED_TRACE(kernel->name);
        expect_two_sequences(start, whole, scan(*kernel, d, in, start, { 10 }), d.width(), call);
    }
}

// In one group, and so in the heads that read it: the others have the bits they have without it.
TEST(SsmScan, GarbageStaysInItsHeads)
{
    const Ssm d = { 4, 2, 16, 8 };
    const Input clean = random_input(d, 30, 5);
    Input in = clean;
    const float bad[] = { NAN, INFINITY, -INFINITY, 1e38f, -1e38f };
    for (size_t i = 0; i < in.xbc.size(); i += 7) { /* of a row: x [4, 16], b, c [2, 8] */
        const size_t at = i % (size_t)d.stride();
        if (at < 64 ? at < 32 : at % 16 < 8) in.xbc[i] = bad[i % 5];
    }
    for (size_t i = 0; i < in.dt.size(); i += 5)
        if (i % 4 < 2) in.dt[i] = bad[i % 5];
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_SSM_SCAN)) {
        const Floats start(d.state_floats(), 0);
        const Result want = scan(*kernel, d, clean, start, { 30 }),
                     got = scan(*kernel, d, in, start, { 30 });
        bool is_bad = false;
        for (size_t i = 0; i < got.out.size(); i++) {
            if (i % 64 < 32)
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

TEST(SsmScan, BadShapes)
{
    const Ssm d = { 4, 2, 16, 8 };
    const Input in = random_input(d, 1, 1);
    Floats out((size_t)d.width()), state(d.state_floats(), 0);
    const weir_recurrent_segment segment = { nullptr, state.data(), 0, 1 };
    for (const weir_kernel *kernel : all_rows()) {
        weir_ssm_scan_args args = args_of(d, in, out.data(), &segment, 1);
        args.n_groups = 3;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name;
        args = args_of(d, in, out.data(), &segment, 1);
        args.dt_min = 1, args.dt_max = 0.5f;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL) << kernel->name;
    }
}

} // namespace
} // namespace weir_test
