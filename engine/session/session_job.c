/* engine/session/session_job.c - what a job does, and the functions that do one on the thread of
 * their caller. */
#include <errno.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/session/session_internal.h"

/* ---- the work -------------------------------------------------------------------------------- */
/* A file that sessions.numerics refuses is no reason to compute the sequence with other bits. A
 * session that is cached needs no file, so it is continued while it is saved. */
static weir_status resume(session_transfer *own, weir_session_job *job)
{
    weir_error *const error = &job->error;
    weir_status status = weir_sessions_check_numerics(own->sessions, job->name, error);
    job->is_refused = status != WEIR_OK;
    if (job->is_refused) return status;
    if (session_is_kept(own, job->name) || !session_job_take_file(own->sessions, job, job->name))
        return WEIR_OK;
    status = session_restore_named(own, job->name, &job->result, error);
    return status == WEIR_ENOTFOUND ? WEIR_OK : status;
}

bool session_job_is_cached(weir_sessions *sessions, const weir_session_job *job)
{
    const weir_prefix *const prefix = sessions->service->prefix;
    if (job->work == WEIR_SESSION_RECALL) return session_is_recalled(sessions, job);
    return weir_prefix_has_name(prefix, job->name) || weir_pruned_has_name(prefix, job->name);
}

typedef struct forgetting {
    const char *name;
    bool was_cached; /* out */
} forgetting;

static void forget(weir_service *service, void *user)
{
    forgetting *const f = user;
    f->was_cached = weir_prefix_forget_name(service->prefix, f->name);
}

/* A session that is cached and in no file yet would be written when the server ends. */
static weir_status delete_named(weir_sessions *s, const char *name, weir_error *error)
{
    session_path path;
    forgetting cached = { .name = name };
    WEIR_TRY(session_path_of(path, s, name, error));
    session_folder_enter(s);
    const int reason = session_folder_drop(s, name, true);
    session_folder_leave(s);
    if (s->service != NULL && (reason == 0 || reason == ENOENT))
        weir_service_call(s->service, forget, &cached);
    if (reason == 0 || cached.was_cached) return WEIR_OK;
    if (reason == ENOENT)
        return weir_error_set(error, WEIR_ENOTFOUND, "there is no session %s", name);
    return weir_error_set(error, WEIR_EIO, "%s: cannot delete: %s", path, strerror(reason));
}

/* ---- what is listed -------------------------------------------------------------------------- */
typedef struct listing {
    weir_session_info *list; /* [n] */
    size_t n;
    session_pending files[SESSION_WRITERS + SESSION_TRANSFERS]; /* [n_files] */
    weir_session_state states[SESSION_WRITERS + SESSION_TRANSFERS];
    int64_t done[SESSION_WRITERS + SESSION_TRANSFERS], total[SESSION_WRITERS + SESSION_TRANSFERS];
    int n_files;
} listing;

static void add_active(
    listing *l, const session_pending *file, weir_session_state state,
    const weir_session_progress *progress
)
{
    const int i = l->n_files++;
    l->files[i] = *file;
    l->states[i] = state;
    l->done[i] = progress != NULL ? __atomic_load_n(&progress->done, __ATOMIC_RELAXED) : 0;
    l->total[i] = progress != NULL ? __atomic_load_n(&progress->total, __ATOMIC_RELAXED) : 0;
}

/* Files that are written and read now. */
static void find_active(weir_sessions *s, listing *l)
{
    (void)pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SESSION_WRITERS; i++)
        if (s->pending[i].name[0] != '\0')
            add_active(l, &s->pending[i], WEIR_SESSION_SAVING, s->pending[i].progress);
    for (const weir_session_job *j = s->active; j != NULL; j = j->next) {
        const bool reads = j->work == WEIR_SESSION_RESTORE || j->work == WEIR_SESSION_RESUME ||
                           j->work == WEIR_SESSION_RECALL;
        session_pending file = { .name = "" };
        if (!reads || j->file[0] == '\0' || strlen(j->file) >= sizeof file.name ||
            __atomic_load_n(&j->transfer->progress.total, __ATOMIC_RELAXED) == 0)
            continue;
        (void)strcpy(file.name, j->file);
        add_active(l, &file, WEIR_SESSION_RESTORING, &j->transfer->progress);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

static weir_session_info *entry_of(listing *l, const session_pending *file)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->list[i].name, file->name) == 0) return &l->list[i];
    return NULL;
}

