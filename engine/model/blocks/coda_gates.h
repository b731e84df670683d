/* engine/model/blocks/coda_gates.h - write gates from the lengths of values, for models without
 * learned ones: a row contributes to attention at most the length of its value.
 *
 *   n     length of the row's value over all KV heads
 *   m     mean of n over the previous rows: of all of them while they are fewer than `memory`,
 *         then m += (n - m) / memory row by row
 *   gate  n / (n + m): 1/2 for a row as long as the others; if m is 0, as before the first row, it
 *         is n
 * Gates depend only on the sequence, not on how it is cut or batched. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gates of rows from position `first` on, values [n_rows, width]; gates [n_rows] before their
 * sigmoid: infinities for 0 and 1. *mean: m of the first row (any value at position 0); set to that
 * of the next row. */
void weir_gates_of_values(
    float *gates, float *mean, const float *values, int64_t n_rows, int64_t width, int64_t first,
    int64_t memory
);
/* True if it can be such a mean. */
bool weir_gates_is_mean(float mean);

#ifdef __cplusplus
}
#endif
