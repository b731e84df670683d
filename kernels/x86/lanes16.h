/* kernels/x86/lanes16.h - 16 lanes of int32 or float: the only code that differs between the
 * instruction sets of the dot kernels.
 *
 * All sets give the same bits: integers are exact everywhere (nothing saturates), and lanes_fma
 * rounds once, also where the machine has no FMA.
 *
 *   lanes_codes_bits  (code >> shift) & mask of each byte, or << -shift
 *   lanes_start     the sum before the first product: -zero * sum of activations, 0 with minima
 *   lanes_begin     a part of that sum; lanes_dot adds four products in each lane
 *   lanes_end       the sum with a part of at most LANES_QUADS(bits) such steps
 *   lanes_magnitude the greatest of the absolute values of 32 floats as bits (their order is that
 *                   of the values, NaN above all)
 *   lanes_quantise  16 codes, round to nearest even of x * factor, and their sum
 *
 * bits: codes are below 2^bits. LANES_TILES: tiles whose sums the registers hold for several
 * rows. */
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include <immintrin.h>

typedef __m512i lanes_int;
typedef __m512 lanes_float;
typedef __m512i lanes_codes; /* [16 rows][4 inputs] u8   */
typedef __m512i lanes_input; /* 4 activations, repeated  */
#define LANES_INT32_PARTS 1
#define LANES_TILES 2

LANES_INLINE lanes_int lanes_int_all(int32_t x) { return _mm512_set1_epi32(x); }
LANES_INLINE lanes_float lanes_all(float x) { return _mm512_set1_ps(x); }
LANES_INLINE lanes_float lanes_zero(void) { return _mm512_setzero_ps(); }
LANES_INLINE lanes_float lanes_from_int(lanes_int x) { return _mm512_cvtepi32_ps(x); }
LANES_INLINE lanes_float lanes_from_half(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const void *)p));
}
LANES_INLINE lanes_float lanes_mul(lanes_float a, lanes_float b) { return _mm512_mul_ps(a, b); }
LANES_INLINE lanes_float lanes_fma(lanes_float a, lanes_float b, lanes_float c)
{
    return _mm512_fmadd_ps(a, b, c);
}
LANES_INLINE lanes_float lanes_add(lanes_float a, lanes_float b) { return _mm512_add_ps(a, b); }
LANES_INLINE lanes_float lanes_load(const float *p) { return _mm512_loadu_ps(p); }
LANES_INLINE void lanes_store(float *p, lanes_float x) { _mm512_storeu_ps(p, x); }
LANES_INLINE lanes_codes lanes_codes_load(const uint8_t *p) { return _mm512_load_si512(p); }
LANES_INLINE lanes_codes lanes_codes_low(lanes_codes c)
{
    return _mm512_and_si512(c, _mm512_set1_epi8(15));
}
LANES_INLINE lanes_codes lanes_codes_high(lanes_codes c)
{
    return lanes_codes_low(_mm512_srli_epi16(c, 4));
}
LANES_INLINE lanes_codes lanes_codes_bits(lanes_codes c, int shift, int mask)
{
    const lanes_codes moved =
        shift < 0 ? _mm512_slli_epi16(c, (unsigned)-shift) : _mm512_srli_epi16(c, (unsigned)shift);
    return _mm512_and_si512(moved, _mm512_set1_epi8((char)mask));
}
LANES_INLINE lanes_codes lanes_codes_or(lanes_codes a, lanes_codes b)
{
    return _mm512_or_si512(a, b);
}
LANES_INLINE lanes_codes lanes_codes_table(lanes_codes c, const uint8_t table[16])
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), c);
}
LANES_INLINE lanes_input lanes_input_load(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}
LANES_INLINE lanes_int lanes_dot(lanes_int sum, lanes_codes c, lanes_input x, int bits)
{
    (void)bits;
    return _mm512_dpbusd_epi32(sum, c, x);
}
/* No load moves across this point: otherwise the compiler loads the operands of the next sums early
 * and spills the accumulators. */
LANES_INLINE void lanes_pin(lanes_int *x) { __asm__ volatile("" : "+v"(*x) : : "memory"); }
LANES_INLINE int32_t lanes_magnitude(const float *x)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff),
                  low = _mm512_and_si512(_mm512_loadu_si512(x), mask);
    return _mm512_reduce_max_epi32(
        _mm512_max_epi32(low, _mm512_and_si512(_mm512_loadu_si512(x + 16), mask))
    );
}
LANES_INLINE int32_t lanes_quantise(int8_t *codes, const float *x, float factor)
{
    const __m512i wide =
        _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(factor)));
    _mm_storeu_si128((void *)codes, _mm512_cvtepi32_epi8(wide));
    return _mm512_reduce_add_epi32(wide);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

