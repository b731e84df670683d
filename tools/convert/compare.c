#include "tools/convert/compare.h"

#include <math.h>

int32_t weir_largest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* ln of the sum of exp(x - top). */
static double log_sum(const float *x, int64_t n, float top)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)(x[i] - top));
    return log(sum);
}

void weir_difference_add(weir_difference *out, const float *a, const float *b, int64_t n)
{
    const int32_t best_a = weir_largest(a, n), best_b = weir_largest(b, n);
    const double sum_a = log_sum(a, n, a[best_a]), sum_b = log_sum(b, n, b[best_b]);
    double kl = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        const double p = (double)(a[i] - a[best_a]) - sum_a, q = (double)(b[i] - b[best_b]) - sum_b;
        if (!isfinite(a[i]) || !isfinite(b[i])) out->is_broken = true;
        out->most = difference > out->most ? difference : out->most;
        out->sum += difference;
        kl += exp(p) * (p - q);
    }
    kl = kl > 0.0 ? kl : 0.0; /* rounding */
    out->kl_most = kl > out->kl_most ? kl : out->kl_most;
    out->kl_sum += kl;
    out->n_other_best += best_a != best_b;
    out->n_rows++;
    out->n_logits += n;
}
