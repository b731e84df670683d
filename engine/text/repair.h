/* engine/text/repair.h - well-formed text from ill-formed text. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends `text` with each maximal ill-formed part replaced by U+FFFD. Adjusts spans [n_spans] to
 * whole parts (begin down, end up). */
WEIR_MUST_CHECK weir_status
weir_utf8_repair(weir_buffer *out, const char *text, size_t n, weir_span *spans, size_t n_spans);

#ifdef __cplusplus
}
#endif
