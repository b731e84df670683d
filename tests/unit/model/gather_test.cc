/* Matrices that are not rows one after another in their tensor, element by element. */
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "engine/model/model_internal.h"
#include "kernels/abi/convert.h"
#include "kernels/abi/quant.h"
#include "offload/weights.h"

namespace {

struct Case {
    const char *name;
    weir_dtype stored, dtype;
    bool is_transposed, has_scales, has_one_scale;
    float factor;
    int64_t wider; /* elements of the tensor's rows that are not the matrix's */
};

const Case cases[] = {
    { "rows", WEIR_BF16, WEIR_BF16, false, false, false, 0, 0 },
    { "multiplied", WEIR_BF16, WEIR_F32, false, false, false, 0.75f, 0 },
    { "fp8", WEIR_F8_E4M3, WEIR_BF16, false, true, false, 0, 0 },
    { "fp8, one scale", WEIR_F8_E4M3, WEIR_F32, false, true, true, 0, 0 },
    { "transposed f8", WEIR_F8_E4M3, WEIR_F8_E4M3, true, false, false, 0, 0 },
    { "transposed bf16", WEIR_BF16, WEIR_BF16, true, false, false, 0, 0 },
    { "transposed f32", WEIR_F32, WEIR_F32, true, false, false, 0, 0 },
    { "transposed part of a row", WEIR_BF16, WEIR_BF16, true, false, false, 0, 5 },
    { "transposed and multiplied", WEIR_BF16, WEIR_BF16, true, false, false, 0.75f, 7 },
    { "transposed fp8", WEIR_F8_E4M3, WEIR_BF16, true, true, false, 0, 0 },
};

/* Of one tile, of several, and with parts of tiles. */
const int64_t shapes[][2] = { { 1, 1 }, { 31, 257 }, { 257, 31 }, { 64, 512 }, { 300, 130 } };

using Bytes = std::vector<unsigned char>;

class Matrix {
  public:
    Matrix(const Case &c, int64_t n_out, int64_t n_in) : case_(c), n_out_(n_out), n_in_(n_in)
    {
        const int64_t n_rows = c.is_transposed ? n_in : n_out, length = (n_rows + 1) / 2;
        width_ = c.is_transposed ? n_out : n_in;
        bound.runs = { length, length + 3 };
        const int64_t there = 2 * length + 3, n = there * (width_ + c.wider);
        const size_t size = weir_row_bytes(c.stored, 1);
        std::mt19937 random(1);
        data_.resize(static_cast<size_t>(n) * size);
        for (int64_t i = 0; i < n; i++) {
            const float x = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
            const uint16_t half = weir_bf16_from_f32(x);
            unsigned char *const to = &data_[static_cast<size_t>(i) * size];
            if (size == 1) *to = static_cast<unsigned char>(random() & 0xB7);
            if (size == 2) memcpy(to, &half, sizeof half);
            if (size == 4) memcpy(to, &x, sizeof x);
        }
        scales_.resize(static_cast<size_t>((there + 127) / 128 * ((width_ + 127) / 128)));
        for (float &scale : scales_) scale = 1.0f + static_cast<float>(random() % 64) / 8.0f;
        scale_tensor_.dtype = WEIR_F32;
        bound.data = data_.data();
        bound.scales = c.has_scales ? &scale_tensor_ : nullptr;
        bound.scale_data = reinterpret_cast<const unsigned char *>(scales_.data());
        bound.has_one_scale = c.has_one_scale;
        bound.stored = c.stored, bound.dtype = c.dtype;
        bound.is_transposed = c.is_transposed;
        bound.row_width = c.wider > 0 ? width_ + c.wider : 0;
        bound.factor = c.factor;
    }

    Bytes gathered(int32_t n_threads) const
    {
        Bytes out(bytes(), 0xEE);
        weir_matrix_gather(out.data(), &bound, n_out_, n_in_, n_threads);
        return out;
    }

