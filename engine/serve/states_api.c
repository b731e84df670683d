/* engine/serve/states_api.c - /v1/states: precomputed documents and their owners. Each key sees its
 * own states and those without an owner. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/memory.h"
#include "engine/serve/states_api.h"

enum { MOST_LISTED = 1000 };

weir_status weir_states_fail(weir_api_error *out, weir_status status, const weir_error *why)
{
    static const weir_api_case cases[] = {
        { WEIR_EINVAL, 400, NULL, NULL },
        { WEIR_ENOTFOUND, 404, "state_not_found", NULL },
        { WEIR_EFORMAT, 409, "state_unusable", NULL },
        { WEIR_EMISMATCH, 409, "state_unusable", NULL },
        { WEIR_EUNSUPPORTED, 400, "state_unsupported", NULL },
        { WEIR_ECANCELED, 503, "states_busy", NULL },
        { WEIR_EFULL, 503, "states_full", NULL },
    };
    return weir_api_by_case(out, cases, sizeof cases / sizeof *cases, status, why->text);
}

weir_status states_need(weir_exchange *x)
{
    return weir_api_fail(
        &x->error, 501, "not_supported", NULL,
        "no database of states is served; start the server with states.dir"
    );
}

weir_state_service weir_states_documents(weir_exchange *x)
{
    const weir_server_options *const o = &x->server->options;
    return (weir_state_service
    ){ .states = o->states, .service = o->service, .sessions = o->state_sessions };
}

/* ---- owners ---------------------------------------------------------------------------------- */
states_owner states_owner_of(const weir_exchange *x)
{
    states_owner own = { "" };
    const weir_own_name name = weir_exchange_own(x, NULL, "");
    if (x->key >= 0)
        (void)snprintf(own.name, sizeof own.name, "%.*s", WEIR_STATE_OWNER + 1, name.name);
    return own;
}

/* True for the client's own states and those without an owner. */
bool states_may_see(void *user, const weir_state_info *info)
{
    const states_owner *const own = user;
    char theirs[WEIR_STATE_OWNER + 2];
    weir_state_owner(theirs, info->name);
    return own->name[0] == '\0' || theirs[0] == '\0' || strcmp(theirs, own->name) == 0;
}

/* True for the client's own states, and for all if the server has no keys. */
static bool may_change(const states_owner *own, const weir_state_info *info)
{
    char theirs[WEIR_STATE_OWNER + 2];
    weir_state_owner(theirs, info->name);
    return own->name[0] == '\0' || strcmp(theirs, own->name) == 0;
}

/* The client's name for it. */
static const char *client_name(const states_owner *own, const weir_state_info *info)
{
    return own->name[0] != '\0' && may_change(own, info) ? info->name + strlen(own->name) + 1
                                                         : info->name;
}

weir_status weir_states_find_own(
    weir_state_info *info, const weir_exchange *x, const char *name, weir_error *error
)
{
    const states_owner own = states_owner_of(x);
    char whole[2 * WEIR_STATE_NAME + 2];
    weir_states *const states = x->server->options.states;
    weir_status status = WEIR_ENOTFOUND;
    if (own.name[0] != '\0' && strlen(name) <= WEIR_STATE_NAME) {
        (void)snprintf(whole, sizeof whole, "%s-%s", own.name, name);
        status = weir_states_find(states, whole, info, error);
    }
    if (status == WEIR_ENOTFOUND) status = weir_states_find(states, name, info, error);
    /* Another client's state: as if it did not exist. */
    return status == WEIR_OK && !states_may_see((void *)(uintptr_t)&own, info) ? WEIR_ENOTFOUND
                                                                               : status;
}

weir_status weir_states_name_failed(
    weir_api_error *out, const char *name, const char *param, weir_status status,
    const weir_error *why
)
{
    if (status != WEIR_ENOTFOUND) return weir_states_fail(out, status, why);
    return weir_api_fail(
        out, 404, "state_not_found", param, "there is no state %s", weir_quote(name).text
    );
}

weir_status states_of_name(
    weir_state_info *info, weir_exchange *x, const char *name, const char *param
)
{
    weir_error why = { 0 };
    const weir_status status = weir_states_find_own(info, x, name, &why);
    return status == WEIR_OK ? WEIR_OK
                             : weir_states_name_failed(&x->error, name, param, status, &why);
}

void weir_states_key(char out[WEIR_STATE_NAME + 16], const char *name)
{
    (void)snprintf(out, WEIR_STATE_NAME + 16, "/states/%s", name);
}

/* ---- objects --------------------------------------------------------------------------------- */
void weir_states_write_form(weir_json_out *json, const weir_state_info *info)
{
    weir_json_put_bool(json, "exact", weir_state_is_exact(info));
    weir_json_put_integer(json, "state_bits", info->state_bits);
    weir_json_put_bool(json, "merged", info->is_merged);
}

