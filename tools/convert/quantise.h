/* tools/convert/quantise.h - rows of f32 to the types of GGUF files.
 *
 * Every block is chosen by its own error: the sum over its elements of importance * (value - what
 * the decoder gives)^2, importance 1 without an importance matrix. docs/quantisation.md has the
 * searches, and the errors next to those of llama.cpp. A block depends on its elements alone, so
 * the number of threads changes no bit. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "kernels/abi/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows to `dtype`, one of the types that mixes name (types.h), on the threads of OpenMP.
 * shapes     : x [n_rows, n]; out [n_rows, weir_row_bytes(dtype, n)]; n whole blocks of dtype
 * importance : [n] finite, >= 0, of the columns; NULL: all are equal. Plain types ignore it.
 * errors     : EFORMAT: an element is not finite, or not in the range of the type */
WEIR_MUST_CHECK weir_status weir_quantise(
    void *out, weir_dtype dtype, const float *x, int64_t n_rows, int64_t n, const float *importance,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
