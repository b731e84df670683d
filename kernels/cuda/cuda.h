/* kernels/cuda/cuda.h - included by .cu files instead of CUDA's headers: the device under nvcc,
 * otherwise its emulation on the host.
 *
 * With -x c++ -DWEIR_EMULATE_CUDA a .cu file is plain C++: //tests/emulated:cuda_test checks
 * arithmetic, indices, barriers and shuffles of every override against ref, without a GPU. The
 * emulation is in emulate/. Three things are written differently for it:
 *     WEIR_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
 *         for kernel<<<...>>>(...); a kernel with commas in its name in parentheses
 *     WEIR_DYNAMIC_SHARED(type, name)
 *         for extern __shared__: `name` points to the launch's shared_bytes
 *     kernels/cuda/tensor.h
 *         for PTX: tensor cores, ldmatrix, asynchronous copies
 * Alignment is __align__(n), and no function is __noinline__: the host's headers use that word. */
#pragma once

#ifdef WEIR_EMULATE_CUDA
#include "kernels/cuda/emulate/cuda.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define WEIR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    do {                                                                                           \
        auto *const weir_launched = kernel;                                                        \
        weir_launched<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__);                         \
    } while (0)

#define WEIR_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(128) unsigned char weir_dynamic_shared[];                          \
    type *const name = reinterpret_cast<type *>(weir_dynamic_shared)
#endif
