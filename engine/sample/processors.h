/* engine/sample/processors.h - the steps from logits to weighted candidates, one function each.
 * Private to engine/sample and its tests.
 *
 * Candidates are all ids until a filter lists those that it keeps. Their values are finite or -inf
 * (impossible). Order of calls: view, or load and then bias, penalties and ban; temperature, top_k,
 * top_p, min_p, softmax. */
#pragma once
#include "engine/sample/candidates.h"
#include "engine/sample/passes.h"
#include "engine/sample/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_sampler_scratch {
    const weir_passes *passes;
    size_t n_vocab; /* capacity */
    size_t n; /* ids 0 .. n - 1 are considered */
    bool is_parallel; /* the team of threads shares passes over all ids */
    const float *source; /* [n]: the caller's logits, or `logits` */
    float *logits; /* [n_vocab], a copy that steps change */
    bool has_max; /* block_max and `best` are those of `source` */
    float *block_max; /* [blocks], of logits, before the temperature */
    float best; /* the largest logit */
    weir_temperature temperature;
    bool is_listed; /* false: every id is a candidate; true: list[0 .. n_listed) */
    size_t n_listed;
    /* [n_vocab]; in ascending order, or after min_p alone by id; spare: for sorting. */
    weir_candidate *list, *spare;
    /* After softmax: exp(value - largest value) of the list, and sums of blocks of candidates. */
    float *weights; /* [n_vocab] */
    float shift; /* the largest value; 0 if no id is possible */
    double *block_sums; /* [blocks] */
    double total; /* sum of the weights */
    uint64_t *mask; /* [blocks] */
};

/* Borrows the logits, which may be any floats, until the next view or load. */
void weir_process_view(weir_sampler_scratch *scratch, const float *logits, size_t n_valid);
/* Copies the logits, for steps that change them. NaN becomes -inf, +inf the largest float. */
void weir_process_load(weir_sampler_scratch *scratch, const float *logits, size_t n_valid);
void weir_process_bias(weir_sampler_scratch *scratch, const weir_logit_bias *bias, size_t n_bias);
void weir_process_penalties(
    weir_sampler_scratch *scratch, const weir_sampling *sampling,
    const weir_sampler_history *history
);
void weir_process_ban(weir_sampler_scratch *scratch, const int32_t *ids, size_t n_ids);
/* Bans the ids whose bits are 0. allowed [n_valid / 64, rounded up] */
void weir_process_allow(weir_sampler_scratch *scratch, const uint64_t *allowed);
/* Divides by `temperature` > 0 and shifts the largest value to 0. */
void weir_process_temperature(weir_sampler_scratch *scratch, float temperature);
void weir_process_top_k(weir_sampler_scratch *scratch, size_t k);
void weir_process_top_p(weir_sampler_scratch *scratch, double p);
void weir_process_min_p(weir_sampler_scratch *scratch, float min_p);
void weir_process_softmax(weir_sampler_scratch *scratch);

/* The largest logit; -inf if every id is impossible. */
float weir_process_best(weir_sampler_scratch *scratch);
/* The lowest id with the largest logit, +inf before FLT_MAX; 0 if every id is impossible. */
int32_t weir_process_best_id(weir_sampler_scratch *scratch);

size_t weir_candidates_count(const weir_sampler_scratch *scratch);
int32_t weir_candidates_id(const weir_sampler_scratch *scratch, size_t index);
float weir_candidates_value(const weir_sampler_scratch *scratch, size_t index);
/* After softmax: weights of up to WEIR_SAMPLE_BLOCK candidates from `first` on. */
void weir_candidates_weights(
    const weir_sampler_scratch *scratch, size_t first, size_t n, float *weights
);

#ifdef __cplusplus
}
#endif
