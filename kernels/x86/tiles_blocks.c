/* kernels/x86/tiles_blocks.c - file blocks to the codes and scales of records, and the format of
 * each type. */
#include "kernels/x86/tiles_blocks.h"

#include <stddef.h>
#include <string.h>

#include "kernels/abi/convert.h"
#include "kernels/abi/dequantise.h"
#include "kernels/abi/quant.h"
#include "kernels/ref/levels.h"

#define K_UNIT 0x1p-6f

static uint16_t half_bits(float x)
{
    return weir_f16_from_f32(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}

static uint16_t k_scale(float d, int32_t scale)
{
    return half_bits(d * (float)scale * (1.0f / K_UNIT));
}

/* ---- file blocks ----------------------------------------------------------------------------- */
static void decode_q8_0(weir_tile_block *out, const void *src)
{
    weir_block_q8_0 b;
    memcpy(&b, src, sizeof b);
    for (int i = 0; i < 32; i++) out->codes[i] = (uint8_t)b.q[i] ^ 0x80;
    out->scales[0] = b.d;
}

static void split_nibbles(uint8_t *codes, const uint8_t *q, int n)
{
    for (int i = 0; i < n; i++) codes[i] = q[i] & 15;
    for (int i = 0; i < n; i++) codes[n + i] = q[i] >> 4;
}

static void decode_q4_0(
    weir_tile_block *out, const void *src
) /* also IQ4_NL: the same layout, other values */
{
    weir_block_q4_0 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    out->scales[0] = b.d;
}

static void decode_q4_1(weir_tile_block *out, const void *src)
{
    weir_block_q4_1 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    out->scales[0] = b.d;
    out->minima[0] = b.m;
}

static void add_fifth_bits(uint8_t *codes, const uint8_t qh[4])
{
    for (int i = 0; i < 32; i++) codes[i] |= (uint8_t)((qh[i / 8] >> (i % 8) & 1) << 4);
}

static void decode_q5_0(weir_tile_block *out, const void *src)
{
    weir_block_q5_0 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    add_fifth_bits(out->codes, b.qh);
    out->scales[0] = b.d;
}

static void decode_q5_1(weir_tile_block *out, const void *src)
{
    weir_block_q5_1 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    add_fifth_bits(out->codes, b.qh);
    out->scales[0] = b.d;
    out->minima[0] = b.m;
}

/* 2^(exponent - 127) times half of the doubled values; infinite beyond f16. */
static void decode_mxfp4(weir_tile_block *out, const void *src)
{
    weir_block_mxfp4 b;
    memcpy(&b, src, sizeof b);
    split_nibbles(out->codes, b.q, 16);
    out->scales[0] = weir_f16_from_f32(weir_e8m0_half(b.exponent) * (1.0f / K_UNIT));
}

static void decode_iq4_xs(weir_tile_block *out, const void *src)
{
    weir_block_iq4_xs b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++) {
        const int low = b.scales_low[g / 2] >> (4 * (g % 2)) & 15,
                  high = b.scales_high >> (2 * g) & 3;
        out->scales[g] = k_scale(d, (low | high << 4) - 32);
        split_nibbles(out->codes + 32 * g, b.q + 16 * g, 16);
    }
}

/* Eight 6-bit scales and minima of Q4_K and Q5_K in 12 bytes. */
static void decode_k_scales(weir_tile_block *out, const uint8_t s[12], float d, float dmin)
{
    for (int g = 0; g < 8; g++) {
        const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
        out->scales[g] = k_scale(d, scale);
        out->minima[g] = k_scale(-dmin, minimum);
    }
}

static void decode_q4_k(weir_tile_block *out, const void *src)
{
    weir_block_q4_k b;
    memcpy(&b, src, sizeof b);
    decode_k_scales(out, b.scales, weir_f16_to_f32(b.d), weir_f16_to_f32(b.dmin));
    for (int c = 0; c < 4; c++) split_nibbles(out->codes + 64 * c, b.q + 32 * c, 32);
}

static void decode_q5_k(weir_tile_block *out, const void *src)
{
    weir_block_q5_k b;
    memcpy(&b, src, sizeof b);
    decode_k_scales(out, b.scales, weir_f16_to_f32(b.d), weir_f16_to_f32(b.dmin));
    for (int c = 0; c < 4; c++) {
        split_nibbles(out->codes + 64 * c, b.q + 32 * c, 32);
        for (int i = 0; i < 64; i++)
            out->codes[64 * c + i] |= (uint8_t)((b.qh[i % 32] >> (2 * c + i / 32) & 1) << 4);
    }
}

