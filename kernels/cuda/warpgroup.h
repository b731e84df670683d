/* kernels/cuda/warpgroup.h - products of a warpgroup, four consecutive warps, on sm_90a: operands
 * in shared memory, sums in registers, computed while the threads go on.
 *
 * Operands are rows of 64 16-bit inputs, 128 bytes each, whose 16-byte piece j of row r stands at
 * piece j ^ (r & 7), in runs of 8 rows; the first is 1024-byte aligned. Sums are those of m16n8k16
 * (tensor.h), a warp's 16 rows of the 64 by its number, four registers for each 8 columns.
 *
 * WEIR_HAS_WARPGROUPS is defined where the instructions exist; elsewhere nothing here may be
 * called. */
#pragma once
#include "kernels/cuda/bulk.h"

#ifdef WEIR_EMULATE_CUDA
#include "kernels/cuda/emulate/warpgroup.h"
#else
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WEIR_HAS_WARPGROUPS
namespace weir_cuda {

/* Inputs [0, 16) of the rows from here on. */
typedef uint64_t matrix;
__device__ __forceinline__ matrix matrix_of(const void *rows)
{
    /* 16 bytes are the unit; 8 rows are 1024 bytes from the next 8; swizzled by 128 bytes. */
    const uint64_t start = (shared_word(rows) & 0x3FFFFu) >> 4;
    return start | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
/* Inputs [16 k, 16 k + 16), k below 4. */
__device__ __forceinline__ matrix inputs_from(matrix m, int k) { return m + (uint64_t)(2 * k); }

/* Before the first product, and after the sums were used. */
__device__ __forceinline__ void fence_products()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* The products since the last one are a group. */
__device__ __forceinline__ void commit_products()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most LEFT groups are under way. */
template <int LEFT> __device__ __forceinline__ void wait_for_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Registers of each thread of the warpgroup from here on: less, or more. */
template <int N> __device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* sums (+)= a b^T, rows of `a` by rows of `b`: N of them. */
template <bool IS_F16, int N>
__device__ __forceinline__ void multiply(float (&sums)[N / 2], matrix a, matrix b, bool keeps);

/* Names and operands of 16 registers of the sums, from the first on. */
#define WEIR_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WEIR_NAMES_16                                                                              \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WEIR_NAMES_32                                                                              \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WEIR_NAMES_48                                                                              \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WEIR_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define WEIR_SUMS_16(i) WEIR_SUMS_4(i), WEIR_SUMS_4(i + 4), WEIR_SUMS_4(i + 8), WEIR_SUMS_4(i + 12)
/* a, b, keeps: names of the operands after the sums. */
#define WEIR_PRODUCT(is_f16, type, n, names, a_name, b_name, keeps_name, ...)                      \
    template <>                                                                                    \
    __device__ __forceinline__ void multiply<is_f16, n>(                                           \
        float(&sums)[n / 2], matrix a, matrix b, bool keeps                                        \
    )                                                                                              \
    {                                                                                              \
        asm volatile("{ .reg .pred keeps;\n"                                                       \
                     "setp.ne.b32 keeps, " keeps_name ", 0;\n"                                     \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" names    \
                     "}, " a_name ", " b_name ", keeps, 1, 1, 0, 0; }"                             \
                     : __VA_ARGS__                                                                 \
                     : "l"(a), "l"(b), "r"((int)keeps));                                           \
    }
#define WEIR_PRODUCTS(is_f16, type)                                                                \
    WEIR_PRODUCT(                                                                                  \
        is_f16, type, 64, WEIR_NAMES_0 ", " WEIR_NAMES_16, "%32", "%33", "%34", WEIR_SUMS_16(0),   \
        WEIR_SUMS_16(16)                                                                           \
    )                                                                                              \
    WEIR_PRODUCT(                                                                                  \
        is_f16, type, 96, WEIR_NAMES_0 ", " WEIR_NAMES_16 ", " WEIR_NAMES_32, "%48", "%49", "%50", \
        WEIR_SUMS_16(0), WEIR_SUMS_16(16), WEIR_SUMS_16(32)                                        \
    )                                                                                              \
    WEIR_PRODUCT(                                                                                  \
        is_f16, type, 128, WEIR_NAMES_0 ", " WEIR_NAMES_16 ", " WEIR_NAMES_32 ", " WEIR_NAMES_48,  \
        "%64", "%65", "%66", WEIR_SUMS_16(0), WEIR_SUMS_16(16), WEIR_SUMS_16(32), WEIR_SUMS_16(48) \
    )
WEIR_PRODUCTS(false, "bf16")
WEIR_PRODUCTS(true, "f16")
#undef WEIR_NAMES_0
#undef WEIR_NAMES_16
#undef WEIR_NAMES_32
#undef WEIR_NAMES_48
#undef WEIR_SUMS_4
#undef WEIR_SUMS_16
#undef WEIR_PRODUCT
#undef WEIR_PRODUCTS

} // namespace weir_cuda
#endif
#endif
