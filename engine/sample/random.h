/* engine/sample/random.h - counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", SC11).
 *
 * A number is a function of (seed, choice, draw). No state is stored, so a draw is repeatable
 * whatever else runs. */
#pragma once
#include <stdint.h>

typedef struct weir_philox {
    uint32_t word[4];
} weir_philox;

static inline weir_philox weir_philox_block(weir_philox counter, uint64_t seed)
{
    uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * counter.word[0],
                       b = (uint64_t)0xCD9E8D57u * counter.word[2];
        counter = (weir_philox){ { (uint32_t)(b >> 32) ^ counter.word[1] ^ key[0], (uint32_t)b,
                                   (uint32_t)(a >> 32) ^ counter.word[3] ^ key[1], (uint32_t)a } };
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

/* A number in [0, 1) with 53 random bits. */
static inline double weir_random(uint64_t seed, uint32_t choice, uint64_t draw)
{
    const weir_philox block = weir_philox_block(
        (weir_philox){ { (uint32_t)draw, (uint32_t)(draw >> 32), choice, 0 } }, seed
    );
    return (double)(((uint64_t)block.word[0] << 32 | block.word[1]) >> 11) * 0x1p-53;
}
