/* kernels/x86/amx.h - WEIR_LAYOUT_AMX: dense weights in bf16 in the order of AMX's tile registers.
 *
 * A weight [n_out, n_in] is cut into panels of 32 output rows, a panel into steps of 32 inputs, a
 * step into two tiles of 16 outputs. The inputs and outputs that are missing at the ends are zero.
 *
 *   panel: [n_in / 32 steps][2 tiles][16 pairs of inputs][16 outputs][2 inputs] bf16
 *
 * A tile is the second operand of TDPBF16PS as it comes, 1 KB in a piece; a panel is one sequential
 * stream for any number of rows. 32 outputs, because two tiles of them and two of rows are the four
 * sums that eight registers hold with their operands. */
#pragma once
#include <stdbool.h>

#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    WEIR_AMX_LANES = 16, /* outputs, or rows, of a tile */
    WEIR_AMX_PANEL = 32, /* outputs */
    WEIR_AMX_STEP = 32, /* inputs */
    WEIR_AMX_TILE_BYTES = 1024,
    WEIR_AMX_STEP_BYTES = 2 * WEIR_AMX_TILE_BYTES, /* of a panel */
    WEIR_AMX_CHUNK = 256, /* columns packed at a time */
};

static inline int64_t weir_amx_panels(int64_t n_out)
{
    return (n_out + WEIR_AMX_PANEL - 1) / WEIR_AMX_PANEL;
}
static inline int64_t weir_amx_steps(int64_t n_in)
{
    return (n_in + WEIR_AMX_STEP - 1) / WEIR_AMX_STEP;
}
static inline size_t weir_amx_panel_bytes(int64_t n_in)
{
    return (size_t)weir_amx_steps(n_in) * WEIR_AMX_STEP_BYTES;
}
/* Bytes of the packed weight. Returns false if they overflow a size_t. */
bool weir_amx_bytes(size_t *out, int64_t n_out, int64_t n_in);

/* Packs panel `panel` of file rows `src` of any dtype (n_out rows, unaligned) to dst, 64-byte
 * aligned, weir_amx_panel_bytes long. Threads pack different panels. `rows` is memory of 32 *
 * WEIR_AMX_CHUNK floats.
 * errors : EUNSUPPORTED for integers, EFORMAT if an element is NaN or infinite as f32 */
WEIR_MUST_CHECK weir_status weir_amx_pack_panel(
    void *dst, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t panel,
    float *rows
);

/* One weight's value, for the reference kernel and tests. */
float weir_amx_element(const weir_weight *weight, int64_t row, int64_t column);

#ifdef __cplusplus
}
#endif
