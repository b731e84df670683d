// Products of quantised weights in tiles: values, bits over batches and instruction sets, several
// outputs, scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/x86/tiles.h"
#include "offload/caps.h"
#include "tests/unit/matmul/fixture.h"

extern "C" const weir_kernel weir_kernel_x86_matmul_tiles_avxvnni_emulated;

namespace weir_test {
namespace {

const std::vector<weir_dtype> kQuantised = quantised_dtypes();

// The rows that this machine can run, the slowest (plain C) last.
std::vector<const weir_kernel *> kernels_here()
{
    const weir_caps caps = weir_caps_detect();
    std::vector<const weir_kernel *> kernels;
    if (caps.amx_int8) kernels.push_back(&weir_kernel_x86_matmul_tiles_amx);
    if (caps.x86_v4 && caps.avx512_vnni) kernels.push_back(&weir_kernel_x86_matmul_tiles_vnni);
    if (caps.avx_vnni) kernels.push_back(&weir_kernel_x86_matmul_tiles_avxvnni);
    if (caps.x86_v3) kernels.push_back(&weir_kernel_x86_matmul_tiles_v3);
    if (caps.x86_v3) kernels.push_back(&weir_kernel_x86_matmul_tiles_avxvnni_emulated);
    kernels.push_back(&weir_kernel_x86_matmul_tiles_v2);
    return kernels;
}

// Types whose products of two scales are rounded to f16.
bool is_k(weir_dtype dtype)
{
    return weir_dtype_of(dtype).block_elements == 256 && dtype != WEIR_TQ1_0 && dtype != WEIR_TQ2_0;
}

TEST(Tiles, UnpackToTheFilesValues)
{
    Stream stream;
    for (const weir_dtype dtype : kQuantised) {
        const Weight w(stream.stream, dtype, 71, 512);
        std::vector<float> values(71 * 512);
        ASSERT_EQ(weir_dequantise(values.data(), w.rows().data, dtype, 71 * 512), WEIR_OK);
        int different = 0;
        for (int64_t i = 0; i < 71 * 512; i++) {
            const weir_tile_element e = weir_tiles_element(&w.weight, i / 512, i % 512);
            const float value = std::fmaf(e.scale, (float)e.code, e.minimum),
                        want = values[(size_t)i];
            // K types: scale and minimum are each rounded to f16 once.
            const float allowed =
                is_k(dtype) ? (std::fabs(e.scale * (float)e.code) + std::fabs(e.minimum)) * 0x1p-11f
                            : (e.minimum != 0.0f ? std::fabs(want) * 0x1p-23f + 1e-9f : 0.0f);
            different += !(std::fabs(value - want) <= allowed);
        }
        EXPECT_EQ(different, 0) << weir_dtype_of(dtype).name;
    }
}

TEST(Tiles, KeepTheFilesSizeForTheCommonTypes)
{
    for (const weir_dtype dtype : { WEIR_Q8_0, WEIR_Q4_0, WEIR_Q4_1, WEIR_IQ4_NL }) {
        size_t bytes = 0;
        ASSERT_TRUE(weir_tiles_bytes(&bytes, dtype, 3584, 1024));
        EXPECT_EQ(bytes, weir_row_bytes(dtype, 1024) * 3584) << weir_dtype_of(dtype).name;
    }
    size_t bytes = 0;
    EXPECT_FALSE(weir_tiles_bytes(&bytes, WEIR_Q4_K, 64, 96)) << "rows are no whole blocks";
    EXPECT_FALSE(weir_tiles_bytes(&bytes, WEIR_BF16, 64, 96)) << "not quantised";
}

// Bits per weight of the records: docs/kernels.md.
TEST(Tiles, TypesOfLevelsAreCompact)
{
    const std::pair<weir_dtype, double> bits[] = {
        { WEIR_NVFP4, 5.0 },  { WEIR_IQ1_S, 3.5 }, { WEIR_IQ1_M, 4.0 }, { WEIR_IQ2_XXS, 3.5 },
        { WEIR_IQ2_XS, 4.0 }, { WEIR_IQ2_S, 4.0 }, { WEIR_IQ3_S, 4.5 }, { WEIR_IQ3_XXS, 4.5 },
        { WEIR_TQ1_0, 2.5 },  { WEIR_TQ2_0, 2.5 }, { WEIR_Q1_0, 1.5 },  { WEIR_Q2_0, 2.5 },
    };
    for (const auto &[dtype, want] : bits) {
        size_t bytes = 0;
        ASSERT_TRUE(weir_tiles_bytes(&bytes, dtype, 64, 512));
        EXPECT_EQ((double)bytes * 8 / (64 * 512), want) << weir_dtype_of(dtype).name;
    }
}

// A scale that f16 cannot hold is refused: the file's is not finite, or its product is too large.
TEST(Tiles, RefuseScalesOfLevelsThatTheyCannotHold)
{
    const std::pair<weir_dtype, size_t> places[] = { { WEIR_IQ1_S, 0 },   { WEIR_IQ2_XXS, 0 },
                                                     { WEIR_IQ2_XS, 0 },  { WEIR_IQ2_S, 0 },
                                                     { WEIR_IQ3_XXS, 0 }, { WEIR_IQ3_S, 0 },
                                                     { WEIR_TQ1_0, 52 },  { WEIR_TQ2_0, 64 },
                                                     { WEIR_Q1_0, 0 },    { WEIR_Q2_0, 0 } };
    size_t bytes = 0;
    const auto pack = [&](weir_dtype dtype, const std::vector<uint8_t> &file) {
        EXPECT_TRUE(weir_tiles_bytes(&bytes, dtype, 32, 256));
        return weir_tiles_pack_panel(aligned_memory(bytes).get(), file.data(), dtype, 32, 256, 0);
    };
    for (const auto &[dtype, offset] : places) {
        const size_t block = (size_t)weir_dtype_of(dtype).block_bytes;
        auto file = random_file(dtype, 32 * 256, 3);
        ASSERT_EQ(pack(dtype, file), WEIR_OK) << weir_dtype_of(dtype).name;
        for (const uint16_t bits : { 0x7C00, 0xFC00, 0x7E01, 0x7BFF }) {
            const bool fits = bits == 0x7BFF && dtype > WEIR_IQ3_S; // no second scale
            std::memcpy(file.data() + 5 * block + offset, &bits, 2);
            EXPECT_EQ(pack(dtype, file), fits ? WEIR_OK : WEIR_EFORMAT)
                << weir_dtype_of(dtype).name << " " << bits;
        }
    }
    auto file = random_file(WEIR_IQ1_M, 32 * 256, 3);
    ASSERT_EQ(pack(WEIR_IQ1_M, file), WEIR_OK);
    put_iq1_m_scale(file.data() + 5 * 56, INFINITY);
    EXPECT_EQ(pack(WEIR_IQ1_M, file), WEIR_EFORMAT);
}

// In each row of a panel, those that are packed by fours and those that are left.
TEST(Tiles, RefuseScalesThatAreNotFinite)
{
    constexpr int64_t kRows = 39, kWidth = 64;
    const std::pair<weir_dtype, size_t> places[] = {
        { WEIR_Q8_0, 0 }, { WEIR_Q4_0, 0 }, { WEIR_Q4_1, 0 },
        { WEIR_Q4_1, 2 }, { WEIR_Q5_0, 0 }, { WEIR_IQ4_NL, 0 },
    };
    for (const auto &[dtype, offset] : places) {
        size_t bytes = 0;
        ASSERT_TRUE(weir_tiles_bytes(&bytes, dtype, kRows, kWidth));
        const auto memory = aligned_memory(bytes);
        const auto file = random_file(dtype, kRows * kWidth, 3);
        for (int64_t row = 0; row < kRows; row++) {
            auto bad = file;
            const uint16_t bits = row % 2 == 0 ? 0x7C00 : 0xFE01; // infinite, NaN
            const size_t block = (size_t)weir_dtype_of(dtype).block_bytes;
            std::memcpy(bad.data() + (size_t)(2 * row + 1) * block + offset, &bits, 2);
            for (int64_t panel = 0; panel < 2; panel++)
                EXPECT_EQ(
                    weir_tiles_pack_panel(memory.get(), bad.data(), dtype, kRows, kWidth, panel),
                    row / 32 == panel ? WEIR_EFORMAT : WEIR_OK
                ) << weir_dtype_of(dtype).name
                  << " " << row;
        }
    }
}

// Scales of MXFP4 are powers of two; f16 holds them up to 2^10 here.
TEST(Tiles, RefuseScalesOfMxfp4ThatTheyCannotHold)
{
    size_t bytes = 0;
    ASSERT_TRUE(weir_tiles_bytes(&bytes, WEIR_MXFP4, 32, 32));
    const auto memory = aligned_memory(bytes);
    std::vector<uint8_t> file(32 * 17, 0x77); // codes of 6
    for (const auto &[exponent, want] : { std::pair{ 137, WEIR_OK },
                                          { 98, WEIR_OK },
                                          { 138, WEIR_EFORMAT },
                                          { 255, WEIR_EFORMAT } }) {
        for (size_t row = 0; row < 32; row++) file[row * 17] = 127;
        file[5 * 17] = (uint8_t)exponent;
        EXPECT_EQ(weir_tiles_pack_panel(memory.get(), file.data(), WEIR_MXFP4, 32, 32, 0), want)
            << exponent;
        if (want != WEIR_OK) continue;
        weir_weight weight = {};
        weight.data = memory.get(), weight.bytes = bytes, weight.n_out = weight.n_in = 32;
        weight.dtype = WEIR_MXFP4, weight.layout = WEIR_LAYOUT_TILES;
        const weir_tile_element e = weir_tiles_element(&weight, 5, 3);
        EXPECT_EQ(e.scale * (float)e.code, std::ldexp(6.0f, exponent - 127));
    }
}

// Against the specification in double on the same codes, and against the file's weights within what
// int8 activations lose.
TEST(Tiles, MatchTheReferences)
{
    Stream stream;
    for (const weir_kernel *kernel : kernels_here()) {
        for (const weir_dtype dtype : kQuantised) {
            const int64_t n_in = 768, n_rows = 7;
            const Weight w(stream.stream, dtype, 83, n_in, 7);
            const auto x = random_rows(n_rows * n_in, 3);
            std::vector<float> got(83 * n_rows), want(83 * n_rows), exact(83 * n_rows);
            ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), n_rows)));
            ASSERT_TRUE(
                run(weir_kernel_ref_matmul, arguments(&w.weight, want.data(), x.data(), n_rows))
            );
            const weir_weight rows = w.rows();
            ASSERT_TRUE(
                run(weir_kernel_ref_matmul, arguments(&rows, exact.data(), x.data(), n_rows))
            );
            double error = 0, off = 0, norm = 0;
            for (size_t i = 0; i < got.size(); i++) {
                error = std::fmax(error, std::fabs((double)got[i] - (double)want[i]));
                off += std::pow((double)got[i] - (double)exact[i], 2);
                norm += std::pow((double)exact[i], 2);
            }
            EXPECT_LT(error, 2e-6 * std::sqrt(norm / (double)got.size()) + 1e-6)
                << kernel->name << " " << weir_dtype_of(dtype).name;
            EXPECT_LT(std::sqrt(off / norm), 0.015)
                << kernel->name << " " << weir_dtype_of(dtype).name;
            EXPECT_GT(norm, 0.0);
        }
    }
}

