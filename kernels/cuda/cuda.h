/* kernels/cuda/cuda.h - included by .cu files instead of CUDA's headers: the device under nvcc,
 * otherwise its emulation on the host.
 *
 * With -x c++ -DWEIR_EMULATE_CUDA a .cu file is plain C++: //tests/emulated:cuda_test checks
 * arithmetic, indices, barriers and shuffles of every override against ref, without a GPU. The
 * emulation is in emulate/. Five things are written differently for it:
 *     WEIR_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...)
 *         for kernel<<<...>>>(...); a kernel with commas in its name in parentheses
 *     WEIR_DYNAMIC_SHARED(type, name)
 *         for extern __shared__: `name` points to the launch's shared_bytes
 *     WEIR_SWIZZLED_SHARED(type, name)
 *         the same, aligned as tensor cores want swizzled rows
 *     weir_cuda::begin_kernel()
 *         at the start of a kernel, which may run while the one before it ends
 *     kernels/cuda/tensor.h, bulk.h, warpgroup.h
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

namespace weir_cuda {

/* Of the current device; queried once for each. */
struct facts {
    int multiprocessors, major, block_shared; /* block_shared: bytes that a block may have */
};
inline const facts &device_facts()
{
    static facts of[16];
    static const facts unknown = { 1, 0, 48 << 10 };
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= 16) return unknown;
    facts &f = of[device];
    if (f.multiprocessors == 0) {
        (void)cudaDeviceGetAttribute(&f.major, cudaDevAttrComputeCapabilityMajor, device);
        (void
        )cudaDeviceGetAttribute(&f.block_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        (void)cudaDeviceGetAttribute(&f.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    return f.multiprocessors > 0 ? f : unknown;
}

/* From sm_90 on a kernel may start while the one before it in the stream ends. Every kernel calls
 * let_next_start() first, and wait_for_previous() before it reads or writes what another kernel
 * may have written or read. */
__device__ __forceinline__ void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void begin_kernel()
{
    let_next_start();
    wait_for_previous();
}

/* Brings the line of an address to L2. Not a read: may be called before wait_for_previous(). */
__device__ __forceinline__ void prefetch(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

template <class... Parameters, class... Arguments>
void launch(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
    Arguments &&...arguments
)
{
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = device_facts().major >= 9 ? 1 : 0;
    (void)cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

} // namespace weir_cuda

#define WEIR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    weir_cuda::launch(kernel, grid, block, shared_bytes, stream, __VA_ARGS__)

#define WEIR_DYNAMIC_SHARED(type, name)                                                            \
    extern __shared__ __align__(128) unsigned char weir_dynamic_shared[];                          \
    type *const name = reinterpret_cast<type *>(weir_dynamic_shared)
#define WEIR_SWIZZLED_SHARED(type, name)                                                           \
    extern __shared__ __align__(1024) unsigned char weir_swizzled_shared[];                        \
    type *const name = reinterpret_cast<type *>(weir_swizzled_shared)
#endif
