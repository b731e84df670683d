/* kernels/ref/levels.c - file blocks to indices of levels, one function per type (ggml's block
 * layouts; kernels/abi/quant.h). */
#include "kernels/ref/levels.h"

#include <string.h>

#include "kernels/abi/convert.h"
#include "kernels/abi/quant.h"
#include "kernels/ref/grids.h"

/* The fourth and eighth levels of IQ1 and IQ2 have no digit: no index picks them. */
static const int8_t fp4_levels[WEIR_LEVELS] = { 0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12 };
static const int8_t iq1_levels[WEIR_LEVELS] = { -7, 1, 9, 0, -9, -1, 7, 0 };
static const int8_t iq2_levels[WEIR_LEVELS] = { 8, 25, 43, 0, -8, -25, -43, 0 };
static const int8_t iq3_xxs_levels[WEIR_LEVELS] = { 4,  12,  20,  28,  36,  44,  52,  62,
                                                    -4, -12, -20, -28, -36, -44, -52, -62 };
static const int8_t iq3_s_levels[WEIR_LEVELS] = { 1,  3,  5,  7,  9,  11,  13,  15,
                                                  -1, -3, -5, -7, -9, -11, -13, -15 };
static const int8_t ternary_levels[WEIR_LEVELS] = { -1, 0, 1, 2 };

static uint32_t word_of(const uint16_t halves[2])
{
    return (uint32_t)halves[0] | (uint32_t)halves[1] << 16;
}

/* Eight signs in seven bits: the number of negative ones is even. */
static uint32_t even_signs(uint32_t bits)
{
    return bits | ((uint32_t)__builtin_popcount(bits) & 1) << 7;
}

/* Eight indices from a row of eight digits of two bits; bit i of `marks` adds 4 to index i. */
static void put_eight(uint8_t *indices, uint32_t row, uint32_t marks)
{
    for (int i = 0; i < 8; i++)
        indices[i] = (uint8_t)((row >> (2 * i) & 3) | (marks >> i & 1) << 2);
}

/* Eight indices from two rows of four digits; bit i of `signs` adds 8 to index i. */
static void put_two_fours(uint8_t *indices, uint32_t low, uint32_t high, uint32_t signs)
{
    const uint32_t row = low | high << 16;
    for (int i = 0; i < 8; i++)
        indices[i] = (uint8_t)((row >> (4 * i) & 7) | (signs >> i & 1) << 3);
}

/* Both scales of group g of 32 elements. */
static void put_scales(weir_level_block *out, int g, float first, float second)
{
    out->scales[2 * g] = first;
    out->scales[2 * g + 1] = second;
}

static void put_all_scales(weir_level_block *out, uint16_t d)
{
    const float scale = weir_f16_to_f32(d);
    for (int i = 0; i < WEIR_LEVEL_BLOCK / WEIR_LEVEL_SCALE; i++) out->scales[i] = scale;
}

/* ---- IQ1: digit - 1 + delta, delta 1/8 or -1/8, in eighths ----------------------------------- */
static float iq1_scale(float d, int s) { return d * (float)(2 * s + 1) * 0.125f; }

static void decode_iq1_s(weir_level_block *out, const void *src)
{
    weir_block_iq1_s b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++) {
        const uint32_t qh = b.qh[g], marks = qh >> 15 ? 0xFF : 0;
        const float scale = iq1_scale(d, qh >> 12 & 7);
        put_scales(out, g, scale, scale);
        for (int n = 0; n < 4; n++)
            put_eight(
                out->indices + 32 * g + 8 * n,
                weir_grid_iq1[b.q[4 * g + n] | (qh >> (3 * n) & 7) << 8], marks
            );
    }
}

