/* engine/serve/sessions_api.c - /v1/sessions: saving, restoring, listing and deleting
 * conversations. Each key sees its own. A worker reads the request and posts a job; a thread of the
 * sessions does it; a worker writes the reply. */
#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/internal.h"
#include "engine/serve/json_in.h"
#include "engine/serve/json_out.h"

struct weir_session_call {
    weir_exchange *exchange;
    weir_session_job job;
    bool is_done; /* atomic */
    bool is_answered;
    weir_own_name own;
    char name[WEIR_SESSION_NAME + 1]; /* the client's */
    weir_ids ids;
    int32_t slot; /* of llama-server's /slots; -1: /v1/sessions */
};

static weir_status fail(weir_api_error *out, weir_status status, const weir_error *why)
{
    static const weir_api_case cases[] = {
        { WEIR_EINVAL, 400, NULL, NULL },
        { WEIR_ENOTFOUND, 404, "session_not_found", "name" },
        { WEIR_EFORMAT, 409, "session_unusable", "name" },
        { WEIR_EUNSUPPORTED, 409, "session_unusable", "name" },
        { WEIR_EMISMATCH, 409, "session_unusable", "name" },
        { WEIR_ECANCELED, 429, "sessions_busy", NULL },
        { WEIR_EFULL, 503, "sessions_full", NULL },
    };
    return weir_api_by_case(out, cases, sizeof cases / sizeof *cases, status, why->text);
}

weir_status weir_sessions_need(weir_exchange *x)
{
    if (x->server->options.sessions != NULL) return WEIR_OK;
    return weir_api_fail(
        &x->error, 501, "not_supported", NULL,
        "sessions are off; start the server with sessions.dir"
    );
}

static void write_result(
    weir_json_out *json, const char *name, const weir_session_result *result, const char *time
)
{
    weir_json_open(json, '{');
    weir_json_put_string(json, "object", "session");
    weir_json_put_string(json, "id", name);
    weir_json_put_integer(json, "tokens", result->n_tokens);
    weir_json_put_integer(json, "bytes", result->n_bytes);
    if (result->numerics != NULL) weir_json_put_string(json, "numerics", result->numerics);
    weir_json_key(json, "timings");
    weir_json_open(json, '{');
    weir_json_put_number(json, time, (double)result->time_ns / 1e6);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

/* ---- jobs ------------------------------------------------------------------------------------ */
static weir_session_call *open_call(weir_exchange *x, weir_session_work work, const char *name)
{
    weir_session_call *const call = weir_memory_take_zero(1, sizeof *call);
    if (call == NULL) return NULL;
    call->exchange = x;
    call->slot = -1;
    call->job.work = work;
    (void)snprintf(call->name, sizeof call->name, "%s", name);
    return call;
}

void weir_session_call_free(weir_session_call *call)
{
    if (call == NULL) return;
    weir_memory_give(call->job.list);
    weir_ids_free(&call->ids);
    weir_memory_give(call);
}

/* On a thread of the sessions. */
static void on_done(weir_session_job *job)
{
    weir_session_call *const call = job->user;
    weir_exchange *const x = call->exchange;
    __atomic_store_n(&call->is_done, true, __ATOMIC_RELEASE);
    weir_workers_release(&x->server->workers, x);
}

/* Takes over the call. */
static void post(weir_session_call *call)
{
    weir_exchange *const x = call->exchange;
    weir_session_job *const job = &call->job;
    const bool has_file = job->work != WEIR_SESSION_LIST;
    job->name = has_file ? call->own.name : NULL;
    job->tracker = weir_exchange_tracker(x);
    job->done = on_done;
    job->user = call;
    x->call = call;
    weir_workers_hold(&x->server->workers, x);
    weir_sessions_post(x->server->options.sessions, job);
}

void weir_session_call_abandon(weir_session_call *call)
{
    if (!__atomic_load_n(&call->is_done, __ATOMIC_ACQUIRE))
        weir_sessions_cancel(call->exchange->server->options.sessions, &call->job);
}

/* ---- saving and restoring -------------------------------------------------------------------- */
static weir_status read_salt(const char **salt, const json_t *root, weir_api_error *error)
{
    WEIR_TRY(weir_field_text(root, "cache_salt", salt, error));
    if (*salt != NULL && strlen(*salt) > WEIR_SALT_BYTES)
        return weir_api_bad(
            error, "cache_salt", "cache_salt is longer than %d bytes", WEIR_SALT_BYTES
        );
    return WEIR_OK;
}

/* Without tokens: the session named by requests. */
static weir_status read_text(weir_session_call *call, const json_t *root)
{
    weir_exchange *const x = call->exchange;
    const char *salt = NULL;
    bool given = false;
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_SESSION_SAVE));
    WEIR_TRY(read_salt(&salt, root, &x->error));
    WEIR_TRY(weir_text_ids(&call->ids, &given, x->server, root, &x->error));
    if (given && (call->ids.count < 1 || call->ids.count > (size_t)x->server->limits.window))
        return weir_api_bad(
            &x->error, NULL, "a session must have 1 to %d tokens, not %zu",
            (int)x->server->limits.window, call->ids.count
        );
    call->own = weir_exchange_own(x, salt, call->name);
    call->job.salt = call->own.salt[0] != '\0' ? call->own.salt : NULL;
    call->job.tokens = given ? call->ids.data : NULL;
    call->job.n_tokens = (int32_t)call->ids.count;
    return WEIR_OK;
}

