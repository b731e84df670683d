/* engine/model/noise.h - noise that depends only on its place. */
#pragma once
#include <stdint.h>

/* About scale * N(0, 1): the sum of four bytes, whose deviation is 2 * sqrt((256^2 - 1) / 12) =
 * 147.8. */
static inline float weir_noise_at(uint64_t place, float scale)
{
    uint64_t h = place * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ (h >> 32)) * UINT64_C(0xD6E8FEB86659FD93);
    h ^= h >> 32;
    const int32_t sum = (int32_t)((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24 & 255));
    return (float)(sum - 2 * 255) * (scale / 147.8f);
}