/* A file that is written for the first time is not in the folder yet. */
static weir_status add_new(listing *l, const session_pending *file, weir_error *error)
{
    weir_session_info *const longer = weir_memory_resize(l->list, (l->n + 1) * sizeof *longer);
    if (longer == NULL)
        return weir_error_set(error, WEIR_ENOMEM, "no memory for the list of sessions");
    weir_session_info info = { .n_tokens = file->n_tokens, .n_bytes = (int64_t)file->bytes };
    size_t at = l->n++;
    (void)strcpy(info.name, file->name);
    for (; at > 0 && strcmp(longer[at - 1].name, info.name) > 0; at--) longer[at] = longer[at - 1];
    longer[at] = info;
    l->list = longer;
    return WEIR_OK;
}

static weir_status list_all(weir_sessions *s, weir_session_job *job)
{
    listing l = { .list = NULL };
    find_active(s, &l);
    WEIR_TRY(session_folder_list(s, &l.list, &l.n, &job->error));
    weir_status status = WEIR_OK;
    for (int i = 0; i < l.n_files && status == WEIR_OK; i++) {
        const bool is_new = l.states[i] == WEIR_SESSION_SAVING && entry_of(&l, &l.files[i]) == NULL;
        if (is_new) status = add_new(&l, &l.files[i], &job->error);
        weir_session_info *const info = entry_of(&l, &l.files[i]);
        if (info == NULL) continue;
        info->state = l.states[i];
        info->n_done = l.done[i];
        info->n_total = l.total[i];
    }
    if (status != WEIR_OK) {
        weir_memory_give(l.list);
        return status;
    }
    job->list = l.list;
    job->n = l.n;
    return WEIR_OK;
}

static weir_status do_work(weir_sessions *s, weir_session_job *job)
{
    session_transfer *const own = job->transfer;
    weir_error *const error = &job->error;
    const weir_session_request request = {
        .name = job->name, .salt = job->salt, .tokens = job->tokens, .n_tokens = job->n_tokens
    };
    switch (job->work) {
    case WEIR_SESSION_SAVE:
        return session_save_to(own, &request, NULL, 0, NULL, &job->result, error);
    case WEIR_SESSION_WRITE:
        return session_save_to(
            own, &request, job->state, job->n_rest, job->path, &job->result, error
        );
    case WEIR_SESSION_RESTORE: return session_restore_named(own, job->name, &job->result, error);
    case WEIR_SESSION_RESUME: return resume(own, job);
    case WEIR_SESSION_RECALL: return session_recall(own, job);
    case WEIR_SESSION_READ:
        return session_read_path(own, job->path, job->salt, &job->result, error);
    case WEIR_SESSION_DELETE: return delete_named(s, job->name, error);
    case WEIR_SESSION_LIST: return list_all(s, job);
    case WEIR_SESSION_TASK: return job->task(job->user, error);
    case WEIR_SESSION_SAVE_RECENT: job->n = (size_t)session_save_recent(own); return WEIR_OK;
    }
    return WEIR_OK;
}

void session_job_do(weir_sessions *sessions, weir_session_job *job)
{
    job->status = do_work(sessions, job);
}

/* ---- on the caller's thread ------------------------------------------------------------------ */
static weir_status run(weir_sessions *s, weir_session_job *job, weir_error *error)
{
    session_job_run_here(s, job);
    if (error != NULL && job->status != WEIR_OK) *error = job->error;
    return job->status;
}

