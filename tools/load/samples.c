#include "tools/load/samples.h"

#include <stdlib.h>

#include "engine/base/checked.h"

weir_status weir_samples_add(weir_samples *s, double value)
{
    if (s->n == s->capacity) {
        const size_t capacity = s->capacity > 0 ? 2 * s->capacity : 64;
        size_t bytes;
        if (!weir_mul_size(&bytes, capacity, sizeof *s->values)) return WEIR_ENOMEM;
        double *const grown = realloc(s->values, bytes);
        if (grown == NULL) return WEIR_ENOMEM;
        s->values = grown;
        s->capacity = capacity;
    }
    s->values[s->n++] = value;
    s->is_sorted = false;
    return WEIR_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double weir_samples_at(weir_samples *s, double share)
{
    if (s->n == 0) return 0.0;
    if (!s->is_sorted) qsort(s->values, s->n, sizeof *s->values, by_value);
    s->is_sorted = true;
    const double place = share * (double)(s->n - 1);
    const size_t below = (size_t)place, above = below + 1 < s->n ? below + 1 : below;
    return s->values[below] + (place - (double)below) * (s->values[above] - s->values[below]);
}

weir_percentiles weir_samples_percentiles(weir_samples *s)
{
    weir_percentiles out = { .n = s->n };
    if (s->n == 0) return out;
    for (size_t i = 0; i < s->n; i++) out.mean += s->values[i] / (double)s->n;
    out.p50 = weir_samples_at(s, 0.50);
    out.p90 = weir_samples_at(s, 0.90);
    out.p95 = weir_samples_at(s, 0.95);
    out.p99 = weir_samples_at(s, 0.99);
    out.most = s->values[s->n - 1];
    return out;
}

void weir_samples_free(weir_samples *s)
{
    free(s->values);
    *s = (weir_samples){ 0 };
}
