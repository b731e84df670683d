/* engine/text/normalize.h - Unicode normalisation forms (UAX #15), in linear time for any text. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_NORMALIZED_BYTES = 1 << 30 }; /* of a normal form */

typedef enum weir_normal_form {
    WEIR_NFC,
    WEIR_NFD,
    WEIR_NFKC,
    WEIR_NFKD,
} weir_normal_form;

/* Appends a part of a normal form: replacements of a hostile map may be a thousand times the text.
 * errors : ENOMEM, EFULL (`out` would have more than 2^30 bytes) */
WEIR_MUST_CHECK weir_status weir_normal_add(weir_buffer *out, const char *text, size_t n);
/* True if the form does not change the text because all of it lies below the first character that
 * it may change. */
bool weir_is_normal(weir_normal_form form, const char *text, size_t n);
/* Appends the form of well-formed `text`.
 * errors : those of weir_normal_add, EFORMAT (utf8proc refused) */
WEIR_MUST_CHECK weir_status
weir_normalize(weir_buffer *out, weir_normal_form form, const char *text, size_t n);

#ifdef __cplusplus
}
#endif
