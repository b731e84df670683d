/* kernels/ref/dequantise.h - rows of any weight type to f32. Shared by embedding, packing and
 * tests. */
#pragma once
#include "kernels/abi/dtype.h"
#include "kernels/abi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst[i] = value of element i, bit-exact with the reference of each type.
 * shapes : dst [n]; src n elements as they lie in a file, unaligned; n >= 0, a multiple of the
 *          block
 * dtypes : f32, f16, bf16, f64 (rounded), f8_e4m3, f8_e5m2, every quantised type; EUNSUPPORTED for
 *          integers and bool
 * alias  : dst and src must not overlap
 * errors : EINVAL when n is not a multiple of the block */
WEIR_MUST_CHECK weir_status
weir_k_ref_dequantise(float *dst, const void *src, weir_dtype dtype, int64_t n);

/* The same for weights: returns EFORMAT if one of them is NaN or infinite as f32. */
WEIR_MUST_CHECK weir_status
weir_k_ref_dequantise_finite(float *dst, const void *src, weir_dtype dtype, int64_t n);

#ifdef __cplusplus
}
#endif
