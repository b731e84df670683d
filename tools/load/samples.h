/* tools/load/samples.h - a list of measured values and its percentiles. Zero-initialise it;
 * weir_samples_free releases it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_samples {
    double *values; /* owned; [n] */
    size_t n, capacity;
    bool is_sorted;
} weir_samples;

typedef struct weir_percentiles {
    size_t n; /* 0: there is no value, and the others are 0 */
    double mean, p50, p90, p95, p99, most;
} weir_percentiles;

/* Returns ENOMEM, and the list is unchanged, when memory runs out. */
WEIR_MUST_CHECK weir_status weir_samples_add(weir_samples *samples, double value);
/* Returns the value below which `share` (0 .. 1) of the values lie, linear between neighbours as
 * numpy.percentile is; 0 if there is none. Sorts the list. */
double weir_samples_at(weir_samples *samples, double share);
weir_percentiles weir_samples_percentiles(weir_samples *samples);
void weir_samples_free(weir_samples *samples); /* idempotent */

#ifdef __cplusplus
}
#endif
