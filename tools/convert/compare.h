/* tools/convert/compare.h - how two programs' logits differ. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sums over rows; zero-initialise. */
typedef struct weir_difference {
    int64_t n_rows, n_logits;
    double most, sum; /* of |a - b| */
    /* KL divergence of softmax(b) from softmax(a), nats. */
    double kl_most, kl_sum;
    int64_t n_other_best; /* rows with another most likely token */
    bool is_broken; /* a logit is not finite */
} weir_difference;

/* Adds a row of n logits. */
void weir_difference_add(weir_difference *out, const float *a, const float *b, int64_t n);
/* The index of the largest, the first of equal ones. */
int32_t weir_largest(const float *logits, int64_t n);

#ifdef __cplusplus
}
#endif
