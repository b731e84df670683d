/* engine/api/api_internal.h - the inside of the library's handles. A weir_config and a weir_engine
 * of the library are those of the engine; a sequence is a list of tokens, whose rows are in the
 * engine's prefix cache. */
#pragma once
#include <stdatomic.h>

#include "engine/engine.h" /* before weir.h, which leaves out what it declares */
#include "include/weir.h"
#include "offload/ledger.h"

/* Texts of the library in the prefix cache, apart from those of requests without a salt. */
#define WEIR_API_SALT "library"

struct weir_sequence {
    weir_engine *engine;
    weir_ledger_payer payer; /* of `tokens` and `logits` */
    int32_t *tokens; /* [capacity], the first n are the sequence's */
    size_t n, capacity;
    float *logits; /* [n_vocab] */
    bool has_logits; /* they follow the last token */
    weir_usage usage;
    weir_finish finish;
    atomic_bool is_canceled;
};

/* The weir_service of an engine always exists here. */
static inline const weir_engine_facts *weir_api_facts(const weir_engine *engine)
{
    return weir_service_facts_of(weir_engine_service(engine));
}

/* places.c: model.path "" becomes the path of the bundled demo. */
WEIR_MUST_CHECK weir_status weir_api_fill_model(weir_config *config, weir_error *error);

/* tokens.c: room for so many tokens. */
WEIR_MUST_CHECK weir_status weir_api_reserve(weir_sequence *sequence, size_t n, weir_error *error);

/* job.c: one request over the sequence's tokens, waited for. The caller filled in max_tokens and
 * sampling; tokens are appended, for which there is room. callback: NULL, or as in
 * weir_generate. */
WEIR_MUST_CHECK weir_status weir_api_run(
    weir_sequence *sequence, weir_request *request, weir_token_callback *callback, void *user,
    weir_error *error
);
