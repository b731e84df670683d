/* engine/hub/http.c - one GET request, with its redirects. */
#include "engine/hub/http.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/base/memory.h"
#include "engine/formats/printable.h"
#include "engine/hub/curl.h"

enum {
    REDIRECTS = 8,
    URL_BYTES = 8192, /* signed addresses of a store have about 2000 */
    DROPPED_BYTES = 1 << 20, /* of a body that is not wanted */
    CONNECT_S = 20,
    SILENCE_S = 60,
};

struct weir_http {
    const weir_curl *curl;
    CURL *easy;
    const char *agent;
    /* Of the running request: */
    const weir_http_request *request;
    weir_http_head *head;
    size_t dropped;
    bool has_begun, is_stopped;
};

weir_status weir_http_open(weir_http **out, const char *agent, weir_error *error)
{
    const weir_curl *curl;
    WEIR_TRY(weir_curl_load(&curl, error));
    weir_http *const http = weir_memory_take_zero(1, sizeof *http);
    if (http != NULL) http->easy = curl->curl_easy_init();
    if (http == NULL || http->easy == NULL) {
        weir_memory_give(http);
        return weir_error_set(error, WEIR_ENOMEM, "no memory for a connection");
    }
    http->curl = curl;
    http->agent = agent;
    *out = http;
    return WEIR_OK;
}

void weir_http_close(weir_http *http)
{
    if (http == NULL) return;
    http->curl->curl_easy_cleanup(http->easy);
    weir_memory_give(http);
}

/* ---- what libcurl calls ---------------------------------------------------------------------- */

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    weir_http *const http = user;
    weir_http_read_header(http->head, line, size * n);
    return size * n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    weir_http *const http = user;
    const weir_http_request *const request = http->request;
    if (http->head->status != 200 && http->head->status != 206) {
        http->dropped += size * n;
        return http->dropped <= DROPPED_BYTES ? size * n : 0;
    }
    if (!http->has_begun) {
        http->has_begun = true;
        http->is_stopped = request->begin != NULL && !request->begin(request->user, http->head);
    }
    if (!http->is_stopped) http->is_stopped = !request->body(request->user, bytes, size * n);
    return http->is_stopped ? 0 : size * n;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    weir_http *const http = user;
    (void)a, (void)b, (void)c, (void)d;
    if (http->request->is_cancelled == NULL || !http->request->is_cancelled(http->request->user))
        return 0;
    http->is_stopped = true;
    return 1;
}

/* ---- one request without redirects ----------------------------------------------------------- */

static struct curl_slist *headers_of(const weir_http *http, bool with_token, bool *is_complete)
{
    char line[1200];
    const char *const token = http->request->token;
    struct curl_slist *list = NULL;
    *is_complete = true;
    if (with_token && token != NULL) {
        if (snprintf(line, sizeof line, "Authorization: Bearer %s", token) < (int)sizeof line)
            list = http->curl->curl_slist_append(NULL, line);
        *is_complete = list != NULL;
        explicit_bzero(line, sizeof line);
    }
    return list;
}

/* Returns false if libcurl does not know an option, which it then would not follow. */
static bool set_options(weir_http *http, const char *url, struct curl_slist *headers)
{
    CURLcode code = CURLE_OK;
#define SET(option, value)                                                                         \
    if (code == CURLE_OK) code = http->curl->curl_easy_setopt(http->easy, option, value)
    http->curl->curl_easy_reset(http->easy);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_USERAGENT, http->agent);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
    SET(CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, http);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, http);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, http);
    if (http->request->from > 0) {
        char range[32]; /* libcurl copies it */
        (void)snprintf(range, sizeof range, "%lld-", (long long)http->request->from);
        SET(CURLOPT_RANGE, range);
    }
#undef SET
    /* Only for speed: refused after a host name was not found, which leaves the buffer in use. */
    (void)http->curl->curl_easy_setopt(http->easy, CURLOPT_BUFFERSIZE, 256L << 10);
    return code == CURLE_OK;
}

