/* tools/eval/measures.h - what an eviction or a coarse format cost, without asking whether the
 * model is any good; and how sure a figure is. Pure functions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- distributions of the next token, from logits [n] ---------------------------------------- */

double weir_log_probability(const float *logits, size_t n, size_t id); /* natural logarithm */

typedef struct weir_divergence {
    double kl; /* KL(full || other), nats, 0 at least */
    double log_probability; /* of token `next` under `other` */
    bool same_best; /* the likeliest token is the same; of equals the first counts */
} weir_divergence;
weir_divergence weir_divergence_of(const float *full, const float *other, size_t n, size_t next);

/* ---- intervals ------------------------------------------------------------------------------- */

typedef struct weir_interval {
    double low, high;
} weir_interval;

/* Of a share, by Wilson's score at z standard deviations (1.96: 95 %). n_right 0 .. n; n 0: 0 ..
 * 1. */
weir_interval weir_wilson(int64_t n_right, int64_t n, double z);
/* Of the mean of values [n], from resampled means: the percentiles (1 - level) / 2 and (1 + level)
 * / 2. For two runs over the same items give the differences: paired. Scratch: room for `rounds`
 * means. The same seed gives the same interval. n 0: 0 .. 0. */
weir_interval weir_bootstrap(
    const double *values, size_t n, double level, uint64_t seed, double *scratch, size_t rounds
);

#ifdef __cplusplus
}
#endif
