/* kernels/cuda/tensor.h - instructions of sm_80 and later without plain CUDA C++ functions: tensor
 * cores on registers, their loads from shared memory, and asynchronous copies into it. PTX under
 * nvcc; the emulation computes the same from the lanes' arguments.
 *
 * Fragments of a warp, with g = lane / 4 and t = lane % 4; a register holds two 16-bit or four
 * 8-bit values, the lower index in the lower bits:
 *     16-bit   A [16][16]  a[0] row g, columns 2t 2t+1     a[1] row g+8    a[2] row g, columns + 8
 *              a[3] row g+8, columns + 8
 *              B [16][8]   b[0] rows 2t 2t+1, column g     b[1] rows + 8
 *     8-bit    A [16][32]  a[0] row g, columns 4t .. 4t+3  a[1] row g+8    a[2] row g, columns + 16
 *              a[3] row g+8, columns + 16
 *              B [32][8]   b[0] rows 4t .. 4t+3, column g  b[1] rows + 16
 *     D [16][8]            d[0] d[1] row g, columns 2t 2t+1    d[2] d[3] row g+8 */
#pragma once
#include "kernels/cuda/cuda.h"

#ifdef WEIR_EMULATE_CUDA
#include "kernels/cuda/emulate/tensor.h"
#else
namespace weir_cuda {

__device__ __forceinline__ unsigned shared_address(const void *shared)
{
    return (unsigned)__cvta_generic_to_shared(shared);
}

#define WEIR_MMA(name, shape, d_letter, d_type)                                                    \
    /* d += a b */                                                                                 \
    __device__ __forceinline__ void name(                                                          \
        d_type(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2]                                \
    )                                                                                              \
    {                                                                                              \
        asm("mma.sync.aligned." shape                                                              \
            " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                     \
            : "+" d_letter(d[0]), "+" d_letter(d[1]), "+" d_letter(d[2]), "+" d_letter(d[3])       \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                   \
    }
WEIR_MMA(mma_f16, "m16n8k16.row.col.f32.f16.f16.f32", "f", float)
WEIR_MMA(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", "f", float)
WEIR_MMA(mma_s8, "m16n8k32.row.col.s32.s8.s8.s32", "r", int)
#undef WEIR_MMA

/* Loads four 8 by 8 matrices of 16-bit elements: lane i addresses row i % 8 of matrix i / 8;
 * register m of a lane gets row g, columns 2t 2t+1 of matrix m. */
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}
/* The same with the matrices transposed: rows 2t 2t+1, column g. */
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Copies 16 bytes to shared memory, bypassing L1; zeros if !is_there, and then `global` is not
 * read. A thread's copies are counted in groups. */
__device__ __forceinline__ void copy_async(void *shared, const void *global, bool is_there = true)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(is_there ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits until at most LEFT of the thread's groups are in flight. Other threads see the bytes after
 * a barrier. */
template <int LEFT> __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

} // namespace weir_cuda
#endif
