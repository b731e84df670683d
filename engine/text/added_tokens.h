/* engine/text/added_tokens.h - finds added tokens in a text. */
#pragma once
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_added_search {
    const weir_vocabulary *vocabulary;
    const weir_trie *trie;
    weir_ids *out;
    const weir_span *plain; /* spans of the text in which no token is found; NULL: none */
    size_t n_plain;
} weir_added_search;

/* The first of the spans that ends behind `at`; n: none does. */
size_t weir_span_behind(const weir_span *spans, size_t n, size_t at);

typedef weir_status weir_gap_sink(void *context, const char *text, size_t begin, size_t end);

/* Appends the leftmost, longest tokens of the trie in text [begin, end), and passes on what lies
 * between them, without the white space that a token takes. A token of single words counts only
 * where no letter, mark, digit or connector stands directly before or behind it in [begin, end); if
 * it does not, the search goes on behind it. Returns the sink's first failure. */
WEIR_MUST_CHECK weir_status weir_added_split(
    const weir_added_search *search, const char *text, size_t begin, size_t end,
    weir_gap_sink *sink, void *context
);

#ifdef __cplusplus
}
#endif
