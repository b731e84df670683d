/* kernels/abi/dequantise.h - the value of every element of a GGUF block, one function per block
 * type.
 *
 * The order of multiplications is that of the reference (scale times sub-scale first, each product
 * rounded to f32), so results are bit-exact; contraction to fused multiply-add is off for that
 * reason. dst holds the block's elements; block is aligned (a copy). */
#pragma once
#include "kernels/abi/convert.h"
#include "kernels/abi/quant.h"

/* IQ4_NL and IQ4_XS: the 16 levels that a nibble picks. */
static const int8_t weir_iq4_levels[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113 };

static inline void weir_dequantise_block_q8_0(
    float *__restrict dst, const weir_block_q8_0 *__restrict block
)
{
    const float d = weir_f16_to_f32(block->d);
    for (int i = 0; i < 32; i++) dst[i] = d * (float)block->q[i];
}

/* Byte i of a block of 32 holds element i in its low half and element i + 16 in its high half. */
static inline void weir_dequantise_block_q4_0(
    float *__restrict dst, const weir_block_q4_0 *__restrict block
)
{
    const float d = weir_f16_to_f32(block->d);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)((block->q[i] & 15) - 8);
        dst[i + 16] = d * (float)((block->q[i] >> 4) - 8);
    }
}

static inline void weir_dequantise_block_q4_1(
    float *__restrict dst, const weir_block_q4_1 *__restrict block
)
{
#pragma STDC FP_CONTRACT OFF
    const float d = weir_f16_to_f32(block->d), m = weir_f16_to_f32(block->m);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)(block->q[i] & 15) + m;
        dst[i + 16] = d * (float)(block->q[i] >> 4) + m;
    }
}

static inline uint32_t weir_high_bits(const uint8_t qh[4])
{
    return (uint32_t)qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
}

static inline void weir_dequantise_block_q5_0(
    float *__restrict dst, const weir_block_q5_0 *__restrict block
)
{
    const float d = weir_f16_to_f32(block->d);
    const uint32_t high = weir_high_bits(block->qh);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)(((block->q[i] & 15) | (int)((high >> i & 1) << 4)) - 16);
        dst[i + 16] = d * (float)((block->q[i] >> 4 | (int)((high >> (i + 16) & 1) << 4)) - 16);
    }
}

static inline void weir_dequantise_block_q5_1(
    float *__restrict dst, const weir_block_q5_1 *__restrict block
)
{
#pragma STDC FP_CONTRACT OFF
    const float d = weir_f16_to_f32(block->d), m = weir_f16_to_f32(block->m);
    const uint32_t high = weir_high_bits(block->qh);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)((block->q[i] & 15) | (int)((high >> i & 1) << 4)) + m;
        dst[i + 16] = d * (float)(block->q[i] >> 4 | (int)((high >> (i + 16) & 1) << 4)) + m;
    }
}

static inline void weir_dequantise_block_iq4_nl(
    float *__restrict dst, const weir_block_iq4_nl *__restrict block
)
{
    const float d = weir_f16_to_f32(block->d);
    for (int i = 0; i < 16; i++) {
        dst[i] = d * (float)weir_iq4_levels[block->q[i] & 15];
        dst[i + 16] = d * (float)weir_iq4_levels[block->q[i] >> 4];
    }
}

static inline void weir_dequantise_block_iq4_xs(
    float *__restrict dst, const weir_block_iq4_xs *__restrict block
)
{
    const float d = weir_f16_to_f32(block->d);
    for (int b = 0; b < 8; b++) {
        const int low = block->scales_low[b / 2] >> (4 * (b & 1)) & 15,
                  high = block->scales_high >> (2 * b) & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        const uint8_t *const q = block->q + 16 * b;
        for (int i = 0; i < 16; i++) {
            dst[32 * b + i] = scale * (float)weir_iq4_levels[q[i] & 15];
            dst[32 * b + i + 16] = scale * (float)weir_iq4_levels[q[i] >> 4];
        }
    }
}

/* Twice the values of FP4 (e2m1), which are integers. */
static const int8_t weir_fp4_doubled[16] = {
    0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12
};

/* 2^(exponent - 128): half of a block's scale. */
static inline float weir_e8m0_half(uint8_t exponent)
{
    return weir_f32_from_bits(
        exponent < 2 ? (uint32_t)0x200000 << exponent : (uint32_t)(exponent - 1) << 23
    );
}

static inline void weir_dequantise_block_mxfp4(
    float *__restrict dst, const weir_block_mxfp4 *__restrict block
)
{
    const float half = weir_e8m0_half(block->exponent);
    for (int i = 0; i < 16; i++) {
        dst[i] = half * (float)weir_fp4_doubled[block->q[i] & 15];
        dst[i + 16] = half * (float)weir_fp4_doubled[block->q[i] >> 4];
    }
}

