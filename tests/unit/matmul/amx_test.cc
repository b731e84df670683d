// Products of dense bf16 weights in tile registers: layout, values, bits over batches and threads,
// several outputs, refusals. The same code runs with the instructions in C on any machine.
#include <gtest/gtest.h>

#include <cmath>

#include "offload/caps.h"
#include "tests/sanitizer.h"
#include "tests/unit/matmul/fixture.h"

extern "C" const weir_kernel weir_kernel_x86_matmul_bf16_amx_emulated;

namespace weir_test {
namespace {

// libomp leaks teams that grow, so the address sanitizer sees few.
const std::vector<int> kThreads =
    has_address_sanitizer() ? std::vector<int>{ 1, 2, 3 } : std::vector<int>{ 1, 2, 3, 7 };

const weir_kernel &emulated = weir_kernel_x86_matmul_bf16_amx_emulated;

std::vector<const weir_kernel *> kernels_here()
{
    std::vector<const weir_kernel *> kernels = { &emulated };
    if (weir_caps_detect().amx_bf16) kernels.push_back(&weir_kernel_x86_matmul_bf16_amx);
    return kernels;
}

float rounded(float x) { return weir_bf16_to_f32(weir_bf16_from_f32(x)); }

TEST(Amx, UnpacksToTheFilesBitsRoundedToBf16)
{
    for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16, WEIR_F32 }) {
        const Weight w(ForAmx(), dtype, 71, 300);
        std::vector<float> values(71 * 300);
        ASSERT_EQ(weir_dequantise(values.data(), w.rows().data, dtype, 71 * 300), WEIR_OK);
        int different = 0;
        for (int64_t i = 0; i < 71 * 300; i++)
            different +=
                weir_amx_element(&w.weight, i / 300, i % 300) != rounded(values[(size_t)i]);
        EXPECT_EQ(different, 0) << weir_dtype_of(dtype).name;
        EXPECT_EQ(w.weight.bytes, 96u * 320u * 2u);
    }
    size_t bytes;
    EXPECT_FALSE(weir_amx_bytes(&bytes, 0, 1));
    EXPECT_FALSE(weir_amx_bytes(&bytes, 1, INT64_MAX));
    ASSERT_TRUE(weir_amx_bytes(&bytes, INT32_MAX, INT32_MAX));
    EXPECT_EQ(bytes, (size_t)1 << 63);
}

TEST(Amx, PlansForTileRegisters)
{
    if (!weir_caps_detect().amx_bf16) GTEST_SKIP() << "this machine has no AMX-BF16";
    Stream stream, avx512(2, "v4");
    for (const bool is_grouped : { false, true }) {
        for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16, WEIR_F8_E4M3, WEIR_F32 }) {
            const auto layout = [&](const Stream &s, weir_activations activations) {
                const weir_matrix_source source = { nullptr, 100, 256, dtype, is_grouped };
                weir_weight w = {};
                EXPECT_EQ(weir_weight_plan(&w, s.stream, &source, activations, nullptr), WEIR_OK);
                return w.layout;
            };
            EXPECT_EQ(layout(stream, WEIR_ACTIVATIONS_FAST) == WEIR_LAYOUT_AMX, dtype != WEIR_F32)
                << weir_dtype_of(dtype).name;
            EXPECT_NE(layout(stream, WEIR_ACTIVATIONS_F32), WEIR_LAYOUT_AMX) << "it would round";
            EXPECT_NE(layout(avx512, WEIR_ACTIVATIONS_FAST), WEIR_LAYOUT_AMX) << "v4 is forced";
        }
    }
    const Weight packed(stream.stream, WEIR_F16, 71, 300), same(ForAmx(), WEIR_F16, 71, 300);
    ASSERT_EQ(packed.weight.bytes, same.weight.bytes);
    EXPECT_EQ(std::memcmp(packed.weight.data, same.weight.data, same.weight.bytes), 0);
}

TEST(Amx, MatchesTheReference)
{
    for (const weir_kernel *kernel : kernels_here()) {
        for (const weir_dtype dtype : { WEIR_BF16, WEIR_F16 }) {
            for (const int64_t n_in : { 256, 333, 1280 }) {
                for (const int64_t n_rows : { 1, 5, 40 }) {
                    const int64_t n_out = 77;
                    const Weight w(ForAmx(), dtype, n_out, n_in, 2);
                    const auto x = random_rows(n_rows * n_in, 8);
                    std::vector<float> got((size_t)(n_rows * n_out)), want(got.size()),
                        exact(got.size());
                    ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), n_rows)));
                    ASSERT_TRUE(run(
                        weir_kernel_ref_matmul, arguments(&w.weight, want.data(), x.data(), n_rows)
                    ));
                    const weir_weight rows = w.rows();
                    ASSERT_TRUE(run(
                        weir_kernel_ref_matmul, arguments(&rows, exact.data(), x.data(), n_rows)
                    ));
                    double error = 0, off = 0, norm = 0;
                    for (size_t i = 0; i < got.size(); i++) {
                        error += std::pow((double)got[i] - (double)want[i], 2);
                        off += std::pow((double)got[i] - (double)exact[i], 2);
                        norm += std::pow((double)exact[i], 2);
                    }
                    EXPECT_LT(std::sqrt(error / norm), 1e-6) << kernel->name << " " << n_in;
                    EXPECT_LT(std::sqrt(off / norm), 5e-3) << "what bf16 activations lose";
                }
            }
        }
    }
}