static weir_status read_body(weir_session_call **call, weir_exchange *x, weir_session_work work)
{
    json_t *root = NULL;
    const char *name = NULL;
    weir_status status =
        weir_json_read(&root, x->body.data != NULL ? x->body.data : "", x->body.size, &x->error);
    if (status == WEIR_OK) status = weir_openai_session_name(root, "name", &name, &x->error);
    if (status == WEIR_OK && name == NULL)
        status = weir_api_bad(&x->error, "name", "name is missing");
    if (status == WEIR_OK) {
        *call = open_call(x, work, name);
        status = *call != NULL ? WEIR_OK : WEIR_ENOMEM;
    }
    if (status == WEIR_OK && work == WEIR_SESSION_SAVE) {
        status = read_text(*call, root);
    } else if (status == WEIR_OK) {
        status = weir_exchange_check_fields(x, root, WEIR_BODY_SESSION_RESTORE);
        (*call)->own = weir_exchange_own(x, NULL, name);
    }
    json_decref(root);
    return status;
}

static void post_with_body(weir_exchange *x, weir_session_work work)
{
    weir_session_call *call = NULL;
    weir_buffer none = { 0 };
    weir_status status = weir_sessions_need(x);
    if (status == WEIR_OK) status = read_body(&call, x, work);
    if (status == WEIR_OK) {
        post(call);
        return;
    }
    weir_session_call_free(call);
    weir_reply_result(x, &none, status);
}

void weir_sessions_post_save(weir_exchange *x) { post_with_body(x, WEIR_SESSION_SAVE); }
void weir_sessions_post_restore(weir_exchange *x) { post_with_body(x, WEIR_SESSION_RESTORE); }

void weir_sessions_post_slot(
    weir_exchange *x, weir_session_work work, const char *name, int32_t slot, weir_ids *ids
)
{
    weir_session_call *const call = open_call(x, work, name);
    if (call == NULL) {
        weir_ids_free(ids);
        weir_reply_status(x, WEIR_ENOMEM);
        return;
    }
    call->slot = slot;
    call->ids = *ids;
    call->own = weir_exchange_own(x, NULL, name);
    call->job.salt = call->own.salt[0] != '\0' ? call->own.salt : NULL;
    call->job.tokens = call->ids.data;
    call->job.n_tokens = (int32_t)call->ids.count;
    post(call);
}

/* ---- the folder ------------------------------------------------------------------------------ */
/* The client's name for it; NULL if it belongs to another key. */
static const char *own_part(const weir_exchange *x, const char *name)
{
    const weir_own_name own = weir_exchange_own(x, NULL, "");
    const size_t n = strlen(own.name);
    return strncmp(name, own.name, n) == 0 ? name + n : NULL;
}

static void write_info(weir_json_out *json, const char *name, const weir_session_info *info)
{
    static const char *const states[] = { [WEIR_SESSION_IDLE] = "idle",
                                          [WEIR_SESSION_SAVING] = "saving",
                                          [WEIR_SESSION_RESTORING] = "restoring" };
    weir_json_open(json, '{');
    weir_json_put_string(json, "object", "session");
    weir_json_put_string(json, "id", name);
    weir_json_put_integer(json, "created", info->created);
    weir_json_put_integer(json, "tokens", info->n_tokens);
    weir_json_put_integer(json, "bytes", info->n_bytes);
    weir_json_put_bool(json, "automatic", info->is_automatic);
    weir_json_key(json, "problem");
    if (info->problem == WEIR_OK)
        weir_json_null(json);
    else
        weir_json_string(json, weir_status_text(info->problem));
    weir_json_key(json, "policy");
    if (info->policy[0] == '\0')
        weir_json_null(json);
    else
        weir_json_string(json, info->policy);
    weir_json_put_string(json, "state", states[info->state]);
    if (info->state != WEIR_SESSION_IDLE) {
        weir_json_put_integer(json, "bytes_done", info->n_done);
        weir_json_put_integer(json, "bytes_total", info->n_total);
    }
    weir_json_close(json, '}');
}

