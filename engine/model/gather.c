/* engine/model/gather.c - matrices that are not rows one after another in their tensor: scattered,
 * transposed, multiplied, or with codes and scales in two tensors. At load and when an expert is
 * packed, one matrix at a time: a pass over the bytes by all threads, which packing follows. */
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
static bool is_joined(const bound_matrix *matrix)
{
    return matrix->scales != NULL && matrix->dtype == WEIR_MXFP4;
}

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
enum {
    PIECE = 256, /* elements of a row; whole blocks of all types, and of scales */
    TILE = 32 /* rows that are transposed together: a line of 64 bytes of two-byte elements */
};
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

/* Part of a matrix of the tensor: n_rows <= TILE rows, n <= PIECE elements of each. */
typedef struct tile {
    int64_t row, n_rows, first, n;
} tile;

static tile tile_at(int64_t index, int64_t n_rows, int64_t width)
{
    const int64_t across = (width + PIECE - 1) / PIECE, row = index / across * TILE,
                  first = index % across * PIECE;
    return (tile){ row, weir_min(TILE, n_rows - row), first, weir_min(PIECE, width - first) };
}

static int64_t tile_count(int64_t n_rows, int64_t width)
{
    return (n_rows + TILE - 1) / TILE * ((width + PIECE - 1) / PIECE);
}

/* By values: f32 of blocks, bf16 of FP8 with scales, or multiplied. */
static void gather_tile(
    unsigned char *dst, const bound_matrix *matrix, tile t, int64_t width, int64_t n_in
)
{
    float x[TILE][PIECE];
    for (int64_t r = 0; r < t.n_rows; r++)
        decode(x[r], matrix, weir_row_at(matrix->runs, t.row + r), t.first, t.n, width);
    if (!matrix->is_transposed) {
        for (int64_t r = 0; r < t.n_rows; r++)
            for (int64_t i = 0; i < t.n; i++)
                put(dst, matrix->dtype, (t.row + r) * n_in + t.first + i, x[r][i]);
        return;
    }
    for (int64_t i = 0; i < t.n; i++)
        for (int64_t r = 0; r < t.n_rows; r++)
            put(dst, matrix->dtype, (t.first + i) * n_in + t.row + r, x[r][i]);
}

/* Writes elements of x, whose rows are PIECE apart, as columns. `size` is a constant where it is
 * called. */
static inline void turn(
    unsigned char *dst, const unsigned char *x, tile t, int64_t n_in, size_t size
)
{
    for (int64_t i = 0; i < t.n; i++) {
        unsigned char *const to = dst + (size_t)((t.first + i) * n_in + t.row) * size;
        for (int64_t r = 0; r < t.n_rows; r++)
            memcpy(to + (size_t)r * size, x + (size_t)(r * PIECE + i) * size, size);
    }
}

/* Elements as they are. Through memory of its own: rows that are a power of two apart would evict
 * each other from the cache. */
static void transpose_tile(
    unsigned char *dst, const bound_matrix *matrix, tile t, int64_t width, int64_t n_in
)
{
    unsigned char x[TILE * PIECE * sizeof(float)];
    const size_t size = weir_row_bytes(matrix->dtype, 1);
    for (int64_t r = 0; r < t.n_rows; r++) {
        const int64_t row = weir_row_at(matrix->runs, t.row + r);
        memcpy(
            x + (size_t)(r * PIECE) * size,
            matrix->data + (size_t)(row * row_width(matrix, width) + t.first) * size,
            (size_t)t.n * size
        );
    }
    if (size == 1)
        turn(dst, x, t, n_in, 1);
    else if (size == 2)
        turn(dst, x, t, n_in, 2);
    else
        turn(dst, x, t, n_in, 4);
}

typedef void tile_pass(
    unsigned char *dst, const bound_matrix *matrix, tile t, int64_t width, int64_t n_in
);

/* ---- all of a matrix ------------------------------------------------------------------------- */
static void gather_tiles(
    unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in, int32_t n_threads,
    tile_pass *pass
)
{
    const int64_t n_rows = matrix->is_transposed ? n_in : n_out,
                  width = matrix->is_transposed ? n_out : n_in, n = tile_count(n_rows, width);
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t i = 0; i < n; i++) pass(dst, matrix, tile_at(i, n_rows, width), width, n_in);
}

static void gather_rows(
    unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in, int32_t n_threads
)
{
    const size_t row_bytes = weir_row_bytes(matrix->dtype, n_in);
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t r = 0; r < n_out; r++) {
        const size_t from = (size_t)weir_row_at(matrix->runs, r);
        unsigned char *const to = dst + (size_t)r * row_bytes;
        if (is_joined(matrix))
            join_row(to, matrix, from, (size_t)n_in / 32);
        else
            memcpy(to, matrix->data + from * row_bytes, row_bytes);
    }
}

void weir_matrix_gather(
    unsigned char *dst, const bound_matrix *matrix, int64_t n_out, int64_t n_in, int32_t n_threads
)
{
    const bool is_as_stored = matrix->stored == matrix->dtype && matrix->factor == 0.0f;
    if (!is_as_stored && !is_joined(matrix)) {
        WEIR_ASSERT(matrix->dtype == WEIR_F32 || matrix->dtype == WEIR_BF16);
        gather_tiles(dst, matrix, n_out, n_in, n_threads, gather_tile);
    } else if (matrix->is_transposed) {
        WEIR_ASSERT(weir_row_bytes(matrix->dtype, 1) <= 4);
        gather_tiles(dst, matrix, n_out, n_in, n_threads, transpose_tile);
    } else {
        gather_rows(dst, matrix, n_out, n_in, n_threads);
    }
}
