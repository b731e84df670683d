/* tests/wire/fake_sessions.c - engine/session/sessions.h without files. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "tests/wire/fake_service.h"

enum { SESSIONS = 16 };

struct weir_sessions {
    pthread_mutex_t lock;
    weir_session_info saved[SESSIONS];
    size_t n;
};

weir_sessions *weir_fake_sessions_open(void)
{
    weir_sessions *const s = calloc(1, sizeof *s);
    if (s != NULL) (void)pthread_mutex_init(&s->lock, NULL);
    return s;
}

void weir_fake_sessions_close(weir_sessions *s)
{
    if (s == NULL) return;
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

static weir_status meaning_of(const char *name, weir_error *error)
{
    if (ends_with(name, "damaged")) return weir_error_set(error, WEIR_EFORMAT, "%s: damaged", name);
    if (ends_with(name, "busy"))
        return weir_error_set(error, WEIR_ECANCELED, "another session is being saved");
    if (ends_with(name, "full")) return weir_error_set(error, WEIR_EFULL, "no room");
    if (ends_with(name, "disk")) return weir_error_set(error, WEIR_EIO, "%s: cannot write", name);
    return WEIR_OK;
}

static weir_session_info *find(weir_sessions *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->saved[i].name, name) == 0) return &s->saved[i];
    return NULL;
}

weir_status weir_sessions_save(
    weir_sessions *s, const weir_session_request *request, weir_session_result *result,
    weir_error *error
)
{
    WEIR_TRY(meaning_of(request->name, error));
    if (request->tokens == NULL)
        return weir_error_set(error, WEIR_ENOTFOUND, "no request has used this name");
    pthread_mutex_lock(&s->lock);
    weir_session_info *info = find(s, request->name);
    if (info == NULL && s->n < SESSIONS) info = &s->saved[s->n++];
    if (info != NULL) {
        *info = (weir_session_info){ .n_tokens = request->n_tokens, .n_bytes = 1000 };
        (void)snprintf(info->name, sizeof info->name, "%s", request->name);
    }
    pthread_mutex_unlock(&s->lock);
    *result =
        (weir_session_result){ .n_tokens = request->n_tokens, .n_bytes = 1000, .time_ns = 1000000 };
    return info != NULL ? WEIR_OK : weir_error_set(error, WEIR_EFULL, "no room");
}

weir_status weir_sessions_restore(
    weir_sessions *s, const char *name, weir_session_result *result, weir_error *error
)
{
    WEIR_TRY(meaning_of(name, error));
    pthread_mutex_lock(&s->lock);
    const weir_session_info *const info = find(s, name);
    if (info != NULL)
        *result = (weir_session_result
        ){ .n_tokens = info->n_tokens, .n_bytes = info->n_bytes, .time_ns = 2000000 };
    pthread_mutex_unlock(&s->lock);
    return info != NULL ? WEIR_OK
                        : weir_error_set(error, WEIR_ENOTFOUND, "there is no session %s", name);
}

weir_status weir_sessions_check_numerics(
    const weir_sessions *s, const char *name, weir_error *error
)
{
    (void)s, (void)name, (void)error;
    return WEIR_OK;
}

const uint64_t *weir_sessions_numerics(const weir_sessions *s)
{
    (void)s;
    return NULL;
}

weir_status weir_sessions_resume(weir_sessions *s, const char *name, weir_error *error)
{
    weir_session_result result;
    const weir_status status = weir_sessions_restore(s, name, &result, error);
    return status == WEIR_ENOTFOUND ? WEIR_OK : status;
}

weir_status weir_sessions_delete(weir_sessions *s, const char *name, weir_error *error)
{
    pthread_mutex_lock(&s->lock);
    weir_session_info *const info = find(s, name);
    if (info != NULL) *info = s->saved[--s->n];
    pthread_mutex_unlock(&s->lock);
    return info != NULL ? WEIR_OK
                        : weir_error_set(error, WEIR_ENOTFOUND, "there is no session %s", name);
}

weir_status weir_sessions_list(
    weir_sessions *s, weir_session_info **out, size_t *n, weir_error *error
)
{
    pthread_mutex_lock(&s->lock);
    *n = s->n;
    *out = weir_memory_take((s->n + 1) * sizeof **out);
    if (*out != NULL) memcpy(*out, s->saved, s->n * sizeof **out);
    pthread_mutex_unlock(&s->lock);
    return *out != NULL ? WEIR_OK : weir_error_set(error, WEIR_ENOMEM, "no memory");
}

static weir_status do_job(weir_sessions *s, weir_session_job *job)
{
    const weir_session_request request = {
        .name = job->name, .salt = job->salt, .tokens = job->tokens, .n_tokens = job->n_tokens
    };
    switch (job->work) {
    case WEIR_SESSION_SAVE: return weir_sessions_save(s, &request, &job->result, &job->error);
    case WEIR_SESSION_RESTORE:
        return weir_sessions_restore(s, job->name, &job->result, &job->error);
    case WEIR_SESSION_RESUME: return weir_sessions_resume(s, job->name, &job->error);
    case WEIR_SESSION_DELETE: return weir_sessions_delete(s, job->name, &job->error);
    case WEIR_SESSION_LIST: return weir_sessions_list(s, &job->list, &job->n, &job->error);
    case WEIR_SESSION_TASK: return job->task(job->user, &job->error);
    case WEIR_SESSION_RECALL:
    case WEIR_SESSION_READ:
    case WEIR_SESSION_WRITE:
    case WEIR_SESSION_SAVE_RECENT: break;
    }
    return weir_error_set(&job->error, WEIR_EUNSUPPORTED, "the fake sessions do not do this");
}

/* Done at once: nothing here waits for a disk. */
void weir_sessions_post(weir_sessions *s, weir_session_job *job)
{
    weir_memory_tracker *const before = weir_memory_tracker_set(job->tracker);
    job->status = do_job(s, job);
    (void)weir_memory_tracker_set(before);
    job->done(job);
}

void weir_sessions_cancel(weir_sessions *s, weir_session_job *job) { (void)s, (void)job; }

bool weir_sessions_may_recall(weir_sessions *s, const weir_session_job *job)
{
    (void)s, (void)job;
    return false;
}

void weir_sessions_activity_of(weir_sessions *s, weir_session_activity *out)
{
    (void)s;
    *out = (weir_session_activity){ 0 };
}

/* There are no states on the wire: the fake has no memory that one could hold. */
static weir_status no_states(weir_error *error)
{
    return weir_error_set(error, WEIR_EUNSUPPORTED, "the fake service has no states");
}

weir_status weir_sessions_write_state(
    weir_sessions *s, const weir_session_request *request, const weir_state_request *state,
    const char *path, weir_session_result *result, weir_error *error
)
{
    (void)s, (void)request, (void)state, (void)path, (void)result;
    return no_states(error);
}

weir_status weir_sessions_read(
    weir_sessions *s, const char *path, const char *salt, weir_session_result *result,
    weir_error *error
)
{
    (void)s, (void)path, (void)salt, (void)result;
    return no_states(error);
}

weir_status weir_sessions_merge(
    const weir_sessions *s, const weir_merge_request *request, const char *path,
    weir_state_merged *merged, weir_session_result *result, weir_error *error
)
{
    (void)s, (void)request, (void)path, (void)merged, (void)result;
    return no_states(error);
}
