#include "tools/measure/quality.h"

#include <math.h>
#include <stdlib.h>

weir_status weir_quality_windows(
    int64_t *n, const weir_ids *text, int32_t window, int64_t most_windows, weir_error *error
)
{
    const int64_t all = (int64_t)text->count / window;
    *n = most_windows > 0 && all > most_windows ? most_windows : all;
    if (all > 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EINVAL, "the text has %zu tokens, fewer than one window of %d", text->count,
        (int)window
    );
}

weir_status weir_quality_open(
    weir_quality_sum *sum, int64_t n_most, const weir_engine *engine, weir_error *error
)
{
    *sum = (weir_quality_sum
    ){ .n_most = n_most, .n_valid = (int64_t)weir_tokenizer_size(weir_engine_tokenizer(engine)) };
    sum->divergence = calloc((size_t)n_most, sizeof *sum->divergence);
    if (sum->divergence == NULL)
        return weir_error_set(
            error, WEIR_ENOMEM, "no memory for %lld positions", (long long)n_most
        );
    return WEIR_OK;
}

void weir_quality_close(weir_quality_sum *sum)
{
    free(sum->divergence);
    *sum = (weir_quality_sum){ 0 };
}

void weir_quality_add(weir_quality_sum *sum, const float *whole, const float *other, int32_t next)
{
    const weir_divergence d = weir_divergence_of(whole, other, (size_t)sum->n_valid, (size_t)next);
    WEIR_ASSERT(sum->n_scored < sum->n_most);
    sum->divergence[sum->n_scored++] = d.kl;
    sum->nll -= d.log_probability;
    sum->n_same += d.same_best;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

weir_kv_quality weir_quality_summarise(weir_quality_sum *sum)
{
    double total = 0.0;
    qsort(sum->divergence, (size_t)sum->n_scored, sizeof *sum->divergence, by_size);
    for (int64_t i = 0; i < sum->n_scored; i++) total += sum->divergence[i];
    return (weir_kv_quality){ .perplexity = exp(sum->nll / (double)sum->n_scored),
                              .kl_mean = total / (double)sum->n_scored,
                              .kl_99 = sum->divergence[(sum->n_scored - 1) * 99 / 100],
                              .kl_most = sum->divergence[sum->n_scored - 1],
                              .same_best = (double)sum->n_same / (double)sum->n_scored };
}