/* Elements 16 j .. 16 j + 15 share scale j and sit in 16 consecutive bytes: half j / 8 of the
 * block, bit pair j / 2 % 4. */
static inline void weir_dequantise_block_q2_k(
    float *__restrict dst, const weir_block_q2_k *__restrict block
)
{
#pragma STDC FP_CONTRACT OFF
    const float d = weir_f16_to_f32(block->d), dmin = weir_f16_to_f32(block->dmin);
    for (int j = 0; j < 16; j++) {
        const float scale = d * (float)(block->scales[j] & 15),
                    offset = dmin * (float)(block->scales[j] >> 4);
        const uint8_t *const q = block->q + 32 * (j / 8) + 16 * (j & 1);
        const int shift = 2 * (j / 2 % 4);
        for (int i = 0; i < 16; i++) dst[16 * j + i] = scale * (float)(q[i] >> shift & 3) - offset;
    }
}

/* Values as in Q2_K; bit j / 2 of high_mask says that 4 is not subtracted. */
static inline void weir_dequantise_block_q3_k(
    float *__restrict dst, const weir_block_q3_k *__restrict block
)
{
    const float d = weir_f16_to_f32(block->d);
    for (int j = 0; j < 16; j++) {
        const int low = block->scales[j % 8] >> (4 * (j / 8)) & 15,
                  high = block->scales[8 + j % 4] >> (2 * (j / 4)) & 3;
        const float scale = d * (float)((low | high << 4) - 32);
        const uint8_t *const q = block->q + 32 * (j / 8) + 16 * (j & 1), *const mask =
                                                                             block->high_mask +
                                                                             16 * (j & 1);
        const int shift = 2 * (j / 2 % 4);
        for (int i = 0; i < 16; i++)
            dst[16 * j + i] =
                scale * (float)((q[i] >> shift & 3) + 4 * (mask[i] >> (j / 2) & 1) - 4);
    }
}

/* 6-bit scale and minimum of sub-block j (0 .. 7) of Q4_K and Q5_K. */
static inline void weir_k_scale_min(const uint8_t scales[12], int j, int *scale, int *minimum)
{
    if (j < 4) {
        *scale = scales[j] & 63;
        *minimum = scales[j + 4] & 63;
    } else {
        *scale = (scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4;
        *minimum = scales[j + 4] >> 4 | (scales[j] >> 6) << 4;
    }
}

static inline void weir_dequantise_block_q4_k(
    float *__restrict dst, const weir_block_q4_k *__restrict block
)
{
#pragma STDC FP_CONTRACT OFF
    const float d = weir_f16_to_f32(block->d), dmin = weir_f16_to_f32(block->dmin);
    for (int b = 0; b < 8; b++) {
        int s, m;
        weir_k_scale_min(block->scales, b, &s, &m);
        const float scale = d * (float)s, offset = dmin * (float)m;
        const uint8_t *const q = block->q + 32 * (b / 2);
        const int shift = 4 * (b & 1);
        for (int i = 0; i < 32; i++) dst[32 * b + i] = scale * (float)(q[i] >> shift & 15) - offset;
    }
}

static inline void weir_dequantise_block_q5_k(
    float *__restrict dst, const weir_block_q5_k *__restrict block
)
{
#pragma STDC FP_CONTRACT OFF
    const float d = weir_f16_to_f32(block->d), dmin = weir_f16_to_f32(block->dmin);
    for (int b = 0; b < 8; b++) {
        int s, m;
        weir_k_scale_min(block->scales, b, &s, &m);
        const float scale = d * (float)s, offset = dmin * (float)m;
        const uint8_t *const q = block->q + 32 * (b / 2);
        const int shift = 4 * (b & 1);
        for (int i = 0; i < 32; i++)
            dst[32 * b + i] =
                scale * (float)((q[i] >> shift & 15) | (block->qh[i] >> b & 1) << 4) - offset;
    }
}

/* Elements 16 j .. 16 j + 15 share scale j; o = 16 j % 128, k = o / 32 picks the nibble and the bit
 * pair. */
static inline void weir_dequantise_block_q6_k(
    float *__restrict dst, const weir_block_q6_k *__restrict block
)
{
    const float d = weir_f16_to_f32(block->d);
    for (int j = 0; j < 16; j++) {
        const float scale = d * (float)block->scales[j];
        const int half = j / 8, k = j / 2 % 4;
        const uint8_t *const ql = block->ql + 64 * half + 32 * (k & 1) + 16 * (j & 1);
        const uint8_t *const qh = block->qh + 32 * half + 16 * (j & 1);
        const int low_shift = 4 * (k >> 1), high_shift = 2 * k;
        for (int i = 0; i < 16; i++)
            dst[16 * j + i] =
                scale * (float)(((ql[i] >> low_shift & 15) | (qh[i] >> high_shift & 3) << 4) - 32);
    }
}
