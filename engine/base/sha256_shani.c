/* engine/base/sha256_shani.c - SHA-256 with the SHA instructions of x86: two rounds each, four
 * rounds to a vector of the message. The state is kept as the instructions take it: words A, B, E,
 * F in one vector and C, D, G, H in another. */
#include <cpuid.h>
#include <immintrin.h>

#include "engine/base/sha256.h"
#include "engine/base/sha256_constants.h"

#define WITH_SHA __attribute__((target("sha,sse4.1")))

bool weir_sha256_has_shani(void)
{
    unsigned a, b, c, d;
    static _Atomic int known; /* 0: not asked yet, 1: no, 2: yes */
    if (known == 0)
        known = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & 1U << 29) != 0 ? 2 : 1;
    return known == 2;
}

/* The message words four rounds further on: words[0] is replaced. */
WITH_SHA static inline __m128i next_words(__m128i w0, __m128i w1, __m128i w2, __m128i w3)
{
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w1), _mm_alignr_epi8(w3, w2, 4));
    return _mm_sha256msg2_epu32(sum, w3);
}

WITH_SHA static void add_block(__m128i *abef, __m128i *cdgh, const uint8_t *block)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i w[4], x = *abef, y = *cdgh;
    for (int i = 0; i < 4; i++)
        w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + 16 * i)), swap);
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; i++) {
        const __m128i k = _mm_loadu_si128((const __m128i *)(weir_sha256_constants + 4 * i));
        const __m128i rounds = _mm_add_epi32(w[i % 4], k);
        y = _mm_sha256rnds2_epu32(y, x, rounds);
        x = _mm_sha256rnds2_epu32(x, y, _mm_shuffle_epi32(rounds, 0x0e));
        if (i < 12) w[i % 4] = next_words(w[i % 4], w[(i + 1) % 4], w[(i + 2) % 4], w[(i + 3) % 4]);
    }
    *abef = _mm_add_epi32(*abef, x);
    *cdgh = _mm_add_epi32(*cdgh, y);
}

WITH_SHA void weir_sha256_blocks_shani(uint32_t state[8], const uint8_t *blocks, size_t n)
{
    const uint32_t *const s = state; /* vectors are written from the highest word down */
    __m128i abef = _mm_set_epi32((int)s[0], (int)s[1], (int)s[4], (int)s[5]);
    __m128i cdgh = _mm_set_epi32((int)s[2], (int)s[3], (int)s[6], (int)s[7]);
    for (size_t i = 0; i < n; i++) add_block(&abef, &cdgh, blocks + 64 * i);
    uint32_t x[4], y[4];
    _mm_storeu_si128((__m128i *)x, abef);
    _mm_storeu_si128((__m128i *)y, cdgh);
    state[0] = x[3], state[1] = x[2], state[4] = x[1], state[5] = x[0];
    state[2] = y[3], state[3] = y[2], state[6] = y[1], state[7] = y[0];
}