typedef struct lanes_int {
    __m256i v[2];
} lanes_int;
typedef struct lanes_float {
    __m256 v[2];
} lanes_float;
typedef struct lanes_codes {
    __m256i v[2];
} lanes_codes;
typedef __m256i lanes_input; /* 4 activations, repeated */
#define LANES_TILES 1

LANES_INLINE lanes_int lanes_int_all(int32_t x)
{
    return (lanes_int){ { _mm256_set1_epi32(x), _mm256_set1_epi32(x) } };
}
LANES_INLINE lanes_float lanes_all(float x)
{
    return (lanes_float){ { _mm256_set1_ps(x), _mm256_set1_ps(x) } };
}
LANES_INLINE lanes_float lanes_zero(void) { return lanes_all(0.0f); }
LANES_INLINE lanes_float lanes_from_int(lanes_int x)
{
    return (lanes_float){ { _mm256_cvtepi32_ps(x.v[0]), _mm256_cvtepi32_ps(x.v[1]) } };
}
LANES_INLINE lanes_float lanes_from_half(const uint8_t *p)
{
    return (lanes_float){ { _mm256_cvtph_ps(_mm_load_si128((const void *)p)),
                            _mm256_cvtph_ps(_mm_load_si128((const void *)(p + 16))) } };
}
LANES_INLINE lanes_float lanes_mul(lanes_float a, lanes_float b)
{
    return (lanes_float){ { _mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1]) } };
}
LANES_INLINE lanes_float lanes_fma(lanes_float a, lanes_float b, lanes_float c)
{
    return (lanes_float
    ){ { _mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1]) } };
}
LANES_INLINE lanes_float lanes_add(lanes_float a, lanes_float b)
{
    return (lanes_float){ { _mm256_add_ps(a.v[0], b.v[0]), _mm256_add_ps(a.v[1], b.v[1]) } };
}
LANES_INLINE lanes_float lanes_load(const float *p)
{
    return (lanes_float){ { _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) } };
}
LANES_INLINE void lanes_store(float *p, lanes_float x)
{
    _mm256_storeu_ps(p, x.v[0]);
    _mm256_storeu_ps(p + 8, x.v[1]);
}
LANES_INLINE lanes_codes lanes_codes_load(const uint8_t *p)
{
    return (lanes_codes
    ){ { _mm256_load_si256((const void *)p), _mm256_load_si256((const void *)(p + 32)) } };
}
LANES_INLINE lanes_codes lanes_codes_low(lanes_codes c)
{
    const __m256i mask = _mm256_set1_epi8(15);
    return (lanes_codes){ { _mm256_and_si256(c.v[0], mask), _mm256_and_si256(c.v[1], mask) } };
}
LANES_INLINE lanes_codes lanes_codes_high(lanes_codes c)
{
    return lanes_codes_low((lanes_codes
    ){ { _mm256_srli_epi16(c.v[0], 4), _mm256_srli_epi16(c.v[1], 4) } });
}
LANES_INLINE lanes_codes lanes_codes_bits(lanes_codes c, int shift, int mask)
{
    const __m256i all = _mm256_set1_epi8((char)mask);
    for (int h = 0; h < 2; h++)
        c.v[h] = _mm256_and_si256(
            shift < 0 ? _mm256_slli_epi16(c.v[h], -shift) : _mm256_srli_epi16(c.v[h], shift), all
        );
    return c;
}
LANES_INLINE lanes_codes lanes_codes_or(lanes_codes a, lanes_codes b)
{
    return (lanes_codes){ { _mm256_or_si256(a.v[0], b.v[0]), _mm256_or_si256(a.v[1], b.v[1]) } };
}
LANES_INLINE lanes_codes lanes_codes_table(lanes_codes c, const uint8_t table[16])
{
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table));
    return (lanes_codes
    ){ { _mm256_shuffle_epi8(values, c.v[0]), _mm256_shuffle_epi8(values, c.v[1]) } };
}
LANES_INLINE lanes_input lanes_input_load(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}
#ifdef LANES_DPBUSD
#define LANES_INT32_PARTS 1
LANES_INLINE lanes_int lanes_dot(lanes_int sum, lanes_codes c, lanes_input x, int bits)
{
    (void)bits;
    return (lanes_int){ { LANES_DPBUSD(sum.v[0], c.v[0], x), LANES_DPBUSD(sum.v[1], c.v[1], x) } };
}
#else
#define LANES_INT32_PARTS 0
#define LANES_QUADS(bits) ((bits) <= 4 ? 8 : (bits) == 5 ? 4 : (bits) == 6 ? 2 : 1)

