/* engine/serve/check.c - the checks of a complete head, in this order: Host, origin, key, path,
 * method, state of the server, body. Framing is checked while reading (http_head.c). */
#include <string.h>
#include <strings.h>

#include "engine/serve/head_check.h"
#include "engine/serve/internal.h"

static weir_status check_key(
    weir_exchange *x, const weir_http_head *head, const char *bytes, weir_api_error *error
)
{
    const char *const bearer = weir_http_value(head, bytes, WEIR_HTTP_AUTHORIZATION);
    const char *const key = weir_http_value(head, bytes, WEIR_HTTP_API_KEY);
    const char *allow;
    x->key = weir_access_check(&x->server->access, bearer, key);
    if (x->server->access.n_keys == 0 || x->key >= 0) return WEIR_OK;
    const weir_route *const route = weir_route_find(x->method, x->path, &allow);
    if (route != NULL && route->is_public) return WEIR_OK;
    if (x->cors[0] != 0 && strcmp(x->method, "OPTIONS") == 0)
        return WEIR_OK; /* browsers send preflight requests without the key */
    return weir_api_fail(
        error, 401, "invalid_api_key", NULL, "a valid API key is needed: Authorization: Bearer KEY"
    );
}

static weir_status check_route(weir_exchange *x, weir_api_error *error)
{
    const char *allow = NULL;
    x->route = weir_route_find(x->method, x->path, &allow);
    if (x->route != NULL || (allow != NULL && strcmp(x->method, "OPTIONS") == 0)) return WEIR_OK;
    if (allow == NULL)
        return weir_api_fail(error, 404, NULL, NULL, "no such path: %s", weir_quote(x->path).text);
    return weir_api_fail(error, 405, NULL, NULL, "this path takes %s", allow);
}

static weir_status check_serving(const weir_exchange *x, weir_api_error *error)
{
    const bool needs_model = x->route->by_worker || strncmp(x->path, "/v1/models", 10) == 0;
    if (!needs_model || !atomic_load(&x->server->draining)) return WEIR_OK;
    return weir_api_fail(error, 503, NULL, NULL, "this server is shutting down");
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    const size_t n = sizeof json - 1;
    return type != NULL && strncasecmp(type, json, n) == 0 &&
           (type[n] == 0 || strchr("; \t", type[n]) != NULL);
}

static weir_status check_body(
    const weir_exchange *x, const weir_http_head *head, const char *bytes, weir_api_error *error
)
{
    const char *const coding = weir_http_value(head, bytes, WEIR_HTTP_CONTENT_ENCODING);
    WEIR_TRY(weir_head_check_length(head, bytes, x->server->options.body_limit, error));
    if (strcmp(x->method, "POST") != 0) return WEIR_OK;
    if (coding != NULL && strcasecmp(coding, "identity") != 0)
        return weir_api_fail(
            error, 415, NULL, NULL, "Content-Encoding is not supported; send the JSON as it is"
        );
    if (head->length < 0 && !head->chunked)
        return weir_api_fail(
            error, 411, NULL, NULL, "a POST needs Content-Length or chunked coding"
        );
    if ((head->length > 0 || head->chunked) &&
        !is_json(weir_http_value(head, bytes, WEIR_HTTP_CONTENT_TYPE)))
        return weir_api_fail(
            error, 415, NULL, NULL, "send the body as Content-Type: application/json (curl: --json)"
        );
    return WEIR_OK;
}

/* Connections beyond max_connections are reserved for health probes. */
static weir_status check_place(const weir_exchange *x, weir_api_error *error)
{
    if (!x->is_spare || (x->route != NULL && strcmp(x->path, "/health") == 0)) return WEIR_OK;
    return weir_api_fail(
        error, 503, NULL, NULL,
        "too many connections (server.max_connections), or no memory for another; try again"
    );
}

/* Uses the client's request id if it is short and printable, so that both logs can be joined. */
static void take_request_id(weir_exchange *x, const char *id)
{
    const size_t n = id != NULL ? strlen(id) : 0;
    if (n == 0 || n > WEIR_REQUEST_ID) return;
    for (size_t i = 0; i < n; i++)
        if (id[i] <= 0x20 || id[i] >= 0x7f || id[i] == '"' || id[i] == '\\') return;
    memcpy(x->id, id, n + 1);
}

weir_status weir_check_head(
    weir_exchange *x, const weir_http_head *head, const char *bytes, bool *must_close
)
{
    weir_api_error *const error = &x->error;
    take_request_id(x, weir_http_value(head, bytes, WEIR_HTTP_REQUEST_ID));
    *must_close = true;
    const bool is_page = strcmp(x->method, "GET") == 0 && strcmp(x->path, "/") == 0;
    const weir_access *const access = &x->server->access;
    WEIR_TRY(weir_head_check_host(head, bytes, access, error));
    WEIR_TRY(weir_head_check_origin(head, bytes, access, is_page, x->cors, error));
    *must_close = head->chunked || head->length > 0; /* the body will not be read */
    WEIR_TRY(check_key(x, head, bytes, error));
    WEIR_TRY(check_route(x, error));
    WEIR_TRY(check_place(x, error));
    if (x->route == NULL) return WEIR_OK;
    WEIR_TRY(check_serving(x, error));
    WEIR_TRY(check_body(x, head, bytes, error));
    *must_close = false;
    return WEIR_OK;
}
