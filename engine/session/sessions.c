/* engine/session/sessions.c - opening and closing the sessions, and their lock. A session passes
 * through one sequence that belongs to the sessions: the engine thread lets it share the pages of a
 * cached sequence (session_save.c), which are not written to, or gives it empty ones
 * (session_restore.c); the caller's thread moves the bytes, and the engine thread releases
 * everything. */
#include "engine/session/sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session/session_internal.h"

/* ---- opening --------------------------------------------------------------------------------- */
/* With a lower tier, the sequence's blocks may be demoted like others. */
static void enter(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    service->guests[0] = &s->own.sequence;
}

static void leave(weir_service *service, void *user)
{
    (void)user;
    service->guests[0] = NULL;
}

weir_status weir_sessions_open(
    weir_sessions **out, const weir_sessions_options *options, weir_error *error
)
{
    weir_sessions *const s = calloc(1, sizeof *s);
    if (s == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for the sessions");
    *s = (weir_sessions
    ){ .folder = strdup(options->folder != NULL ? options->folder : ""),
       .identity = options->identity,
       .service = options->service,
       .limit = options->limit,
       .most_states =
           options->n_states < WEIR_SESSION_STATES ? options->n_states : WEIR_SESSION_STATES,
       .n_vocab = options->service != NULL ? options->service->facts->n_vocab : INT32_MAX,
       .disk = options->disk };
    weir_numerics_digest(s->numerics, &s->identity.numerics);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_init(&s->folder_lock, NULL);
    weir_status status = s->folder == NULL
                             ? weir_error_set(error, WEIR_ENOMEM, "no memory for a path")
                         : options->folder != NULL ? session_folder_prepare(s, error)
                                                   : WEIR_OK;
    if (status == WEIR_OK && s->service != NULL)
        status = weir_kv_sequence_open(
            &s->own.sequence, s->service->store, s->service->ledger, 0, error
        );
    if (status == WEIR_OK && s->service != NULL) weir_service_call(s->service, enter, s);
    if (status == WEIR_OK && s->service != NULL && options->saves_unasked) {
        status = session_index_open(s, error);
        if (status == WEIR_OK) status = weir_saver_open(&s->saver, s, error);
    }
    if (status != WEIR_OK)
        weir_sessions_close(s);
    else
        *out = s;
    return status;
}

void weir_sessions_close(weir_sessions *sessions)
{
    if (sessions == NULL) return;
    weir_saver_close(sessions->saver);
    session_index_close(sessions);
    if (sessions->service != NULL && sessions->own.sequence.store != NULL)
        weir_service_call(sessions->service, leave, NULL);
    weir_kv_sequence_close(&sessions->own.sequence);
    (void)pthread_mutex_destroy(&sessions->folder_lock);
    (void)pthread_mutex_destroy(&sessions->lock);
    free(sessions->folder);
    free(sessions);
}

weir_status session_begin(weir_sessions *s, weir_error *error)
{
    if (pthread_mutex_trylock(&s->lock) == 0) return WEIR_OK;
    return weir_error_set(
        error, WEIR_ECANCELED, "another session is being saved or restored; try again"
    );
}

void session_end(weir_sessions *s) { (void)pthread_mutex_unlock(&s->lock); }

/* ---- the folder ------------------------------------------------------------------------------ */
weir_status weir_sessions_delete(weir_sessions *sessions, const char *name, weir_error *error)
{
    session_path path;
    WEIR_TRY(session_path_of(path, sessions, name, error));
    (void)pthread_mutex_lock(&sessions->folder_lock);
    const int reason = session_folder_drop(sessions, name);
    (void)pthread_mutex_unlock(&sessions->folder_lock);
    if (reason == 0) return WEIR_OK;
    if (reason == ENOENT)
        return weir_error_set(error, WEIR_ENOTFOUND, "there is no session %s", name);
    return weir_error_set(error, WEIR_EIO, "%s: cannot delete: %s", path, strerror(reason));
}

weir_status weir_sessions_list(
    weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error
)
{
    return session_folder_list(sessions, out, n, error);
}

const weir_session_identity *weir_sessions_identity_of(const weir_sessions *sessions)
{
    return &sessions->identity;
}
