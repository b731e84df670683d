/* kernels/x86/lanes16.h - 16 lanes of int32 or float: the only text that differs between the instruction sets of the dot kernels.
 *
 * All sets give the same bits: integers are exact everywhere (no saturating instruction), and weir_lanes_fma rounds once, also where the
 * machine has no FMA. */
#pragma once
#include <stdint.h>
#include <string.h>

#define LANES_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include <immintrin.h>

enum { LANES_MAX_ROWS = 4, LANES_PAIR = 2 }; /* rows per pass; tiles whose sums are interleaved */
typedef __m512i lanes_int;
typedef __m512  lanes_float;
typedef __m512i lanes_codes; /* [16 rows][4 inputs] u8   */
typedef __m512i lanes_input; /* 4 activations, repeated  */

LANES_INLINE lanes_int   lanes_int_all(int32_t x) { return _mm512_set1_epi32(x); }
LANES_INLINE lanes_float lanes_all(float x) { return _mm512_set1_ps(x); }
LANES_INLINE lanes_float lanes_zero(void) { return _mm512_setzero_ps(); }
LANES_INLINE lanes_float lanes_from_int(lanes_int x) { return _mm512_cvtepi32_ps(x); }
LANES_INLINE lanes_float lanes_from_half(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_load_si256((const void *)p)); }
LANES_INLINE lanes_float lanes_mul(lanes_float a, lanes_float b) { return _mm512_mul_ps(a, b); }
LANES_INLINE lanes_float lanes_fma(lanes_float a, lanes_float b, lanes_float c) { return _mm512_fmadd_ps(a, b, c); }
LANES_INLINE void        lanes_store(float *p, lanes_float x) { _mm512_storeu_ps(p, x); }
LANES_INLINE lanes_codes lanes_codes_load(const uint8_t *p) { return _mm512_load_si512(p); }
LANES_INLINE lanes_codes lanes_codes_low(lanes_codes c) { return _mm512_and_si512(c, _mm512_set1_epi8(15)); }
LANES_INLINE lanes_codes lanes_codes_high(lanes_codes c) { return lanes_codes_low(_mm512_srli_epi16(c, 4)); }
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
LANES_INLINE lanes_int lanes_dot(lanes_int sum, lanes_codes c, lanes_input x) { return _mm512_dpbusd_epi32(sum, c, x); }

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>

enum { LANES_MAX_ROWS = 1, LANES_PAIR = 1 };
typedef struct lanes_int { __m256i v[2]; } lanes_int;
typedef struct lanes_float { __m256 v[2]; } lanes_float;
typedef struct lanes_codes { __m256i v[2]; } lanes_codes;
typedef struct lanes_input { __m256i even, odd; } lanes_input; /* s16: activations 0 and 2, 1 and 3, repeated */

