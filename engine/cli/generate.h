/* engine/cli/generate.h - one prompt, one answer, printed as text while it comes or as JSON: what
 * generate and db query share. */
#pragma once
#include <jansson.h>

#include "engine/cli/answer.h"
#include "engine/engine.h"

typedef struct weir_cli_wish {
    const weir_ids *ids;
    const char *session; /* the kept text gets this name; NULL: none */
    bool reuses; /* goes on from a kept text, and is kept */
    bool is_quiet; /* nothing is printed */
    const char *salt; /* weir_request.cache_salt */
    int32_t n_kept; /* weir_request.n_kept */
} weir_cli_wish;

/* With the configuration's [sampling]. Text goes to stdout unless the wish is quiet or the model
 * has no tokenizer. Ctrl-C ends the answer. */
WEIR_MUST_CHECK weir_status weir_cli_generate(
    weir_cli_answer *answer, const weir_engine *engine, const weir_config *config,
    const weir_cli_wish *wish, weir_error *error
);
/* One line of JSON, with the fields of `more` (may be NULL) too: the exit code. */
int weir_cli_print_answer(const weir_engine *engine, const weir_cli_answer *answer, json_t *more);
