/* engine/api/api_internal.h - internals of the library's handles. The library's weir_config and
 * weir_engine are those of the engine; a sequence is a list of tokens, whose rows are in the
 * engine's prefix cache. */
#pragma once
#include <stdatomic.h>

#include "engine/engine.h" /* before weir.h, which then omits these declarations */
#include "include/weir.h"
#include "offload/ledger.h"

/* Salt of the library's sequences in the prefix cache; separates them from requests without a
 * salt. */
#define WEIR_API_SALT "library"

struct weir_sequence {
    weir_engine *engine;
    weir_ledger_tracker tracker; /* of `tokens` and `logits` */
    int32_t *tokens; /* [capacity], the first n are used */
    size_t n, capacity;
    float *logits; /* [n_vocab] */
    bool has_logits; /* they follow the last token */
    weir_usage usage;
    weir_finish finish;
    atomic_bool is_canceled;
};

/* Engines opened by the library always have a service. */
static inline const weir_engine_facts *weir_api_facts(const weir_engine *engine)
{
    return weir_service_facts_of(weir_engine_service(engine));
}

/* places.c: sets an empty model.path to that of the bundled demo, the name of a model to its
 * path. */
WEIR_MUST_CHECK weir_status weir_api_fill_model(weir_config *config, weir_error *error);

/* tokens.c: reserves space for n tokens. */
WEIR_MUST_CHECK weir_status weir_api_reserve(weir_sequence *sequence, size_t n, weir_error *error);

/* job.c: runs one request over the sequence's tokens and waits for it. The caller has filled in
 * max_tokens and sampling, and reserved space for the tokens that are appended. callback: may be
 * NULL, else as in weir_generate. */
WEIR_MUST_CHECK weir_status weir_api_run(
    weir_sequence *sequence, weir_request *request, weir_token_callback *callback, void *user,
    weir_error *error
);