static void name_host(weir_http_head *head, const char *url)
{
    const char *const host = strstr(url, "://") != NULL ? strstr(url, "://") + 3 : url;
    (void)weir_printable(head->host, sizeof head->host, host, strcspn(host, "/?#"));
}

static weir_http_end judge(weir_http *http, CURLcode code, weir_error *problem)
{
    weir_http_end end = WEIR_HTTP_REFUSED;
    if (http->is_stopped) return WEIR_HTTP_STOPPED;
    /* A body that is not wanted was cut. */
    if (code == CURLE_OK || http->dropped > DROPPED_BYTES) return WEIR_HTTP_DONE;
    const char *what = "TLS failed";
    switch ((int)code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: what = "is there a network?", end = WEIR_HTTP_CUT; break;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: what = "the connection failed", end = WEIR_HTTP_CUT; break;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR: break;
    case CURLE_SSL_CACERT_BADFILE:
        what = "TLS failed; is the package ca-certificates installed?";
        break;
    default: what = "the request failed"; break;
    }
    (void)!weir_error_set(
        problem, WEIR_EIO, "%s: %s (%s)", http->head->host, what,
        http->curl->curl_easy_strerror(code)
    );
    return end;
}

static weir_http_end get_once(
    weir_http *http, const char *url, bool with_token, weir_error *problem
)
{
    bool is_complete;
    struct curl_slist *const headers = headers_of(http, with_token, &is_complete);
    name_host(http->head, url);
    http->dropped = 0;
    weir_http_end end = WEIR_HTTP_REFUSED;
    if (is_complete && set_options(http, url, headers))
        end = judge(http, http->curl->curl_easy_perform(http->easy), problem);
    else
        (void)!weir_error_set(
            problem, WEIR_EUNSUPPORTED, "this libcurl is older than 7.85, or out of memory"
        );
    http->curl->curl_slist_free_all(headers);
    return end;
}

/* ---- redirects ------------------------------------------------------------------------------- */

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Copies the address of the next request. False: there is none, or it must not be followed. */
static bool next_url(
    char next[URL_BYTES], const weir_http *http, const char *url, weir_error *problem
)
{
    char *to = NULL;
    const char *refused = NULL;
    (void)http->curl->curl_easy_getinfo(http->easy, CURLINFO_REDIRECT_URL, &to);
    if (to == NULL)
        refused = "a redirect without an address";
    else if (strlen(to) >= URL_BYTES)
        refused = "a redirect to an address that is too long";
    else if (strncasecmp(to, "https://", 8) != 0 &&
             (strncasecmp(to, "http://", 7) != 0 || strncasecmp(url, "https://", 8) == 0))
        refused = "a redirect to an address without TLS";
    if (refused != NULL) {
        (void)!weir_error_set(
            problem, WEIR_EFORMAT, "%s: sent %s, which is not followed", http->head->host, refused
        );
        return false;
    }
    memcpy(next, to, strlen(to) + 1);
    return true;
}

weir_http_end weir_http_get(
    weir_http *http, const weir_http_request *request, weir_http_head *head, weir_error *problem
)
{
    char url[URL_BYTES], next[URL_BYTES];
    *head = (weir_http_head){ .length = -1 };
    http->request = request;
    http->head = head;
    http->has_begun = http->is_stopped = false;
    if (snprintf(url, sizeof url, "%s", request->url) >= (int)sizeof url) {
        (void)!weir_error_set(problem, WEIR_EINVAL, "the address is too long");
        return WEIR_HTTP_REFUSED;
    }
    for (int hop = 0; hop <= REDIRECTS; hop++) {
        const bool with_token = weir_http_same_origin(url, request->url);
        const weir_http_end end = get_once(http, url, with_token, problem);
        if (end != WEIR_HTTP_DONE || !is_redirect(head->status)) return end;
        if (!next_url(next, http, url, problem)) return WEIR_HTTP_REFUSED;
        memcpy(url, next, sizeof url);
    }
    (void)!weir_error_set(
        problem, WEIR_EFORMAT, "%s: more than %d redirects", head->host, (int)REDIRECTS
    );
    return WEIR_HTTP_REFUSED;
}
