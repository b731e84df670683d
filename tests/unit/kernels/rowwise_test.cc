// tests/unit/kernels/rowwise_test.cc - norms, gates, rotation, embedding and page writing: ref
// against goldens and closed forms, omp against ref.
#include "tests/unit/kernels/support.h"

extern "C" void weir_asan_loadN(uintptr_t address, size_t n) __attribute__((weak));

namespace weir_test {
namespace {

// Runs `make(dst)`'s arguments on ref and on every omp row and compares what they wrote.
template <class Args, class Make>
void expect_parity(weir_op op, size_t n, const Floats &start, Make make, const std::string &what)
{
    ASSERT_EQ(start.size(), n);
    Floats want = start;
    Args args = make(want.data());
    ASSERT_EQ(run(*ref_row(op), &args), WEIR_OK) << what;
    for (const weir_kernel *kernel : omp_rows(op)) {
        for (int threads : { 1, 2 }) {
            Floats x = start;
            args = make(x.data());
            ASSERT_EQ(run(*kernel, &args, threads), WEIR_OK) << what;
            expect_close(
                x, want, kernel->atol, kernel->rtol, std::string(kernel->name) + " " + what
            );
        }
    }
}

Floats rmsnorm(Floats x, const Floats &weight, float eps)
{
    const int64_t dim = (int64_t)weight.size();
    const weir_rmsnorm_args args = { x.data(),
                                     x.data(),
                                     weight.data(),
                                     nullptr,
                                     (int64_t)x.size() / dim,
                                     1,
                                     dim,
                                     dim,
                                     dim,
                                     dim,
                                     dim,
                                     0,
                                     eps };
    EXPECT_EQ(run(weir_kernel_ref_rmsnorm, &args), WEIR_OK);
    return x;
}

TEST(Rmsnorm, RefMatchesG1)
{
    Floats one_plus = golden("G1.w_zero_centred");
    for (float &w : one_plus) w += 1;
    for (const auto &[eps, text] : { std::pair{ 1e-6f, "1e-06" }, std::pair{ 1e-5f, "1e-05" } }) {
        expect_close(
            rmsnorm(golden("G1.x"), golden("G1.w_plain"), eps),
            golden(std::string("G1.y_plain_eps") + text), 1e-6, 1e-5, text
        );
        expect_close(
            rmsnorm(golden("G1.x"), one_plus, eps),
            golden(std::string("G1.y_zero_centred_eps") + text), 1e-6, 1e-5, text
        );
    }
}

TEST(Rmsnorm, OmpMatchesRef)
{
    for (int64_t dim : { 1, 3, 16, 33, 64, 255, 1024, 4097 }) {
        for (int64_t rows : { 1, 5 }) {
            const size_t n = (size_t)(rows * (dim + 3));
            const Floats weight = random_floats((size_t)dim, 1), src = random_floats(n, 2, 10);
            Floats in = src;
            expect_parity<weir_rmsnorm_args>(
                WEIR_OP_RMSNORM, n, Floats(n, 7),
                [&](float *dst) {
                    return weir_rmsnorm_args{ dst, in.data(), weight.data(), nullptr, rows,
                                              1,   dim,       dim + 3,       0,       dim + 3,
                                              0,   0,         1e-6f };
                },
                "dim " + std::to_string(dim)
            );
        }
    }
}

/* In the levels of kernels that are built to look at addresses (kernels/checks, .ci/nightly). */
TEST(Rmsnorm, TheSanitizerSeesReadsPastRows)
{
    if (!weir_asan_loadN) return;
    for (const int64_t dim : { 33, 64, 65 }) {
        const Floats weight = random_floats((size_t)dim, 1);
        Floats in = random_floats((size_t)dim - 1, 2), out((size_t)dim);
        const weir_rmsnorm_args args = { out.data(), in.data(), weight.data(), nullptr, 1,
                                         1,          dim,       dim,           0,       dim,
                                         0,          0,         1e-6f };
        EXPECT_DEATH(
            for (const weir_kernel *kernel : omp_rows(WEIR_OP_RMSNORM))(void) run(*kernel, &args),
            "heap-buffer-overflow"
        ) << dim;
    }
}

TEST(Rmsnorm, HeadsInPlaceAndResidual)
{
    const Floats weight = random_floats(64, 1), heads = random_floats(5 * 3 * 80, 2),
                 add = random_floats(5 * 64, 3), zero(5 * 64, 0);
    expect_parity<weir_rmsnorm_args>(
        WEIR_OP_RMSNORM, heads.size(), heads,
        [&](float *x) {
            return weir_rmsnorm_args{ x,   x,  weight.data(), nullptr, 5, 3,    64,
                                      240, 80, 240,           80,      0, 1e-6f };
        },
        "heads in place"
    );
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_RMSNORM)) {
        Floats x = random_floats(5 * 64, 4), y(5 * 64), want_x = x, want_y(5 * 64);
        weir_rmsnorm_args args = {
            want_y.data(), want_x.data(), weight.data(), add.data(), 5, 1, 64, 64, 64, 64, 64, 64,
            1e-6f
        };
        ASSERT_EQ(run(weir_kernel_ref_rmsnorm, &args), WEIR_OK);
        args.dst = y.data();
        args.src = x.data();
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        EXPECT_TRUE(same_bits(x, want_x)) << kernel->name; // the residual stream: one rounding
        expect_close(y, want_y, kernel->atol, kernel->rtol, kernel->name);
        args.n_groups = 2;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL);
        args.n_groups = 1;
        args.dim = 0;
        EXPECT_EQ(run(*kernel, &args), WEIR_EINVAL);
    }
}

