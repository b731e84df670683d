/* kernels/onednn/weight.h - dense weights packed for oneDNN's matmul, and the primitives made for
 * them. Only this file and weight.c use oneDNN. Only packed kernels are used ("brg:"; f32 from
 * AVX-512 on, bf16 where there is AVX-512 BF16), in an order of blocks that does not depend on the
 * number of rows: [n_out / 64][n_in / 16][16][64] f32 or [n_out / 64][n_in / 32][16][64][2] bf16,
 * zero-padded. Not done here: bias, strides, accumulation (docs/kernels.md). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/abi/dtype.h"
#include "kernels/abi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch of the caller that a primitive may use: 2.6 needs 128 bytes and 512 per thread. Multiples
 * of 64. */
enum { WEIR_ONEDNN_SCRATCH = 1024, WEIR_ONEDNN_THREAD_SCRATCH = 512 };
static inline size_t weir_onednn_scratch_bytes(int32_t n_threads)
{
    return WEIR_ONEDNN_SCRATCH + (size_t)n_threads * WEIR_ONEDNN_THREAD_SCRATCH;
}

/* Bytes of a matrix packed as `dtype`, f32 or bf16. Returns EUNSUPPORTED if oneDNN has no packed
 * kernel for it here, or one that needs more scratch, EINVAL for sizes that overflow. */
WEIR_MUST_CHECK weir_status
weir_onednn_plan(size_t *bytes, weir_dtype dtype, int64_t n_out, int64_t n_in, int32_t n_threads);

/* Packs output rows [64 * panel, 64 * panel + 64) of file rows `src` of any dtype as `packed`;
 * threads pack different panels. Returns EUNSUPPORTED for integers, EFORMAT if an element is NaN or
 * infinite as f32. `rows` is memory of 64 * WEIR_ONEDNN_CHUNK floats. */
enum { WEIR_ONEDNN_PANEL = 64, WEIR_ONEDNN_CHUNK = 256 };
WEIR_MUST_CHECK weir_status weir_onednn_pack_panel(
    void *dst, weir_dtype packed, const void *src, weir_dtype dtype, int64_t n_out, int64_t n_in,
    int64_t panel, float *rows
);

/* One weight and its primitives. A primitive is generated code of some hundred KiB, so there is one
 * per power of two of rows: other numbers of rows are sums of those, and the last 2 to 15 rows
 * count as a power of two. One thread at a time. Borrows `data`. */
enum { WEIR_ONEDNN_PADDED = 16 };
/* Rows that a call with n_rows computes: up to 15 more. */
static inline int64_t weir_onednn_padded_rows(int64_t n_rows)
{
    int64_t tail = n_rows % WEIR_ONEDNN_PADDED, power = 1;
    while (power < tail) power *= 2;
    return n_rows - tail + (tail > 0 ? power : 0);
}
typedef struct weir_onednn_weight weir_onednn_weight;
WEIR_MUST_CHECK weir_status weir_onednn_open(
    weir_onednn_weight **out, void *data, size_t bytes, weir_dtype dtype, int64_t n_out,
    int64_t n_in
);
void weir_onednn_close(weir_onednn_weight *weight); /* NULL-safe */
/* dst [n_rows, n_out] = src [n_rows, n_in] times the matrix. Both are contiguous; src has the
 * weight's dtype, and padded rows of it are readable. scratch has
 * weir_onednn_scratch_bytes(n_threads); lower: [WEIR_ONEDNN_PADDED, n_out] if padded rows differ
 * from n_rows, else NULL. Primitives are made for n_threads, and made anew for others. */
WEIR_MUST_CHECK weir_status weir_onednn_multiply(
    weir_onednn_weight *weight, float *dst, const void *src, int64_t n_rows, void *scratch,
    float *lower, int32_t n_threads
);
/* For tests: oneDNN's name of the implementation for n_rows, or NULL; they assert "brg:". */
const char *weir_onednn_implementation(
    weir_onednn_weight *weight, int64_t n_rows, int32_t n_threads
);
/* For tests: primitives that were made. */
int32_t weir_onednn_primitive_count(const weir_onednn_weight *weight);

#ifdef __cplusplus
}
#endif
