/* engine/sample/processors.h - the steps from logits to weighted candidates, one function each.
 * Private to engine/sample and its tests.
 *
 * The scratch holds the logits of all ids and, after a filter, the list of remaining candidates.
 * Logits are finite or -inf (impossible): load establishes this and every step preserves it. Order
 * of calls: load, bias, penalties, ban, temperature, top_k, top_p, min_p, softmax. */
#pragma once
#include "engine/sample/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_SAMPLE_BLOCK = 64 };

/* A candidate as one number. Ascending order means: larger logit first, lower id on ties. */
typedef uint64_t weir_candidate;

struct weir_sampler_scratch {
    size_t n_vocab; /* capacity */
    size_t n; /* ids 0 .. n - 1 are considered */
    float *logits; /* [n_vocab] */
    bool listed; /* false: every id is a candidate; true: list[0 .. n_listed) */
    size_t n_listed;
    /* [n_vocab]; in ascending order, or after min_p alone by id; spare: for sorting. */
    weir_candidate *list, *spare;
    /* [n_vocab], after softmax: exp(logit - best), per id or per place in the list. */
    float *weights;
    double *block_sums; /* [blocks], sums of weights */
    float *block_max; /* [blocks], maxima of logits */
    double total; /* sum of the weights */
};

/* Copies the logits. NaN becomes -inf, +inf the largest float. */
void weir_process_load(weir_sampler_scratch *scratch, const float *logits, size_t n_valid);
void weir_process_bias(weir_sampler_scratch *scratch, const weir_logit_bias *bias, size_t n_bias);
void weir_process_penalties(
    weir_sampler_scratch *scratch, const weir_sampling *sampling,
    const weir_sampler_history *history
);
void weir_process_ban(weir_sampler_scratch *scratch, const int32_t *ids, size_t n_ids);
/* Divides by `temperature` > 0 and shifts the best logit to 0. */
void weir_process_temperature(weir_sampler_scratch *scratch, float temperature);
void weir_process_top_k(weir_sampler_scratch *scratch, size_t k);
void weir_process_top_p(weir_sampler_scratch *scratch, double p);
void weir_process_min_p(weir_sampler_scratch *scratch, float min_p);
void weir_process_softmax(weir_sampler_scratch *scratch);

size_t weir_candidates_count(const weir_sampler_scratch *scratch);
int32_t weir_candidates_id(const weir_sampler_scratch *scratch, size_t index);
float weir_candidates_logit(const weir_sampler_scratch *scratch, size_t index);

/* The largest value, ignoring NaN; -inf if there is none. */
float weir_largest(const float *values, size_t n);

#ifdef __cplusplus
}
#endif
