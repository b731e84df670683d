/* kernels/x86/amx.c - packs file rows into WEIR_LAYOUT_AMX. Runs once, at load. Plain C: it is
 * bound by reading the file. */
#include "kernels/x86/amx.h"

#include <string.h>

#include "kernels/abi/convert.h"
#include "kernels/ref/dequantise.h"

enum { PAIRS = WEIR_AMX_STEP / 2, TILE_ELEMENTS = WEIR_AMX_TILE_BYTES / 2 };

bool weir_amx_bytes(size_t *out, int64_t n_out, int64_t n_in)
{
    if (n_out < 1 || n_in < 1 || n_out > INT32_MAX || n_in > INT32_MAX) return false;
    return !__builtin_mul_overflow(weir_amx_panel_bytes(n_in), (size_t)weir_amx_panels(n_out), out);
}

/* One step of a panel; its columns begin at `column` of rows [32][CHUNK]. */
static void put_step(uint16_t *step, const float *column)
{
    for (int64_t tile = 0; tile < 2; tile++)
        for (int64_t pair = 0; pair < PAIRS; pair++)
            for (int64_t lane = 0; lane < WEIR_AMX_LANES; lane++, step += 2) {
                const float *const from =
                    column + (tile * WEIR_AMX_LANES + lane) * WEIR_AMX_CHUNK + 2 * pair;
                step[0] = weir_bf16_from_f32(from[0]);
                step[1] = weir_bf16_from_f32(from[1]);
            }
}

weir_status weir_amx_pack_panel(
    void *dst, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t panel,
    float *rows
)
{
    const size_t row_bytes = weir_row_bytes(dtype, n_in);
    const int64_t first = panel * WEIR_AMX_PANEL, left = n_out - first,
                  n_rows = left < WEIR_AMX_PANEL ? left : WEIR_AMX_PANEL;
    const uint8_t *source = (const uint8_t *)src + (size_t)first * row_bytes;
    uint16_t *step = dst;
    for (int64_t column = 0; column < n_in; column += WEIR_AMX_CHUNK) {
        const int64_t n = n_in - column < WEIR_AMX_CHUNK ? n_in - column : WEIR_AMX_CHUNK;
        if (n < WEIR_AMX_CHUNK || n_rows < WEIR_AMX_PANEL)
            memset(rows, 0, sizeof(float) * WEIR_AMX_PANEL * WEIR_AMX_CHUNK);
        for (int64_t r = 0; r < n_rows; r++) {
            const uint8_t *const at =
                source + (size_t)r * row_bytes + weir_row_bytes(dtype, column);
            WEIR_TRY(weir_k_ref_dequantise_finite(rows + r * WEIR_AMX_CHUNK, at, dtype, n));
        }
        for (int64_t k = 0; k < n; k += WEIR_AMX_STEP, step += WEIR_AMX_STEP_BYTES / 2)
            put_step(step, rows + k);
    }
    return WEIR_OK;
}

float weir_amx_element(const weir_weight *weight, int64_t row, int64_t column)
{
    const uint16_t *const panel =
        (const uint16_t *)weight->data +
        (size_t)(row / WEIR_AMX_PANEL) * (weir_amx_panel_bytes(weight->n_in) / 2);
    const int64_t lane = row % WEIR_AMX_PANEL, tile = column / WEIR_AMX_STEP * 2 + lane / 16;
    const int64_t pair = column % WEIR_AMX_STEP / 2;
    return weir_bf16_to_f32(
        panel[tile * TILE_ELEMENTS + (pair * WEIR_AMX_LANES + lane % 16) * 2 + column % 2]
    );
}
