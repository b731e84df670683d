/* kernels/ref/dequantise.c - loops over elements or blocks; kernels/abi/dequantise.h defines the
 * blocks. */
#include "kernels/ref/dequantise.h"

#include <string.h>

#include "kernels/abi/dequantise.h"
#include "kernels/ref/levels.h"

/* One function per plain type: `bits` is the element as stored in the file. */
#define PLAIN(name, bits_type, value)                                                              \
    static void plain_##name(float *restrict dst, const unsigned char *restrict src, int64_t n)    \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            bits_type bits;                                                                        \
            memcpy(&bits, src + (size_t)i * sizeof bits, sizeof bits);                             \
            dst[i] = value;                                                                        \
        }                                                                                          \
    }
PLAIN(f16, uint16_t, weir_f16_to_f32(bits))
PLAIN(bf16, uint16_t, weir_bf16_to_f32(bits))
PLAIN(f64, double, (float)bits)
PLAIN(f8_e4m3, uint8_t, weir_f8_e4m3_to_f32(bits))
PLAIN(f8_e5m2, uint8_t, weir_f8_e5m2_to_f32(bits))

/* One function per block type; the copy makes an unaligned block addressable. */
#define BLOCKS(name, elements)                                                                     \
    static void blocks_##name(float *restrict dst, const unsigned char *restrict src, int64_t n)   \
    {                                                                                              \
        for (int64_t i = 0; i < n / (elements); i++) {                                             \
            weir_block_##name block;                                                               \
            memcpy(&block, src + (size_t)i * sizeof block, sizeof block);                          \
            weir_dequantise_block_##name(dst + i * (elements), &block);                            \
        }                                                                                          \
    }
BLOCKS(q8_0, 32)
BLOCKS(q4_0, 32)
BLOCKS(q4_1, 32)
BLOCKS(q5_0, 32)
BLOCKS(q5_1, 32)
BLOCKS(iq4_nl, 32)
BLOCKS(iq4_xs, 256)
BLOCKS(mxfp4, 32)
BLOCKS(q2_k, 256)
BLOCKS(q3_k, 256)
BLOCKS(q4_k, 256)
BLOCKS(q5_k, 256)
BLOCKS(q6_k, 256)

static void blocks_of_levels(
    float *restrict dst, const unsigned char *restrict src, weir_dtype dtype, int64_t n
)
{
    const weir_dtype_info info = weir_dtype_of(dtype);
    const int8_t *const levels = weir_levels_of(dtype);
    for (int64_t b = 0; b < n / info.block_elements; b++, dst += info.block_elements) {
        weir_level_block block;
        weir_levels_decode(&block, src + (size_t)b * (size_t)info.block_bytes, dtype);
        for (int i = 0; i < info.block_elements; i++)
            dst[i] = block.scales[i / WEIR_LEVEL_SCALE] * (float)levels[block.indices[i]];
    }
}

weir_status weir_k_ref_dequantise(float *dst, const void *src, weir_dtype dtype, int64_t n)
{
    if (n < 0 || n % weir_dtype_of(dtype).block_elements != 0) return WEIR_EINVAL;
    if (n == 0) return WEIR_OK;
    switch (dtype) {
    case WEIR_F32: memcpy(dst, src, (size_t)n * sizeof *dst); return WEIR_OK;
    case WEIR_F16: plain_f16(dst, src, n); return WEIR_OK;
    case WEIR_BF16: plain_bf16(dst, src, n); return WEIR_OK;
    case WEIR_F64: plain_f64(dst, src, n); return WEIR_OK;
    case WEIR_F8_E4M3: plain_f8_e4m3(dst, src, n); return WEIR_OK;
    case WEIR_F8_E5M2: plain_f8_e5m2(dst, src, n); return WEIR_OK;
    case WEIR_Q8_0: blocks_q8_0(dst, src, n); return WEIR_OK;
    case WEIR_Q4_0: blocks_q4_0(dst, src, n); return WEIR_OK;
    case WEIR_Q4_1: blocks_q4_1(dst, src, n); return WEIR_OK;
    case WEIR_Q5_0: blocks_q5_0(dst, src, n); return WEIR_OK;
    case WEIR_Q5_1: blocks_q5_1(dst, src, n); return WEIR_OK;
    case WEIR_IQ4_NL: blocks_iq4_nl(dst, src, n); return WEIR_OK;
    case WEIR_IQ4_XS: blocks_iq4_xs(dst, src, n); return WEIR_OK;
    case WEIR_MXFP4: blocks_mxfp4(dst, src, n); return WEIR_OK;
    case WEIR_Q2_K: blocks_q2_k(dst, src, n); return WEIR_OK;
    case WEIR_Q3_K: blocks_q3_k(dst, src, n); return WEIR_OK;
    case WEIR_Q4_K: blocks_q4_k(dst, src, n); return WEIR_OK;
    case WEIR_Q5_K: blocks_q5_k(dst, src, n); return WEIR_OK;
    case WEIR_Q6_K: blocks_q6_k(dst, src, n); return WEIR_OK;
    case WEIR_NVFP4:
    case WEIR_IQ1_S:
    case WEIR_IQ1_M:
    case WEIR_IQ2_XXS:
    case WEIR_IQ2_XS:
    case WEIR_IQ2_S:
    case WEIR_IQ3_XXS:
    case WEIR_IQ3_S:
    case WEIR_TQ1_0:
    case WEIR_TQ2_0:
    case WEIR_Q1_0:
    case WEIR_Q2_0: blocks_of_levels(dst, src, dtype, n); return WEIR_OK;
    case WEIR_I8:
    case WEIR_I16:
    case WEIR_I32:
    case WEIR_I64:
    case WEIR_U8:
    case WEIR_U16:
    case WEIR_U32:
    case WEIR_U64:
    case WEIR_BOOL:
    case WEIR_DTYPE_COUNT: break;
    }
    return WEIR_EUNSUPPORTED;
}

/* The largest magnitude as bits, shifted: NaN and infinity have an exponent of all ones. Two
 * operations per vector of values. */
static uint32_t largest_bits(const float *values, int64_t n)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = weir_f32_bits(values[i]) << 1;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

weir_status weir_k_ref_dequantise_finite(float *dst, const void *src, weir_dtype dtype, int64_t n)
{
    WEIR_TRY(weir_k_ref_dequantise(dst, src, dtype, n));
    return largest_bits(dst, n) >= 0xFF000000 ? WEIR_EFORMAT : WEIR_OK;
}