static void decode_q6_k(weir_tile_block *out, const void *src)
{
    weir_block_q6_k b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 16; g++) out->scales[g] = k_scale(d, b.scales[g]);
    for (int half = 0; half < 2; half++) {
        uint8_t *codes = out->codes + 128 * half;
        split_nibbles(codes, b.ql + 64 * half, 64);
        for (int i = 0; i < 128; i++)
            codes[i] |= (uint8_t)((b.qh[32 * half + i % 32] >> (2 * (i / 32)) & 3) << 4);
    }
}

static void decode_two_bits(uint8_t *codes, const uint8_t q[64])
{
    for (int i = 0; i < 256; i++) codes[i] = q[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static void decode_q3_k(weir_tile_block *out, const void *src)
{
    weir_block_q3_k b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 16; g++) {
        const int low = b.scales[g % 8] >> (4 * (g / 8)) & 15,
                  high = b.scales[8 + g % 4] >> (2 * (g / 4)) & 3;
        out->scales[g] = k_scale(d, (low | high << 4) - 32);
    }
    decode_two_bits(out->codes, b.q);
    for (int i = 0; i < 256; i++)
        out->codes[i] |= (uint8_t)((b.high_mask[i % 32] >> (i / 32) & 1) << 2);
}

static void decode_q2_k(weir_tile_block *out, const void *src)
{
    weir_block_q2_k b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d), dmin = weir_f16_to_f32(b.dmin);
    for (int g = 0; g < 16; g++) {
        out->scales[g] = k_scale(d, b.scales[g] & 15);
        out->minima[g] = k_scale(-dmin, b.scales[g] >> 4);
    }
    decode_two_bits(out->codes, b.q);
}

/* ---- types ----------------------------------------------------------------------------------- */
typedef struct packing {
    weir_tile_format format;
    void (*decode)(weir_tile_block *out, const void *src); /* NULL: the type has levels */
    /* Offsets of a block's f16 scale and minimum; equal if it has no minimum. NO_HALVES: it has
     * neither. */
    size_t d, m;
} packing;

enum { NO_HALVES = WEIR_TILE_BLOCK_MAX };