TEST(GatedRmsnorm, MatchesG2)
{
    const Floats o = golden("G2.o"), z = golden("G2.z"), w = golden("G2.w"), want = golden("G2.y");
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_GATED_RMSNORM);
    rows.push_back(&weir_kernel_ref_gated_rmsnorm);
    for (const weir_kernel *kernel : rows) {
        Floats y(o.size());
        const weir_gated_rmsnorm_args args = { y.data(), o.data(), z.data(), w.data(), 42,
                                               16,       1,        1e-6f,    false };
        ASSERT_EQ(run(*kernel, &args), WEIR_OK);
        expect_close(y, want, 1e-6, 1e-5, kernel->name);
    }
}

TEST(GatedRmsnorm, OmpMatchesRef)
{
    for (int64_t dim : { 1, 24, 128, 129 }) {
        const Floats src = random_floats((size_t)(7 * dim), 1, 3),
                     gate = random_floats((size_t)(7 * dim), 2, 20),
                     w = random_floats((size_t)(3 * dim), 3);
        for (const bool gate_first : { false, true })
            expect_parity<weir_gated_rmsnorm_args>(
                WEIR_OP_GATED_RMSNORM, src.size(), src,
                [&](float *x) {
                    return weir_gated_rmsnorm_args{ x,   x, gate.data(), w.data(),  7,
                                                    dim, 3, 1e-6f,       gate_first };
                },
                "in place " + std::to_string(dim)
            );
    }
}

/* Two rows with a weight each; silu(ln 3) = 0.75 ln 3. */
TEST(GatedRmsnorm, RefClosedForm)
{
    const float three = std::log(3.0f);
    const Floats src = { 3, 4, 4, 0 }, gate = { three, three, three, 100 }, w = { 1, 2, 3, 4 };
    Floats y(4, NAN);
    weir_gated_rmsnorm_args args = {
        y.data(), src.data(), gate.data(), w.data(), 2, 2, 2, 0, false
    };
    ASSERT_EQ(run(weir_kernel_ref_gated_rmsnorm, &args), WEIR_OK);
    const float norm = std::sqrt(12.5f), silu = 0.75f * three, root = std::sqrt(2.0f);
    expect_close(
        y, { 3 / norm * silu, 8 / norm * silu, 3 * root * silu, 0 }, 0, 1e-6, "norm first"
    );
    args.gate_first = true;
    ASSERT_EQ(run(weir_kernel_ref_gated_rmsnorm, &args), WEIR_OK);
    expect_close(y, { 3 / norm, 8 / norm, 3 * root, 0 }, 0, 1e-6, "gate first");
    args.n_weights = 0;
    EXPECT_EQ(run(weir_kernel_ref_gated_rmsnorm, &args), WEIR_EINVAL);
}

