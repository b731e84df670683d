/* kernels/abi/convert.h - 16- and 8-bit floats to and from f32, without branches so that loops over
 * them vectorise.
 *
 * Widening is exact. Narrowing rounds to nearest even; a NaN stays a quiet NaN. No step produces an
 * f32 denormal from a finite 16-bit value except bf16's own, so flush-to-zero modes change nothing
 * else. */
#pragma once
#include <stdint.h>
#include <string.h>

static inline float weir_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t weir_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float weir_bf16_to_f32(uint16_t bits)
{
    return weir_f32_from_bits((uint32_t)bits << 16);
}

static inline uint16_t weir_bf16_from_f32(float value)
{
    const uint32_t bits = weir_f32_bits(value);
    const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

static inline float weir_f16_to_f32(uint16_t bits)
{
    const uint32_t magnitude = bits & 0x7FFFu, sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t rebias = 112u << 23;
    const uint32_t normal = (magnitude << 13) + rebias + (magnitude >= 0x7C00 ? rebias : 0);
    const uint32_t tiny = weir_f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    return weir_f32_from_bits(sign | (magnitude < 0x0400 ? tiny : normal));
}

static inline uint16_t weir_f16_from_f32(float value)
{
    const uint32_t bits = weir_f32_bits(value), magnitude = bits & 0x7FFFFFFF;
    const uint32_t normal = (magnitude + 0xFFF + ((magnitude >> 13) & 1) - (112u << 23)) >>
                            13; /* 65520 and up carry into infinity. */
    const uint32_t tiny = weir_f32_bits(weir_f32_from_bits(magnitude) + 0.5f) -
                          0x3F000000; /* 0.5 has the ulp 2^-24.            */
    uint32_t narrow = magnitude < 0x38800000 ? tiny : normal;
    narrow = magnitude >= 0x47800000 ? 0x7C00 : narrow;
    narrow = magnitude > 0x7F800000 ? 0x7E00 | ((magnitude >> 13) & 0x1FF) : narrow;
    return (uint16_t)(narrow | (bits >> 16 & 0x8000));
}

/* OCP E4M3: finite, 0x7F and 0xFF are the only NaNs, there is no infinity. */
static inline float weir_f8_e4m3_to_f32(uint8_t bits)
{
    const uint32_t magnitude = bits & 0x7Fu, sign = (uint32_t)(bits & 0x80u) << 24;
    const uint32_t normal = magnitude == 0x7F ? 0x7FC00000 : (magnitude << 20) + (120u << 23);
    const uint32_t tiny = weir_f32_bits((float)(int32_t)magnitude * 0x1p-9f);
    return weir_f32_from_bits(sign | (magnitude < 8 ? tiny : normal));
}

/* E5M2 is the upper half of a binary16. */
static inline float weir_f8_e5m2_to_f32(uint8_t bits)
{
    return weir_f16_to_f32((uint16_t)(bits << 8));
}

/* To nearest even, saturating at the largest finite value; NaN stays NaN. The added power of two
 * has the denormals' step as its ulp. */
static inline uint8_t weir_f8_e4m3_from_f32(float value)
{
    const uint32_t bits = weir_f32_bits(value), magnitude = bits & 0x7FFFFFFF;
    const uint32_t normal = (magnitude + 0x7FFFF + ((magnitude >> 20) & 1) - (120u << 23)) >> 20;
    const uint32_t tiny =
        weir_f32_bits(weir_f32_from_bits(magnitude) + 0x1p14f) - weir_f32_bits(0x1p14f);
    uint32_t narrow = magnitude < 0x3C800000 ? tiny : normal; /* 2^-6 */
    narrow = magnitude >= 0x43E00000 ? 0x7E : narrow; /* 448  */
    narrow = magnitude > 0x7F800000 ? 0x7F : narrow;
    return (uint8_t)(narrow | (bits >> 24 & 0x80));
}

static inline uint8_t weir_f8_e5m2_from_f32(float value)
{
    const uint32_t bits = weir_f32_bits(value), magnitude = bits & 0x7FFFFFFF;
    const uint32_t normal = (magnitude + 0xFFFFF + ((magnitude >> 21) & 1) - (112u << 23)) >> 21;
    const uint32_t tiny =
        weir_f32_bits(weir_f32_from_bits(magnitude) + 0x1p7f) - weir_f32_bits(0x1p7f);
    uint32_t narrow = magnitude < 0x38800000 ? tiny : normal; /* 2^-14 */
    narrow = magnitude >= 0x47600000 ? 0x7B : narrow; /* 57344 */
    narrow = magnitude > 0x7F800000 ? 0x7F : narrow;
    return (uint8_t)(narrow | (bits >> 24 & 0x80));
}