static void decode_iq1_m(weir_level_block *out, const void *src)
{
    weir_block_iq1_m b;
    memcpy(&b, src, sizeof b);
    uint32_t half = 0;
    for (int i = 0; i < 4; i++) half |= (uint32_t)(b.scales[i] >> 12) << (4 * i);
    const float d = weir_f16_to_f32((uint16_t)half);
    for (int i = 0; i < 16; i++)
        out->scales[i] = iq1_scale(d, b.scales[i / 4] >> (3 * (i % 4)) & 7);
    for (int n = 0; n < 32; n++) {
        const uint32_t high = b.qh[n / 2] >> (4 * (n % 2)) & 15;
        put_eight(
            out->indices + 8 * n, weir_grid_iq1[b.q[n] | (high & 7) << 8], high >> 3 ? 0xFF : 0
        );
    }
}

/* ---- IQ2 and IQ3: magnitudes from grids, with signs ------------------------------------------ */
static float iq2_scale(float d, uint32_t s) { return d * (0.5f + (float)s) * 0.25f; }

/* For each 32 elements four indices and a word: four times seven bits of signs, then the scale. */
static void decode_iq2_xxs(weir_level_block *out, const void *src)
{
    weir_block_iq2_xxs b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++) {
        const uint32_t rows = word_of(b.q + 4 * g), word = word_of(b.q + 4 * g + 2);
        const float scale = iq2_scale(d, word >> 28);
        put_scales(out, g, scale, scale);
        for (int n = 0; n < 4; n++)
            put_eight(
                out->indices + 32 * g + 8 * n, weir_grid_iq2_xxs[rows >> (8 * n) & 255],
                even_signs(word >> (7 * n) & 127)
            );
    }
}

static void decode_iq2_xs(weir_level_block *out, const void *src)
{
    weir_block_iq2_xs b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++)
        put_scales(out, g, iq2_scale(d, b.scales[g] & 15), iq2_scale(d, b.scales[g] >> 4));
    for (int n = 0; n < 32; n++)
        put_eight(
            out->indices + 8 * n, weir_grid_iq2_xs[b.q[n] & 511], even_signs(b.q[n] >> 9 & 127)
        );
}

static void decode_iq2_s(weir_level_block *out, const void *src)
{
    weir_block_iq2_s b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++)
        put_scales(out, g, iq2_scale(d, b.scales[g] & 15), iq2_scale(d, b.scales[g] >> 4));
    for (int n = 0; n < 32; n++)
        put_eight(
            out->indices + 8 * n, weir_grid_iq2_s[b.q[n] | (b.qh[n / 4] >> (2 * (n % 4)) & 3) << 8],
            b.signs[n]
        );
}

/* As IQ2_XXS, with eight indices. */
static void decode_iq3_xxs(weir_level_block *out, const void *src)
{
    weir_block_iq3_xxs b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++) {
        const uint32_t word = word_of(b.signs + 2 * g);
        const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
        put_scales(out, g, scale, scale);
        for (int n = 0; n < 4; n++) {
            const uint8_t *const q = b.q + 8 * g + 2 * n;
            put_two_fours(
                out->indices + 32 * g + 8 * n, weir_grid_iq3_xxs[q[0]], weir_grid_iq3_xxs[q[1]],
                even_signs(word >> (7 * n) & 127)
            );
        }
    }
}

static void decode_iq3_s(weir_level_block *out, const void *src)
{
    weir_block_iq3_s b;
    memcpy(&b, src, sizeof b);
    const float d = weir_f16_to_f32(b.d);
    for (int g = 0; g < 8; g++) {
        const float scale = d * (float)(1 + 2 * (b.scales[g / 2] >> (4 * (g % 2)) & 15));
        put_scales(out, g, scale, scale);
    }
    for (int n = 0; n < 32; n++) {
        const int high = b.qh[n / 4] >> (2 * (n % 4));
        put_two_fours(
            out->indices + 8 * n, weir_grid_iq3_s[b.q[2 * n] | (high & 1) << 8],
            weir_grid_iq3_s[b.q[2 * n + 1] | (high >> 1 & 1) << 8], b.signs[n]
        );
    }
}

/* ---- FP4 ------------------------------------------------------------------------------------- */
/* Half of an unsigned e4m3; the levels are doubled. 0x7F is zero, bit 7 is not used, as in ggml. */
static float e4m3_half(uint8_t bits)
{
    if (bits == 0x7F) return 0.0f;
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (exponent == 0) return (float)mantissa * 0x1p-10f;
    return weir_f32_from_bits((uint32_t)(exponent + 119) << 23 | (uint32_t)mantissa << 20);
}

