/* tools/eval/random.h - random numbers for one generated sample: a stream of Philox blocks keyed by
 * seed, task, length and sample, so that a sample is the same on any machine, whatever else was
 * generated. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/sample/random.h"

typedef struct weir_eval_random {
    uint64_t seed;
    uint32_t task, length, sample;
    uint32_t draw; /* blocks drawn so far */
} weir_eval_random;

static inline uint64_t weir_eval_random_bits(weir_eval_random *r)
{
    const weir_philox block =
        weir_philox_block((weir_philox){ { r->draw++, r->sample, r->length, r->task } }, r->seed);
    return (uint64_t)block.word[0] << 32 | block.word[1];
}

/* Returns 0 .. n - 1; n > 0. The bias is below n / 2^32. */
static inline uint32_t weir_eval_random_below(weir_eval_random *r, uint32_t n)
{
    return (uint32_t)((weir_eval_random_bits(r) >> 32) * n >> 32);
}

static inline void weir_eval_random_shuffle(weir_eval_random *r, uint32_t *list, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t j = weir_eval_random_below(r, i), swapped = list[i - 1];
        list[i - 1] = list[j];
        list[j] = swapped;
    }
}

/* Draws `count` different numbers below n >= count in random order (Floyd's sample, then shuffled)
 * in count^2 steps. */
static inline void weir_eval_random_sample(
    weir_eval_random *r, uint32_t *out, uint32_t count, uint32_t n
)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t last = n - count + i, pick = weir_eval_random_below(r, last + 1);
        bool taken = false;
        for (uint32_t j = 0; j < i; j++) taken = taken || out[j] == pick;
        out[i] = taken ? last : pick;
    }
    weir_eval_random_shuffle(r, out, count);
}