TEST(Rope, MatchesG3)
{
    const std::vector<int32_t> positions = golden_integers("G3.pos");
    const Floats frequencies = golden("G3.inv_freq");
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_ROPE);
    rows.push_back(&weir_kernel_ref_rope);
    for (const weir_kernel *kernel : rows) {
        for (const auto &[name, heads] : { std::pair{ "G3.q", 2 }, std::pair{ "G3.k", 1 } }) {
            Floats x = golden(name);
            const weir_rope_args args = { x.data(),
                                          positions.data(),
                                          frequencies.data(),
                                          5,
                                          heads,
                                          8,
                                          heads * 32,
                                          32,
                                          1,
                                          WEIR_ROPE_HALF_SPLIT,
                                          0,
                                          0 };
            ASSERT_EQ(run(*kernel, &args), WEIR_OK);
            const Floats want = golden(std::string(name) + "_rot");
            const ptrdiff_t four =
                4 * heads *
                32; // the fifth position is 200000: the golden's own angle is only good to 1e-2
            expect_close(
                Floats(x.begin(), x.begin() + four), Floats(want.begin(), want.begin() + four),
                2e-6, 1e-5, kernel->name
            );
            expect_close(x, want, 2e-2, 1e-5, kernel->name);
        }
    }
}

// Sine and cosine of the f32 angle, at angles up to the longest context: the pair (1, 0) becomes
// (cos, sin).
TEST(Rope, SineAndCosineOfLargeAngles)
{
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_ROPE)) {
        for (int32_t position : { 0, 1, 3, 1000, 65537, 200000, 262143 }) {
            const int64_t half = 160; // more pairs than are done at a time
            Floats frequencies((size_t)half), x((size_t)(2 * half), 0.0f);
            for (size_t i = 0; i < (size_t)half; i++)
                frequencies[i] = std::pow(1e4f, -(float)i / (float)half), x[2 * i] = 1;
            const weir_rope_args args = {
                x.data(), &position, frequencies.data(), 1, 1, 2 * half, 2 * half,
                2 * half, 1,         WEIR_ROPE_PAIRS,    0, 0
            };
            ASSERT_EQ(run(*kernel, &args), WEIR_OK);
            for (size_t i = 0; i < (size_t)half; i++) {
                const double angle = (double)((float)position * frequencies[i]);
                ASSERT_NEAR(x[2 * i], std::cos(angle), 2e-7) << kernel->name << " angle " << angle;
                ASSERT_NEAR(x[2 * i + 1], std::sin(angle), 2e-7)
                    << kernel->name << " angle " << angle;
            }
        }
    }
}

// The pair (1, 0) of frequency 0 becomes the factor: 1 + s ln(1 + floor(p / length)).
TEST(Rope, TemperatureGrowsByWholeLengths)
{
    std::vector<const weir_kernel *> rows = omp_rows(WEIR_OP_ROPE);
    rows.push_back(&weir_kernel_ref_rope);
    const float none = 0;
    for (const weir_kernel *kernel : rows)
        for (const auto &[position, want] :
             { std::pair{ 0, 1.0 }, std::pair{ 15, 1.0 }, std::pair{ 16, 1 + 0.1 * std::log(2.0) },
               std::pair{ 31, 1 + 0.1 * std::log(2.0) },
               std::pair{ 262143, 1 + 0.1 * std::log(16384.0) } }) {
            Floats x = { 1, 0 };
            const int32_t at = position;
            const weir_rope_args args = { x.data(), &at,  &none,           1,    1, 2, 2,
                                          2,        1.5f, WEIR_ROPE_PAIRS, 0.1f, 16 };
            ASSERT_EQ(run(*kernel, &args), WEIR_OK);
            EXPECT_NEAR(x[0], 1.5 * want, 1e-6) << kernel->name << " at " << position;
        }
}

TEST(Rope, OmpMatchesRef)
{
    const std::vector<int32_t> positions = { 5, 0, 99999 };
    for (weir_rope_pairing pairing : { WEIR_ROPE_HALF_SPLIT, WEIR_ROPE_PAIRS }) {
        for (int64_t rotary : { 0, 2, 20, 64, 300 }) {
            const int32_t length = rotary == 64 ? 1000 : 0;
            const Floats frequencies = random_floats((size_t)rotary / 2, 1),
                         x = random_floats(3 * 4 * 320, 2);
            expect_parity<weir_rope_args>(
                WEIR_OP_ROPE, x.size(), x,
                [&](float *y) {
                    return weir_rope_args{ y,
                                           positions.data(),
                                           frequencies.data(),
                                           3,
                                           4,
                                           rotary,
                                           4 * 320,
                                           320,
                                           1.14f,
                                           pairing,
                                           0.1f,
                                           length };
                },
                "rotary " + std::to_string(rotary)
            );
        }
    }
}

