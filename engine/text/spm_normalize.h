/* engine/text/spm_normalize.h - sentencepiece's own normalizer, which GGUF vocabularies have. */
#pragma once
#include "engine/text/normalizer.h"
#include "engine/text/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sentencepiece's normalizer on a text in parts. Zero-initialise. */
typedef struct weir_sp_text {
    bool has_begun, after_space;
} weir_sp_text;
/* Appends the normal form of the next part, with spaces as U+2581. `kept`: user-defined pieces,
 * which the charsmap leaves as they are. A key of the charsmap is not found across two parts. */
WEIR_MUST_CHECK weir_status weir_sp_normalize(
    const weir_normalizer *normalizer, const weir_trie *kept, weir_sp_text *state, weir_buffer *out,
    const char *text, size_t n
);
/* Ends the text that begins at `begin` of the buffer. */
void weir_sp_normalize_end(const weir_normalizer *normalizer, weir_buffer *out, size_t begin);

#ifdef __cplusplus
}
#endif