// The promise: a row has the same bits alone, in any batch, at any place in it, with any number of
// threads, on every instruction set.
TEST(Tiles, RowsHaveTheSameBitsInEveryBatchAndSet)
{
    Stream stream;
    for (const weir_dtype dtype : kQuantised) {
        const int64_t n_in = 256, n_out = 70, most = 300;
        const Weight w(stream.stream, dtype, n_out, n_in, 11);
        const auto x = random_rows(most * n_in, 5);
        std::vector<float> alone((size_t)(most * n_out)), batch((size_t)(most * n_out));
        const auto kernels = kernels_here();
        for (int64_t r = 0; r < most; r++)
            ASSERT_TRUE(
                run(*kernels[0],
                    arguments(&w.weight, &alone[(size_t)(r * n_out)], &x[(size_t)(r * n_in)], 1), 1)
            );
        for (const weir_kernel *kernel : kernels) {
            const bool slow = kernel == &weir_kernel_x86_matmul_tiles_v2;
            std::vector<int64_t> counts;
            for (int64_t n = 1; n <= (slow ? 17 : 40); n++) counts.push_back(n);
            for (const int64_t n : { 64, 100, 128, 300 })
                if (!slow) counts.push_back(n);
            for (const int64_t n : counts) {
                const int64_t first = n < most ? (n * 37) % (most - n) : 0;
                std::fill(batch.begin(), batch.end(), -1.0f);
                ASSERT_TRUE(
                    run(*kernel, arguments(&w.weight, batch.data(), &x[(size_t)(first * n_in)], n),
                        n % 3 == 0 ? 3 : 2)
                );
                EXPECT_EQ(
                    std::memcmp(
                        batch.data(), &alone[(size_t)(first * n_out)],
                        sizeof(float) * (size_t)(n * n_out)
                    ),
                    0
                ) << kernel->name
                  << " " << weir_dtype_of(dtype).name << " " << n << " rows";
            }
        }
    }
}

