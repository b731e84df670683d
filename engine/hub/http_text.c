/* engine/hub/http_text.c - headers of replies, and what of URLs must be known before they are
 * used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/checked.h"
#include "engine/formats/printable.h"
#include "engine/hub/http.h"

/* Reads a non-negative number that is the whole text; -1: it is none. */
static int64_t number_of(const char *text, size_t n)
{
    int64_t number = 0;
    if (n == 0) return -1;
    for (size_t i = 0; i < n; i++)
        if (text[i] < '0' || text[i] > '9' || !weir_mul_i64(&number, number, 10) ||
            !weir_add_i64(&number, number, text[i] - '0'))
            return -1;
    return number;
}

/* Begins a new head; what was learned on the way is kept. */
static void begin_head(weir_http_head *head, const char *line, size_t n)
{
    const char *const space = memchr(line, ' ', n);
    weir_http_head next = { .length = -1 };
    memcpy(next.commit, head->commit, sizeof next.commit);
    memcpy(next.host, head->host, sizeof next.host);
    if (space != NULL && (size_t)(line + n - space) >= 4)
        next.status = (int)number_of(space + 1, 3);
    if (next.status < 100) next.status = 0;
    *head = next;
}

void weir_http_read_header(weir_http_head *head, const char *line, size_t n)
{
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\n')) n--;
    if (n >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        begin_head(head, line, n);
        return;
    }
    const char *const colon = memchr(line, ':', n);
    if (colon == NULL) return;
    const size_t name = (size_t)(colon - line);
    const char *value = colon + 1;
    while (value < line + n && (*value == ' ' || *value == '\t')) value++;
    const size_t size = (size_t)(line + n - value);
#define IS(text) (name == sizeof(text) - 1 && strncasecmp(line, text, name) == 0)
    if (IS("content-length")) head->length = number_of(value, size);
    if (IS("content-range")) (void)weir_printable(head->range, sizeof head->range, value, size);
    /* A link that is too long is cut and then has no closing bracket: no next page. */
    if (IS("link")) (void)weir_printable(head->link, sizeof head->link, value, size);
    if (IS("x-error-code")) (void)weir_printable(head->code, sizeof head->code, value, size);
    if (IS("x-error-message"))
        (void)weir_printable(head->message, sizeof head->message, value, size);
    if (IS("retry-after")) {
        const int64_t seconds = number_of(value, size);
        head->retry_after_s = seconds > 0 ? seconds : 0;
    }
    if (IS("x-repo-commit") && size == WEIR_HUB_COMMIT) {
        char commit[WEIR_HUB_COMMIT + 1];
        memcpy(commit, value, size);
        commit[size] = '\0';
        if (weir_hub_is_commit(commit)) memcpy(head->commit, commit, sizeof commit);
    }
#undef IS
}

/* ---- URLs ------------------------------------------------------------------------------------ */

/* Length of "https://host:port". 0: another scheme, or no host. */
static size_t origin_length(const char *url)
{
    const size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                          : strncasecmp(url, "https://", 8) == 0 ? 8
                                                                 : 0;
    const size_t host = scheme > 0 ? strcspn(url + scheme, "/?#") : 0;
    return host > 0 ? scheme + host : 0;
}

bool weir_http_endpoint_is_good(const char *endpoint)
{
    const size_t n = strlen(endpoint);
    if (n > 1000 || origin_length(endpoint) == 0) return false;
    for (size_t i = 0; i < n; i++)
        if (endpoint[i] <= ' ' || endpoint[i] > '~' || strchr("@?#\\\"<>", endpoint[i]) != NULL)
            return false;
    return true;
}

/* Length of an origin without the port that its scheme has anyway. */
static size_t plain_length(const char *url)
{
    const size_t n = origin_length(url);
    const char *const port = strncasecmp(url, "https:", 6) == 0 ? ":443" : ":80";
    const size_t m = strlen(port);
    return n > m && strncmp(url + n - m, port, m) == 0 ? n - m : n;
}

bool weir_http_same_origin(const char *a, const char *b)
{
    const size_t n = plain_length(a);
    return n > 0 && n == plain_length(b) && strncasecmp(a, b, n) == 0;
}