typedef struct lanes_part {
    __m256i v[2];
} lanes_part; /* s16 */
typedef struct lanes_weights {
    __m256i v[2], signs[2];
} lanes_weights; /* u8; of 8-bit codes the magnitudes, and s8 with their signs */

LANES_INLINE lanes_weights lanes_weights_of(lanes_codes c, int bits)
{
    if (bits < 8) return (lanes_weights){ { c.v[0], c.v[1] }, { c.v[0], c.v[1] } };
    const __m256i zero = _mm256_set1_epi8(-128), low = _mm256_xor_si256(c.v[0], zero),
                  high = _mm256_xor_si256(c.v[1], zero);
    return (lanes_weights){ { _mm256_abs_epi8(low), _mm256_abs_epi8(high) }, { low, high } };
}
LANES_INLINE lanes_int lanes_start(int32_t start, int bits)
{
    return lanes_int_all(bits < 8 ? start : 0);
}
LANES_INLINE lanes_part lanes_begin(lanes_int sum)
{
    (void)sum;
    return (lanes_part){ { _mm256_setzero_si256(), _mm256_setzero_si256() } };
}
/* The asm keeps the order of additions: the compiler would add products first, and spill them. */
LANES_INLINE lanes_part lanes_dot(lanes_part part, lanes_weights w, lanes_input x, int bits)
{
    for (int h = 0; h < 2; h++) {
        part.v[h] = _mm256_add_epi16(
            part.v[h], _mm256_maddubs_epi16(w.v[h], bits < 8 ? x : _mm256_sign_epi8(x, w.signs[h]))
        );
        __asm__ volatile("" : "+x"(part.v[h]));
    }
    return part;
}
LANES_INLINE lanes_int lanes_end(lanes_int sum, lanes_part part)
{
    const __m256i one = _mm256_set1_epi16(1);
    for (int h = 0; h < 2; h++)
        sum.v[h] = _mm256_add_epi32(sum.v[h], _mm256_madd_epi16(part.v[h], one));
    return sum;
}
#endif
LANES_INLINE void lanes_pin(lanes_int *x)
{
    __asm__ volatile("" : "+x"(x->v[0]), "+x"(x->v[1]) : : "memory");
}
LANES_INLINE int32_t lanes_magnitude(const float *x)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i most = _mm256_and_si256(_mm256_loadu_si256((const void *)x), mask);
    for (int i = 8; i < 32; i += 8)
        most = _mm256_max_epi32(
            most, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i)), mask)
        );
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
LANES_INLINE int32_t lanes_quantise(int8_t *codes, const float *x, float factor)
{
    const __m256 f = _mm256_set1_ps(factor);
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), f));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), f)),
                  both = _mm256_add_epi32(low, high);
    const __m128i l =
        _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    const __m128i h =
        _mm_packs_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128((void *)codes, _mm_packs_epi16(l, h));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

#else
#include "kernels/abi/convert.h"

typedef struct lanes_int {
    int32_t v[16];
} lanes_int;
typedef struct lanes_float {
    float v[16];
} lanes_float;
typedef struct lanes_codes {
    uint8_t v[64];
} lanes_codes;
typedef struct lanes_input {
    int32_t v[4];
} lanes_input;
#define LANES_INT32_PARTS 1
#define LANES_TILES 2

LANES_INLINE lanes_int lanes_int_all(int32_t x)
{
    lanes_int all;
    for (int i = 0; i < 16; i++) all.v[i] = x;
    return all;
}
LANES_INLINE lanes_float lanes_all(float x)
{
    lanes_float all;
    for (int i = 0; i < 16; i++) all.v[i] = x;
    return all;
}
LANES_INLINE lanes_float lanes_zero(void) { return lanes_all(0.0f); }
LANES_INLINE lanes_float lanes_from_int(lanes_int x)
{
    lanes_float to;
    for (int i = 0; i < 16; i++) to.v[i] = (float)x.v[i];
    return to;
}
LANES_INLINE lanes_float lanes_from_half(const uint8_t *p)
{
    uint16_t halves[16];
    memcpy(halves, p, sizeof halves);
    lanes_float to;
    for (int i = 0; i < 16; i++) to.v[i] = weir_f16_to_f32(halves[i]);
    return to;
}
LANES_INLINE lanes_float lanes_mul(lanes_float a, lanes_float b)
{
    for (int i = 0; i < 16; i++) a.v[i] *= b.v[i];
    return a;
}
/* One rounding without an FMA instruction: the product is exact in double, the sum is made "odd"
 * when it was inexact, and odd doubles round to float as the exact sum would (Boldo and Melquiond,
 * Emulation of a FMA and correctly rounded sums, 2008). */