static weir_status run_for_result(
    weir_sessions *s, weir_session_job *job, weir_session_result *result, weir_error *error
)
{
    const weir_status status = run(s, job, error);
    if (status == WEIR_OK) *result = job->result;
    return status;
}

weir_status weir_sessions_save(
    weir_sessions *sessions, const weir_session_request *request, weir_session_result *result,
    weir_error *error
)
{
    weir_session_job job = { .work = WEIR_SESSION_SAVE,
                             .name = request->name,
                             .salt = request->salt,
                             .tokens = request->tokens,
                             .n_tokens = request->n_tokens };
    return run_for_result(sessions, &job, result, error);
}

static weir_status write_to(
    weir_sessions *sessions, const weir_session_request *request, const weir_state_request *state,
    int32_t n_rest, const char *path, weir_session_result *result, weir_error *error
)
{
    weir_session_job job = { .work = WEIR_SESSION_WRITE,
                             .name = request->name,
                             .path = path,
                             .salt = request->salt,
                             .tokens = request->tokens,
                             .n_tokens = request->n_tokens,
                             .state = state,
                             .n_rest = n_rest };
    return run_for_result(sessions, &job, result, error);
}

weir_status weir_sessions_write_state(
    weir_sessions *sessions, const weir_session_request *request, const weir_state_request *state,
    const char *path, weir_session_result *result, weir_error *error
)
{
    return write_to(sessions, request, state, 0, path, result, error);
}

weir_status weir_sessions_write_sequence(
    weir_sessions *sessions, const weir_session_request *request, const char *path,
    weir_session_result *result, weir_error *error
)
{
    if (request->tokens == NULL || request->n_tokens < 2)
        return weir_error_set(
            error, WEIR_EINVAL, "%d tokens: of fewer than 2 there is nothing to save",
            (int)request->n_tokens
        );
    return write_to(sessions, request, &(weir_state_request){ 0 }, 1, path, result, error);
}

weir_status weir_sessions_restore(
    weir_sessions *sessions, const char *name, weir_session_result *result, weir_error *error
)
{
    weir_session_job job = { .work = WEIR_SESSION_RESTORE, .name = name };
    return run_for_result(sessions, &job, result, error);
}

weir_status weir_sessions_resume(weir_sessions *sessions, const char *name, weir_error *error)
{
    weir_session_job job = { .work = WEIR_SESSION_RESUME, .name = name };
    return run(sessions, &job, error);
}

const char *weir_sessions_recall(
    weir_sessions *sessions, const int32_t *tokens, int32_t n_tokens, const char *salt
)
{
    weir_session_job job = {
        .work = WEIR_SESSION_RECALL, .tokens = tokens, .n_tokens = n_tokens, .salt = salt
    };
    if (!weir_sessions_may_recall(sessions, &job)) return NULL;
    session_job_run_here(sessions, &job);
    return job.unused;
}

weir_status weir_sessions_read(
    weir_sessions *sessions, const char *path, const char *salt, weir_session_result *result,
    weir_error *error
)
{
    weir_session_job job = { .work = WEIR_SESSION_READ, .path = path, .salt = salt };
    return run_for_result(sessions, &job, result, error);
}

weir_status weir_sessions_delete(weir_sessions *sessions, const char *name, weir_error *error)
{
    weir_session_job job = { .work = WEIR_SESSION_DELETE, .name = name };
    return run(sessions, &job, error);
}

weir_status weir_sessions_list(
    weir_sessions *sessions, weir_session_info **out, size_t *n, weir_error *error
)
{
    weir_session_job job = { .work = WEIR_SESSION_LIST };
    WEIR_TRY(run(sessions, &job, error));
    *out = job.list;
    *n = job.n;
    return WEIR_OK;
}

int32_t weir_sessions_save_recent(weir_sessions *sessions)
{
    weir_session_job job = { .work = WEIR_SESSION_SAVE_RECENT };
    session_job_run_here(sessions, &job);
    return (int32_t)job.n;
}
