/* tools/convert/blocks.c - blocks of 32 elements: a scale, or a scale and an offset, of 16 bits. */
#include "tools/convert/blocks.h"

#include <math.h>
#include <string.h>

#include "kernels/abi/dequantise.h"

enum { N = 32 };

static const levels q8_levels = { .lo = -127, .hi = 127 };
static const levels q4_levels = { .lo = -8, .hi = 7 };
static const levels q5_levels = { .lo = -16, .hi = 15 };

/* The code of the level nearest to i / 2 - 128, for -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53
 * 69 89 113: bounds are their means, here twice them plus 256. */
static uint8_t iq4_nearest[512];
const levels weir_iq4_levels_of = {
    .lo = 0, .hi = 15, .table = weir_iq4_levels, .nearest = iq4_nearest
};

__attribute__((constructor)) static void fill_nearest(void)
{
    int code = 0;
    for (int i = 0; i < 512; i++) {
        while (code < 15 && i - 256 > weir_iq4_levels[code] + weir_iq4_levels[code + 1]) code++;
        iq4_nearest[i] = (uint8_t)code;
    }
}

/* Codes for the scale that the block stores; it is fitted to them again while that helps. */
static uint16_t finish_scale(int8_t q[N], const group *g, const levels *l, float scale)
{
    enum { ROUNDS = 3 };
    uint16_t best_bits;
    float best = code_group(q, g, l, round_f16(scale, &best_bits));
    for (int i = 0; i < ROUNDS; i++) {
        int8_t other[N];
        double xl, ll;
        uint16_t bits;
        scale_sums(g, l, q, &xl, &ll);
        const float error =
            code_group(other, g, l, round_f16(ll > 0.0 ? (float)(xl / ll) : 0.0f, &bits));
        if (error >= best) break;
        best = error;
        best_bits = bits;
        memcpy(q, other, N);
    }
    return best_bits;
}

/* Codes for scale and offset as the block stores them. */
static void finish_affine(int8_t q[N], const group *g, int most, uint16_t *d, uint16_t *m)
{
    const affine fit = fit_affine(g, most, 0);
    const float offset = round_f16(fit.offset, m);
    (void)code_affine(q, g, most, round_f16(fit.scale, d), offset);
}

