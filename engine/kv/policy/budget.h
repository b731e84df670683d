/* engine/kv/policy/budget.h - divides a row budget among layers and KV heads. Only arithmetic on
 * counts. */
#pragma once
#include "engine/kv/policy/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fewer rows in higher layers (Cai et al. 2024, PyramidKV): linear from the first layer to the last
 * with mean `kept`, the last at kept / beta, no layer above n - window, rounded half to even;
 * `kept` in every layer if that does not fit. rows [n_layers]. kept: n * (1 - ratio). */
void weir_budget_pyramid(
    int64_t *rows, int64_t n_layers, int64_t n, double kept, int64_t window, double beta
);

/* Parses a list of LAYER:HEAD, LAYER:FIRST-LAST or LAYER:*, separated by ';', to flags [n_layers,
 * n_kv_heads] (NULL: only checks it). Returns ECONFIG with a message that names the bad item. */
WEIR_MUST_CHECK weir_status weir_budget_parse_heads(
    bool *flags, int64_t n_layers, int64_t n_kv_heads, const char *list, weir_error *error
);

/* rows [n_layers, n_kv_heads] of a policy's split: `budget` rows in each head, or as a mean
 * (pyramid; for n_rows in the longest head). Heads in `whole` (split=heads; NULL otherwise) keep
 * max_rows, the others sinks and recent rows. */
void weir_budget_fill(
    int64_t *rows, const weir_policy *policy, int64_t budget, int64_t n_rows, const bool *whole
);

#ifdef __cplusplus
}
#endif