LANES_INLINE lanes_int   lanes_int_all(int32_t x) { return (lanes_int){ { _mm256_set1_epi32(x), _mm256_set1_epi32(x) } }; }
LANES_INLINE lanes_float lanes_all(float x) { return (lanes_float){ { _mm256_set1_ps(x), _mm256_set1_ps(x) } }; }
LANES_INLINE lanes_float lanes_zero(void) { return lanes_all(0.0f); }
LANES_INLINE lanes_float lanes_from_int(lanes_int x)
{
    return (lanes_float){ { _mm256_cvtepi32_ps(x.v[0]), _mm256_cvtepi32_ps(x.v[1]) } };
}
LANES_INLINE lanes_float lanes_from_half(const uint8_t *p)
{
    return (lanes_float){ { _mm256_cvtph_ps(_mm_load_si128((const void *)p)), _mm256_cvtph_ps(_mm_load_si128((const void *)(p + 16))) } };
}
LANES_INLINE lanes_float lanes_mul(lanes_float a, lanes_float b)
{
    return (lanes_float){ { _mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1]) } };
}
LANES_INLINE lanes_float lanes_fma(lanes_float a, lanes_float b, lanes_float c)
{
    return (lanes_float){ { _mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1]) } };
}
LANES_INLINE void lanes_store(float *p, lanes_float x)
{
    _mm256_storeu_ps(p, x.v[0]);
    _mm256_storeu_ps(p + 8, x.v[1]);
}
LANES_INLINE lanes_codes lanes_codes_load(const uint8_t *p)
{
    return (lanes_codes){ { _mm256_load_si256((const void *)p), _mm256_load_si256((const void *)(p + 32)) } };
}
LANES_INLINE lanes_codes lanes_codes_low(lanes_codes c)
{
    const __m256i mask = _mm256_set1_epi8(15);
    return (lanes_codes){ { _mm256_and_si256(c.v[0], mask), _mm256_and_si256(c.v[1], mask) } };
}
LANES_INLINE lanes_codes lanes_codes_high(lanes_codes c)
{
    return lanes_codes_low((lanes_codes){ { _mm256_srli_epi16(c.v[0], 4), _mm256_srli_epi16(c.v[1], 4) } });
}
LANES_INLINE lanes_codes lanes_codes_table(lanes_codes c, const uint8_t table[16])
{
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table));
    return (lanes_codes){ { _mm256_shuffle_epi8(values, c.v[0]), _mm256_shuffle_epi8(values, c.v[1]) } };
}
LANES_INLINE lanes_input lanes_input_load(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    const __m256i x = _mm256_set1_epi32(four);
    return (lanes_input){ _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), _mm256_srai_epi16(x, 8) };
}
/* Codes are widened to s16 as even and odd bytes: vpmaddubsw would saturate. */
LANES_INLINE lanes_int lanes_dot(lanes_int sum, lanes_codes c, lanes_input x)
{
    for (int h = 0; h < 2; h++) {
        const __m256i even = _mm256_and_si256(c.v[h], _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(c.v[h], 8);
        sum.v[h] = _mm256_add_epi32(sum.v[h], _mm256_add_epi32(_mm256_madd_epi16(even, x.even), _mm256_madd_epi16(odd, x.odd)));
    }
    return sum;
}

#else
enum { LANES_MAX_ROWS = 1, LANES_PAIR = 1 };
typedef struct lanes_int { int32_t v[16]; } lanes_int;
typedef struct lanes_float { float v[16]; } lanes_float;
typedef struct lanes_codes { uint8_t v[64]; } lanes_codes;
typedef struct lanes_input { int32_t v[4]; } lanes_input;

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
    _Float16 halves[16];
    memcpy(halves, p, sizeof halves);
    lanes_float to;
    for (int i = 0; i < 16; i++) to.v[i] = (float)halves[i];
    return to;
}
LANES_INLINE lanes_float lanes_mul(lanes_float a, lanes_float b)
{
    for (int i = 0; i < 16; i++) a.v[i] *= b.v[i];
    return a;
}
/* One rounding without an FMA instruction: the product is exact in double, the sum is made "odd" when it was inexact, and odd doubles
 * round to float as the exact sum would (Boldo and Melquiond, Emulation of a FMA and correctly rounded sums, 2008). */
LANES_INLINE lanes_float lanes_fma(lanes_float a, lanes_float b, lanes_float c)
{
    for (int i = 0; i < 16; i++) {
        const double  product = (double)a.v[i] * (double)b.v[i], addend = (double)c.v[i], sum = product + addend;
        const double  part = sum - product, error = (product - (sum - part)) + (addend - part);
        int64_t       bits, error_bits;
        memcpy(&bits, &sum, sizeof bits);
        memcpy(&error_bits, &error, sizeof error_bits);
        const int64_t inexact = -(int64_t)((error > 0.0) | (error < 0.0)), even = -(int64_t)(~bits & 1);
        const int64_t step = (bits ^ error_bits) < 0 ? -1 : 1; /* towards the error */
        bits += inexact & even & step;
        double odd;
        memcpy(&odd, &bits, sizeof odd);
        c.v[i] = (float)odd;
    }
    return c;
}
LANES_INLINE void        lanes_store(float *p, lanes_float x) { memcpy(p, x.v, sizeof x.v); }
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
LANES_INLINE lanes_codes lanes_codes_table(lanes_codes c, const uint8_t table[16])
{
    for (int i = 0; i < 64; i++) c.v[i] = table[c.v[i]];
    return c;
}
LANES_INLINE lanes_input lanes_input_load(const int8_t *p) { return (lanes_input){ { p[0], p[1], p[2], p[3] } }; }
LANES_INLINE lanes_int   lanes_dot(lanes_int sum, lanes_codes c, lanes_input x)
{
    for (int i = 0; i < 16; i++)
        sum.v[i] += c.v[4 * i] * x.v[0] + c.v[4 * i + 1] * x.v[1] + c.v[4 * i + 2] * x.v[2] + c.v[4 * i + 3] * x.v[3];
    return sum;
}
#endif
