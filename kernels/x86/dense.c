/* kernels/x86/dense.c - packs file rows into WEIR_LAYOUT_DENSE. Runs once, at load. Plain C: it is
 * bound by reading the file. */
#include "kernels/x86/dense.h"

#include <string.h>

#include "kernels/abi/convert.h"
#include "kernels/ref/dequantise.h"

enum { HALF = WEIR_DENSE_PANEL / 2 };

weir_dtype weir_dense_dtype(weir_dtype file)
{
    switch (file) {
    case WEIR_F16: return WEIR_F16;
    case WEIR_BF16:
    case WEIR_F8_E4M3:
    case WEIR_F8_E5M2: return WEIR_BF16;
    default: return WEIR_F32;
    }
}

bool weir_dense_bytes(size_t *out, weir_dtype kept, int64_t n_out, int64_t n_in)
{
    if (n_out < 1 || n_in < 1 || n_out > INT32_MAX || n_in > INT32_MAX) return false;
    return !__builtin_mul_overflow(
        weir_dense_panel_bytes(kept, n_in), (size_t)weir_dense_panels(n_out), out
    );
}

/* The index of output `row` in a group of 32. */
static int64_t place(weir_dtype kept, int64_t row)
{
    return kept == WEIR_BF16 ? row % HALF * 2 + row / HALF : row;
}

/* Columns [first, first + n) of the panel from rows [32][CHUNK]. */
static void put_columns(void *panel, weir_dtype kept, const float *rows, int64_t first, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        const float *const column = rows + k;
        const int64_t at = (first + k) * WEIR_DENSE_PANEL;
        for (int64_t r = 0; r < WEIR_DENSE_PANEL; r++) {
            const float value = column[r * WEIR_DENSE_CHUNK];
            switch (kept) {
            case WEIR_BF16:
                ((uint16_t *)panel)[at + place(kept, r)] = weir_bf16_from_f32(value);
                break;
            case WEIR_F16: ((uint16_t *)panel)[at + r] = weir_f16_from_f32(value); break;
            default: ((float *)panel)[at + r] = value; break;
            }
        }
    }
}

weir_status weir_dense_pack_panel(
    void *dst, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t panel,
    float *rows
)
{
    const size_t row_bytes = weir_row_bytes(dtype, n_in);
    const int64_t first = panel * WEIR_DENSE_PANEL, left = n_out - first,
                  n_rows = left < WEIR_DENSE_PANEL ? left : WEIR_DENSE_PANEL;
    const uint8_t *source = (const uint8_t *)src + (size_t)first * row_bytes;
    if (n_rows < WEIR_DENSE_PANEL)
        memset(rows, 0, sizeof(float) * WEIR_DENSE_PANEL * WEIR_DENSE_CHUNK);
    for (int64_t column = 0; column < n_in; column += WEIR_DENSE_CHUNK) {
        const int64_t n = n_in - column < WEIR_DENSE_CHUNK ? n_in - column : WEIR_DENSE_CHUNK;
        for (int64_t r = 0; r < n_rows; r++) {
            const uint8_t *const at =
                source + (size_t)r * row_bytes + weir_row_bytes(dtype, column);
            WEIR_TRY(weir_k_ref_dequantise_finite(rows + r * WEIR_DENSE_CHUNK, at, dtype, n));
        }
        put_columns(dst, weir_dense_dtype(dtype), rows, column, n);
    }
    return WEIR_OK;
}

float weir_dense_element(const weir_weight *weight, int64_t row, int64_t column)
{
    const size_t panel_bytes = weir_dense_panel_bytes(weight->dtype, weight->n_in);
    const char *panel = (const char *)weight->data + (size_t)(row / WEIR_DENSE_PANEL) * panel_bytes;
    const int64_t at = column * WEIR_DENSE_PANEL + place(weight->dtype, row % WEIR_DENSE_PANEL);
    switch (weight->dtype) {
    case WEIR_BF16: return weir_bf16_to_f32(((const uint16_t *)panel)[at]);
    case WEIR_F16: return weir_f16_to_f32(((const uint16_t *)panel)[at]);
    default: return ((const float *)panel)[at];
    }
}
