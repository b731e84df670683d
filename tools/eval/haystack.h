/* tools/eval/haystack.h - texts that needles are hidden in: repeated prose, or one line over and
 * over. */
#pragma once
#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "tools/eval/random.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A text as words. */
typedef struct weir_eval_essay {
    char *text;   /* owned; NUL after each word */
    size_t *starts; /* owned [n_words] */
    size_t n_words;
} weir_eval_essay;

/* Returns EFORMAT if it is not UTF-8, or has fewer than 10 words. */
WEIR_MUST_CHECK weir_status weir_eval_essay_open(
    weir_eval_essay *out, const char *text, size_t n, const char *name, weir_error *error
);
void weir_eval_essay_close(weir_eval_essay *essay);
/* The bundled text: the end of War and Peace (1869) in the translation of Louise and Aylmer Maude,
 * public domain. */
WEIR_MUST_CHECK weir_status weir_eval_essay_bundled(weir_eval_essay *out, weir_error *error);

/* Most needles in one text. */
enum { WEIR_EVAL_NEEDLES = 64 };

/* Appends n_words words from word `first` on, wrapping around, with needle i between sentences
 * after depths[i] percent of them. Depths need not be ascending; needles of the same depth follow
 * each other. */
WEIR_MUST_CHECK weir_status weir_eval_essay_print(
    weir_buffer *out, const weir_eval_essay *essay, size_t first, size_t n_words,
    const char *const *needles, const uint32_t *depths, size_t n
);

/* The line that fills texts without content, without a newline. */
extern const char weir_eval_noise[];

#ifdef __cplusplus
}
#endif
