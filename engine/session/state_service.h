/* engine/session/state_service.h - a database of states beside the engine that computes and
 * continues them: what `weir db` and the server's /v1/states share.
 *
 * Texts become states, prompts go on from them, two states become one. Any thread; all functions
 * wait. */
#pragma once
#include "engine/session/sessions.h"
#include "engine/states/states.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How vectors are made here: the mean of hidden states (weir_request.want_embedding). */
#define WEIR_STATE_SERVICE_EMBEDDING "mean_hidden"

enum { WEIR_DOCUMENT_SALT = 255 };

/* All borrowed. */
typedef struct weir_state_service {
    weir_states *states;
    weir_service *service;
    weir_sessions *sessions; /* of the service */
    /* Polled while the engine computes; true: it shall stop. NULL: it goes on to the end. */
    bool (*stops)(void *user);
    void *user;
} weir_state_service;

typedef struct weir_document {
    const int32_t *tokens;
    int32_t n_tokens;
    const char *label, *metadata, *owner; /* as in weir_new_state */
    const char *salt; /* as in weir_request */
    int32_t client;
} weir_document;

/* The vector of a text, [d_model]. ECANCELED: stopped; or as weir_service_submit, and the job. */
WEIR_MUST_CHECK weir_status weir_state_service_embed(
    const weir_state_service *documents, const weir_document *text, bool keeps, float *vector,
    weir_error *error
);
/* Computes the text and adds its state, unless there is one of this text and owner. EUNSUPPORTED:
 * nothing of the text could be saved. */
WEIR_MUST_CHECK weir_status weir_state_service_ingest(
    const weir_state_service *documents, const weir_document *document, weir_state_info *info,
    bool *is_new, weir_error *error
);
/* The nearest states to a text. EMISMATCH: vectors of this database are made otherwise. */
WEIR_MUST_CHECK weir_status weir_state_service_route(
    const weir_state_service *documents, const weir_document *text,
    const weir_states_question *question, weir_state_hit *hits, size_t *n, weir_error *error
);

typedef struct weir_merge {
    const weir_state_info *earlier, *later;
    const char *label, *metadata,
        *owner; /* of the new state; metadata gets "merged" beside what it has */
} weir_merge;
WEIR_MUST_CHECK weir_status weir_state_service_merge(
    const weir_state_service *documents, const weir_merge *merge, weir_state_info *info,
    weir_state_merged *merged, weir_error *error
);

/* A state as the beginning of prompts: its text, then what the prompt adds. */
typedef struct weir_beginning {
    weir_state_info info;
    int32_t *tokens; /* [n_tokens]; weir_memory_give */
    int32_t n_tokens;
    int32_t n_held; /* by the state; the rest is computed with the prompt */
    /* weir_request.n_kept: n_held, or 0 where computing the tokens gives the same bits */
    int32_t n_kept;
    char salt[WEIR_DOCUMENT_SALT + 1]; /* weir_request.cache_salt */
    char path[PATH_MAX];
} weir_beginning;

/* salt: what the request would have without a state; NULL: none. Texts of a state that is not exact
 * meet no others. Nothing is read but the tokens. */
WEIR_MUST_CHECK weir_status weir_beginning_open(
    weir_beginning *out, const weir_state_service *documents, const weir_state_info *info,
    const char *salt, weir_error *error
);
/* The state is kept from now on, so that a request can go on from it. */
WEIR_MUST_CHECK weir_status weir_beginning_load(
    const weir_beginning *beginning, const weir_state_service *documents, weir_error *error
);
void weir_beginning_close(weir_beginning *beginning); /* one of zeros too */

#ifdef __cplusplus
}
#endif
