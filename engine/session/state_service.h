/* engine/session/state_service.h - a state database with the engine that computes and continues its
 * states; shared by `weir db` and the server's /v1/states.
 *
 * Computes documents to states, continues states with prompts, merges two states. Any thread. All
 * functions block, except those of weir_embedding that do not say so. */
#pragma once
#include "engine/session/sessions.h"
#include "engine/states/states.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How vectors are made: the mean of hidden states (weir_request.want_embedding). */
#define WEIR_STATE_SERVICE_EMBEDDING "mean_hidden"

enum { WEIR_DOCUMENT_SALT = 255 };

/* All borrowed. */
typedef struct weir_state_service {
    weir_states *states;
    weir_service *service;
    weir_sessions *sessions; /* of the service */
    /* Polled while the engine computes; returns true to stop. NULL: runs to the end. */
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

/* Computes the document and adds its state, unless this owner has one of the same document that can
 * be continued here (sessions.numerics). Returns EUNSUPPORTED if nothing of it could be saved. */
WEIR_MUST_CHECK weir_status weir_state_service_ingest(
    const weir_state_service *documents, const weir_document *document, weir_state_info *info,
    bool *is_new, weir_error *error
);
/* The parts of it, for callers that do not wait (weir_embedding_begin). Find returns ENOTFOUND if
 * the document is to be computed; add requires that it just was, with `keeps`. */
WEIR_MUST_CHECK weir_status weir_state_service_find(
    const weir_state_service *documents, const weir_document *document, weir_state_info *info,
    weir_error *error
);
WEIR_MUST_CHECK weir_status weir_state_service_add(
    const weir_state_service *documents, const weir_document *document, const float *vector,
    weir_state_info *info, weir_error *error
);
/* The nearest states to a query. Returns EMISMATCH if vectors of this database are made
 * differently. */
WEIR_MUST_CHECK weir_status weir_state_service_route(
    const weir_state_service *documents, const weir_document *document,
    const weir_states_question *question, weir_state_hit *hits, size_t *n, weir_error *error
);
/* EMISMATCH as weir_state_service_route. */
WEIR_MUST_CHECK weir_status
weir_state_service_check_vectors(const weir_state_service *documents, weir_error *error);

/* ---- vectors (state_embedding.c) ------------------------------------------------------------- */
/* The vector of a document while the engine computes it. Zero-initialise, set done and user. */
typedef struct weir_embedding {
    float *vector; /* [dim] */
    size_t dim;
    weir_job *job; /* NULL: it has ended, or was not begun */
    /* Called once, on the engine thread, when weir_embedding_end may be. Must not block. */
    void (*done)(void *user);
    void *user;
    bool has_vector;
    weir_status status;
    char message[512];
} weir_embedding;

/* Returns as weir_service_submit. keeps: the document is cached when it is computed. After a
 * failure `done` is not called. */
WEIR_MUST_CHECK weir_status weir_embedding_begin(
    weir_embedding *embedding, const weir_state_service *documents, const weir_document *document,
    bool keeps, weir_error *error
);
/* After `done`. Returns how the job ended. */
WEIR_MUST_CHECK weir_status weir_embedding_end(weir_embedding *embedding, weir_error *error);
/* Begins and ends it on this thread; sets done and user. Returns ECANCELED if stopped. */
WEIR_MUST_CHECK weir_status weir_embedding_wait(
    weir_embedding *embedding, const weir_state_service *documents, const weir_document *document,
    bool keeps, weir_error *error
);
/* Cancels what still runs; no callback follows. Also for a zeroed struct. */
void weir_embedding_close(weir_embedding *embedding);

typedef struct weir_merge {
    const weir_state_info *earlier, *later;
    /* Of the new state; metadata gets "merged" added. */
    const char *label, *metadata, *owner;
} weir_merge;
WEIR_MUST_CHECK weir_status weir_state_service_merge(
    const weir_state_service *documents, const weir_merge *merge, weir_state_info *info,
    weir_state_merged *merged, weir_error *error
);

/* A state as the beginning of prompts: its tokens, then the prompt's. */
typedef struct weir_beginning {
    weir_state_info info;
    int32_t *tokens; /* [n_tokens]; weir_memory_give */
    int32_t n_tokens;
    int32_t n_held; /* tokens in the state; the rest is computed with the prompt */
    /* weir_request.n_kept: n_held, or 0 where computing the tokens gives the same bits. */
    int32_t n_kept;
    char salt[WEIR_DOCUMENT_SALT + 1]; /* weir_request.cache_salt */
    char path[PATH_MAX];
} weir_beginning;

/* salt: that of the request without a state; NULL: none. Sequences that continue a state that is
 * not exact share no prefix with others. Reads only the tokens. */
WEIR_MUST_CHECK weir_status weir_beginning_open(
    weir_beginning *out, const weir_state_service *documents, const weir_state_info *info,
    const char *salt, weir_error *error
);
/* Caches the state, so that a request can continue it. */
WEIR_MUST_CHECK weir_status weir_beginning_load(
    const weir_beginning *beginning, const weir_state_service *documents, weir_error *error
);
void weir_beginning_close(weir_beginning *beginning); /* also for a zeroed struct */

#ifdef __cplusplus
}
#endif
