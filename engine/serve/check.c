/* engine/serve/check.c - everything a header can be refused for, in the order: framing, names, host, key, path, method, length.
 * Any doubt about where a body ends is 400 and the end of the connection (request smuggling). */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/serve/internal.h"

enum { TARGET_BYTES = 8 << 10, HEADER_FIELDS = 100 };

typedef struct fields {
    int64_t     count, bytes;
    int         n_host, n_length, n_coding;
    const char *host, *length, *coding, *key, *content_encoding;
    bool        malformed;
} fields;

static bool is_token(const char *name, size_t n)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++) {
        const char c = name[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == 0 || strchr(others, c) == NULL)) return false;
    }
    return n > 0;
}

static bool has_control(const char *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return true;
    }
    return false;
}

static enum MHD_Result visit(void *argument, enum MHD_ValueKind kind, const char *name, size_t name_size, const char *value,
                             size_t value_size)
{
    fields *const f = argument;
    (void)kind;
    f->count++;
    f->bytes += (int64_t)(name_size + value_size + 4);
    if (!is_token(name, name_size) || value == NULL || has_control(value, value_size)) {
        f->malformed = true;
        return MHD_YES;
    }
    if (strcasecmp(name, "host") == 0)
        f->host = value, f->n_host++;
    else if (strcasecmp(name, "content-length") == 0)
        f->length = value, f->n_length++;
    else if (strcasecmp(name, "transfer-encoding") == 0)
        f->coding = value, f->n_coding++;
    else if (strcasecmp(name, "authorization") == 0)
        f->key = value;
    else if (strcasecmp(name, "content-encoding") == 0)
        f->content_encoding = value;
    return MHD_YES;
}

static weir_status check_framing(const weir_exchange *x, const fields *f, const char *version, weir_api_error *error)
{
    if (x->target_length > TARGET_BYTES)
        return weir_api_fail(error, 414, NULL, NULL, "the request line is longer than %d bytes", TARGET_BYTES);
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return weir_api_fail(error, 400, NULL, NULL, "unknown protocol version; speak HTTP/1.1");
    if (f->count > HEADER_FIELDS || f->bytes > x->server->options.header_limit)
        return weir_api_fail(error, 431, NULL, NULL, "the header has more than %d fields or %lld bytes", HEADER_FIELDS,
                             (long long)x->server->options.header_limit);
    if (f->malformed) return weir_api_fail(error, 400, NULL, NULL, "a header field is malformed");
    if (f->n_length + f->n_coding > 1) return weir_api_fail(error, 400, NULL, NULL, "the length of the body is given more than once");
    if (f->n_coding == 1 && strcasecmp(f->coding, "chunked") != 0)
        return weir_api_fail(error, 400, NULL, NULL, "the only transfer coding taken is chunked");
    const size_t digits = f->n_length == 1 ? strspn(f->length, "0123456789") : 0;
    if (f->n_length == 1 && (digits == 0 || f->length[digits] != 0))
        return weir_api_fail(error, 400, NULL, NULL, "Content-Length is no number");
    return WEIR_OK;
}

static weir_status check_host(const weir_exchange *x, const fields *f, const char *version, weir_api_error *error)
{
    if (f->n_host > 1) return weir_api_fail(error, 400, NULL, NULL, "more than one Host field");
    if (f->n_host == 0 && strcmp(version, "HTTP/1.1") == 0) return weir_api_fail(error, 400, NULL, NULL, "no Host field");
    if (f->n_host == 1 && f->host[0] == 0) return weir_api_fail(error, 400, NULL, NULL, "the Host field is empty");
    if (f->n_host == 1 && x->server->loopback && !weir_host_is_loopback(f->host))
        return weir_api_fail(error, 403, NULL, NULL, "this server is reached as localhost or a loopback address only");
    return WEIR_OK;
}

static weir_status check_route(weir_exchange *x, weir_api_error *error)
{
    const char *allow = NULL;
    x->route = weir_route_find(x->method, x->path, &allow);
    if (x->route != NULL || (allow != NULL && strcmp(x->method, "OPTIONS") == 0)) return WEIR_OK;
    if (allow == NULL) return weir_api_fail(error, 404, NULL, NULL, "no such path: %s", weir_quote(x->path).text);
    return weir_api_fail(error, 405, NULL, NULL, "this path takes %s", allow);
}

static weir_status check_body(const weir_exchange *x, const fields *f, weir_api_error *error)
{
    const long long limit = x->server->options.body_limit;
    const bool      post = strcmp(x->method, "POST") == 0;
    if (post && f->content_encoding != NULL && strcasecmp(f->content_encoding, "identity") != 0)
        return weir_api_fail(error, 415, NULL, NULL, "Content-Encoding is not supported; send the JSON as it is");
    if (post && f->n_length == 0 && f->n_coding == 0)
        return weir_api_fail(error, 411, NULL, NULL, "a POST needs Content-Length or chunked coding");
    if (f->n_length == 1 && (strlen(f->length) > 18 || strtoll(f->length, NULL, 10) > limit))
        return weir_api_fail(error, 413, NULL, NULL, "the body is larger than %lld bytes", limit);
    return WEIR_OK;
}

static weir_status check_serving(const weir_exchange *x, weir_api_error *error)
{
    const bool needs_model = x->route->by_worker || strncmp(x->path, "/v1/models", 10) == 0;
    if (!needs_model || !atomic_load(&x->server->draining)) return WEIR_OK;
    return weir_api_fail(error, 503, NULL, NULL, "this server is shutting down");
}

static weir_status check_all(weir_exchange *x, const fields *f, const char *version, bool *must_close)
{
    weir_api_error *const error = &x->error;
    *must_close = true;
    WEIR_TRY(check_framing(x, f, version, error));
    WEIR_TRY(check_host(x, f, version, error));
    *must_close = f->n_coding > 0 || (f->n_length > 0 && strspn(f->length, "0") != strlen(f->length)); /* the body will not be read */
    const char             *allow;
    const weir_route *const route = weir_route_find(x->method, x->path, &allow);
    x->key = weir_access_check(&x->server->access, f->key);
    if (x->server->access.n_keys > 0 && x->key < 0 && (route == NULL || !route->is_public))
        return weir_api_fail(error, 401, "invalid_api_key", NULL, "a valid API key is needed: Authorization: Bearer KEY");
    WEIR_TRY(check_route(x, error));
    if (x->route == NULL) return WEIR_OK;
    WEIR_TRY(check_serving(x, error));
    return check_body(x, f, error);
}

weir_status weir_check_header(weir_exchange *x, struct MHD_Connection *mhd, const char *version, bool *must_close)
{
    fields f = { 0 };
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, visit, &f);
    x->chunked = f.n_coding > 0;
    WEIR_TRY(check_all(x, &f, version, must_close));
    if (f.n_length == 1) x->length = (size_t)strtoull(f.length, NULL, 10); /* at most body_limit */
    return WEIR_OK;
}
