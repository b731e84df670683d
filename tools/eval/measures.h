/* tools/eval/measures.h - measures of what an eviction or a coarse format changes, independent of
 * the model's quality; and confidence intervals. Pure functions. */
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
    double kl; /* KL(full || other) in nats, at least 0 */
    double log_probability; /* of token `next` under `other` */
    /* The most likely token is the same; the first one wins ties. */
    bool same_best;
} weir_divergence;
weir_divergence weir_divergence_of(const float *full, const float *other, size_t n, size_t next);

/* ---- intervals ------------------------------------------------------------------------------- */

typedef struct weir_interval {
    double low, high;
} weir_interval;

/* Wilson's score interval of a share at z standard deviations (1.96: 95 %). n_right is 0 to n;
 * with n 0 the interval is 0 to 1. */
weir_interval weir_wilson(int64_t n_right, int64_t n, double z);
/* Bootstrap interval of the mean of values [n]: the percentiles (1 - level) / 2 and (1 + level) / 2
 * of resampled means. For two runs over the same items pass the differences (paired). Scratch:
 * space for `rounds` means. The same seed gives the same interval. With n 0 the interval is 0
 * to 0. */
weir_interval weir_bootstrap(
    const double *values, size_t n, double level, uint64_t seed, double *scratch, size_t rounds
);

#ifdef __cplusplus
}
#endif