// The order in which sums are added is part of what files record: steps of 32 inputs, the even and
// the odd inputs of each a chain from zero.
TEST(Amx, SumsAreOneChainOfSteps)
{
    const int64_t n_in = 300, n_out = 40, n_rows = 19;
    const Weight w(ForAmx(), WEIR_BF16, n_out, n_in, 4);
    const auto x = random_rows(n_rows * n_in, 6);
    std::vector<float> want((size_t)(n_rows * n_out)), got(want.size());
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t o = 0; o < n_out; o++) {
            float sum = 0.0f;
            for (int64_t step = 0; step < n_in; step += 32) {
                float even = 0.0f, odd = 0.0f;
                for (int64_t k = step; k < step + 32 && k < n_in; k++) {
                    float &chain = k % 2 ? odd : even;
                    chain = std::fmaf(
                        rounded(x[(size_t)(r * n_in + k)]), weir_amx_element(&w.weight, o, k), chain
                    );
                }
                const float both = even + odd;
                sum = sum + both;
            }
            want[(size_t)(r * n_out + o)] = sum;
        }
    for (const weir_kernel *kernel : kernels_here()) {
        ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), n_rows)));
        EXPECT_EQ(got, want) << kernel->name;
    }
}

// The promise: a row has the same bits alone, in any batch, at any place in it, with any number of
// threads.
TEST(Amx, RowsHaveTheSameBitsInEveryBatch)
{
    for (const weir_kernel *kernel : kernels_here()) {
        for (const int64_t n_in : { 256, 333 }) {
            const bool slow = kernel == &emulated;
            const int64_t n_out = slow ? 33 : 170, most = slow ? 300 : 600;
            const Weight w(ForAmx(), WEIR_BF16, n_out, n_in, 3);
            const auto x = random_rows(most * n_in, 5), bias = random_rows(n_out, 6),
                       before = random_rows(most * n_out, 7);
            std::vector<float> alone = before, batch;
            for (int64_t r = 0; r < most; r++) {
                weir_matmul_args one =
                    arguments(&w.weight, &alone[(size_t)(r * n_out)], &x[(size_t)(r * n_in)], 1);
                one.outputs[0].bias = bias.data(), one.outputs[0].accumulate = true;
                ASSERT_TRUE(run(*kernel, one, 1));
            }
            std::vector<int64_t> counts = { 96, 97, 128, 192, 256, 257, 289, most };
            for (int64_t n = 1; n <= 70; n += slow ? 3 : 1) counts.push_back(n);
            for (const int64_t n : counts) {
                for (const int n_threads : kThreads) {
                    if (slow && (n + n_threads) % 2) continue;
                    const int64_t first = n < most ? (n * 37 + n_threads) % (most - n) : 0;
                    batch.assign(before.begin() + first * n_out, before.end());
                    weir_matmul_args args =
                        arguments(&w.weight, batch.data(), &x[(size_t)(first * n_in)], n);
                    args.outputs[0].bias = bias.data(), args.outputs[0].accumulate = true;
                    ASSERT_TRUE(run(*kernel, args, n_threads));
                    const size_t written = (size_t)(n * n_out), at = (size_t)(first * n_out);
                    ASSERT_EQ(std::memcmp(&batch[0], &alone[at], sizeof(float) * written), 0)
                        << kernel->name << " n_in " << n_in << ", " << n << " rows, " << n_threads;
                    for (size_t i = written; i < batch.size(); i++)
                        ASSERT_EQ(batch[i], before[at + i]) << "wrote beyond row " << n;
                }
            }
        }
    }
}

// Tile registers and their definition in C: whole and partial tiles, blocks, pieces and spans.
TEST(Amx, HasTheBitsOfItsDefinition)
{
    if (!weir_caps_detect().amx_bf16)
        GTEST_SKIP() << "this machine has no AMX-BF16, or Linux does not grant it";
    const int64_t shapes[][2] = { { 1, 1 }, { 33, 64 }, { 150, 550 } };
    for (const auto &shape : shapes) {
        const int64_t n_out = shape[0], n_in = shape[1], most = 270;
        const Weight w(ForAmx(), WEIR_BF16, n_out, n_in, 21);
        const auto x = random_rows(most * n_in, 22);
        std::vector<float> want((size_t)(most * n_out)), got;
        ASSERT_TRUE(run(emulated, arguments(&w.weight, want.data(), x.data(), most)));
        for (const int64_t n : { 1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 256, 257, 270 }) {
            got.assign((size_t)(n * n_out), 0.25f);
            ASSERT_TRUE(
                run(weir_kernel_x86_matmul_bf16_amx, arguments(&w.weight, got.data(), x.data(), n),
                    n % 3 + 1)
            );
            ASSERT_EQ(std::memcmp(got.data(), want.data(), sizeof(float) * got.size()), 0)
                << n_out << " x " << n_in << ", " << n << " rows";
        }
    }
}

