/* engine/session/sessions.c - opening and closing the sessions. A session passes through a
 * transfer, a sequence of the sessions: the engine thread gives it shared or empty pages and
 * releases them, the thread of a job moves the bytes (session_save.c, session_restore.c). */
#include "engine/session/sessions.h"

#include <stdlib.h>
#include <string.h>

#include "engine/session/session_internal.h"

/* With a lower tier, the sequences' blocks may be demoted like others. */
static void enter(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    for (int i = 0; i < s->n_transfers; i++)
        service->session_sequences[i] = &s->transfers[i].sequence;
}

static void leave(weir_service *service, void *user)
{
    weir_sessions *const s = user;
    for (int i = 0; i < s->n_transfers; i++) service->session_sequences[i] = NULL;
}

static weir_status open_transfers(weir_sessions *s, int n, weir_error *error)
{
    const int n_wanted = n < 1 ? 1 : n < (int)SESSION_TRANSFERS ? n : (int)SESSION_TRANSFERS;
    if (s->service == NULL) return WEIR_OK;
    for (int i = 0; i < n_wanted; i++) {
        session_transfer *const own = &s->transfers[i];
        own->sessions = s;
        own->writer = i;
        WEIR_TRY(
            weir_kv_sequence_open(&own->sequence, s->service->store, s->service->ledger, 0, error)
        );
        s->free_transfers[s->n_free++] = own;
    }
    s->n_transfers = n_wanted;
    s->is_tiered = weir_kv_cold_pages(weir_kv_store_spec(s->service->store)) > 0;
    weir_service_call(s->service, enter, s);
    return WEIR_OK;
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
    (void)pthread_cond_init(&s->changed, NULL);
    weir_status status = s->folder == NULL
                             ? weir_error_set(error, WEIR_ENOMEM, "no memory for a path")
                         : options->folder != NULL ? session_folder_prepare(s, error)
                                                   : WEIR_OK;
    if (status == WEIR_OK) status = open_transfers(s, options->n_threads, error);
    if (status == WEIR_OK && s->service != NULL && options->saves_unasked) {
        status = session_index_open(s, error);
        if (status == WEIR_OK) status = weir_saver_open(&s->saver, s, error);
    }
    if (status == WEIR_OK && s->service != NULL && options->n_threads > 0)
        status = session_threads_open(s, s->n_transfers, error);
    if (status != WEIR_OK)
        weir_sessions_close(s);
    else
        *out = s;
    return status;
}

void weir_sessions_close(weir_sessions *sessions)
{
    if (sessions == NULL) return;
    session_threads_close(sessions);
    weir_saver_close(sessions->saver);
    session_index_close(sessions);
    if (sessions->n_transfers > 0) weir_service_call(sessions->service, leave, sessions);
    for (int i = 0; i < (int)SESSION_TRANSFERS; i++)
        weir_kv_sequence_close(&sessions->transfers[i].sequence);
    (void)pthread_cond_destroy(&sessions->changed);
    (void)pthread_mutex_destroy(&sessions->lock);
    free(sessions->folder);
    free(sessions);
}

const weir_session_identity *weir_sessions_identity_of(const weir_sessions *sessions)
{
    return &sessions->identity;
}
