/* tools/measure/quality.h - what a lossy form of a model's memory changes about its next tokens,
 * row by row. */
#pragma once
#include "tools/measure/evaluate.h"

typedef struct weir_quality_sum {
    double *divergence; /* [n_scored of n_most] */
    double nll;
    int64_t n_scored, n_most, n_same, n_valid; /* n_valid: ids that the vocabulary has */
} weir_quality_sum;

/* For so many rows. NULL-safe to close. */
WEIR_MUST_CHECK weir_status weir_quality_open(
    weir_quality_sum *sum, int64_t n_most, const weir_engine *engine, weir_error *error
);
void weir_quality_close(weir_quality_sum *sum);
/* Logits of one position with the whole memory and with the other form of it, and the token that
 * followed. */
void weir_quality_add(weir_quality_sum *sum, const float *whole, const float *other, int32_t next);
weir_kv_quality weir_quality_summarise(weir_quality_sum *sum);
