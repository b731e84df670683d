/* engine/serve/sessions_api.c - /v1/sessions: saving, restoring, listing and deleting
 * conversations. Each key sees its own.
 *
 * Saving and restoring occupy a worker for the duration of the disk I/O, but only one at a time: a
 * second request is told to retry, so that workers stay free. */
#include <stdio.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/internal.h"
#include "engine/serve/json_in.h"
#include "engine/serve/json_out.h"

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

static weir_status need_sessions(weir_exchange *x)
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

static weir_status save(weir_exchange *x, const json_t *root, const char *name, weir_buffer *text)
{
    const char *salt = NULL;
    weir_ids ids = { 0 };
    bool given = false;
    weir_error why = { 0 };
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_SESSION_SAVE));
    WEIR_TRY(read_salt(&salt, root, &x->error));
    /* Without a text: the session named by requests. */
    weir_status status = weir_text_ids(&ids, &given, x->server, root, &x->error);
    if (status == WEIR_OK && given &&
        (ids.count < 1 || ids.count > (size_t)x->server->limits.window))
        status = weir_api_bad(
            &x->error, NULL, "a session must have 1 to %d tokens, not %zu",
            (int)x->server->limits.window, ids.count
        );
    const weir_own_name own = weir_exchange_own(x, salt, name);
    const weir_session_wish wish = { .name = own.name,
                                     .salt = own.salt[0] != '\0' ? own.salt : NULL,
                                     .tokens = given ? ids.data : NULL,
                                     .n_tokens = (int32_t)ids.count };
    weir_session_result result = { 0 };
    if (status == WEIR_OK) {
        status = weir_sessions_save(x->server->options.sessions, &wish, &result, &why);
        if (status != WEIR_OK) status = fail(&x->error, status, &why);
    }
    weir_ids_free(&ids);
    if (status != WEIR_OK) return status;
    weir_json_out json = { .buffer = text };
    write_result(&json, name, &result, "save_ms");
    return json.status;
}

static weir_status restore(
    weir_exchange *x, const json_t *root, const char *name, weir_buffer *text
)
{
    weir_error why = { 0 };
    weir_session_result result = { 0 };
    const weir_own_name own = weir_exchange_own(x, NULL, name);
    WEIR_TRY(weir_exchange_check_fields(x, root, WEIR_BODY_SESSION_RESTORE));
    const weir_status status =
        weir_sessions_restore(x->server->options.sessions, own.name, &result, &why);
    if (status != WEIR_OK) return fail(&x->error, status, &why);
    weir_json_out json = { .buffer = text };
    write_result(&json, name, &result, "restore_ms");
    return json.status;
}

/* Reads the body and its name, then runs the operation. */
static void post(
    weir_exchange *x,
    weir_status (*run)(weir_exchange *x, const json_t *root, const char *name, weir_buffer *text)
)
{
    json_t *root = NULL;
    const char *name = NULL;
    weir_buffer text = { 0 };
    weir_status status = need_sessions(x);
    if (status == WEIR_OK)
        status = weir_json_read(
            &root, x->body.data != NULL ? x->body.data : "", x->body.size, &x->error
        );
    if (status == WEIR_OK) status = weir_openai_session_name(root, "name", &name, &x->error);
    if (status == WEIR_OK && name == NULL)
        status = weir_api_bad(&x->error, "name", "name is missing");
    if (status == WEIR_OK) status = run(x, root, name, &text);
    json_decref(root);
    weir_reply_result(x, &text, status);
}

void weir_sessions_post_save(weir_exchange *x) { post(x, save); }
void weir_sessions_post_restore(weir_exchange *x) { post(x, restore); }

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
    weir_json_close(json, '}');
}

static weir_status list(weir_exchange *x, weir_buffer *text)
{
    weir_session_info *infos = NULL;
    size_t n = 0;
    weir_error why = { 0 };
    WEIR_TRY(need_sessions(x));
    const weir_status status = weir_sessions_list(x->server->options.sessions, &infos, &n, &why);
    if (status != WEIR_OK) return fail(&x->error, status, &why);
    weir_json_out json = { .buffer = text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "list");
    weir_json_key(&json, "data");
    weir_json_open(&json, '[');
    for (size_t i = 0; i < n; i++) {
        const weir_session_info *const info = &infos[i];
        const char *const name = own_part(x, info->name);
        if (name != NULL) write_info(&json, name, info);
    }
    weir_json_close(&json, ']');
    weir_json_close(&json, '}');
    weir_memory_give(infos);
    return json.status;
}

void weir_sessions_get(weir_exchange *x)
{
    weir_buffer text = { 0 };
    const weir_status status = list(x, &text);
    weir_reply_result(x, &text, status);
}

static weir_status remove_named(weir_exchange *x, weir_buffer *text)
{
    const char *const name = x->path + strlen(x->route->path);
    weir_error why = { 0 };
    WEIR_TRY(need_sessions(x));
    if (!weir_session_name_is_good(name, WEIR_SESSION_CLIENT_NAME))
        return weir_api_fail(
            &x->error, 404, "session_not_found", "name", "%s is not the name of a session",
            weir_quote(name).text
        );
    const weir_own_name own = weir_exchange_own(x, NULL, name);
    const weir_status status = weir_sessions_delete(x->server->options.sessions, own.name, &why);
    if (status != WEIR_OK) return fail(&x->error, status, &why);
    weir_json_out json = { .buffer = text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "session.deleted");
    weir_json_put_string(&json, "id", name);
    weir_json_put_bool(&json, "deleted", true);
    weir_json_close(&json, '}');
    return json.status;
}

void weir_sessions_remove(weir_exchange *x)
{
    weir_buffer text = { 0 };
    const weir_status status = remove_named(x, &text);
    weir_reply_result(x, &text, status);
}