// What LANES_QUADS relies on.
TEST(Tiles, CodesAreBelowTheirBits)
{
    Stream stream;
    for (const weir_dtype dtype : kQuantised) {
        weir_tile_format format;
        ASSERT_TRUE(weir_tile_format_of(dtype, &format));
        if (format.bits == 8) {
            EXPECT_EQ(format.zero, 128) << weir_dtype_of(dtype).name;
            EXPECT_FALSE(format.minimum) << weir_dtype_of(dtype).name;
        }
        const Weight w(stream.stream, dtype, 32, 512, 5);
        int32_t most = 0;
        for (int64_t i = 0; i < 32 * 512; i++) {
            const weir_tile_element e = weir_tiles_element(&w.weight, i / 512, i % 512);
            ASSERT_GE(e.code + format.zero, 0) << weir_dtype_of(dtype).name;
            most = std::max(most, e.code + format.zero);
        }
        EXPECT_LT(most, 1 << format.bits) << weir_dtype_of(dtype).name;
    }
}

// Sums of the greatest products: 16 bits must hold those of AVX2.
TEST(Tiles, ExtremeCodesAndActivations)
{
    Stream stream;
    const int64_t n_in = 512, n_out = 40, n_rows = 10;
    std::vector<float> x((size_t)(n_rows * n_in));
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < n_in; i++)
            x[(size_t)(r * n_in + i)] = (r > 1 ? i >> (r / 2 - 1) & 1 : 0) == r % 2 ? 3.0f : -3.0f;
    const std::vector<uint8_t> files[] = {
        { 0x00 },       { 0xFF }, { 0x80 }, { 0x7F },
        { 0x80, 0x7F }, { 0xF0 }, { 0x0F }, { 0x00, 0xFF, 0xFF }
    };
    for (const weir_dtype dtype : kQuantised) {
        for (const std::vector<uint8_t> &bytes : files) {
            const Weight w(stream.stream, dtype, n_out, n_in, 31, WEIR_ACTIVATIONS_FAST, bytes);
            std::vector<float> want((size_t)(n_rows * n_out)), got, exact = want;
            weir_matmul_args args = arguments(&w.weight, exact.data(), x.data(), n_rows);
            ASSERT_TRUE(run(weir_kernel_ref_matmul, args));
            args.outputs[0].dst = want.data();
            ASSERT_TRUE(run(weir_kernel_x86_matmul_tiles_v2, args));
            double error = 0, most = 0;
            for (size_t i = 0; i < want.size(); i++) {
                error = std::fmax(error, std::fabs((double)want[i] - (double)exact[i]));
                most = std::fmax(most, std::fabs((double)exact[i]));
            }
            EXPECT_LE(error, 1e-5 * most) << weir_dtype_of(dtype).name;
            for (const weir_kernel *kernel : kernels_here()) {
                for (const int64_t n : { 1, 2, 3, 4, 10 }) {
                    got.assign(want.size(), 0.25f);
                    args.outputs[0].dst = got.data(), args.n_rows = n;
                    ASSERT_TRUE(run(*kernel, args));
                    EXPECT_EQ(
                        std::memcmp(got.data(), want.data(), sizeof(float) * (size_t)(n * n_out)), 0
                    ) << kernel->name
                      << " " << weir_dtype_of(dtype).name << " " << (int)bytes[0] << ", " << n
                      << " rows";
                }
            }
        }
    }
}

