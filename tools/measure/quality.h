/* tools/measure/quality.h - how a lossy form of a model's memory changes its next tokens, row by
 * row. */
#pragma once
#include "tools/measure/evaluate.h"

typedef struct weir_quality_sum {
    double *divergence; /* [n_scored of n_most] */
    double nll;
    int64_t n_scored, n_most, n_same, n_valid; /* n_valid: ids in the vocabulary */
} weir_quality_sum;

/* How many windows of the text are compared: those that it has, at most most_windows if that is
 * positive. Returns EINVAL if it is shorter than one. */
WEIR_MUST_CHECK weir_status weir_quality_windows(
    int64_t *n, const weir_ids *text, int32_t window, int64_t most_windows, weir_error *error
);
/* For at most n_most rows. Closing is NULL-safe. */
WEIR_MUST_CHECK weir_status weir_quality_open(
    weir_quality_sum *sum, int64_t n_most, const weir_engine *engine, weir_error *error
);
void weir_quality_close(weir_quality_sum *sum);
/* Adds the logits of one position with the full memory and with the lossy form, and the token that
 * followed. */
void weir_quality_add(weir_quality_sum *sum, const float *whole, const float *other, int32_t next);
weir_kv_quality weir_quality_summarise(weir_quality_sum *sum);
