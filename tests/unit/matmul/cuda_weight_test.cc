// Weights in the layout of GPUs: exact values of every type, sizes, pieces of rows, hostile files,
// plans; and what the reference makes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/weight.h"
#include "kernels/ref/levels.h"
#include "tests/unit/matmul/fixture.h"

namespace weir_test {
namespace {

const weir_dtype kQuantised[] = { WEIR_Q8_0, WEIR_Q4_0,   WEIR_Q4_1,   WEIR_Q5_0,
                                  WEIR_Q5_1, WEIR_IQ4_NL, WEIR_IQ4_XS, WEIR_Q2_K,
                                  WEIR_Q3_K, WEIR_Q4_K,   WEIR_Q5_K,   WEIR_Q6_K };

// A stream that plans as one of a GPU does; it has none to run on.
struct GpuStream : Stream {
    GpuStream() { const_cast<weir_caps *>(weir_stream_caps(stream))->cuda_capability = 90; }
};

void expect_the_files_values(
    weir_stream *stream, weir_dtype dtype, int64_t n_out, int64_t n_in, weir_activations activations
)
{
    const Weight w(stream, dtype, n_out, n_in, (uint32_t)(n_out + n_in), activations);
    std::vector<float> values((size_t)(n_out * n_in));
    ASSERT_EQ(w.weight.layout, WEIR_LAYOUT_CUDA);
    ASSERT_EQ(weir_dequantise(values.data(), w.rows().data, dtype, n_out * n_in), WEIR_OK);
    int different = 0;
    for (int64_t i = 0; i < n_out * n_in; i++)
        different += (float)weir_cuda_element(&w.weight, i / n_in, i % n_in) != values[(size_t)i];
    EXPECT_EQ(different, 0) << weir_dtype_of(dtype).name << " " << n_out << " x " << n_in;
}

TEST(CudaWeight, HoldsTheFilesValuesExactly)
{
    GpuStream stream;
    for (const weir_activations activations : { WEIR_ACTIVATIONS_FAST, WEIR_ACTIVATIONS_F32 }) {
        for (const weir_dtype dtype : kQuantised) {
            const int64_t block = weir_dtype_of(dtype).block_elements;
            expect_the_files_values(stream.stream, dtype, 71, 512, activations);
            expect_the_files_values(stream.stream, dtype, 1, block, activations);
            expect_the_files_values(stream.stream, dtype, 16, 3 * block, activations);
        }
        for (const weir_dtype dtype : { WEIR_F32, WEIR_BF16, WEIR_F16 })
            for (const int64_t n_in : { 1, 7, 8, 300, 513 })
                expect_the_files_values(stream.stream, dtype, 19, n_in, activations);
    }
}

// The first row of a panel of 16-bit values, in the order of its inputs.
weir_status pack_row(
    std::vector<uint16_t> &row, weir_dtype kept, const void *file, weir_dtype dtype, int64_t n
)
{
    size_t bytes = 0;
    if (!weir_cuda_weight_bytes(&bytes, kept, 1, n)) return WEIR_EINVAL;
    const Memory panel = aligned_memory(bytes);
    const weir_status status = weir_cuda_pack_rows(panel.get(), kept, file, dtype, n, 0, 1);
    row.resize((size_t)n);
    for (int64_t i = 0; i < n; i++)
        std::memcpy(&row[(size_t)i], panel.get() + i / 64 * 2048 + i % 64 * 2, 2);
    return status;
}

// Panels of 16 rows, steps of 64 inputs, pieces of 8 in the order of the 128-byte swizzle.
TEST(CudaWeight, SwizzlesPanelsOfHalves)
{
    const int64_t n_out = 19, n_in = 100;
    std::vector<uint16_t> file((size_t)(n_out * n_in));
    for (size_t i = 0; i < file.size(); i++) file[i] = (uint16_t)(i + 1);
    size_t bytes = 0;
    ASSERT_TRUE(weir_cuda_weight_bytes(&bytes, WEIR_BF16, n_out, n_in));
    ASSERT_EQ(bytes, 2u * 2u * 2048u);
    std::vector<uint16_t> packed(bytes / 2, 0xFFFF), want(bytes / 2, 0);
    ASSERT_EQ(
        weir_cuda_pack_rows(packed.data(), WEIR_BF16, file.data(), WEIR_BF16, n_in, 0, n_out),
        WEIR_OK
    );
    for (int64_t r = 0; r < n_out; r++)
        for (int64_t i = 0; i < n_in; i++)
            want[(size_t)(((r / 16 * 2 + i / 64) * 16 + r % 16) * 64 +
                          ((i % 64 / 8) ^ (r % 8)) * 8 + i % 8)] = file[(size_t)(r * n_in + i)];
    EXPECT_EQ(packed, want);
}

TEST(CudaWeight, WidensWhatNoKernelReads)
{
    const double doubles[] = { 1.0, -0.1, 1e-3 };
    float wide[4] = { 9, 9, 9, 9 };
    ASSERT_EQ(
        weir_cuda_pack_rows(wide, weir_cuda_dtype(WEIR_F64, false), doubles, WEIR_F64, 3, 0, 1),
        WEIR_OK
    );
    for (int i = 0; i < 3; i++) EXPECT_EQ(wide[i], (float)doubles[i]);
    EXPECT_EQ(wide[3], 0.0f) << "rows are padded with zeros";
    for (const weir_dtype dtype : { WEIR_F8_E4M3, WEIR_F8_E5M2 }) {
        std::vector<uint8_t> codes;
        for (int code = 0; code < 256; code++) {
            float value;
            const auto byte = (uint8_t)code;
            ASSERT_EQ(weir_dequantise(&value, &byte, dtype, 1), WEIR_OK);
            if (std::isfinite(value)) codes.push_back(byte);
        }
        const auto n = (int64_t)codes.size();
        std::vector<uint16_t> kept;
        ASSERT_EQ(weir_cuda_dtype(dtype, false), WEIR_BF16);
        ASSERT_EQ(pack_row(kept, WEIR_BF16, codes.data(), dtype, n), WEIR_OK);
        for (size_t i = 0; i < codes.size(); i++) {
            float value;
            ASSERT_EQ(weir_dequantise(&value, &codes[i], dtype, 1), WEIR_OK);
            EXPECT_EQ(weir_bf16_to_f32(kept[i]), value) << "code " << (int)codes[i];
        }
    }
}

// Types of levels are kept as f16, rounded once; what f16 cannot hold is refused.
TEST(CudaWeight, KeepsLevelsAsF16)
{
    int n_types = 0;
    for (const weir_dtype dtype : quantised_dtypes()) {
        if (!weir_levels_of(dtype)) continue;
        n_types++;
        ASSERT_EQ(weir_cuda_dtype(dtype, false), WEIR_F16);
        ASSERT_EQ(weir_cuda_dtype(dtype, true), WEIR_F32);
        const int64_t n = 512;
        auto file = random_file(dtype, n, 9);
        std::vector<uint16_t> kept;
        std::vector<float> values((size_t)n);
        ASSERT_EQ(weir_dequantise(values.data(), file.data(), dtype, n), WEIR_OK);
        ASSERT_EQ(pack_row(kept, WEIR_F16, file.data(), dtype, n), WEIR_OK);
        for (size_t i = 0; i < kept.size(); i++)
            ASSERT_EQ(kept[i], weir_f16_from_f32(values[i])) << weir_dtype_of(dtype).name;
        if (dtype != WEIR_IQ3_S) continue;
        const uint16_t large = weir_f16_from_f32(30000.0f);
        std::memcpy(file.data() + 110, &large, 2);
        EXPECT_EQ(pack_row(kept, WEIR_F16, file.data(), dtype, n), WEIR_EFORMAT);
    }
    EXPECT_EQ(n_types, 12);
}

TEST(CudaWeight, TellsItsBytes)
{
    size_t bytes = 0;
    const auto of = [&](weir_dtype dtype, int64_t n_rows, int64_t n_in) {
        return weir_cuda_weight_bytes(&bytes, dtype, n_rows, n_in);
    };
    for (const weir_dtype dtype : { WEIR_Q8_0, WEIR_Q4_0, WEIR_Q4_1 }) {
        ASSERT_TRUE(of(dtype, 3584, 1024));
        EXPECT_EQ(bytes, weir_row_bytes(dtype, 1024) * 3584) << weir_dtype_of(dtype).name;
    }
    ASSERT_TRUE(of(WEIR_Q4_K, 3584, 1024));
    EXPECT_EQ(bytes, 3584u * 1024u * 37u / 64u); // 4.625 bits
    ASSERT_TRUE(of(WEIR_Q4_0, 17, 96));
    EXPECT_EQ(bytes, 2u * 2u * (512u + 64u)) << "whole panels and steps";
    ASSERT_TRUE(of(WEIR_BF16, 3, 9));
    EXPECT_EQ(bytes, 2048u) << "whole panels and steps";
    ASSERT_TRUE(of(WEIR_F32, 3, 9));
    EXPECT_EQ(bytes, 3u * 48u) << "rows of whole 16 bytes";
    for (const weir_dtype dtype : kQuantised) { // 16-byte loads from every plane of every panel
        weir_cuda_format format;
        ASSERT_TRUE(weir_cuda_format_of(dtype, &format));
        const weir_cuda_planes planes = weir_cuda_planes_of(format, 768);
        EXPECT_EQ(
            (planes.scales | planes.minima | planes.d | planes.dmin | planes.panel_bytes) % 16, 0u
        );
    }
    EXPECT_FALSE(of(WEIR_Q4_K, 64, 96)) << "rows are no whole blocks";
    EXPECT_FALSE(of(WEIR_I32, 64, 64));
    EXPECT_FALSE(of(WEIR_F64, 64, 64)) << "not kept";
    EXPECT_FALSE(of(WEIR_F32, INT64_MAX, 1));
    EXPECT_FALSE(of(WEIR_F32, 1, INT64_MAX));
    EXPECT_FALSE(of(WEIR_F32, -1, 1));
    ASSERT_TRUE(of(WEIR_F32, INT32_MAX, INT32_MAX - 64));
    EXPECT_EQ(bytes, (size_t)INT32_MAX * ((size_t)INT32_MAX - 63) * 4);
}

TEST(CudaWeight, PiecesAreTheWhole)
{
    GpuStream stream;
    for (const weir_dtype dtype : { WEIR_Q8_0, WEIR_Q4_K, WEIR_Q6_K, WEIR_BF16, WEIR_F32 }) {
        const int64_t n_out = 83, n_in = 512;
        const Weight w(stream.stream, dtype, n_out, n_in);
        const weir_matrix_source source = { w.rows().data, n_out, n_in, dtype, false };
        size_t panel;
        ASSERT_TRUE(weir_cuda_weight_bytes(&panel, dtype, WEIR_CUDA_PANEL, n_in));
        EXPECT_EQ(weir_weight_piece_rows(&w.weight, 1), 16) << "never none";
        EXPECT_EQ(weir_weight_piece_rows(&w.weight, SIZE_MAX), 96) << "never more than there are";
        const int64_t rows = weir_weight_piece_rows(&w.weight, 2 * panel + 100);
        EXPECT_EQ(rows, 32);
        std::vector<char> all(w.weight.bytes, 0x11);
        size_t end = 0;
        for (int64_t first = 0; first < n_out; first += rows) {
            const auto piece =
                weir_weight_piece_of(&w.weight, first, std::min(rows, n_out - first));
            const Memory staging = aligned_memory(piece.bytes);
            ASSERT_EQ(
                weir_weight_pack_piece(
                    &w.weight, stream.stream, &source, piece, staging.get(), nullptr
                ),
                WEIR_OK
            );
            EXPECT_EQ(piece.offset, end);
            end = piece.offset + piece.bytes;
            ASSERT_LE(end, all.size());
            std::memcpy(all.data() + piece.offset, staging.get(), piece.bytes);
        }
        EXPECT_EQ(end, all.size());
        EXPECT_EQ(std::memcmp(all.data(), w.weight.data, all.size()), 0)
            << weir_dtype_of(dtype).name;
    }
}

TEST(CudaWeight, RefusesNumbersThatAreNotFinite)
{
    const std::vector<std::pair<weir_dtype, std::vector<size_t>>> places = {
        { WEIR_Q8_0, { 0 } },    { WEIR_Q4_0, { 0 } },      { WEIR_Q4_1, { 0, 2 } },
        { WEIR_Q5_0, { 0 } },    { WEIR_Q5_1, { 0, 2 } },   { WEIR_IQ4_NL, { 0 } },
        { WEIR_IQ4_XS, { 0 } },  { WEIR_Q2_K, { 80, 82 } }, { WEIR_Q3_K, { 108 } },
        { WEIR_Q4_K, { 0, 2 } }, { WEIR_Q5_K, { 0, 2 } },   { WEIR_Q6_K, { 208 } },
    };
    GpuStream stream;
    for (const auto &[dtype, offsets] : places)
        for (const size_t offset : offsets)
            for (const uint16_t bits : { (uint16_t)0x7C00, (uint16_t)0xFC00, (uint16_t)0x7E01 }) {
                auto file = random_file(dtype, 20 * 512, 3);
                const size_t block = (size_t)weir_dtype_of(dtype).block_bytes;
                std::memcpy(file.data() + file.size() - block + offset, &bits, 2);
                const weir_matrix_source source = { file.data(), 20, 512, dtype, false };
                for (const weir_activations activations :
                     { WEIR_ACTIVATIONS_FAST, WEIR_ACTIVATIONS_F32 }) {
                    weir_weight w = {};
                    ASSERT_EQ(
                        weir_weight_plan(&w, stream.stream, &source, activations, nullptr), WEIR_OK
                    );
                    const Memory memory = aligned_memory(w.bytes);
                    weir_error error = {};
                    EXPECT_EQ(
                        weir_weight_pack(&w, stream.stream, &source, memory.get(), &error),
                        WEIR_EFORMAT
                    ) << weir_dtype_of(dtype).name
                      << " " << offset;
                    EXPECT_NE(std::string(error.text).find("not finite"), std::string::npos);
                }
            }
    const float nan[] = { 1, std::numeric_limits<float>::quiet_NaN() };
    float out[4];
    EXPECT_EQ(weir_cuda_pack_rows(out, WEIR_F32, nan, WEIR_F32, 2, 0, 1), WEIR_EFORMAT);
    EXPECT_EQ(weir_cuda_pack_rows(out, WEIR_F32, nan, WEIR_I32, 2, 0, 1), WEIR_EUNSUPPORTED);
    EXPECT_EQ(weir_cuda_pack_rows(out, WEIR_Q8_0, nan, WEIR_Q4_0, 32, 0, 1), WEIR_EINVAL)
        << "other codes than the file's";
}

TEST(CudaWeight, PlansForEveryTypeAndMode)
{
    GpuStream stream;
    const auto plan = [&](weir_dtype dtype, weir_activations activations) {
        weir_weight w = {};
        const weir_matrix_source source = { nullptr, 100, 256, dtype, false };
        EXPECT_EQ(weir_weight_plan(&w, stream.stream, &source, activations, nullptr), WEIR_OK);
        EXPECT_EQ(w.layout, WEIR_LAYOUT_CUDA);
        size_t bytes = 0;
        EXPECT_TRUE(weir_cuda_weight_bytes(&bytes, w.dtype, 100, 256));
        EXPECT_EQ(w.bytes, bytes);
        return w.dtype;
    };
    const weir_dtype pairs[][2] = { { WEIR_F32, WEIR_F32 },      { WEIR_F16, WEIR_F16 },
                                    { WEIR_BF16, WEIR_BF16 },    { WEIR_F64, WEIR_F32 },
                                    { WEIR_F8_E4M3, WEIR_BF16 }, { WEIR_F8_E5M2, WEIR_BF16 },
                                    { WEIR_Q4_K, WEIR_Q4_K } };
    for (const auto &pair : pairs) {
        EXPECT_EQ(plan(pair[0], WEIR_ACTIVATIONS_FAST), pair[1]);
        EXPECT_EQ(plan(pair[0], WEIR_ACTIVATIONS_F32), WEIR_F32);
    }
    weir_weight w = {};
    const weir_matrix_source integers = { nullptr, 8, 64, WEIR_I32, false },
                             cut = { nullptr, 8, 80, WEIR_Q4_0, false };
    EXPECT_EQ(
        weir_weight_plan(&w, stream.stream, &integers, WEIR_ACTIVATIONS_FAST, nullptr),
        WEIR_EUNSUPPORTED
    );
    EXPECT_EQ(
        weir_weight_plan(&w, stream.stream, &cut, WEIR_ACTIVATIONS_FAST, nullptr), WEIR_EFORMAT
    );
}

// What the specification loses against the file's own values is what its activations lose.
TEST(CudaWeight, TheReferenceIsCloseToTheFile)
{
    GpuStream stream;
    const std::pair<weir_dtype, double> allowed[] = { { WEIR_F32, 1e-6 },  { WEIR_F16, 5e-4 },
                                                      { WEIR_BF16, 4e-3 }, { WEIR_Q8_0, 2e-2 },
                                                      { WEIR_Q4_0, 2e-2 }, { WEIR_Q4_K, 2e-2 },
                                                      { WEIR_Q6_K, 2e-2 } };
    for (const auto &[dtype, most] : allowed) {
        const int64_t n_in = 768, n_rows = 19;
        const Weight w(stream.stream, dtype, 33, n_in, 7);
        const weir_weight rows = w.rows();
        auto x = random_rows(n_rows * n_in, 3);
        std::vector<float> got(33 * n_rows), want(33 * n_rows);
        for (int64_t i = 0; i < n_in; i++)
            x[(size_t)(n_in + i)] *= 1e6f, x[(size_t)(2 * n_in + i)] *= 1e-30f; // past f16's range
        ASSERT_TRUE(run(weir_kernel_ref_matmul, arguments(&w.weight, got.data(), x.data(), n_rows))
        );
        ASSERT_TRUE(run(weir_kernel_ref_matmul, arguments(&rows, want.data(), x.data(), n_rows)));
        for (int64_t r = 0; r < n_rows; r++) {
            double off = 0, norm = 0;
            for (size_t i = (size_t)r * 33; i < (size_t)(r + 1) * 33; i++)
                off += std::pow(got[i] - want[i], 2), norm += std::pow(want[i], 2);
            EXPECT_LE(std::sqrt(off / norm), r == 2 ? 2.0 : most)
                << weir_dtype_of(dtype).name << ", row " << r;
        }
    }
}

TEST(CudaWeight, ScalesF16Activations)
{
    EXPECT_EQ(weir_cuda_f16_factor(1.0f), 0x1p14f);
    EXPECT_EQ(weir_cuda_f16_factor(65504.0f), 0.5f);
    EXPECT_EQ(weir_cuda_f16_factor(3e38f), 0x1p-113f);
    EXPECT_EQ(weir_cuda_f16_factor(0.0f), 0x1p100f);
    EXPECT_EQ(weir_cuda_f16_factor(INFINITY), 1.0f);
    EXPECT_EQ(weir_cuda_f16_factor(NAN), 1.0f);
}

} // namespace
} // namespace weir_test
