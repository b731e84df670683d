/* kernels/cuda/kv_schemes.h - what CUDA's kernels do with pages of a scheme, from
 * kernels/kv/SCHEME/cuda.h. A scheme specialises
 *
 *   SchemePages   how attention reads its pages, if the table of formats marks one READ or BOTH
 *   SchemeRows    how kv_write writes its rows, if it marks one WRITE or BOTH */
#pragma once
#include "kernels/abi/ops.h"
#include "kernels/cuda/cuda.h"

namespace weir_cuda {

/* Members: kIsBf16: bf16 is what tensor cores multiply, else f16; kIsCoded: codes are expanded to
 * 16 bits first; kHasCodebook: codes are indices of centroids; kBits: bits of a code; kPlanes:
 * number of 16-bit values of one code. */
template <weir_kv_scheme, weir_kv_format, int BITS> struct SchemePages;

/* Member: template <bool IS_K> void write(char *part, const weir_kv_layout &, int64_t dim, int64_t
 * token, int64_t group, int lane, float x): writes dim 32 * group + lane of a token. A warp has the
 * dims of a group; x is 0 from `dim` on. */
template <weir_kv_scheme, weir_kv_format> struct SchemeRows;

#define WEIR_KV_PART cuda.h
#include "kernels/kv/schemes.inc"

} // namespace weir_cuda