TEST(Elementwise, OmpMatchesRef)
{
    for (int64_t dim : { 1, 31, 1500, 5000 }) {
        const size_t n = (size_t)(3 * (dim + 2));
        const Floats a = random_floats(n, 1, 30), b = random_floats(n, 2);
        for (const weir_glu_kind kind : { WEIR_GLU_SWIGLU, WEIR_GLU_GEGLU, WEIR_GLU_BILINEAR,
                                          WEIR_GLU_CLAMPED, WEIR_GLU_RELU2 }) {
            const int64_t stride = dim + 2;
            expect_parity<weir_glu_args>(
                WEIR_OP_GLU, n, a,
                [&](float *x) {
                    return weir_glu_args{ x, x, b.data(), 3, dim, stride, stride, stride, kind, 7 };
                },
                "glu onto its gate"
            );
            expect_parity<weir_glu_args>(
                WEIR_OP_GLU, n, b,
                [&](float *x) {
                    return weir_glu_args{ x, a.data(), x, 3, dim, stride, stride, stride, kind, 7 };
                },
                "glu onto up"
            );
        }
        expect_parity<weir_add_args>(
            WEIR_OP_ADD, n, a,
            [&](float *x) { return weir_add_args{ x, b.data(), 3, dim, dim + 2, dim + 2 }; }, "add"
        );
        expect_parity<weir_sigmoid_gate_args>(
            WEIR_OP_SIGMOID_GATE, n, b,
            [&](float *x) {
                return weir_sigmoid_gate_args{ x, a.data(), 1, 3, dim, 0, dim + 2, 0, dim + 2 };
            },
            "sigmoid_gate"
        );
        expect_parity<weir_softcap_args>(
            WEIR_OP_SOFTCAP, n, a,
            [&](float *x) { return weir_softcap_args{ x, 3, dim, dim + 2, 20 }; }, "softcap"
        );
    }
}

TEST(Elementwise, RefClosedForm)
{
    const Floats gate = { 0, std::log(3.0f), -std::log(3.0f), 100, -1000 };
    Floats x = { 8, 8, 8, 8, 8 };
    const weir_sigmoid_gate_args sigmoid = { x.data(), gate.data(), 1, 1, 5, 5, 5, 5, 5 };
    ASSERT_EQ(run(weir_kernel_ref_sigmoid_gate, &sigmoid), WEIR_OK);
    expect_close(x, { 4, 6, 2, 8, 0 }, 0, 1e-6, "sigmoid");
    const Floats up = { 2, 4, 4, 0.5f, 3 };
    weir_glu_args glu = { x.data(), gate.data(), up.data(), 1, 5, 5, 5, 5, WEIR_GLU_SWIGLU, 0 };
    ASSERT_EQ(run(weir_kernel_ref_glu, &glu), WEIR_OK);
    expect_close(x, { 0, 3 * gate[1], gate[2], 50, 0 }, 0, 1e-6, "swiglu");
    Floats logits = { 0, 1e-3f, 2, -200, 30 };
    const weir_softcap_args softcap = { logits.data(), 1, 5, 5, 20 };
    ASSERT_EQ(run(weir_kernel_ref_softcap, &softcap), WEIR_OK);
    expect_close(
        logits, { 0, 1e-3f, 20 * 0.099667994f, -20, 20 * 0.90514825f }, 0, 1e-6, "softcap"
    );
    /* gelu by tanh: 0.84119199 at 1, -0.15880801 at -1 */
    const Floats one = { 0, 1, -1, 100, -1000 };
    glu.gate = one.data(), glu.kind = WEIR_GLU_GEGLU;
    ASSERT_EQ(run(weir_kernel_ref_glu, &glu), WEIR_OK);
    expect_close(x, { 0, 4 * 0.84119199f, 4 * -0.15880801f, 50, 0 }, 1e-7, 1e-6, "geglu");
    glu.kind = WEIR_GLU_BILINEAR;
    ASSERT_EQ(run(weir_kernel_ref_glu, &glu), WEIR_OK);
    expect_close(x, { 0, 4, -4, 50, -3000 }, 0, 0, "bilinear");
    glu.kind = WEIR_GLU_RELU2, glu.up = nullptr;
    ASSERT_EQ(run(weir_kernel_ref_glu, &glu), WEIR_OK);
    expect_close(x, { 0, 1, 0, 10000, 0 }, 0, 0, "relu2");
    /* sigmoid(1.702) = 0.84579577; gate and up above the limit, up below it */
    const Floats ups = { 5, 1, 30, 1, -30 }, gates = { 0, 1, 1, 1e6f, 1 };
    glu.gate = gates.data(), glu.up = ups.data();
    glu.kind = WEIR_GLU_CLAMPED, glu.limit = 7;
    ASSERT_EQ(run(weir_kernel_ref_glu, &glu), WEIR_OK);
    expect_close(
        x, { 0, 2 * 0.84579577f, 8 * 0.84579577f, 2 * 7 * 0.99999332f, -6 * 0.84579577f }, 0, 1e-6,
        "clamped"
    );
}

