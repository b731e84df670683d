/* kernels/x86/matmul_tiles.h - shared by the instruction sets: activations in scratch, panels over
 * threads. The sets differ in two functions only: how a row is quantised and how rows are
 * multiplied by a panel. */
#pragma once
#include "kernels/x86/tiles.h"

enum {
    WEIR_TILES_FORMATS = 19,
    WEIR_TILES_MAX_ROWS = 8,
    WEIR_TILES_STREAM_ROWS = 4, /* passes of up to this many rows prefetch */
};

/* A few activation rows (a block) times one panel.
 *   codes  [groups][rows][32]     scales [groups][rows]
 *   sides  [groups * splits][rows]: int32 start values -zero * sum(codes), or for formats with
 *          minima f32 scale * sum(codes) */
typedef struct weir_tiles_pass {
    const uint8_t *panel;
    const int8_t *codes;
    const float *scales;
    const void *sides;
    int64_t n_groups;
    /* One record from here is prefetched per group; may point anywhere. */
    const char *ahead;
    int64_t ahead_stride; /* bytes from group to group                                            */
    /* [rows, n] with dst_stride, n <= 32: set to unit * product + bias, or added to. */
    float *dst;
    const float *bias; /* NULL or [n] */
    int64_t dst_stride, n;
    float unit;
    bool accumulate;
} weir_tiles_pass;

/* Where one row's quantised groups are written; strides are those between groups. */
typedef struct weir_tiles_row {
    int8_t *codes;
    float *scales;
    int64_t stride; /* rows of the block */
} weir_tiles_row;

/* The inner loops that exist: codes, bits, minimum, splits. */
#define WEIR_TILES_FORMAT_MAP(X)                                                                   \
    X(0, WEIR_TILE_U8, 8, false, 1)                                                                \
    X(1, WEIR_TILE_U8, 5, false, 1)                                                                \
    X(2, WEIR_TILE_U8, 5, true, 1)                                                                 \
    X(3, WEIR_TILE_U8, 6, false, 2)                                                                \
    X(4, WEIR_TILE_U4, 4, false, 1)                                                                \
    X(5, WEIR_TILE_U4, 4, true, 1)                                                                 \
    X(6, WEIR_TILE_U4, 4, false, 2)                                                                \
    X(7, WEIR_TILE_U4, 4, true, 2)                                                                 \
    X(8, WEIR_TILE_U4_TABLE, 8, false, 1)                                                          \
    X(9, WEIR_TILE_U4_FP4, 5, false, 1)                                                            \
    X(10, WEIR_TILE_U4_FP4, 5, false, 2)                                                           \
    X(11, WEIR_TILE_U4_IQ3_S, 5, false, 1)                                                         \
    X(12, WEIR_TILE_U4_IQ3_XXS, 7, false, 1)                                                       \
    X(13, WEIR_TILE_U3_IQ2, 7, false, 1)                                                           \
    X(14, WEIR_TILE_U3_IQ2, 7, false, 2)                                                           \
    X(15, WEIR_TILE_U3_IQ1, 5, false, 1)                                                           \
    X(16, WEIR_TILE_U3_IQ1, 5, false, 2)                                                           \
    X(17, WEIR_TILE_U2, 2, false, 1)                                                               \
    X(18, WEIR_TILE_U1, 2, false, 1)
static inline int weir_tiles_format_index(weir_tile_format format)
{
#define X(index, kind, n_bits, has_minimum, n_splits)                                              \
    if (format.codes == (kind) && format.bits == (n_bits) && format.minimum == (has_minimum) &&    \
        format.splits == (n_splits))                                                               \
        return index;
    WEIR_TILES_FORMAT_MAP(X)
#undef X
    return -1;
}

typedef struct weir_tiles_isa {
    /* Rows of a block: in calls of up to two small blocks, and in others. */
    int32_t few_rows, many_rows;
    int32_t row_ahead; /* prefetch distance of one row, in bytes */
    bool padded; /* all blocks are whole: zeros follow the last row */
    int32_t least_rows; /* of groups on average; of padded sets */
    /* Format index (weir_tiles_format_index), rows 1 .. many_rows; those of few_rows or less
     * prefetch. */
    void (*pass[WEIR_TILES_FORMATS][WEIR_TILES_MAX_ROWS + 1])(const weir_tiles_pass *pass);
    /* If set (then for all formats), used in place of pass: n_rows rows from the given block on,
     * followed by the next blocks in scratch. zero: of the format. */
    void (*rows[WEIR_TILES_FORMATS])(const weir_tiles_pass *first, int64_t n_rows, int zero);
    /* Quantises n_groups groups of x; sums [n_groups][2] of each half's codes. */
    void (*quantise)(const weir_tiles_row *row, const float *x, int64_t n_groups, int32_t *sums);
} weir_tiles_isa;

const char *weir_tiles_reject(const weir_matmul_args *args);
/* A bound for any groups of as many rows that the set takes. */
size_t weir_tiles_scratch(const weir_tiles_isa *isa, const weir_matmul_args *args);
weir_status weir_tiles_matmul(
    const weir_tiles_isa *isa, const weir_kernel_context *context, const weir_matmul_args *args
);