    Bytes expected() const
    {
        Bytes out(bytes());
        const size_t size = weir_row_bytes(case_.dtype, 1);
        for (int64_t r = 0; r < n_out_; r++)
            for (int64_t c = 0; c < n_in_; c++) {
                const int64_t row = case_.is_transposed ? c : r,
                              column = case_.is_transposed ? r : c;
                put(&out[static_cast<size_t>(r * n_in_ + c) * size], row, column);
            }
        return out;
    }

    bound_matrix bound = {};

  private:
    size_t bytes() const
    {
        return static_cast<size_t>(n_out_ * n_in_) * weir_row_bytes(case_.dtype, 1);
    }
    void put(unsigned char *to, int64_t index, int64_t column) const
    {
        const int64_t length = bound.runs.length,
                      row = index / length * (length + 3) + index % length;
        const size_t size = weir_row_bytes(case_.stored, 1);
        const unsigned char *const from =
            &data_[static_cast<size_t>(row * (width_ + case_.wider) + column) * size];
        if (case_.stored == case_.dtype && case_.factor == 0) {
            memcpy(to, from, size);
            return;
        }
        float x = 0;
        EXPECT_EQ(weir_dequantise(&x, from, case_.stored, 1), WEIR_OK);
        if (case_.factor != 0) x *= case_.factor;
        const int64_t across = (width_ + 127) / 128;
        if (case_.has_scales)
            x *= scales_
                [case_.has_one_scale ? 0 : static_cast<size_t>(row / 128 * across + column / 128)];
        const uint16_t half = weir_bf16_from_f32(x);
        if (case_.dtype == WEIR_BF16)
            memcpy(to, &half, sizeof half);
        else
            memcpy(to, &x, sizeof x);
    }

    Case case_;
    int64_t n_out_, n_in_, width_;
    Bytes data_;
    std::vector<float> scales_;
    weir_tensor scale_tensor_ = {};
};

TEST(Gather, EveryElementIsInItsPlaceWithAnyNumberOfThreads)
{
    for (const Case &c : cases)
        for (const auto &shape : shapes) {
            const Matrix matrix(c, shape[0], shape[1]);
            const Bytes want = matrix.expected();
            for (const int32_t n_threads : { 1, 3 })
                EXPECT_EQ(matrix.gathered(n_threads), want)
                    << c.name << " " << shape[0] << " x " << shape[1] << ", " << n_threads;
        }
}

TEST(Gather, CodesAndScalesOfMxfp4AreJoined)
{
    const int64_t n_out = 37, n_in = 96, n_blocks = n_in / 32;
    Bytes codes(static_cast<size_t>(n_out * n_in / 2)),
        scales(static_cast<size_t>(n_out * n_blocks));
    std::mt19937 random(2);
    for (unsigned char &code : codes) code = static_cast<unsigned char>(random());
    for (unsigned char &scale : scales) scale = static_cast<unsigned char>(120 + random() % 16);
    const weir_tensor tensor = {};
    bound_matrix matrix = {};
    matrix.data = codes.data(), matrix.scales = &tensor, matrix.scale_data = scales.data();
    matrix.runs = { n_out, n_out };
    matrix.dtype = WEIR_MXFP4, matrix.stored = WEIR_U8;
    std::vector<weir_block_mxfp4> out(scales.size());
    for (const int32_t n_threads : { 1, 3 }) {
        memset(out.data(), 0, out.size() * sizeof out[0]);
        weir_matrix_gather(
            reinterpret_cast<unsigned char *>(out.data()), &matrix, n_out, n_in, n_threads
        );
        for (size_t b = 0; b < out.size(); b++) {
            ASSERT_EQ(out[b].exponent, scales[b]) << b;
            for (size_t i = 0; i < 32; i++) {
                const int in_file = codes[16 * b + i / 2] >> 4 * (i % 2) & 15,
                          in_block = out[b].q[i % 16] >> (i < 16 ? 0 : 4) & 15;
                ASSERT_EQ(in_block, in_file) << b << " " << i;
            }
        }
    }
}

} // namespace
