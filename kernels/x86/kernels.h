/* kernels/x86/kernels.h - this folder's rows of the kernel table. */
#pragma once
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compared with ref on the same tiles: same int8 activations, same weights, f32 instead of f64 sums
 * over n_in / 32 groups. */
#define WEIR_TILES_ATOL 1e-3
#define WEIR_TILES_RTOL 1e-4
/* Compared with ref on the same panels: same bf16 weights and activations, f32 instead of f64
 * sums. */
#define WEIR_AMX_ATOL 1e-4
#define WEIR_AMX_RTOL 1e-5

extern const weir_kernel weir_kernel_x86_matmul_bf16_amx; /* AMX-BF16 */
extern const weir_kernel weir_kernel_x86_matmul_tiles_amx; /* AMX-INT8, for many rows */
extern const weir_kernel weir_kernel_x86_matmul_tiles_vnni; /* AVX-512 VNNI       */
extern const weir_kernel weir_kernel_x86_matmul_tiles_avxvnni; /* AVX-VNNI (256 bits) */
extern const weir_kernel weir_kernel_x86_matmul_tiles_v3; /* AVX2, FMA, F16C    */
extern const weir_kernel weir_kernel_x86_matmul_tiles_v2; /* plain C, any x86-64 */
extern const weir_kernel weir_kernel_x86_matmul_dense_v3; /* AVX2, FMA, F16C    */
extern const weir_kernel weir_kernel_x86_matmul_dense_v2; /* SSE, any x86-64    */

#ifdef __cplusplus
}
#endif
