/* engine/text/pretokenizer.h - splits text into pieces, inside which merges work, by the regular
 * expressions that a model was trained with.
 *
 * Steps apply in order, each to every piece of the previous step as a separate text (the end of the
 * piece is the end of text for `$` and look-ahead). Patterns use Oniguruma's Ruby syntax; the
 * translation to PCRE2 refuses what would mean something else. */
#pragma once
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/buffer.h"
#include "engine/base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_PRETOKENIZER_STEPS = 16, WEIR_PATTERN_BYTES = 1 << 16 };

typedef struct weir_split {
    pcre2_code *code;
    bool drop_gaps; /* text without a match is dropped instead of becoming a piece */
} weir_split;

typedef struct weir_pretokenizer {
    weir_split steps[WEIR_PRETOKENIZER_STEPS];
    int n_steps;
} weir_pretokenizer;

typedef struct weir_split_options {
    bool literal; /* the pattern is literal text */
    bool drop_gaps;
} weir_split_options;

/* Adds a step.
 * errors : EFORMAT (does not compile), EUNSUPPORTED (no PCRE2 equivalent), ENOMEM; the message
 * names the construct. */
WEIR_MUST_CHECK weir_status weir_pretokenizer_add(
    weir_pretokenizer *pretokenizer, const char *pattern, size_t length, weir_split_options options,
    weir_error *error
);
void weir_pretokenizer_free(weir_pretokenizer *pretokenizer);

/* The steps named by GGUF's tokenizer.ggml.pre, and what else the name implies. */
typedef struct weir_pretokenizer_kind {
    const char *name;
    const char *patterns[6]; /* in order, terminated by NULL */
    bool nfc, ignore_merges, add_bos;
} weir_pretokenizer_kind;
const weir_pretokenizer_kind *weir_pretokenizer_find(const char *name); /* NULL: unknown */
const weir_pretokenizer_kind *weir_pretokenizer_at(size_t index); /* NULL: past the last */
/* The known names, for messages; the caller frees it. */
weir_buffer weir_pretokenizer_list_known(void);
extern const char *const weir_pattern_gpt2;

/* State for matching in one thread, whose tracker is charged for PCRE2's backtracking. Must not be
 * moved between init and free. */
typedef struct weir_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    int64_t limit_ns; /* CPU time limit for one text */
    int64_t deadline_ns; /* of the current text, on the thread's clock */
    uint32_t n_places; /* positions tried */
} weir_matcher;
WEIR_MUST_CHECK weir_status weir_matcher_init(weir_matcher *matcher);
void weir_matcher_free(weir_matcher *matcher);

typedef weir_status weir_piece_sink(void *context, const char *piece, size_t n);

/* Calls sink for every piece of well-formed `text`, in order; returns its first failure.
 * errors : EFULL (a pattern exceeded its steps, memory or time), ENOMEM, those of the sink */
WEIR_MUST_CHECK weir_status weir_pretokenizer_run(
    const weir_pretokenizer *pretokenizer, weir_matcher *matcher, const char *text, size_t n,
    weir_piece_sink *sink, void *context, weir_error *error
);

/* Translates a pattern of Oniguruma (Ruby syntax, UTF-8) to PCRE2 (UTF, UCP, MULTILINE). In
 * pattern.c. */
WEIR_MUST_CHECK weir_status
weir_pattern_translate(weir_buffer *out, const char *pattern, size_t length, weir_error *error);

#ifdef __cplusplus
}
#endif