// Tile registers for many rows: all counts of rows around blocks of 16, spans of 256 rows, whole
// and partial chunks of groups.
TEST(Tiles, AmxHasTheSameBits)
{
    if (!weir_caps_detect().amx_int8)
        GTEST_SKIP() << "this machine has no AMX-INT8, or Linux does not grant it";
    Stream stream;
    const int64_t most = 530;
    for (const weir_dtype dtype : kQuantised) {
        const int64_t shapes[][2] = { { 1, 256 },
                                      { 33, weir_dtype_of(dtype).block_elements == 32 ? 288 : 512 },
                                      { 83, 768 } };
        for (const auto &shape : shapes) {
            const int64_t n_out = shape[0], n_in = shape[1];
            const Weight w(stream.stream, dtype, n_out, n_in, 21);
            const auto x = random_rows(most * n_in, 22), bias = random_rows(n_out, 23);
            std::vector<float> want((size_t)(most * n_out), 0.25f), got;
            weir_matmul_args args = arguments(&w.weight, want.data(), x.data(), most);
            args.outputs[0].bias = bias.data(), args.outputs[0].accumulate = true;
            ASSERT_TRUE(run(weir_kernel_x86_matmul_tiles_vnni, args));
            std::vector<int64_t> counts = { 256, 257, most };
            for (int64_t n = 1; n <= 70; n += n_out == 33 ? 1 : 23) counts.push_back(n);
            for (const int64_t n : counts) {
                got.assign(want.size(), 0.25f);
                args.n_rows = n, args.outputs[0].dst = got.data();
                ASSERT_TRUE(run(weir_kernel_x86_matmul_tiles_amx, args, n % 3 == 0 ? 3 : 2));
                const size_t written = (size_t)(n * n_out);
                ASSERT_EQ(std::memcmp(got.data(), want.data(), sizeof(float) * written), 0)
                    << weir_dtype_of(dtype).name << " " << n_out << " x " << n_in << ", " << n
                    << " rows";
                EXPECT_EQ(
                    std::count(got.begin() + (int64_t)written, got.end(), 0.25f),
                    (int64_t)(got.size() - written)
                ) << "wrote beyond row "
                  << n;
            }
        }
    }
}