void weir_quantise_q8_0(weir_block_q8_0 *out, const float *x, const float *w)
{
    const group g = { x, w, N };
    float most = 0.0f;
    for (int i = 0; i < N; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    out->d = finish_scale(out->q, &g, &q8_levels, most / 127.0f);
}

/* Byte i has the codes of elements i, low, and i + 16. */
static void pack_nibbles(uint8_t out[16], const int8_t q[N], int offset)
{
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(((q[i] + offset) & 15) | ((q[i + 16] + offset) & 15) << 4);
}

static void pack_high(uint8_t out[4], const int8_t q[N], int offset)
{
    uint32_t bits = 0;
    for (int i = 0; i < N; i++) bits |= (uint32_t)((q[i] + offset) >> 4 & 1) << i;
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(bits >> 8 * i);
}

void weir_quantise_q4_0(weir_block_q4_0 *out, const float *x, const float *w)
{
    const group g = { x, w, N };
    int8_t q[N];
    out->d = finish_scale(q, &g, &q4_levels, fit_scale(&g, &q4_levels));
    pack_nibbles(out->q, q, 8);
}

void weir_quantise_q5_0(weir_block_q5_0 *out, const float *x, const float *w)
{
    const group g = { x, w, N };
    int8_t q[N];
    out->d = finish_scale(q, &g, &q5_levels, fit_scale(&g, &q5_levels));
    pack_nibbles(out->q, q, 16);
    pack_high(out->qh, q, 16);
}

void weir_quantise_q4_1(weir_block_q4_1 *out, const float *x, const float *w)
{
    const group g = { x, w, N };
    int8_t q[N];
    finish_affine(q, &g, 15, &out->d, &out->m);
    pack_nibbles(out->q, q, 0);
}

void weir_quantise_q5_1(weir_block_q5_1 *out, const float *x, const float *w)
{
    const group g = { x, w, N };
    int8_t q[N];
    finish_affine(q, &g, 31, &out->d, &out->m);
    pack_nibbles(out->q, q, 0);
    pack_high(out->qh, q, 0);
}

void weir_quantise_iq4_nl(weir_block_iq4_nl *out, const float *x, const float *w)
{
    const group g = { x, w, N };
    int8_t q[N];
    out->d = finish_scale(q, &g, &weir_iq4_levels_of, fit_scale(&g, &weir_iq4_levels_of));
    pack_nibbles(out->q, q, 0);
}

/* ---- FP4 ------------------------------------------------------------------------------------- */
/* Codes of n elements for `half`, half of their scale; half 0: zeros. Returns the error. */
static float code_fp4(uint8_t *q, const float *x, const float *w, int n, float half)
{
    /* Between the levels 0 1 2 3 4 6 8 12, half of which are FP4's values. */
    static const float bounds[7] = { 0.5f, 1.5f, 2.5f, 3.5f, 5.0f, 7.0f, 10.0f };
    const float inverse = half > 0.0f ? 1.0f / half : 0.0f;
    float error = 0.0f;
    for (int i = 0; i < n; i++) {
        const float y = fabsf(x[i]) * inverse;
        int code = 0;
        for (int j = 0; j < 7; j++) code += y > bounds[j];
        q[i] = (uint8_t)(code | (x[i] < 0.0f && code > 0 ? 8 : 0));
        const float d = x[i] - half * (float)weir_fp4_doubled[q[i]];
        error += w[i] * d * d;
    }
    return error;
}

static float largest_of(const float *x, int n)
{
    float most = 0.0f;
    for (int i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

void weir_quantise_mxfp4(weir_block_mxfp4 *out, const float *x, const float *w)
{
    const float most = largest_of(x, N);
    float best = INFINITY;
    int log2_most = 0;
    memset(out, 0, sizeof *out);
    if (!(most > 0x1p-120f)) return;
    (void)frexpf(most, &log2_most); /* most < 2^log2_most; the largest level is 6 */
    for (int e = log2_most - 4; e <= log2_most - 1; e++) {
        uint8_t q[N];
        const int exponent = e + 127 < 0 ? 0 : e + 127 > 254 ? 254 : e + 127;
        const float error = code_fp4(q, x, w, N, weir_e8m0_half((uint8_t)exponent));
        if (error >= best) continue;
        best = error;
        out->exponent = (uint8_t)exponent;
        for (int i = 0; i < 16; i++) out->q[i] = (uint8_t)(q[i] | q[i + 16] << 4);
    }
}

/* Sixteen elements: every scale at which the largest lies between 2 and 12, where the last level is
 * 6; and the scale 0. */
static void code_nvfp4(uint8_t *scale, uint8_t out[8], const float *x, const float *w)
{
    enum { LARGEST = 0x7E };
    const float most = largest_of(x, 16);
    const int to = weir_f8_e4m3_from_f32(0.5f * most) + 1;
    float best = INFINITY;
    for (int code = weir_f8_e4m3_from_f32(most / 12.0f); code <= to && code <= LARGEST; code++) {
        uint8_t q[16];
        const float error = code_fp4(q, x, w, 16, 0.5f * weir_f8_e4m3_to_f32((uint8_t)code));
        if (error >= best) continue;
        best = error;
        *scale = (uint8_t)code;
        for (int i = 0; i < 8; i++) out[i] = (uint8_t)(q[i] | q[i + 8] << 4);
    }
}

void weir_quantise_nvfp4(weir_block_nvfp4 *out, const float *x, const float *w)
{
    for (int j = 0; j < 4; j++) code_nvfp4(&out->scales[j], out->q + 8 * j, x + 16 * j, w + 16 * j);
}
