/* kernels/onednn/kernels.h - this folder's rows of the kernel table. */
#pragma once
#include "kernels/abi/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const weir_kernel weir_kernel_onednn_matmul_bf16;
extern const weir_kernel weir_kernel_onednn_matmul_f32;

#ifdef __cplusplus
}
#endif