LANES_INLINE lanes_float lanes_fma(lanes_float a, lanes_float b, lanes_float c)
{
    for (int i = 0; i < 16; i++) {
        const double product = (double)a.v[i] * (double)b.v[i], addend = (double)c.v[i],
                     sum = product + addend;
        const double part = sum - product, error = (product - (sum - part)) + (addend - part);
        int64_t bits, error_bits;
        memcpy(&bits, &sum, sizeof bits);
        memcpy(&error_bits, &error, sizeof error_bits);
        const int64_t inexact = -(int64_t)((error > 0.0) | (error < 0.0)),
                      even = -(int64_t)(~bits & 1);
        const int64_t step = (bits ^ error_bits) < 0 ? -1 : 1; /* towards the error */
        bits += inexact & even & step;
        double odd;
        memcpy(&odd, &bits, sizeof odd);
        c.v[i] = (float)odd;
    }
    return c;
}
LANES_INLINE lanes_float lanes_add(lanes_float a, lanes_float b)
{
    for (int i = 0; i < 16; i++) a.v[i] += b.v[i];
    return a;
}
LANES_INLINE lanes_float lanes_load(const float *p)
{
    lanes_float x;
    memcpy(x.v, p, sizeof x.v);
    return x;
}
LANES_INLINE void lanes_store(float *p, lanes_float x) { memcpy(p, x.v, sizeof x.v); }
LANES_INLINE lanes_codes lanes_codes_load(const uint8_t *p)
{
    lanes_codes c;
    memcpy(c.v, p, sizeof c.v);
    return c;
}
LANES_INLINE lanes_codes lanes_codes_low(lanes_codes c)
{
    for (int i = 0; i < 64; i++) c.v[i] &= 15;
    return c;
}
LANES_INLINE lanes_codes lanes_codes_high(lanes_codes c)
{
    for (int i = 0; i < 64; i++) c.v[i] >>= 4;
    return c;
}
LANES_INLINE lanes_codes lanes_codes_bits(lanes_codes c, int shift, int mask)
{
    for (int i = 0; i < 64; i++)
        c.v[i] = (uint8_t)((shift < 0 ? c.v[i] << -shift : c.v[i] >> shift) & mask);
    return c;
}
LANES_INLINE lanes_codes lanes_codes_or(lanes_codes a, lanes_codes b)
{
    for (int i = 0; i < 64; i++) a.v[i] |= b.v[i];
    return a;
}
LANES_INLINE lanes_codes lanes_codes_table(lanes_codes c, const uint8_t table[16])
{
    for (int i = 0; i < 64; i++) c.v[i] = table[c.v[i]];
    return c;
}
LANES_INLINE lanes_input lanes_input_load(const int8_t *p)
{
    return (lanes_input){ { p[0], p[1], p[2], p[3] } };
}
LANES_INLINE lanes_int lanes_dot(lanes_int sum, lanes_codes c, lanes_input x, int bits)
{
    (void)bits;
    for (int i = 0; i < 16; i++)
        sum.v[i] += c.v[4 * i] * x.v[0] + c.v[4 * i + 1] * x.v[1] + c.v[4 * i + 2] * x.v[2] +
                    c.v[4 * i + 3] * x.v[3];
    return sum;
}
LANES_INLINE void lanes_pin(lanes_int *x) { (void)x; }
LANES_INLINE int32_t lanes_magnitude(const float *x)
{
    int32_t bits[32], most = 0;
    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < 32; i++) {
        const int32_t magnitude = bits[i] & 0x7fffffff;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}
LANES_INLINE int32_t lanes_quantise(int8_t *codes, const float *x, float factor)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) {
        const int32_t code = (int32_t)rintf(x[i] * factor);
        codes[i] = (int8_t)code;
        sum += code;
    }
    return sum;
}
#endif

#if LANES_INT32_PARTS
/* A step adds to the int32 of its lane: parts are sums. */
#define LANES_QUADS(bits) 8
typedef lanes_int lanes_part;
typedef lanes_codes lanes_weights;

LANES_INLINE lanes_weights lanes_weights_of(lanes_codes c, int bits)
{
    (void)bits;
    return c;
}
LANES_INLINE lanes_int lanes_start(int32_t start, int bits)
{
    (void)bits;
    return lanes_int_all(start);
}
LANES_INLINE lanes_part lanes_begin(lanes_int sum) { return sum; }
LANES_INLINE lanes_int lanes_end(lanes_int sum, lanes_part part)
{
    (void)sum;
    return part;
}
#endif
