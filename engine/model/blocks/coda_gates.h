/* engine/model/blocks/coda_gates.h - write gates from the lengths of values, for models that have
 * learned none: what attention adds of a row is at most as long as its value.
 *
 *   n    length of the row's value over all KV heads
 *   m    mean of n over the rows before it: of all of them as long as they are fewer than `memory`,
 *        then m += (n - m) / memory row by row gate n / (n + m): 1/2 for a row as long as the
 *        others, and where m is 0, as before the first one: then m is n
 * Gates follow from the text alone, whatever it is cut into and whoever shares its steps. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of rows from position `first` on, values [n_rows, width]; gates [n_rows] before their sigmoid:
 * infinities for 0 and 1. *mean: m of the first row, whatever it is at position 0; that of the next
 * row afterwards. */
void weir_gates_of_values(
    float *gates, float *mean, const float *values, int64_t n_rows, int64_t width, int64_t first,
    int64_t memory
);
/* Can it be such a mean? */
bool weir_gates_is_mean(float mean);

#ifdef __cplusplus
}
#endif
