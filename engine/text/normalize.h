/* engine/text/normalize.h - Unicode normalisation form C (UAX #15), in linear time for any text. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* True if NFC does not change the text because all of it lies below U+0300, the first combining
 * mark. */
bool weir_nfc_is_trivial(const char *text, size_t n);
/* Appends the NFC of well-formed `text`.
 * errors : ENOMEM, EFORMAT (utf8proc refused) */
WEIR_MUST_CHECK weir_status weir_nfc(weir_buffer *out, const char *text, size_t n);

#ifdef __cplusplus
}
#endif
