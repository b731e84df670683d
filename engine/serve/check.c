/* engine/serve/check.c - the checks of a complete head, in this order: Host, origin, key, path,
 * method, state of the server, body. Framing is checked while reading (http_head.c). */
#include <string.h>
#include <strings.h>

#include "engine/serve/internal.h"

static weir_status check_host(const weir_exchange *x, const char *host, weir_api_error *error)
{
    if (host == NULL || weir_access_host(&x->server->access, host)) return WEIR_OK;
    return weir_api_fail(
        error, 403, NULL, NULL,
        "the host %s is not one of this server's names; use its address, or list "
        "the name in server.allowed_hosts",
        weir_quote(host).text
    );
}

/* Pages of other sites must not call the server. Browsers name the calling page in Origin and
 * Sec-Fetch-Site; other clients send neither. Following a link to the page itself is harmless. */
static weir_status check_origin(
    weir_exchange *x, const weir_http_head *head, const char *bytes, weir_api_error *error
)
{
    const char *const origin = weir_http_value(head, bytes, WEIR_HTTP_ORIGIN);
    const char *const host = weir_http_value(head, bytes, WEIR_HTTP_HOST);
    const char *const site = weir_http_value(head, bytes, WEIR_HTTP_FETCH_SITE);
    const char *const mode = weir_http_value(head, bytes, WEIR_HTTP_FETCH_MODE);
    if (origin != NULL && weir_access_origin(&x->server->access, origin)) {
        (void)snprintf(x->cors, sizeof x->cors, "%s", origin);
        return WEIR_OK;
    }
    const bool is_foreign = origin != NULL && (host == NULL || !weir_origin_is_host(origin, host));
    const bool is_link = strcmp(x->method, "GET") == 0 && strcmp(x->path, "/") == 0 &&
                         mode != NULL && strcmp(mode, "navigate") == 0;
    if (!is_foreign && (site == NULL || strcmp(site, "cross-site") != 0 || is_link)) return WEIR_OK;
    return weir_api_fail(
        error, 403, NULL, NULL,
        "pages of %s may not use this server; list the origin in server.allowed_origins",
        weir_quote(origin != NULL ? origin : "other sites").text
    );
}

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
    const long long limit = x->server->options.body_limit;
    const char *const coding = weir_http_value(head, bytes, WEIR_HTTP_CONTENT_ENCODING);
    const char *const expect = weir_http_value(head, bytes, WEIR_HTTP_EXPECT);
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        return weir_api_fail(
            error, 417, NULL, NULL, "the only supported expectation is 100-continue"
        );
    if (head->length > limit)
        return weir_api_fail(error, 413, NULL, NULL, "the body is larger than %lld bytes", limit);
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
    WEIR_TRY(check_host(x, weir_http_value(head, bytes, WEIR_HTTP_HOST), error));
    WEIR_TRY(check_origin(x, head, bytes, error));
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
