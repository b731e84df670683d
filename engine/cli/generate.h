/* engine/cli/generate.h - one prompt, one answer, printed as text as it comes or as JSON; used by
 * generate and db query. */
#pragma once
#include <jansson.h>

#include "engine/cli/answer.h"
#include "engine/engine.h"

typedef struct weir_cli_prompt {
    const weir_ids *ids;
    const char *session; /* saves the sequence under this name; may be NULL */
    bool reuses; /* uses the prefix cache */
    bool is_quiet; /* prints nothing */
    const char *salt; /* weir_request.cache_salt */
    int32_t n_kept; /* weir_request.n_kept */
} weir_cli_prompt;

/* Samples with the configuration's [sampling]. Text goes to stdout unless is_quiet is set or the
 * model has no tokenizer. Ctrl-C ends the answer. */
WEIR_MUST_CHECK weir_status weir_cli_generate(
    weir_cli_answer *answer, const weir_engine *engine, const weir_config *config,
    const weir_cli_prompt *prompt, weir_error *error
);
/* Prints one line of JSON, including the fields of `more` (may be NULL). Returns the exit code. */
int weir_cli_print_answer(const weir_engine *engine, const weir_cli_answer *answer, json_t *more);
