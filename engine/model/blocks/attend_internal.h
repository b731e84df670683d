/* engine/model/blocks/attend_internal.h - shared by attend.c and attend_observe.c. */
#pragma once
#include "engine/model/blocks/attend.h"

/* Does this segment of the step have pages on disk? Then it comes in ranges (weir_kv_source): the
 * next, whose pages become those of `rows`. */
bool weir_attend_is_cold(const weir_step *step, int64_t segment);
weir_kv_range weir_attend_take_range(const weir_step *step, int64_t segment, weir_kv_segment *rows);

/* After attention with these arguments: its masses and its queries. */
WEIR_MUST_CHECK weir_status
weir_attend_observe(const weir_step *step, const weir_attention_args *args);
