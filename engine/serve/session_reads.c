/* engine/serve/session_reads.c - what a prompt continues from files: its session, an automatic file
 * that begins like it, its state, whose tokens the prompt begins with. Threads of the sessions read
 * them, and no worker waits meanwhile. Cached sequences are asked for too, since only the engine
 * thread knows them. */
#include "engine/base/log.h"
#include "engine/serve/generation.h"

/* The order in which they are looked at. */
enum { SESSION, LIKE_IT, STATE, KINDS };

/* On a thread of the sessions, or the engine thread. */
static void on_read(weir_session_job *job)
{
    weir_generation *const g = job->user;
    weir_exchange *const x = g->exchange;
    __atomic_store_n(&g->files.is_read, true, __ATOMIC_RELEASE);
    weir_workers_release(&x->server->workers, x);
}

bool weir_generation_is_reading(const weir_generation *g)
{
    return g->files.sessions != NULL && !__atomic_load_n(&g->files.is_read, __ATOMIC_ACQUIRE);
}

void weir_generation_abandon(weir_generation *g)
{
    if (weir_generation_is_reading(g)) weir_sessions_cancel(g->files.sessions, &g->files.job);
}

static void post(weir_generation *g, weir_sessions *sessions, const weir_session_job *job)
{
    weir_exchange *const x = g->exchange;
    g->files.job = *job;
    g->files.job.tracker = weir_exchange_tracker(x);
    g->files.job.done = on_read;
    g->files.job.user = g;
    g->files.sessions = sessions;
    g->files.is_read = false;
    weir_workers_hold(&x->server->workers, x);
    weir_sessions_post(sessions, &g->files.job);
}

/* Posts the job for this kind of file. Returns false if the prompt needs none. */
static bool look(weir_generation *g, const weir_prompt *prompt, int kind)
{
    const weir_openai_request *const r = &g->request;
    const weir_server_options *const o = &g->exchange->server->options;
    const weir_session_job session = { .work = WEIR_SESSION_RESUME, .name = g->own.name },
                           like_it = { .work = WEIR_SESSION_RECALL,
                                       .tokens = prompt->ids.data,
                                       .n_tokens = (int32_t)prompt->ids.count,
                                       .salt = weir_generation_salt(g) },
                           state = { .work = WEIR_SESSION_READ,
                                     .path = g->beginning.path,
                                     .salt = g->beginning.salt };
    if (kind == SESSION && o->sessions != NULL && r->session != NULL)
        post(g, o->sessions, &session);
    else if (kind == LIKE_IT && o->sessions != NULL && r->cache_prompt &&
             !(r->logprobs && r->echo) && weir_sessions_may_recall(o->sessions, &like_it))
        post(g, o->sessions, &like_it);
    else if (kind == STATE && g->beginning.tokens != NULL)
        post(g, o->state_sessions, &state);
    else
        return false;
    return true;
}

/* ---- the tokens of its state ----------------------------------------------------------------- */
/* On a thread of the sessions. */
static weir_status open_beginning(void *user, weir_error *error)
{
    weir_generation *const g = user;
    weir_exchange *const x = g->exchange;
    const weir_state_service documents = weir_states_documents(x);
    weir_state_info info;
    WEIR_TRY(weir_states_find_own(&info, x, g->request.state, error));
    return weir_beginning_open(
        &g->files.beginning, &documents, &info, g->own.salt[0] != '\0' ? g->own.salt : NULL, error
    );
}

void weir_generation_open_beginning(weir_generation *g)
{
    weir_states_key(g->files.key, g->request.state);
    const weir_session_job job = {
        .work = WEIR_SESSION_TASK, .path = g->files.key, .task = open_beginning, .reads = true
    };
    post(g, g->exchange->server->options.state_sessions, &job);
}

weir_status weir_generation_end_beginning(weir_generation *g, weir_api_error *error)
{
    const weir_session_job *const job = &g->files.job;
    g->files.sessions = NULL;
    g->beginning = g->files.beginning;
    g->files.beginning.tokens = NULL;
    if (job->status == WEIR_OK) return WEIR_OK;
    if (job->status == WEIR_ECANCELED && atomic_load(&g->exchange->server->draining))
        return weir_api_fail(
            error, 503, NULL, NULL, "this server shuts down; send the request again"
        );
    if (g->beginning.info.serial > 0) return weir_states_fail(error, job->status, &job->error);
    return weir_states_name_failed(error, g->request.state, "state", job->status, &job->error);
}

/* ---- what was read --------------------------------------------------------------------------- */
/* If a state cannot be read, its tokens are computed when that gives the same state. Any other
 * state is required. */
static weir_status end_state(weir_generation *g, weir_error *error)
{
    const weir_session_job *const job = &g->files.job;
    if (job->status == WEIR_OK) return WEIR_OK;
    if (g->beginning.n_kept > 0 || job->status == WEIR_ECANCELED)
        return weir_error_set(
            error, job->status == WEIR_EFULL ? WEIR_ENOMEM : job->status, "%s", job->error.text
        );
    weir_log(
        WEIR_LOG_WARNING, "request %s computes the tokens of state %s: %s", g->exchange->id,
        g->beginning.info.name, job->error.text
    );
    g->files.unused = "the file of its state cannot be used here, and the log says why";
    return WEIR_OK;
}

/* A session that cannot be read is recomputed; its file stays for inspection. */
static weir_status end_session(weir_generation *g, weir_error *error)
{
    const weir_session_job *const job = &g->files.job;
    g->files.is_refused = job->is_refused;
    if (job->status == WEIR_OK || job->status == WEIR_ECANCELED) return WEIR_OK;
    if (job->is_refused) return weir_error_set(error, job->status, "%s", job->error.text);
    weir_log(
        WEIR_LOG_WARNING, "request %s continues without session %s: %s", g->exchange->id,
        g->own.name, job->error.text
    );
    return WEIR_OK;
}

/* Takes over what the job that was posted has read. */
static weir_status end_read(weir_generation *g, weir_error *error)
{
    const weir_session_work work = g->files.job.work;
    if (g->files.sessions == NULL) return WEIR_OK;
    g->files.sessions = NULL;
    if (work == WEIR_SESSION_RESUME) return end_session(g, error);
    if (work == WEIR_SESSION_READ) return end_state(g, error);
    g->files.unused = g->files.job.unused;
    return WEIR_OK;
}

bool weir_generation_read(
    weir_generation *g, const weir_prompt *prompt, weir_status *status, weir_error *error
)
{
    weir_session_reads *const files = &g->files;
    if (files->n_looked == 0) files->unused = NULL;
    *status = end_read(g, error);
    while (*status == WEIR_OK && files->n_looked < KINDS)
        if (look(g, prompt, files->n_looked++)) return false;
    files->n_looked = 0; /* for the next prompt, or when this one is tried again */
    return true;
}