TEST(Tiles, SeveralOutputsBiasStridesAndAccumulation)
{
    Stream stream;
    const int64_t n_in = 512, n_rows = 13, x_stride = n_in + 5;
    const Weight a(stream.stream, WEIR_Q8_0, 96, n_in, 1), b(stream.stream, WEIR_Q4_K, 16, n_in, 2),
        c(stream.stream, WEIR_Q6_K, 33, n_in, 3), d(stream.stream, WEIR_Q4_0, 1, n_in, 4);
    const Weight *weights[] = { &a, &b, &c, &d };
    const auto x = random_rows(n_rows * x_stride, 9), bias = random_rows(96, 10),
               before = random_rows(n_rows * 120, 11);
    for (const weir_kernel *kernel : kernels_here()) {
        std::vector<float> got[4], single(n_rows * 96);
        weir_matmul_args args = arguments(&a.weight, nullptr, x.data(), n_rows);
        args.x_stride = x_stride;
        args.n_outputs = 4;
        for (int o = 0; o < 4; o++) {
            got[o] = before;
            args.outputs[o] = { &weights[o]->weight, got[o].data(), o % 2 ? bias.data() : nullptr,
                                120 - o, o >= 2 };
        }
        ASSERT_TRUE(run(*kernel, args));
        for (int o = 0; o < 4; o++) {
            weir_matmul_args one = arguments(&weights[o]->weight, single.data(), x.data(), n_rows);
            one.x_stride = x_stride;
            ASSERT_TRUE(run(*kernel, one));
            const int64_t n_out = weights[o]->weight.n_out, stride = 120 - o;
            for (int64_t r = 0; r < n_rows; r++) {
                for (int64_t i = 0; i < stride && r * stride + i < n_rows * 120; i++) {
                    const size_t at = (size_t)(r * stride + i);
                    float want = before[at];
                    if (i < n_out) {
                        float value = single[(size_t)(r * n_out + i)];
                        if (o % 2) value += bias[(size_t)i];
                        want = o >= 2 ? before[at] + value : value;
                    }
                    ASSERT_EQ(got[o][at], want)
                        << kernel->name << " output " << o << " row " << r << " column " << i;
                }
            }
        }
    }
}

