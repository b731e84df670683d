/* engine/sample/sampler.h - from logits to a token: pure functions of (logits, parameters, history,
 * rng).
 *
 * Order (Hugging Face): bias, repetition, presence and frequency penalties, temperature, top_k,
 * top_p, min_p, softmax, draw. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_logit_bias {
    int32_t id;
    float bias;
} weir_logit_bias;

typedef struct weir_sampling {
    float temperature; /* 0: the largest logit, lowest id on ties */
    int32_t top_k; /* 0: off; exactly k kept, lowest ids first on ties */
    float top_p, min_p; /* 1 and 0: off */
    float repetition_penalty; /* 1: off; over prompt and answer */
    float presence_penalty, frequency_penalty; /* 0: off; over the answer only */
    uint64_t seed;
    const weir_logit_bias *bias; /* borrowed, [n_bias] */
    size_t n_bias;
} weir_sampling;

/* WEIR_SAMPLING_DEFAULT: greedy, without penalties. */
weir_sampling weir_sampling_default(void);
/* seed.c: `seed`, or a new one when it is negative. */
uint64_t weir_sampling_seed(int64_t seed);
/* Checks the ranges of OpenAI's API. The message names the field. */
WEIR_MUST_CHECK weir_status
weir_sampling_check(const weir_sampling *sampling, size_t n_vocab, weir_error *error);

/* Counts of the tokens seen, over the vocabulary. Owned by the sequence. */
typedef struct weir_sampler_history {
    uint16_t *prompt, *answer; /* [n_vocab], saturating; NULL while no penalty needs them */
    size_t n_vocab;
} weir_sampler_history;

/* Scratch for one draw, reused so that no token needs an allocation. */
typedef struct weir_sampler_scratch weir_sampler_scratch;
size_t weir_sampler_scratch_bytes(size_t n_vocab); /* its size; the caller charges it */
WEIR_MUST_CHECK weir_status weir_sampler_scratch_open(weir_sampler_scratch **out, size_t n_vocab);
void weir_sampler_scratch_close(weir_sampler_scratch *scratch);
/* If `is_parallel`, OpenMP's threads share the passes over a large vocabulary; off when opened. The
 * bits are the same. */
void weir_sampler_scratch_parallel(weir_sampler_scratch *scratch, bool is_parallel);

/* [n_vocab / 64, rounded up]: a place for the `allowed` of a draw. */
uint64_t *weir_sampler_scratch_mask(weir_sampler_scratch *scratch);

/* What may be drawn of the ids below n_valid; all zero: each. */
typedef struct weir_sample_limits {
    const int32_t *banned; /* [n_banned] */
    size_t n_banned;
    const uint64_t
        *allowed; /* [n_valid / 64, rounded up]: bit id % 64 of word id / 64; NULL: all */
} weir_sample_limits;

/* Draws one token. `draw` counts the tokens drawn before with this seed and choice index: the
 * random number is a function of (seed, choice, draw) only, so a draw is repeatable. Ids >= n_valid
 * (padding rows) and those that `limits` excludes are never drawn. Never fails: if no id is
 * possible, returns the lowest allowed one, and without `allowed` the best valid logit without
 * bias. */
int32_t weir_sample(
    const float *logits, size_t n_vocab, size_t n_valid, const weir_sampling *sampling,
    const weir_sampler_history *history, const weir_sample_limits *limits, uint32_t choice,
    uint64_t draw, weir_sampler_scratch *scratch
);

/* A token id and its log-probability: log-softmax of the raw logits over n_valid ids. */
typedef struct weir_logprob {
    int32_t id;
    float logprob;
} weir_logprob;
/* Computes the best n_top in `top`, best first (lowest id on ties), and the one of `chosen`. */
void weir_logprobs(
    const float *logits, size_t n_valid, int32_t chosen, weir_logprob *chosen_out,
    weir_logprob *top, size_t n_top, weir_sampler_scratch *scratch
);

#ifdef __cplusplus
}
#endif
