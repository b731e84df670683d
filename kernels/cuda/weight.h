/* kernels/cuda/weight.h - WEIR_LAYOUT_CUDA: a matrix [n_out, n_in] as the CUDA kernels read it.
 *
 * dtype is the stored type: f32, bf16 or f16, or the file's quantised type.
 *
 * f32: plain rows, each padded with zeros to whole 16 bytes.
 *
 * bf16 and f16: panels of 16 output rows, the last one padded with zeros, one after another:
 *
 *   [steps of 64 inputs][16 rows][128 bytes]       zeros after n_in
 *
 * The 16-byte piece j of row r stands at piece j ^ (r & 7), the 128-byte swizzle of tensor cores:
 * eight rows' pieces of one column are in eight different groups of shared memory's banks. A panel,
 * and any run of its steps, is one run of bytes: copies to shared memory need no addresses of rows.
 *
 * Quantised: panels of 16 output rows, the last one padded with zeros, each a run of planes over
 * `steps` of 64 inputs (zeros after n_in):
 *
 *   codes  [steps][2 or 1][32 lanes][16 bytes]     in the order of the tensor cores' registers, see
 *          below
 *   scales [steps][8 pairs][2 * splits][2 rows]    f16 per 32 inputs; or, nested, int8 per 16 or 32
 *   minima the same                                where the type has them: f16, or u8 nested
 *   d      [steps / 4][8 pairs][2 rows]            nested only: f16 per 256 inputs; scale = d *
 *          int8
 *   dmin   the same                                nested with minima: minimum = -dmin * u8
 *
 * Pair p is rows p and p + 8. Lane l = 4 p + t holds, for each of the step's two groups of 32
 * inputs, four words of four codes: row p, inputs 4t .. 4t+3; row p + 8, the same inputs; both
 * again, 16 inputs further. So one 16-byte load of a warp takes 512 consecutive bytes from memory
 * straight into the operands of one integer product of 16 x 32 (m16n8k32), with no shared memory
 * between. 4-bit codes hold words 0 .. 3 of group 0 in the low and of group 1 in the high halves of
 * their bytes; signed ones are in two's complement.
 *
 *   weight = scale * code + minimum
 *
 * Nothing is rounded: the products of nested scales are exact in f32, and the sum, rounded to f32
 * once, is what the file's type defines. Bits per weight, of 16 rows: Q8_0 8.5, Q4_0 4.5 (as the
 * file), Q4_K 4.625 (4.5), Q6_K 8.5625 (6.5625), Q5_0 8.5 (5.5), IQ4_NL 8.5 (4.5). */
#pragma once
#include <stdbool.h>

#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_CUDA_PANEL = 16,  /* output rows of a panel                           */
    WEIR_CUDA_STEP = 64,   /* inputs of a step                                 */
    WEIR_CUDA_GROUP = 32,  /* inputs that share a scale of the activations     */
    WEIR_CUDA_SUPER = 256, /* inputs that share d and dmin, where scales nest  */
};

typedef enum weir_cuda_codes { WEIR_CUDA_S8, WEIR_CUDA_S4, WEIR_CUDA_U4 } weir_cuda_codes;

typedef struct weir_cuda_format {
    weir_cuda_codes codes;
    bool nested, minimum;
    int32_t splits; /* 1 or 2 scales per 32 inputs */
} weir_cuda_format;

/* Byte offsets of the planes of a panel; planes that a format lacks are empty. */
typedef struct weir_cuda_planes {
    size_t scales, minima, d, dmin, panel_bytes;
    int64_t steps;
} weir_cuda_planes;

/* The stored type: quantised types as they are, f8 and mxfp4 as bf16, types of kernels/ref/levels.h
 * as f16, f64 as f32. `exact`: what is not f32 is expanded to it, since the kernels of all other
 * types round activations. */
weir_dtype weir_cuda_dtype(weir_dtype file, bool exact);

/* Returns false for a dtype that is not quantised. Inline here and below: the kernels' library
 * links nothing else of this. */