#define SCALE(type) offsetof(weir_block_##type, d), offsetof(weir_block_##type, d)
#define SCALE_AND(type, minimum)                                                                   \
    offsetof(weir_block_##type, d), offsetof(weir_block_##type, minimum)
#define LEVELS NULL, NO_HALVES, NO_HALVES

static const packing packings[WEIR_DTYPE_COUNT] = {
    [WEIR_Q8_0] = { { WEIR_TILE_U8, 8, false, 1, 128, 1.0f }, decode_q8_0, SCALE(q8_0) },
    [WEIR_Q4_0] = { { WEIR_TILE_U4, 4, false, 1, 8, 1.0f }, decode_q4_0, SCALE(q4_0) },
    [WEIR_Q4_1] = { { WEIR_TILE_U4, 4, true, 1, 0, 1.0f }, decode_q4_1, SCALE_AND(q4_1, m) },
    [WEIR_Q5_0] = { { WEIR_TILE_U8, 5, false, 1, 16, 1.0f }, decode_q5_0, SCALE(q5_0) },
    [WEIR_Q5_1] = { { WEIR_TILE_U8, 5, true, 1, 0, 1.0f }, decode_q5_1, SCALE_AND(q5_1, m) },
    [WEIR_IQ4_NL] = { { WEIR_TILE_U4_TABLE, 8, false, 1, 128, 1.0f }, decode_q4_0, SCALE(iq4_nl) },
    [WEIR_IQ4_XS] = { { WEIR_TILE_U4_TABLE, 8, false, 1, 128, K_UNIT },
                      decode_iq4_xs,
                      SCALE(iq4_xs) },
    [WEIR_MXFP4] = { { WEIR_TILE_U4_FP4, 5, false, 1, 12, K_UNIT },
                     decode_mxfp4,
                     NO_HALVES,
                     NO_HALVES },
    [WEIR_Q2_K] = { { WEIR_TILE_U4, 4, true, 2, 0, K_UNIT }, decode_q2_k, SCALE_AND(q2_k, dmin) },
    [WEIR_Q3_K] = { { WEIR_TILE_U4, 4, false, 2, 4, K_UNIT }, decode_q3_k, SCALE(q3_k) },
    [WEIR_Q4_K] = { { WEIR_TILE_U4, 4, true, 1, 0, K_UNIT }, decode_q4_k, SCALE_AND(q4_k, dmin) },
    [WEIR_Q5_K] = { { WEIR_TILE_U8, 5, true, 1, 0, K_UNIT }, decode_q5_k, SCALE_AND(q5_k, dmin) },
    [WEIR_Q6_K] = { { WEIR_TILE_U8, 6, false, 2, 32, K_UNIT }, decode_q6_k, SCALE(q6_k) },
    [WEIR_NVFP4] = { { WEIR_TILE_U4_FP4, 5, false, 2, 12, 1.0f }, LEVELS },
    [WEIR_IQ1_S] = { { WEIR_TILE_U3_IQ1, 5, false, 1, 9, K_UNIT }, LEVELS },
    [WEIR_IQ1_M] = { { WEIR_TILE_U3_IQ1, 5, false, 2, 9, K_UNIT }, LEVELS },
    [WEIR_IQ2_XXS] = { { WEIR_TILE_U3_IQ2, 7, false, 1, 43, K_UNIT }, LEVELS },
    [WEIR_IQ2_XS] = { { WEIR_TILE_U3_IQ2, 7, false, 2, 43, K_UNIT }, LEVELS },
    [WEIR_IQ2_S] = { { WEIR_TILE_U3_IQ2, 7, false, 2, 43, K_UNIT }, LEVELS },
    [WEIR_IQ3_XXS] = { { WEIR_TILE_U4_IQ3_XXS, 7, false, 1, 62, K_UNIT }, LEVELS },
    [WEIR_IQ3_S] = { { WEIR_TILE_U4_IQ3_S, 5, false, 1, 15, K_UNIT }, LEVELS },
    [WEIR_TQ1_0] = { { WEIR_TILE_U2, 2, false, 1, 1, 1.0f }, LEVELS },
    [WEIR_TQ2_0] = { { WEIR_TILE_U2, 2, false, 1, 1, 1.0f }, LEVELS },
    [WEIR_Q1_0] = { { WEIR_TILE_U1, 2, false, 1, 1, 1.0f }, LEVELS },
    [WEIR_Q2_0] = { { WEIR_TILE_U2, 2, false, 1, 1, 1.0f }, LEVELS },
};

const weir_tile_format *weir_tile_format_for(weir_dtype dtype)
{
    return (unsigned)dtype < WEIR_DTYPE_COUNT && packings[dtype].format.splits
               ? &packings[dtype].format
               : NULL;
}

/* NaN or infinity. */
static bool is_infinite_half(const void *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return (bits & 0x7C00) == 0x7C00;
}

/* Indices as they are: the formats' values are the levels plus zero. False if a scale is not finite
 * in f16. */
static bool decode_levels(
    weir_tile_block *out, const void *src, weir_dtype dtype, const weir_tile_format *format
)
{
    const int n = weir_dtype_of(dtype).block_elements,
              n_scales = n / WEIR_TILE_GROUP * format->splits,
              step = WEIR_TILE_GROUP / WEIR_LEVEL_SCALE / format->splits;
    weir_level_block block;
    weir_levels_decode(&block, src, dtype);
    memcpy(out->codes, block.indices, (size_t)n);
    bool finite = true;
    for (int i = 0; i < n_scales; i++) {
        out->scales[i] = weir_f16_from_f32(block.scales[i * step] * (1.0f / format->unit));
        finite = finite && !is_infinite_half(&out->scales[i]);
    }
    return finite;
}

/* K types clamp their products to f16, so an infinite scale would not be visible in the scales. */
bool weir_tile_block_decode(weir_tile_block *out, const void *src, weir_dtype dtype)
{
    const packing *const how = &packings[dtype];
    if (!how->decode) return decode_levels(out, src, dtype, &how->format);
    how->decode(out, src);
    if (how->d == NO_HALVES) return !is_infinite_half(out->scales);
    const uint8_t *const at = src;
    return !is_infinite_half(at + how->d) && !is_infinite_half(at + how->m);
}
