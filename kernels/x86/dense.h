/* kernels/x86/dense.h - WEIR_LAYOUT_DENSE: dense weights in the order in which matmul_dense reads
 * them, for matrices without a packed oneDNN kernel.
 *
 * A weight [n_out, n_in] is cut into panels of 32 output rows, the last one padded with zeros. A
 * panel is [n_in][32]: one vector lane per output, so that a product needs no horizontal sum, and
 * one sequential stream for a row of activations. 32, because a panel of one row is four AVX2
 * accumulators, as many as cover the latency of the additions at memory speed, and half a panel is
 * the 6 x 16 block of accumulators that many rows use.
 *
 * Elements are f32, bf16 or f16, as exact as the file: f32 stays f32, f16 f16; bf16 and both f8 are
 * bf16, all others f32. In a group of 32 bf16 the low half of word j is output j, the high half
 * output j + 16: a shift and a mask expand them. */
#pragma once
#include <stdbool.h>

#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_DENSE_PANEL = 32, WEIR_DENSE_CHUNK = 256 };

/* The stored type of weights of that type: f32, bf16 or f16. */
weir_dtype weir_dense_dtype(weir_dtype file);

static inline int64_t weir_dense_panels(int64_t n_out)
{
    return (n_out + WEIR_DENSE_PANEL - 1) / WEIR_DENSE_PANEL;
}
/* Bytes of one panel; `kept` is from weir_dense_dtype. */
static inline size_t weir_dense_panel_bytes(weir_dtype kept, int64_t n_in)
{
    return weir_row_bytes(kept, n_in) * WEIR_DENSE_PANEL;
}
/* Bytes of the packed weight. Returns false if they overflow a size_t. */
bool weir_dense_bytes(size_t *out, weir_dtype kept, int64_t n_out, int64_t n_in);

/* Packs panel `panel` of file rows `src` of any dtype (n_out rows, unaligned) to dst, 64-byte
 * aligned, weir_dense_panel_bytes long. Threads pack different panels. `rows` is memory of 32 *
 * WEIR_DENSE_CHUNK floats.
 * errors : EUNSUPPORTED for integers, EFORMAT if an element is NaN or infinite as f32 */
WEIR_MUST_CHECK weir_status weir_dense_pack_panel(
    void *dst, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in, int64_t panel,
    float *rows
);

/* One weight's value, for the reference kernel and tests. */
float weir_dense_element(const weir_weight *weight, int64_t row, int64_t column);

#ifdef __cplusplus
}
#endif