static void decode_nvfp4(weir_level_block *out, const void *src)
{
    weir_block_nvfp4 b;
    memcpy(&b, src, sizeof b);
    for (int s = 0; s < 4; s++) {
        out->scales[s] = e4m3_half(b.scales[s]);
        for (int i = 0; i < 8; i++) {
            out->indices[16 * s + i] = b.q[8 * s + i] & 15;
            out->indices[16 * s + 8 + i] = b.q[8 * s + i] >> 4;
        }
    }
}

/* ---- one and two bits ------------------------------------------------------------------------ */
/* Byte m of n_bytes holds elements m, m + n_bytes, .. in base 3, as a fraction of 256. */
static void put_trits(uint8_t *indices, const uint8_t *q, int n_bytes, int n_trits)
{
    for (int m = 0; m < n_bytes; m++) {
        uint32_t fraction = q[m];
        for (int t = 0; t < n_trits; t++, fraction &= 255) {
            fraction *= 3;
            indices[t * n_bytes + m] = (uint8_t)(fraction >> 8);
        }
    }
}

static void decode_tq1_0(weir_level_block *out, const void *src)
{
    weir_block_tq1_0 b;
    memcpy(&b, src, sizeof b);
    put_all_scales(out, b.d);
    put_trits(out->indices, b.q, 32, 5);
    put_trits(out->indices + 160, b.q + 32, 16, 5);
    put_trits(out->indices + 240, b.qh, 4, 4);
}

static void decode_tq2_0(weir_level_block *out, const void *src)
{
    weir_block_tq2_0 b;
    memcpy(&b, src, sizeof b);
    put_all_scales(out, b.d);
    for (int i = 0; i < 256; i++)
        out->indices[i] = b.q[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static void decode_q1_0(weir_level_block *out, const void *src)
{
    weir_block_q1_0 b;
    memcpy(&b, src, sizeof b);
    put_all_scales(out, b.d);
    for (int i = 0; i < 128; i++) out->indices[i] = (uint8_t)((b.q[i / 8] >> (i % 8) & 1) << 1);
}

static void decode_q2_0(weir_level_block *out, const void *src)
{
    weir_block_q2_0 b;
    memcpy(&b, src, sizeof b);
    put_all_scales(out, b.d);
    for (int i = 0; i < 64; i++) out->indices[i] = b.q[i / 4] >> (2 * (i % 4)) & 3;
}

typedef struct level_type {
    const int8_t *levels;
    void (*decode)(weir_level_block *out, const void *src);
} level_type;

static const level_type types[WEIR_DTYPE_COUNT] = {
    [WEIR_NVFP4] = { fp4_levels, decode_nvfp4 },
    [WEIR_IQ1_S] = { iq1_levels, decode_iq1_s },
    [WEIR_IQ1_M] = { iq1_levels, decode_iq1_m },
    [WEIR_IQ2_XXS] = { iq2_levels, decode_iq2_xxs },
    [WEIR_IQ2_XS] = { iq2_levels, decode_iq2_xs },
    [WEIR_IQ2_S] = { iq2_levels, decode_iq2_s },
    [WEIR_IQ3_XXS] = { iq3_xxs_levels, decode_iq3_xxs },
    [WEIR_IQ3_S] = { iq3_s_levels, decode_iq3_s },
    [WEIR_TQ1_0] = { ternary_levels, decode_tq1_0 },
    [WEIR_TQ2_0] = { ternary_levels, decode_tq2_0 },
    [WEIR_Q1_0] = { ternary_levels, decode_q1_0 },
    [WEIR_Q2_0] = { ternary_levels, decode_q2_0 },
};

const int8_t *weir_levels_of(weir_dtype dtype) { return types[dtype].levels; }

void weir_levels_decode(weir_level_block *out, const void *src, weir_dtype dtype)
{
    types[dtype].decode(out, src);
}
