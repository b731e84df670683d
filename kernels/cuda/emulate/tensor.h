/* kernels/cuda/emulate/tensor.h - emulates kernels/cuda/tensor.h with the registers of all lanes of
 * a warp. */
#pragma once
#include "kernels/cuda/emulate/cuda.h"

namespace weir_cuda {

struct Product {
    void *d; /* [4] */
    const uint32_t *a, *b; /* [4], [2] */
};

/* Element i of registers that hold values of BITS bits each. */
template <int BITS> inline uint32_t element(const uint32_t *registers, int i)
{
    return registers[i * BITS / 32] >> i * BITS % 32 & (BITS == 16 ? 0xFFFFu : 0xFFu);
}
inline double value_f16(uint32_t bits) { return (double)weir_emulate::half_value(bits); }
inline double value_bf16(uint32_t bits)
{
    return (double)__bfloat162float(__ushort_as_bfloat16((unsigned short)bits));
}
inline double value_s8(uint32_t bits) { return (double)(int8_t)bits; }

/* The products of 16 or 32 columns are exact, and rounded once after adding d. */
template <int BITS, class D, double (*VALUE)(uint32_t)>
void multiply(void *const *lanes, unsigned mask)
{
    constexpr int kPer = 32 / BITS, kDepth = 8 * kPer;
    double a[16][kDepth], b[kDepth][8];
    if (mask != 0xffffffffu) weir_emulate::die("a product on tensor cores needs the whole warp");
    for (int lane = 0; lane < 32; lane++) {
        const auto *own = static_cast<const Product *>(lanes[lane]);
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < kPer; i++)
                a[lane / 4 + r % 2 * 8][lane % 4 * kPer + r / 2 * 4 * kPer + i] =
                    VALUE(element<BITS>(own->a, r * kPer + i));
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < kPer; i++)
                b[lane % 4 * kPer + r * 4 * kPer + i][lane / 4] =
                    VALUE(element<BITS>(own->b, r * kPer + i));
    }
    for (int row = 0; row < 16; row++) {
        D *places[4]; /* of columns 2t, 2t+1 */
        double sum[8];
        for (int t = 0; t < 4; t++)
            places[t] = static_cast<D *>(static_cast<const Product *>(lanes[row % 8 * 4 + t])->d) +
                        row / 8 * 2;
        for (int column = 0; column < 8; column++)
            sum[column] = (double)places[column / 2][column % 2];
        for (int k = 0; k < kDepth; k++)
            for (int column = 0; column < 8; column++) sum[column] += a[row][k] * b[k][column];
        for (int column = 0; column < 8; column++) places[column / 2][column % 2] = (D)sum[column];
    }
}

#define WEIR_MMA(name, bits, d_type, value)                                                        \
    inline void name(                                                                              \
        d_type(&d)[4], const uint32_t(&a)[4], const uint32_t(&b)[2],                               \
        const char *file = __builtin_FILE(), int line = __builtin_LINE()                           \
    )                                                                                              \
    {                                                                                              \
        Product product = { d, a, b };                                                             \
        weir_emulate::warp(0xffffffffu, multiply<bits, d_type, value>, &product, { file, line });  \
    }
WEIR_MMA(mma_f16, 16, float, value_f16)
WEIR_MMA(mma_bf16, 16, float, value_bf16)
WEIR_MMA(mma_s8, 8, int, value_s8)
#undef WEIR_MMA

struct MatrixRow {
    uint32_t *r; /* [4] */
    const char *row;
};
template <bool TRANSPOSED> void load(void *const *lanes, unsigned)
{
    for (int lane = 0; lane < 32; lane++) {
        const char *row = static_cast<const MatrixRow *>(lanes[lane])->row;
        if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
            weir_emulate::die("lane %d: a row of a matrix is not 16-byte aligned", lane);
        if (!weir_emulate::is_shared(row, 16))
            weir_emulate::die("lane %d: a row of a matrix is not in shared memory", lane);
    }
    for (int lane = 0; lane < 32; lane++)
        for (int m = 0; m < 4; m++) {
            uint16_t pair[2];
            for (int i = 0; i < 2; i++) {
                const int row = TRANSPOSED ? lane % 4 * 2 + i : lane / 4,
                          column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + i;
                std::memcpy(
                    pair + i, static_cast<const MatrixRow *>(lanes[m * 8 + row])->row + column * 2,
                    2
                );
            }
            static_cast<const MatrixRow *>(lanes[lane])->r[m] = pair[0] | (uint32_t)pair[1] << 16;
        }
}
inline void load_matrices(
    uint32_t (&r)[4], const void *row, const char *file = __builtin_FILE(),
    int line = __builtin_LINE()
)
{
    MatrixRow arguments = { r, static_cast<const char *>(row) };
    weir_emulate::warp(0xffffffffu, load<false>, &arguments, { file, line });
}
inline void load_matrices_transposed(
    uint32_t (&r)[4], const void *row, const char *file = __builtin_FILE(),
    int line = __builtin_LINE()
)
{
    MatrixRow arguments = { r, static_cast<const char *>(row) };
    weir_emulate::warp(0xffffffffu, load<true>, &arguments, { file, line });
}

inline void copy_async(void *shared, const void *global, bool is_there = true)
{
    weir_emulate::copy16(shared, is_there ? global : nullptr);
}
inline void copy_commit() { weir_emulate::commit_copies(); }
template <int LEFT> inline void copy_wait() { weir_emulate::wait_for_copies(LEFT); }

} // namespace weir_cuda
