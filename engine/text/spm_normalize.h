/* engine/text/spm_normalize.h - normalizers of SentencePiece vocabularies: sentencepiece's own, for
 * GGUF, and the steps of tokenizer.json. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/text/charsmap.h"
#include "engine/text/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_SPACE_SYMBOL "\xE2\x96\x81" /* U+2581, which stands for a space in pieces */

enum { WEIR_NORMALIZER_STEPS = 16, WEIR_NORMALIZER_TEXT = 32 };

typedef enum weir_normalizer_kind {
    WEIR_NORMALIZER_PREPEND, /* `to` in front of a text that is not empty */
    WEIR_NORMALIZER_REPLACE, /* every `from` by `to` */
    WEIR_NORMALIZER_SQUEEZE, /* every run of two or more spaces by `to` */
    WEIR_NORMALIZER_STRIP, /* white space at the ends */
    WEIR_NORMALIZER_NFC,
    WEIR_NORMALIZER_CHARSMAP, /* by grapheme clusters, as tokenizers' Precompiled */
} weir_normalizer_kind;

typedef struct weir_normalizer_step {
    weir_normalizer_kind kind;
    char from[WEIR_NORMALIZER_TEXT], to[WEIR_NORMALIZER_TEXT];
    size_t n_from, n_to;
    bool strip_left, strip_right;
} weir_normalizer_step;

typedef struct weir_normalizer {
    weir_charsmap charsmap;
    weir_normalizer_step steps[WEIR_NORMALIZER_STEPS];
    int n_steps;
    /* Of sentencepiece's own, which has no steps. */
    bool adds_prefix; /* a space in front of a text that is not empty */
    bool removes_spaces; /* at the ends, and all but one of several */
} weir_normalizer;

void weir_normalizer_free(weir_normalizer *normalizer);

/* Applies the steps to *text [*n], which then lies in one of the buffers.
 * errors : ENOMEM, EFULL (the text grows past 2^30 bytes) */
WEIR_MUST_CHECK weir_status weir_normalizer_run(
    const weir_normalizer *normalizer, weir_buffer buffers[2], const char **text, size_t *n
);

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
