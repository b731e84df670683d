/* engine/router/request.c - checks a request's head, and writes the one that the model's server
 * gets: only fields that servers read, so that none of one connection reaches the other. */
#include <stdarg.h>
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
    /* Without a key there is no body: it would take memory that all requests share. */
    if (r->has_key_of_all || r->own_keys != 0 || (r->is_public && r->body_done)) return true;
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

/* ---- the head for the server ----------------------------------------------------------------- */

static bool add(weir_route *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool add(weir_route *r, const char *format, ...)
{
    va_list arguments;
    const size_t left = r->up.capacity - r->up.size;
    va_start(arguments, format);
    const int n = vsnprintf(r->up.data + r->up.size, left, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= left) return false;
    r->up.size += (size_t)n;
    return true;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes the value of a query; what is too long or broken becomes a name that no model has. */
static void take_name(weir_route *r, const char *text, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '%') {
            const int high = i + 1 < n ? digit_of(text[i + 1]) : -1;
            const int low = i + 2 < n ? digit_of(text[i + 2]) : -1;
            c = high < 0 || low < 0 ? '\0' : (char)(high * 16 + low);
            i += 2;
        }
        if (c <= 0x20 || used + 1 >= sizeof r->query) {
            memcpy(r->query, "?", 2);
            return;
        }
        r->query[used++] = c;
    }
    r->query[used] = '\0';
}

/* Parameters begin with '?' or '&'; returns the bytes of this one. */
static size_t parameter_bytes(const char *at) { return 1 + strcspn(at + 1, "&"); }

static bool is_model(const char *parameter) { return strncmp(parameter + 1, "model=", 6) == 0; }

static void read_query(weir_route *r, const char *target)
{
    for (const char *at = target + strcspn(target, "?"); *at != '\0'; at += parameter_bytes(at))
        if (is_model(at)) take_name(r, at + 7, parameter_bytes(at) - 7);
}

/* The target without the parameter `model`, which servers do not have. */
static bool add_target(weir_route *r, const char *target)
{
    const size_t path = strcspn(target, "?");
    bool first = true, good = add(r, "%.*s", (int)path, target);
    for (const char *at = target + path; good && *at != '\0'; at += parameter_bytes(at)) {
        if (is_model(at)) continue;
        good = add(r, "%c%.*s", first ? '?' : '&', (int)parameter_bytes(at) - 1, at + 1);
        first = false;
    }
    return good;
}

static bool write_head(weir_route *r, const char *method, const char *target)
{
    static const struct {
        weir_http_field field;
        const char *name;
    } fields[] = {
        { WEIR_HTTP_CONTENT_LENGTH, "Content-Length" },
        { WEIR_HTTP_TRANSFER_ENCODING, "Transfer-Encoding" },
        { WEIR_HTTP_CONTENT_TYPE, "Content-Type" },
        { WEIR_HTTP_CONTENT_ENCODING, "Content-Encoding" },
        { WEIR_HTTP_AUTHORIZATION, "Authorization" },
        { WEIR_HTTP_API_KEY, "X-Api-Key" },
        { WEIR_HTTP_REQUEST_ID, "X-Request-Id" },
    };
    bool good = add(r, "%s ", method) && add_target(r, target) &&
                add(r, " HTTP/1.%d\r\nHost: localhost\r\nConnection: close\r\n", r->head.minor);
    for (size_t i = 0; good && i < sizeof fields / sizeof fields[0]; i++) {
        const char *const value = weir_http_value(&r->head, r->in, fields[i].field);
        if (value != NULL) good = add(r, "%s: %s\r\n", fields[i].name, value);
    }
    return good && add(r, "\r\n");
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
    read_query(r, target);
    if (weir_answer_own(r)) return false; /* also while bodies have all memory */
    if (!weir_route_reserve(r, r->head.scanned + WEIR_ROUTE_UP) || !write_head(r, method, target)) {
        weir_answer_refuse(r, 503, NULL, 1, "no memory for the request now; try again");
        return false;
    }
    return true;
}