/* Writes the members of a state into the open object. */
void states_write_members(weir_json_out *json, const states_owner *own, const weir_state_info *info)
{
    char source[33], theirs[WEIR_STATE_OWNER + 2];
    (void
    )snprintf(source, sizeof source, "%016" PRIx64 "%016" PRIx64, info->source[1], info->source[0]);
    weir_state_owner(theirs, info->name);
    weir_json_put_string(json, "object", "state");
    weir_json_put_string(json, "id", client_name(own, info));
    weir_json_put_string(json, "label", info->label);
    weir_json_put_integer(json, "created", info->created);
    weir_json_put_integer(json, "tokens", info->n_tokens);
    weir_json_put_integer(json, "bytes", info->n_bytes);
    weir_json_put_bool(json, "vector", info->has_vector);
    weir_json_put_string(json, "source", source);
    weir_json_put_bool(json, "shared", theirs[0] == '\0');
    weir_states_write_form(json, info);
}

weir_status states_write(weir_states_call *call, weir_buffer *text)
{
    weir_json_out json = { .buffer = text };
    weir_json_open(&json, '{');
    states_write_members(&json, &call->owner, &call->info);
    weir_json_key(&json, "metadata");
    weir_json_raw(&json, call->described.data, call->described.size);
    weir_json_close(&json, '}');
    return json.status;
}

/* ---- listing --------------------------------------------------------------------------------- */
/* Reads a number from a query such as "limit=5&before=12"; `fallback` if absent; false if it is not
 * a number. */
static bool query_number(const weir_exchange *x, const char *name, int64_t fallback, int64_t *out)
{
    const size_t n = strlen(name);
    *out = fallback;
    for (const char *at = x->query; *at != '\0'; at += strcspn(at, "&"), at += *at == '&') {
        if (strncmp(at, name, n) != 0 || at[n] != '=') continue;
        const size_t digits = strspn(at + n + 1, "0123456789");
        if (digits < 1 || digits > 18 || (at[n + 1 + digits] != '\0' && at[n + 1 + digits] != '&'))
            return false;
        *out = strtoll(at + n + 1, NULL, 10);
    }
    return true;
}

static weir_status list(weir_states_call *call, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    weir_state_info *infos = NULL;
    size_t n = 0, total = 0;
    int64_t limit, before;
    weir_error why = { 0 };
    if (!query_number(x, "limit", 100, &limit) || limit < 1 || limit > MOST_LISTED ||
        !query_number(x, "before", 0, &before))
        return weir_api_bad(
            &x->error, "limit", "limit must be 1 to %d, before the number of a state",
            (int)MOST_LISTED
        );
    const weir_states_page page = {
        .before = before, .most = (size_t)limit, .accepts = states_may_see, .user = &call->owner
    };
    const weir_status status =
        weir_states_list(x->server->options.states, &page, &infos, &n, &total, &why);
    if (status != WEIR_OK) return weir_states_fail(&x->error, status, &why);
    weir_json_out json = { .buffer = text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "list");
    weir_json_key(&json, "data");
    weir_json_open(&json, '[');
    for (size_t i = 0; i < n; i++) {
        weir_json_open(&json, '{');
        states_write_members(&json, &call->owner, &infos[i]);
        weir_json_close(&json, '}');
    }
    weir_json_close(&json, ']');
    weir_json_put_integer(&json, "total", (int64_t)total);
    /* Parameter of the next page. */
    weir_json_put_integer(&json, "before", n > 0 ? infos[n - 1].serial : before);
    weir_json_close(&json, '}');
    weir_memory_give(infos);
    return json.status;
}

void weir_states_api_get(weir_exchange *x) { states_call_begin(x, list); }

static const char *name_of(const weir_exchange *x) { return x->path + strlen(x->route->path); }

static weir_status get_one(weir_states_call *call, weir_buffer *text)
{
    (void)text;
    WEIR_TRY(states_of_name(&call->info, call->exchange, name_of(call->exchange), "name"));
    states_call_describe(call, states_write);
    return WEIR_OK;
}

void weir_states_api_get_one(weir_exchange *x) { states_call_begin(x, get_one); }

/* ---- removing -------------------------------------------------------------------------------- */
static weir_status remove_it(weir_states_call *call, weir_error *error)
{
    return weir_states_remove(call->exchange->server->options.states, call->sources[0].name, error);
}

static weir_status write_removed(weir_states_call *call, weir_buffer *text)
{
    weir_json_out json = { .buffer = text };
    weir_json_open(&json, '{');
    weir_json_put_string(&json, "object", "state.deleted");
    weir_json_put_string(&json, "id", client_name(&call->owner, &call->sources[0]));
    weir_json_put_bool(&json, "deleted", true);
    weir_json_close(&json, '}');
    return json.status;
}

static weir_status remove_named(weir_states_call *call, weir_buffer *text)
{
    weir_exchange *const x = call->exchange;
    const char *const name = name_of(x);
    (void)text;
    WEIR_TRY(states_of_name(&call->sources[0], x, name, "name"));
    if (!may_change(&call->owner, &call->sources[0]))
        return weir_api_fail(
            &x->error, 403, "state_not_owned", "name",
            "state %s has no owner; only the operator of the server can delete it",
            weir_quote(name).text
        );
    states_call_do(call, remove_it, write_removed);
    return WEIR_OK;
}

void weir_states_api_remove(weir_exchange *x) { states_call_begin(x, remove_named); }