static void write_list(weir_json_out *json, const weir_exchange *x, const weir_session_job *job)
{
    weir_json_open(json, '{');
    weir_json_put_string(json, "object", "list");
    weir_json_key(json, "data");
    weir_json_open(json, '[');
    for (size_t i = 0; i < job->n; i++) {
        const weir_session_info *const info = &job->list[i];
        const char *const name = own_part(x, info->name);
        if (name != NULL) write_info(json, name, info);
    }
    weir_json_close(json, ']');
    weir_json_close(json, '}');
}

static void write_deleted(weir_json_out *json, const char *name)
{
    weir_json_open(json, '{');
    weir_json_put_string(json, "object", "session.deleted");
    weir_json_put_string(json, "id", name);
    weir_json_put_bool(json, "deleted", true);
    weir_json_close(json, '}');
}

static void post_without_body(weir_exchange *x, weir_session_work work, const char *name)
{
    weir_buffer none = { 0 };
    weir_session_call *const call = open_call(x, work, name);
    if (call == NULL) {
        weir_reply_result(x, &none, WEIR_ENOMEM);
        return;
    }
    call->own = weir_exchange_own(x, NULL, name);
    post(call);
}

void weir_sessions_get(weir_exchange *x)
{
    if (weir_sessions_need(x) == WEIR_OK)
        post_without_body(x, WEIR_SESSION_LIST, "");
    else
        weir_reply_error(x);
}

static weir_status check_name(weir_exchange *x, const char *name)
{
    WEIR_TRY(weir_sessions_need(x));
    if (weir_session_name_is_good(name, WEIR_SESSION_CLIENT_NAME)) return WEIR_OK;
    return weir_api_fail(
        &x->error, 404, "session_not_found", "name", "%s is not the name of a session",
        weir_quote(name).text
    );
}

void weir_sessions_remove(weir_exchange *x)
{
    const char *const name = x->path + strlen(x->route->path);
    if (check_name(x, name) == WEIR_OK)
        post_without_body(x, WEIR_SESSION_DELETE, name);
    else
        weir_reply_error(x);
}

static void write_slot(weir_json_out *json, const weir_session_call *call)
{
    const weir_session_result *const result = &call->job.result;
    const bool saves = call->job.work == WEIR_SESSION_SAVE;
    weir_json_open(json, '{');
    weir_json_put_integer(json, "id_slot", call->slot);
    weir_json_put_string(json, "filename", call->name);
    weir_json_put_integer(json, saves ? "n_saved" : "n_restored", result->n_tokens);
    weir_json_put_integer(json, saves ? "n_written" : "n_read", result->n_bytes);
    weir_json_key(json, "timings");
    weir_json_open(json, '{');
    weir_json_put_number(json, saves ? "save_ms" : "restore_ms", (double)result->time_ns / 1e6);
    weir_json_close(json, '}');
    weir_json_close(json, '}');
}

/* ---- replies --------------------------------------------------------------------------------- */
static weir_status write_reply(weir_session_call *call, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    const weir_session_job *const job = &call->job;
    weir_json_out json = { .buffer = text };
    if (job->status == WEIR_ECANCELED && atomic_load(&x->server->draining))
        return weir_api_fail(
            &x->error, 503, NULL, NULL, "this server shuts down; send the request again"
        );
    if (job->status != WEIR_OK) {
        const weir_status status = fail(&x->error, job->status, &job->error);
        if (call->slot >= 0 && x->error.param[0] != '\0')
            (void)snprintf(x->error.param, sizeof x->error.param, "filename");
        return status;
    }
    if (call->slot >= 0)
        write_slot(&json, call);
    else if (job->work == WEIR_SESSION_LIST)
        write_list(&json, x, job);
    else if (job->work == WEIR_SESSION_DELETE)
        write_deleted(&json, call->name);
    else
        write_result(
            &json, call->name, &job->result,
            job->work == WEIR_SESSION_SAVE ? "save_ms" : "restore_ms"
        );
    return json.status;
}

void weir_session_call_advance(weir_session_call *call)
{
    weir_buffer text = { 0 };
    if (call->is_answered || !__atomic_load_n(&call->is_done, __ATOMIC_ACQUIRE)) return;
    call->is_answered = true;
    const weir_status status = write_reply(call, &text);
    weir_reply_result(call->exchange, &text, status);
}
