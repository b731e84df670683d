/* engine/model/blocks/attend_internal.h - shared by attend.c and attend_observe.c. */
#pragma once
#include "engine/model/blocks/attend.h"

/* Returns true if the segment has cold pages, and is attended in ranges (weir_kv_source). */
bool weir_attend_is_cold(const weir_step *step, int64_t segment);
/* Takes the next range of the segment, and sets the pages of `rows` to those of the range. */
weir_kv_range weir_attend_take_range(const weir_step *step, int64_t segment, weir_kv_segment *rows);

/* Passes masses and queries to the observers, after attention with these arguments. */
WEIR_MUST_CHECK weir_status
weir_attend_observe(const weir_step *step, const weir_attention_args *args);
