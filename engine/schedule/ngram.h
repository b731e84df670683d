/* engine/schedule/ngram.h - drafts by n-gram lookup (prompt lookup decoding): what followed the
 * last tokens of a sequence where they stood in it before. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes at most `most` tokens that may follow tokens [n] to `draft`. The longest earlier match of
 * the last tokens counts, at least `least` >= 1 long; of equal ones the last. Looks at the last
 * 65536 tokens. Returns the number written; 0: no match. */
int32_t weir_ngram_draft(
    const int32_t *tokens, int32_t n, int32_t least, int32_t *draft, int32_t most
);

#ifdef __cplusplus
}
#endif