TEST(Embed, OmpMatchesRef)
{
    const std::vector<int32_t> ids = { 3, 0, 6, 3 };
    for (weir_dtype dtype : { WEIR_F32, WEIR_F16, WEIR_BF16, WEIR_Q8_0 }) {
        const size_t row_bytes = weir_row_bytes(dtype, 96);
        std::vector<unsigned char> table(7 * row_bytes + 1);
        std::mt19937 rng(1);
        for (auto &byte : table)
            byte = (unsigned char)(rng() & 0x7b); // no f16, bf16 or f32 exponent of all ones
        const weir_dtype_info info = weir_dtype_of(dtype);
        EXPECT_GT(info.block_bytes, 0);
        expect_parity<weir_embed_args>(
            WEIR_OP_EMBED, 4 * 96, Floats(4 * 96),
            [&](float *dst) {
                return weir_embed_args{ dst, table.data() + 1, ids.data(), 4, 96, 7, dtype };
            },
            info.name
        );
    }
    Floats dst(256);
    const std::vector<unsigned char> table(weir_row_bytes(WEIR_Q4_K, 256));
    const std::vector<int32_t> zero = { 0 };
    const weir_embed_args args = { dst.data(), table.data(), zero.data(), 1, 256, 1, WEIR_Q4_K };
    EXPECT_EQ(run(weir_kernel_ref_embed, &args), WEIR_OK);
    const weir_caps caps = {};
    for (const weir_kernel *kernel : omp_rows(WEIR_OP_EMBED))
        EXPECT_NE(kernel->reject(&caps, &args), nullptr);
}

// Rows land where kv_page.h says, nothing else changes, and f16 rounds to nearest even: all rows of
// the table write the same bytes.
TEST(KvWrite, WritesThePages)
{
    for (weir_kv_format format : { WEIR_KV_F16, WEIR_KV_F32 }) {
        const Floats k = random_floats(100 * 3 * 20, 1), v = random_floats(100 * 3 * 12, 2);
        auto write = [&](const weir_kernel &kernel) {
            Pages first(format, 3, 20, 12, 130), second(format, 3, 20, 12, 64);
            const weir_kv_segment segments[] = { first.segment(0, 90, 30), second.segment(90, 0, 5),
                                                 second.segment(91, 9, 40) };
            const weir_kv_write_args args = { k.data(), v.data(), segments, 3,      3,      20,
                                              12,       60,       36,       format, format, {} };
            EXPECT_EQ(run(kernel, &args), WEIR_OK);
            auto pages = first.pages();
            pages.insert(pages.end(), second.pages().begin(), second.pages().end());
            return pages;
        };
        const auto want = write(weir_kernel_ref_kv_write);
        if (format == WEIR_KV_F32) { // position 35 of head 1 is row 5; page 35 / 64 = 0 of head 1
            const float *const page = reinterpret_cast<const float *>(want[3].data());
            EXPECT_EQ(page[(35 / 32) * 20 * 32 + 7 * 32 + 3], k[5 * 60 + 20 + 7]);
            EXPECT_EQ(page[64 * 20 + 35 * 12 + 11], v[5 * 36 + 12 + 11]);
            EXPECT_EQ(page[64 * 20 + 29 * 12 + 11], 0.0f);
        }
        for (const weir_kernel *kernel : omp_rows(WEIR_OP_KV_WRITE))
            EXPECT_EQ(write(*kernel), want) << kernel->name;
    }
}

} // namespace
} // namespace weir_test
