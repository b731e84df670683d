#include "tools/eval/measures.h"

#include <math.h>
#include <stdlib.h>

#include "tools/eval/random.h"

/* log(sum(exp)) and the first maximum. */
static double log_sum(const float *row, size_t n, size_t *best)
{
    double sum = 0.0;
    *best = 0;
    for (size_t i = 1; i < n; i++) *best = row[i] > row[*best] ? i : *best;
    for (size_t i = 0; i < n; i++) sum += exp((double)row[i] - (double)row[*best]);
    return (double)row[*best] + log(sum);
}

double weir_log_probability(const float *logits, size_t n, size_t id)
{
    size_t best;
    return (double)logits[id] - log_sum(logits, n, &best);
}

weir_divergence weir_divergence_of(const float *full, const float *other, size_t n, size_t next)
{
    size_t best_full, best_other;
    const double of_full = log_sum(full, n, &best_full), of_other = log_sum(other, n, &best_other);
    double kl = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double p = (double)full[i] - of_full;
        kl += exp(p) * (p - ((double)other[i] - of_other));
    }
    /* Rounding may give slightly less than 0. */
    return (weir_divergence){ .kl = fmax(kl, 0.0),
                              .log_probability = (double)other[next] - of_other,
                              .same_best = best_full == best_other };
}

weir_interval weir_wilson(int64_t n_right, int64_t n, double z)
{
    if (n <= 0) return (weir_interval){ 0.0, 1.0 };
    const double count = (double)n, share = (double)n_right / count, square = z * z;
    const double middle = (share + square / (2 * count)) / (1 + square / count);
    const double reach =
        z / (1 + square / count) * sqrt(share * (1 - share) / count + square / (4 * count * count));
    return (weir_interval){ fmax(0.0, middle - reach), fmin(1.0, middle + reach) };
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

weir_interval weir_bootstrap(
    const double *values, size_t n, double level, uint64_t seed, double *scratch, size_t rounds
)
{
    weir_eval_random r = { .seed = seed };
    if (n == 0 || rounds == 0) return (weir_interval){ 0.0, 0.0 };
    for (size_t i = 0; i < rounds; i++) {
        double sum = 0.0;
        r.sample = (uint32_t)i;
        r.draw = 0;
        for (size_t j = 0; j < n; j++) sum += values[weir_eval_random_below(&r, (uint32_t)n)];
        scratch[i] = sum / (double)n;
    }
    qsort(scratch, rounds, sizeof *scratch, by_size);
    const double last = (double)(rounds - 1);
    return (weir_interval){ scratch[(size_t)(last * (1 - level) / 2 + 0.5)],
                            scratch[(size_t)(last * (1 + level) / 2 + 0.5)] };
}