static inline bool weir_cuda_format_of(weir_dtype kept, weir_cuda_format *out)
{
#define FORMAT(codes, nested, minimum, splits)                                                     \
    {                                                                                              \
        const weir_cuda_format format = { codes, nested, minimum, splits };                        \
        *out = format;                                                                             \
        return true;                                                                               \
    }
    switch ((int)kept) { /*   codes       nested minimum splits */
    case WEIR_Q8_0:
    case WEIR_Q5_0:
    case WEIR_IQ4_NL: FORMAT(WEIR_CUDA_S8, false, false, 1)
    case WEIR_Q4_0: FORMAT(WEIR_CUDA_S4, false, false, 1)
    case WEIR_Q4_1: FORMAT(WEIR_CUDA_U4, false, true, 1)
    case WEIR_Q5_1: FORMAT(WEIR_CUDA_S8, false, true, 1)
    case WEIR_IQ4_XS: FORMAT(WEIR_CUDA_S8, true, false, 1)
    case WEIR_Q2_K: FORMAT(WEIR_CUDA_U4, true, true, 2)
    case WEIR_Q3_K: FORMAT(WEIR_CUDA_S4, true, false, 2)
    case WEIR_Q4_K: FORMAT(WEIR_CUDA_U4, true, true, 1)
    case WEIR_Q5_K: FORMAT(WEIR_CUDA_S8, true, true, 1)
    case WEIR_Q6_K: FORMAT(WEIR_CUDA_S8, true, false, 2)
    default: return false;
    }
#undef FORMAT
}

static inline size_t weir_cuda_step_code_bytes(weir_cuda_format format)
{
    return format.codes == WEIR_CUDA_S8 ? 1024 : 512;
}
static inline size_t weir_cuda_step_scale_bytes(weir_cuda_format format)
{
    return (size_t)(format.nested ? 32 : 64) * (size_t)format.splits;
}

static inline weir_cuda_planes weir_cuda_planes_of(weir_cuda_format format, int64_t n_in)
{
    weir_cuda_planes planes;
    planes.steps = (n_in + WEIR_CUDA_STEP - 1) / WEIR_CUDA_STEP;
    const size_t scales = (size_t)planes.steps * weir_cuda_step_scale_bytes(format);
    const size_t supers =
        format.nested ? (size_t)(n_in / WEIR_CUDA_SUPER) * WEIR_CUDA_PANEL * sizeof(uint16_t) : 0;
    planes.scales = (size_t)planes.steps * weir_cuda_step_code_bytes(format);
    planes.minima = planes.scales + scales;
    planes.d = planes.minima + (format.minimum ? scales : 0);
    planes.dmin = planes.d + supers;
    planes.panel_bytes = planes.dmin + (format.minimum ? supers : 0);
    return planes;
}

static inline bool weir_cuda_is_half(weir_dtype kept)
{
    return kept == WEIR_BF16 || kept == WEIR_F16;
}
enum {
    WEIR_CUDA_HALF_ROW = WEIR_CUDA_STEP * 2, /* bytes of a row in a step of 16-bit values */
    WEIR_CUDA_HALF_STEP = WEIR_CUDA_PANEL * WEIR_CUDA_HALF_ROW,
};
/* Bytes of a panel of 16-bit values. */
static inline size_t weir_cuda_half_panel(int64_t n_in)
{
    return (size_t)((n_in + WEIR_CUDA_STEP - 1) / WEIR_CUDA_STEP) * WEIR_CUDA_HALF_STEP;
}
/* Offset in a panel of 16-bit values of the 16 bytes that begin at `column`, a multiple of 8. */
static inline size_t weir_cuda_half_piece(int64_t row, int64_t column)
{
    const size_t piece = (size_t)(column % WEIR_CUDA_STEP / 8) ^ (size_t)(row & 7);
    return (size_t)(column / WEIR_CUDA_STEP) * WEIR_CUDA_HALF_STEP +
           (size_t)row * WEIR_CUDA_HALF_ROW + piece * 16;
}

/* Bytes between rows of f32. */
static inline size_t weir_cuda_row_stride(int64_t n_in)
{
    return ((size_t)n_in * sizeof(float) + 15) / 16 * 16;
}

/* Bytes of n_rows rows, in whole panels; also the offset of row n_rows if it is a multiple of
 * WEIR_CUDA_PANEL.
 * Returns false if they overflow a size_t, if n_in is not a multiple of the block, or for a dtype
 * that is not stored. */
bool weir_cuda_weight_bytes(size_t *out, weir_dtype kept, int64_t n_rows, int64_t n_in);

/* Packs rows [first, first + count) of file rows `src` (unaligned) to dst:
 * weir_cuda_weight_bytes(count) bytes, 16-byte aligned, which belong at offset
 * weir_cuda_weight_bytes(first). first is a multiple of WEIR_CUDA_PANEL, and so is count except at
 * the end. Threads and pieces of an upload may pack different ranges.
 * errors : EFORMAT if an element, a block's scale or its minimum is NaN or infinite, EUNSUPPORTED
 *          for integers */
WEIR_MUST_CHECK weir_status weir_cuda_pack_rows(
    void *dst, weir_dtype kept, const void *src, weir_dtype file, int64_t n_in, int64_t first,
    int64_t count
);

/* The exact value of one weight, for the reference kernel and tests. */
double weir_cuda_element(const weir_weight *weight, int64_t row, int64_t column);

#ifdef __cplusplus
}
#endif