TEST(Tiles, UnusualActivations)
{
    Stream stream;
    const int64_t n_in = 64;
    const Weight w(stream.stream, WEIR_Q8_0, 32, n_in);
    for (const weir_kernel *kernel : kernels_here()) {
        std::vector<float> x((size_t)(5 * n_in), 0.0f), got(5 * 32, 7.0f);
        for (int64_t i = 0; i < n_in; i++)
            x[(size_t)(n_in + i)] = 1e-42f, x[(size_t)(4 * n_in + i)] = 3e38f;
        x[2 * n_in + 3] = INFINITY;
        x[3 * n_in + 40] = NAN;
        ASSERT_TRUE(run(*kernel, arguments(&w.weight, got.data(), x.data(), 5)));
        for (int i = 0; i < 32; i++) {
            EXPECT_EQ(got[(size_t)i], 0.0f);
            EXPECT_EQ(got[32 + (size_t)i], 0.0f) << "activations below 2^-100 count as zero";
            EXPECT_TRUE(std::isnan(got[64 + (size_t)i])) << "an infinity spoils its own row";
            EXPECT_TRUE(std::isnan(got[96 + (size_t)i]));
            EXPECT_FALSE(std::isnan(got[128 + (size_t)i]));
        }
    }
}

TEST(Tiles, RejectWithAReason)
{
    Stream stream;
    const Weight w(stream.stream, WEIR_Q8_0, 32, 64);
    std::vector<float> x(64), y(32);
    weir_matmul_args args = arguments(&w.weight, y.data(), x.data(), 1);
    const weir_caps old = {};
    weir_caps amx = {};
    amx.amx_int8 = true;
    EXPECT_STREQ(weir_kernel_x86_matmul_tiles_amx.reject(&old, &args), "needs AMX-INT8");
    EXPECT_STREQ(
        weir_kernel_x86_matmul_tiles_amx.reject(&amx, &args), "few rows: AVX-512 VNNI is as fast"
    );
    args.n_rows = 12;
    EXPECT_EQ(weir_kernel_x86_matmul_tiles_amx.reject(&amx, &args), nullptr);
    const Weight split(stream.stream, WEIR_Q6_K, 32, 256);
    args = arguments(&split.weight, y.data(), x.data(), 127);
    EXPECT_EQ(weir_kernel_x86_matmul_tiles_amx.reject(&amx, &args), nullptr);
    args.n_rows = 128;
    EXPECT_STREQ(
        weir_kernel_x86_matmul_tiles_amx.reject(&amx, &args),
        "two scales per group: AVX-512 VNNI is as fast"
    );
    args = arguments(&w.weight, y.data(), x.data(), 1);
    EXPECT_STREQ(weir_kernel_x86_matmul_tiles_vnni.reject(&old, &args), "needs AVX-512 VNNI");
    EXPECT_STREQ(weir_kernel_x86_matmul_tiles_avxvnni.reject(&old, &args), "needs AVX-VNNI");
    EXPECT_STREQ(weir_kernel_x86_matmul_tiles_v3.reject(&old, &args), "needs AVX2 (x86-64-v3)");
    EXPECT_EQ(weir_kernel_x86_matmul_tiles_v2.reject(&old, &args), nullptr);
    const weir_weight rows = w.rows();
    args.outputs[0].weight = &rows;
    EXPECT_STREQ(weir_kernel_x86_matmul_tiles_v2.reject(&old, &args), "weight is not in tiles");
    args.outputs[0].weight = &w.weight;
    args.n_in = 32;
    EXPECT_STREQ(
        weir_kernel_x86_matmul_tiles_v2.reject(&old, &args), "n_in differs from the weight's"
    );
    const weir_kernel_context small = { 0, 2, nullptr, nullptr, 0 };
    args.n_in = 64;
    EXPECT_EQ(weir_kernel_x86_matmul_tiles_v2.run(&small, &args), WEIR_EINVAL)
        << "scratch is too small";
}

} // namespace
} // namespace weir_test
