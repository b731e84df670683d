#include "tools/load/http_reply.h"

#include <string.h>
#include <strings.h>

enum { LENGTH_DIGITS = 18 };

static bool refuse(const char **why, const char *text)
{
    *why = text;
    return false;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* "HTTP/1.1 200 OK"; the reason may be missing. */
static bool read_status_line(weir_http_reply *r, const char **why)
{
    const char *const l = r->line;
    if (strncmp(l, "HTTP/1.", 7) != 0 || !is_digit(l[7]) || l[8] != ' ')
        return refuse(why, "the reply does not begin with HTTP/1.1");
    if (!is_digit(l[9]) || !is_digit(l[10]) || !is_digit(l[11]) || (l[12] != ' ' && l[12] != '\0'))
        return refuse(why, "the status line has no status");
    r->status = (l[9] - '0') * 100 + (l[10] - '0') * 10 + (l[11] - '0');
    if (r->status < 100) return refuse(why, "the status is below 100");
    r->keep_alive = l[7] != '0';
    r->length = -1;
    r->is_event_stream = r->is_chunked = false;
    return true;
}

static bool read_length(weir_http_reply *r, const char *value, const char **why)
{
    const size_t digits = strspn(value, "0123456789");
    if (digits == 0 || digits > LENGTH_DIGITS || value[digits] != '\0')
        return refuse(why, "Content-Length is not a number");
    int64_t length = 0;
    for (size_t i = 0; i < digits; i++) length = length * 10 + (value[i] - '0');
    if (r->length >= 0 && r->length != length)
        return refuse(why, "there are two values of Content-Length");
    r->length = length;
    return true;
}

static bool read_field(weir_http_reply *r, const char **why)
{
    char *const colon = strchr(r->line, ':');
    if (colon == NULL || colon == r->line) return refuse(why, "a header field is malformed");
    *colon = '\0';
    char *const value = colon + 1 + strspn(colon + 1, " \t");
    for (size_t n = strlen(value); n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'); n--)
        value[n - 1] = '\0';
    if (strcasecmp(r->line, "content-length") == 0) return read_length(r, value, why);
    if (strcasecmp(r->line, "transfer-encoding") == 0) {
        r->is_chunked = strcasecmp(value, "chunked") == 0;
        return r->is_chunked || refuse(why, "the transfer coding is not chunked");
    }
    if (strcasecmp(r->line, "content-encoding") == 0 && strcasecmp(value, "identity") != 0)
        return refuse(why, "the body is compressed, which was not asked for");
    if (strcasecmp(r->line, "connection") == 0) {
        if (strcasecmp(value, "close") == 0) r->keep_alive = false;
    } else if (strcasecmp(r->line, "content-type") == 0) {
        r->is_event_stream = strncasecmp(value, "text/event-stream", 17) == 0;
    }
    return true;
}

/* The head is complete: what follows? */
static void begin_body(weir_http_reply *r)
{
    if (r->status < 200) { /* an interim reply: the real one follows */
        r->status = 0;
    } else if (r->status == 204 || r->status == 304) {
        r->state = WEIR_REPLY_OVER;
    } else if (r->is_chunked) {
        r->state = WEIR_REPLY_CHUNKED;
    } else if (r->length >= 0) {
        r->left = (uint64_t)r->length;
        r->state = r->length > 0 ? WEIR_REPLY_SIZED : WEIR_REPLY_OVER;
    } else {
        r->keep_alive = false;
        r->state = WEIR_REPLY_TO_END;
    }
}

static bool read_line(weir_http_reply *r, const char **why)
{
    if (r->n_line > 0 && r->line[r->n_line - 1] == '\r') r->n_line--;
    r->line[r->n_line] = '\0';
    const bool has_nul = strlen(r->line) != r->n_line, is_empty = r->n_line == 0;
    r->n_line = 0;
    if (has_nul) return refuse(why, "the header holds a NUL");
    if (r->status == 0) return read_status_line(r, why);
    if (!is_empty) return read_field(r, why);
    begin_body(r);
    return true;
}

static bool read_head(
    weir_http_reply *r, const char *bytes, size_t n, size_t *used, const char **why
)
{
    while (*used < n && r->state == WEIR_REPLY_HEAD) {
        const char c = bytes[(*used)++];
        if (++r->n_head > WEIR_REPLY_HEAD_BYTES)
            return refuse(why, "the header is longer than 64 KiB");
        if (c == '\n') {
            if (!read_line(r, why)) return false;
        } else {
            if (r->n_line + 1 >= sizeof r->line)
                return refuse(why, "a line of the header is longer than 8 KiB");
            r->line[r->n_line++] = c;
        }
    }
    return true;
}

static weir_http_progress read_chunk(
    weir_http_reply *r, const char *bytes, size_t n, size_t *used, size_t *n_data, const char **why
)
{
    weir_http_problem problem = { 0 };
    size_t more = 0;
    const weir_http_progress progress =
        weir_http_chunks_read(&r->chunks, bytes + *used, n - *used, &more, n_data, &problem);
    if (progress == WEIR_HTTP_BAD) {
        *n_data = 0;
        *why = problem.text;
        return progress;
    }
    *used += more;
    if (progress == WEIR_HTTP_DONE) r->state = WEIR_REPLY_OVER;
    return progress;
}

weir_http_progress weir_http_reply_read(
    weir_http_reply *r, const char *bytes, size_t n, size_t *used, size_t *n_data, const char **why
)
{
    *used = *n_data = 0;
    if (r->state == WEIR_REPLY_HEAD && !read_head(r, bytes, n, used, why)) return WEIR_HTTP_BAD;
    const size_t rest = n - *used;
    switch (r->state) {
    case WEIR_REPLY_HEAD: break;
    case WEIR_REPLY_SIZED:
        *n_data = r->left < rest ? (size_t)r->left : rest;
        r->left -= *n_data;
        if (r->left == 0) r->state = WEIR_REPLY_OVER;
        break;
    case WEIR_REPLY_CHUNKED:
        if (rest > 0) return read_chunk(r, bytes, n, used, n_data, why);
        break;
    case WEIR_REPLY_TO_END: *n_data = rest; break;
    case WEIR_REPLY_OVER: break;
    }
    *used += *n_data;
    return r->state == WEIR_REPLY_OVER ? WEIR_HTTP_DONE : WEIR_HTTP_MORE;
}

bool weir_http_reply_end(weir_http_reply *r)
{
    if (r->state == WEIR_REPLY_TO_END) r->state = WEIR_REPLY_OVER;
    return r->state == WEIR_REPLY_OVER;
}