TEST(Amx, SeveralOutputsBiasStridesAndAccumulation)
{
    const int64_t n_in = 192;
    const Weight a(ForAmx(), WEIR_BF16, 96, n_in, 1), b(ForAmx(), WEIR_F16, 40, n_in, 2),
        c(ForAmx(), WEIR_BF16, 96, n_in, 3), d(ForAmx(), WEIR_BF16, 1, n_in, 4);
    expect_outputs(kernels_here(), { &a, &b, &c, &d });
}

TEST(Amx, AnInfinityOrNanSpoilsItsOwnRow)
{
    const int64_t n_in = 70;
    const Weight w(ForAmx(), WEIR_BF16, 33, n_in);
    for (const weir_kernel *kernel : kernels_here()) {
        for (const int64_t n_rows : { 8, 40 }) {
            std::vector<float> x((size_t)(n_rows * n_in), 1.0f), got((size_t)(n_rows * 33));
            x[(size_t)(2 * n_in + 3)] = INFINITY;
            x[(size_t)(5 * n_in + 69)] = NAN;
            ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), n_rows)));
            for (int64_t r = 0; r < n_rows; r++)
                for (int64_t i = 0; i < 33; i++)
                    EXPECT_EQ(std::isfinite(got[(size_t)(r * 33 + i)]), r != 2 && r != 5)
                        << kernel->name << " " << r;
        }
    }
}

// The instruction reads denormals as zero and writes none.
TEST(Amx, DenormalsCountAsZero)
{
    const float weights[] = { 1.0f, 0x1p-130f }; // [2 outputs][1 input]
    Weight w(ForAmx(), WEIR_F32, 2, 1);
    std::memcpy(w.file.data() + 1, weights, sizeof weights);
    std::vector<float> rows(WEIR_AMX_PANEL * WEIR_AMX_CHUNK);
    ASSERT_EQ(
        weir_amx_pack_panel(w.memory.get(), w.file.data() + 1, WEIR_F32, 2, 1, 0, rows.data()),
        WEIR_OK
    );
    EXPECT_EQ(weir_amx_element(&w.weight, 1, 0), 0x1p-130f);
    for (const weir_kernel *kernel : kernels_here()) {
        const std::vector<float> x = { 0x1p-126f, 0x1p-130f, 0x1p100f };
        std::vector<float> got(6, 7.0f);
        ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), 3)));
        const std::vector<float> want = { 0x1p-126f, 0.0f, 0.0f, 0.0f, 0x1p100f, 0.0f };
        EXPECT_EQ(got, want) << kernel->name;
    }
}

TEST(Amx, RefusesWeightsThatAreNotFinite)
{
    std::vector<float> rows(WEIR_AMX_PANEL * WEIR_AMX_CHUNK);
    const Memory memory = aligned_memory(weir_amx_panel_bytes(300));
    for (const float value : { (float)NAN, -INFINITY }) {
        for (const size_t at : { 0, 257, 32 * 300 - 1 }) {
            std::vector<float> file(32 * 300, 0.5f);
            file[at] = value;
            EXPECT_EQ(
                weir_amx_pack_panel(memory.get(), file.data(), WEIR_F32, 32, 300, 0, rows.data()),
                WEIR_EFORMAT
            );
        }
    }
    const std::vector<int32_t> integers(32);
    EXPECT_EQ(
        weir_amx_pack_panel(memory.get(), integers.data(), WEIR_I32, 32, 1, 0, rows.data()),
        WEIR_EUNSUPPORTED
    );
}

TEST(Amx, RejectWithAReason)
{
    Stream old_stream(2, "v2");
    const Weight w(ForAmx(), WEIR_BF16, 32, 64), dense(old_stream.stream, WEIR_BF16, 32, 64);
    std::vector<float> x(64), y(32);
    const weir_kernel &amx = weir_kernel_x86_matmul_bf16_amx;
    weir_caps caps = {};
    weir_matmul_args args = arguments(&w.weight, y.data(), x.data(), 1);
    EXPECT_STREQ(amx.reject(&caps, &args), "needs AMX-BF16");
    caps.amx_bf16 = true;
    EXPECT_EQ(amx.reject(&caps, &args), nullptr);
    args.n_in = 32;
    EXPECT_STREQ(amx.reject(&caps, &args), "n_in differs from the weight's");
    args.n_in = 64, args.n_rows = 0;
    EXPECT_STREQ(amx.reject(&caps, &args), "needs rows");
    args.n_rows = 1, args.n_outputs = 0;
    EXPECT_STREQ(amx.reject(&caps, &args), "needs 1 to 4 outputs");
    args = arguments(&dense.weight, y.data(), x.data(), 1);
    EXPECT_STREQ(amx.reject(&caps, &args), "weight is not packed for AMX");
    EXPECT_STREQ(weir_kernel_onednn_matmul_bf16.reject(&caps, &args), "needs AVX-512 BF16");
}

} // namespace
} // namespace weir_test
