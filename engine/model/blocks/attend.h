/* engine/model/blocks/attend.h - attention of a step's rows over the KV pages of their sequences:
 * writes K and V rows, attends to pages in any tier, and passes observers what they need. */
#pragma once
#include "engine/model/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes k [n, G, key_dim] and v [n, G, value_dim] to the layer's pages and attends to all rows
 * there. k NULL: writes nothing; the rows are those of an earlier layer. v is not read if values
 * alias keys. Segments, formats, sinks
 * and lse of `args` are set from the step. */
WEIR_MUST_CHECK weir_status
weir_attend(const weir_step *step, const float *k, const float *v, weir_attention_args args);

/* Passes q [n_rows, n_heads, stride] before rotation to the observers that need it. */
void weir_attend_show_plain(
    const weir_step *step, const float *q, int64_t n_heads, int64_t dim, int64_t stride
);

#ifdef __cplusplus
}
#endif
