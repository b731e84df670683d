/* engine/router/request.c - checks a request's head. */
#include <stdio.h>
#include <string.h>

#include "engine/router/internal.h"
#include "engine/serve/head_check.h"

/* ---- checks, in the order of engine/serve/check.c -------------------------------------------- */

static bool check_caller(weir_route *r, const char *method)
{
    weir_api_error error = { 0 };
    const weir_access *const access = &r->router->access;
    const bool is_page = strcmp(method, "GET") == 0 && strcmp(r->path, "/") == 0;
    if (weir_head_check_host(&r->head, r->in, access, &error) == WEIR_OK &&
        weir_head_check_origin(&r->head, r->in, access, is_page, r->cors, &error) == WEIR_OK)
        return true;
    weir_answer_error(r, &error, 0);
    return false;
}

/* Those that servers answer without a key, too. */
static bool is_public(const weir_route *r)
{
    return r->is_get && (strcmp(r->path, "/") == 0 || strncmp(r->path, "/page/", 6) == 0 ||
                         strcmp(r->path, "/health") == 0 || strcmp(r->path, "/v1/health") == 0 ||
                         strcmp(r->path, "/openapi.json") == 0);
}

static bool may_use_any(const weir_route *r)
{
    for (size_t i = 0; i < r->router->loads.n; i++)
        if (weir_request_may_use(r, i)) return true;
    return false;
}

static bool check_key(weir_route *r)
{
    const weir_router *const router = r->router;
    const char *const bearer = weir_http_value(&r->head, r->in, WEIR_HTTP_AUTHORIZATION);
    const char *const key = weir_http_value(&r->head, r->in, WEIR_HTTP_API_KEY);
    r->has_key_of_all =
        router->access.n_keys == 0 || weir_access_check(&router->access, bearer, key) >= 0;
    for (size_t i = 0; i < router->loads.n; i++)
        if (router->own[i].n_keys > 0 && weir_access_check(&router->own[i], bearer, key) >= 0)
            r->own_keys |= (uint32_t)1 << i;
    /* Who may use no model sends no body: it would take memory that all requests share. */
    const bool is_known = r->has_key_of_all || r->own_keys != 0 || r->is_public;
    if (is_known && (r->body_done || may_use_any(r))) return true;
    weir_answer_refuse(
        r, 401, "invalid_api_key", 0, "a valid API key is needed: Authorization: Bearer KEY"
    );
    return false;
}

bool weir_request_may_use(const weir_route *r, size_t model)
{
    if (r->router->own[model].n_keys > 0) return (r->own_keys >> model & 1) != 0;
    return r->has_key_of_all;
}

bool weir_request_may_watch(const weir_route *r, size_t model)
{
    return weir_request_may_use(r, model) || (r->router->access.n_keys > 0 && r->has_key_of_all);
}

static bool check_framing(weir_route *r, const char *method)
{
    weir_api_error error = { 0 };
    if (weir_head_check_length(&r->head, r->in, r->router->options.body_limit, &error) != WEIR_OK)
        weir_answer_error(r, &error, 0);
    else if (strcmp(method, "POST") == 0 && r->head.length < 0 && !r->head.chunked)
        weir_answer_refuse(r, 411, NULL, 0, "a POST needs Content-Length or chunked coding");
    else if (r->is_spare && strcmp(r->path, "/health") != 0)
        weir_answer_refuse(
            r, 503, NULL, 1, "too many connections (server.max_connections); try again"
        );
    else
        return true;
    return false;
}

bool weir_request_begin(weir_route *r)
{
    const char *const method = r->in + r->head.method, *const target = r->in + r->head.target;
    (void)snprintf(r->path, sizeof r->path, "%.*s", (int)strcspn(target, "?"), target);
    r->is_get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    r->head_only = strcmp(method, "HEAD") == 0;
    r->is_public = is_public(r);
    r->chunked = r->head.chunked;
    r->body_left = r->head.length > 0 ? r->head.length : 0;
    r->body_done = !r->chunked && r->body_left == 0;
    if (!check_caller(r, method)) return false;
    /* Browsers send preflight requests without the key. */
    if (strcmp(method, "OPTIONS") == 0) {
        weir_answer_options(r);
        return false;
    }
    if (!check_key(r) || !check_framing(r, method)) return false;
    weir_query_model(r->query, target);
    if (weir_answer_own(r)) return false; /* also while bodies have all memory */
    if (weir_route_reserve(r, r->head.scanned + WEIR_SERVER_HEAD_MORE))
        r->up.size = weir_server_head(r->up.data, r->up.capacity, &r->head, r->in);
    if (r->up.size > 0) return true;
    weir_answer_refuse(r, 503, NULL, 1, "no memory for the request now; try again");
    return false;
}
