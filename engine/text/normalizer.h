/* engine/text/normalizer.h - what changes a text before it is split and encoded: the steps of
 * `normalizer` in tokenizer.json, one after the other, as tokenizers takes them; for GGUF what
 * sentencepiece's normalizer is told (spm_normalize.h). */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/text/charsmap.h"
#include "engine/text/normalize.h"

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
    WEIR_NORMALIZER_FORM, /* a Unicode normal form */
    WEIR_NORMALIZER_NMT, /* drops controls; line ends, tabs and marks of direction become spaces */
    WEIR_NORMALIZER_LOWERCASE, /* each character alone: a final sigma is as any other */
    WEIR_NORMALIZER_STRIP_ACCENTS, /* drops marks; those of composed characters stay */
    WEIR_NORMALIZER_CHARSMAP, /* by grapheme clusters, as tokenizers' Precompiled */
} weir_normalizer_kind;

typedef struct weir_normalizer_step {
    weir_normalizer_kind kind;
    weir_normal_form form;
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
/* Appends a step; false: there are WEIR_NORMALIZER_STEPS already. */
bool weir_normalizer_add(weir_normalizer *normalizer, const weir_normalizer_step *step);

/* Applies the steps to *text [*n], which is then as it was or lies in one of the buffers.
 * errors : ENOMEM, EFULL (the text grows past 2^30 bytes) */
WEIR_MUST_CHECK weir_status weir_normalizer_run(
    const weir_normalizer *normalizer, weir_buffer buffers[2], const char **text, size_t *n
);

#ifdef __cplusplus
}
#endif
