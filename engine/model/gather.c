/* engine/model/gather.c - matrices that are not rows one after another in their tensor: scattered,
 * transposed, multiplied, or with codes and scales in two tensors. At load, one matrix at a time: a
 * pass over the bytes, which packing follows. */
#include <string.h>

#include "engine/model/model_internal.h"
#include "kernels/abi/convert.h"
#include "kernels/abi/minmax.h"
#include "kernels/abi/quant.h"

bool weir_matrix_is_scattered(const bound_matrix *matrix, int64_t n_out)
{
    return matrix->runs.length < n_out || matrix->scales != NULL || matrix->is_transposed ||
           matrix->factor != 0.0f;
}

/* ---- MXFP4 ----------------------------------------------------------------------------------- */
/* Codes have elements 2 j and 2 j + 1 in byte j; a block of GGUF j and j + 16. */
static weir_block_mxfp4 join_block(const unsigned char *codes, unsigned char exponent)
{
    weir_block_mxfp4 block = { .exponent = exponent };
    for (int j = 0; j < 16; j++) {
        const int shift = 4 * (j & 1), low = codes[j / 2] >> shift & 15,
                  high = codes[8 + j / 2] >> shift & 15;
        block.q[j] = (uint8_t)(low | high << 4);
    }
    return block;
}

static void join_row(unsigned char *dst, const bound_matrix *matrix, size_t row, size_t n_blocks)
{
    for (size_t i = 0; i < n_blocks; i++) {
        const size_t at = row * n_blocks + i;
        const weir_block_mxfp4 block = join_block(matrix->data + 16 * at, matrix->scale_data[at]);
        memcpy(dst + i * sizeof block, &block, sizeof block);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */
enum { PIECE = 256 }; /* elements; whole blocks of all types, and of scales */
_Static_assert(PIECE % WEIR_SCALED_BLOCK == 0, "a piece has whole blocks");

static float scale_at(const bound_matrix *matrix, int64_t index)
{
    const size_t bytes = weir_row_bytes(matrix->scales->dtype, 1);
    float scale = 0.0f;
    WEIR_ASSERT(
        weir_dequantise(
            &scale, matrix->scale_data + (size_t)index * bytes, matrix->scales->dtype, 1
        ) == WEIR_OK
    );
    return scale;
}

/* Elements from one row of the tensor to the next; `width`: of the matrix's part of a row. */
static int64_t row_width(const bound_matrix *matrix, int64_t width)
{
    return matrix->row_width > 0 ? matrix->row_width : width;
}

/* Decodes n elements, from `first` on, of a row of `width` elements in the tensor. */
static void decode(
    float *out, const bound_matrix *matrix, int64_t row, int64_t first, int64_t n, int64_t width
)
{
    const size_t row_bytes = weir_row_bytes(matrix->stored, row_width(matrix, width));
    const unsigned char *const from =
        matrix->data + (size_t)row * row_bytes + weir_row_bytes(matrix->stored, first);
    WEIR_ASSERT(weir_dequantise(out, from, matrix->stored, n) == WEIR_OK);
    for (int64_t i = 0; matrix->factor != 0.0f && i < n; i++) out[i] *= matrix->factor;
    if (matrix->scales == NULL) return;
    const int64_t per_row = (width + WEIR_SCALED_BLOCK - 1) / WEIR_SCALED_BLOCK,
                  begin = (matrix->first_row + row) / WEIR_SCALED_BLOCK * per_row;
    for (int64_t i = 0; i < n; i += WEIR_SCALED_BLOCK) {
        const float scale =
            scale_at(matrix, matrix->has_one_scale ? 0 : begin + (first + i) / WEIR_SCALED_BLOCK);
        const int64_t end = weir_min(n, i + WEIR_SCALED_BLOCK);
        for (int64_t j = i; j < end; j++) out[j] *= scale;
    }
}

static void put(unsigned char *dst, weir_dtype dtype, int64_t at, float x)
{
    const uint16_t half = weir_bf16_from_f32(x);
    if (dtype == WEIR_BF16)
        memcpy(dst + 2 * (size_t)at, &half, sizeof half);
    else
        memcpy(dst + 4 * (size_t)at, &x, sizeof x);
}

/* By values: f32 of blocks, bf16 of FP8 with scales, or multiplied. */
static void gather_values(
    unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in
)
{
    const bool turn = matrix->is_transposed;
    const int64_t n_rows = turn ? n_in : n_out, width = turn ? n_out : n_in;
    float x[PIECE];
    WEIR_ASSERT(matrix->dtype == WEIR_F32 || matrix->dtype == WEIR_BF16);
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t first = 0; first < width; first += PIECE) {
            const int64_t n = weir_min(PIECE, width - first);
            decode(x, matrix, weir_row_at(matrix->runs, r), first, n, width);
            for (int64_t i = 0; i < n; i++)
                put(dst, matrix->dtype, turn ? (first + i) * n_in + r : r * n_in + first + i, x[i]);
        }
    }
}

/* Elements as they are. */
static void transpose(unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in)
{
    const size_t size = weir_row_bytes(matrix->dtype, 1);
    for (int64_t r = 0; r < n_in; r++) {
        const size_t from = (size_t)weir_row_at(matrix->runs, r) * (size_t)row_width(matrix, n_out);
        for (int64_t c = 0; c < n_out; c++)
            memcpy(
                dst + (size_t)(c * n_in + r) * size, matrix->data + (from + (size_t)c) * size, size
            );
    }
}

void weir_matrix_gather(unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in)
{
    const size_t row_bytes = weir_row_bytes(matrix->dtype, n_in);
    const bool is_joined = matrix->scales != NULL && matrix->dtype == WEIR_MXFP4;
    const bool by_values =
                   (matrix->stored != matrix->dtype || matrix->factor != 0.0f) && !is_joined,
               as_rows = !by_values && !matrix->is_transposed;
    if (by_values) gather_values(dst, matrix, n_out, n_in);
    if (!by_values && matrix->is_transposed) transpose(dst, matrix, n_out, n_in);
    for (int64_t r = 0; as_rows && r < n_out; r++, dst += row_bytes) {
        const size_t from = (size_t)weir_row_at(matrix->runs, r);
        if (is_joined)
            join_row(dst, matrix, from, (size_t)n_in / 32);
        else
            memcpy(dst, matrix->data + from * row_bytes, row_bytes);
    }
}
