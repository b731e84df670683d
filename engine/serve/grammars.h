/* engine/serve/grammars.h - the compiled grammars of a server: those used last are kept for the
 * next request, as agents send the same schema with each. */
#pragma once
#include "engine/constrain/constrain.h"
#include "engine/text/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WEIR_GRAMMARS_KEPT = 32 };

typedef struct weir_grammars weir_grammars;

/* tokenizer : borrowed; ids from n_valid on are never allowed
 * tracker   : of all memory; outlives what is charged to it, which jobs may hold after close */
WEIR_MUST_CHECK weir_status weir_grammars_open(
    weir_grammars **out, const weir_tokenizer *tokenizer, size_t n_valid,
    weir_memory_tracker *tracker, weir_error *error
);
void weir_grammars_close(weir_grammars *grammars); /* NULL-safe */
/* Returns a compiled grammar for text [n], which the caller releases. Any thread; the first call
 * reads the vocabulary.
 * errors : as weir_grammar_compile */
WEIR_MUST_CHECK weir_status weir_grammars_get(
    weir_grammars *grammars, weir_grammar **out, weir_grammar_kind kind, const char *text, size_t n,
    weir_error *error
);

#ifdef __cplusplus
}
#endif
