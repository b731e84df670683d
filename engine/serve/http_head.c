/* engine/serve/http_head.c - parses line by line, each complete line once. */
#include "engine/serve/http_head.h"

#include <string.h>
#include <strings.h>

enum { LENGTH_DIGITS = 18 };

static bool refuse(weir_http_problem *problem, int status, const char *text)
{
    *problem = (weir_http_problem){ .status = status, .text = text };
    return false;
}

static bool is_token_byte(unsigned char c)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || (c != 0 && strchr(others, c) != NULL);
}

/* True for bytes allowed in a head. */
static bool is_head_byte(unsigned char c) { return (c >= 0x20 && c != 0x7f) || c == '\t'; }

/* ---- the request line ------------------------------------------------------------------------ */

static bool read_version(
    weir_http_head *head, const char *text, size_t n, weir_http_problem *problem
)
{
    if (n == 8 && memcmp(text, "HTTP/1.", 7) == 0 && (text[7] == '0' || text[7] == '1')) {
        head->minor = text[7] - '0';
        head->keep_alive = head->minor == 1;
        return true;
    }
    const bool other = n == 8 && memcmp(text, "HTTP/", 5) == 0 && text[6] == '.';
    if (other) return refuse(problem, 505, "unknown protocol version; speak HTTP/1.1");
    return refuse(problem, 400, "the request line does not end with a protocol version");
}

/* Reads method SP target SP version, with single spaces, from bytes[begin..end). */
static bool read_request_line(
    weir_http_head *head, char *bytes, size_t begin, size_t end, weir_http_problem *problem
)
{
    size_t at = begin;
    while (at < end && is_token_byte((unsigned char)bytes[at])) at++;
    if (at == begin || at == end || bytes[at] != ' ')
        return refuse(problem, 400, "the request line is malformed");
    head->method = begin;
    bytes[at++] = 0;
    head->target = at;
    while (at < end && bytes[at] > 0x20 && bytes[at] < 0x7f) at++;
    if (at - head->target > WEIR_HTTP_TARGET_BYTES)
        return refuse(problem, 414, "the request target is longer than 8192 bytes");
    if (at == head->target || at == end || bytes[at] != ' ')
        return refuse(problem, 400, "the request line is malformed");
    bytes[at++] = 0;
    if (!read_version(head, bytes + at, end - at, problem)) return false;
    if (bytes[head->target] == '/') return true;
    return refuse(problem, 400, "the request target must be a path that begins with '/'");
}

/* ---- fields ---------------------------------------------------------------------------------- */

static int field_of(const char *name, size_t n)
{
    static const char *const names[WEIR_HTTP_FIELD_COUNT] = {
#define X(name, text) text,
        WEIR_HTTP_FIELD_MAP(X)
#undef X
    };
    for (int i = 0; i < WEIR_HTTP_FIELD_COUNT; i++)
        if (strlen(names[i]) == n && strncasecmp(names[i], name, n) == 0) return i;
    return -1;
}

/* A comma-separated list of tokens, of which close and keep-alive are used. */
static void read_connection(weir_http_head *head, const char *value)
{
    while (*value != 0) {
        value += strspn(value, " \t,");
        const size_t n = strcspn(value, " \t,");
        if (n == 5 && strncasecmp(value, "close", n) == 0) head->keep_alive = false;
        value += n;
    }
}

static bool read_length(weir_http_head *head, const char *value, weir_http_problem *problem)
{
    const size_t digits = strspn(value, "0123456789");
    if (digits == 0 || value[digits] != 0)
        return refuse(problem, 400, "Content-Length is not a number");
    if (digits > LENGTH_DIGITS) return refuse(problem, 413, "the body is too large");
    head->length = 0;
    for (const char *c = value; *c != 0; c++) head->length = head->length * 10 + (*c - '0');
    return true;
}

static bool read_field(
    weir_http_head *head, char *bytes, size_t begin, size_t end, weir_http_problem *problem
)
{
    size_t colon = begin;
    while (colon < end && is_token_byte((unsigned char)bytes[colon])) colon++;
    if (colon == begin || colon == end || bytes[colon] != ':')
        return refuse(problem, 400, "a header field is malformed");
    if (++head->n_fields > WEIR_HTTP_MAX_FIELDS)
        return refuse(problem, 431, "the header has more than 100 fields");
    size_t value = colon + 1;
    while (value < end && (bytes[value] == ' ' || bytes[value] == '\t')) value++;
    while (end > value && (bytes[end - 1] == ' ' || bytes[end - 1] == '\t')) end--;
    bytes[end] = 0; /* white space or the CR */
    if (colon - begin == 10 && strncasecmp(bytes + begin, "connection", 10) == 0)
        read_connection(head, bytes + value);
    const int field = field_of(bytes + begin, colon - begin);
    if (field < 0) return true;
    if (head->value[field] != 0)
        return refuse(problem, 400, "a header field that may appear only once is repeated");
    head->value[field] = value;
    return field != WEIR_HTTP_CONTENT_LENGTH || read_length(head, bytes + value, problem);
}

/* Checks that need the whole head. */
static bool check_framing(weir_http_head *head, const char *bytes, weir_http_problem *problem)
{
    const char *const coding = weir_http_value(head, bytes, WEIR_HTTP_TRANSFER_ENCODING);
    const char *const host = weir_http_value(head, bytes, WEIR_HTTP_HOST);
    if (coding != NULL && head->length >= 0)
        return refuse(problem, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (coding != NULL && (head->minor == 0 || strcasecmp(coding, "chunked") != 0))
        return refuse(problem, 400, "the only transfer coding is chunked, with HTTP/1.1");
    head->chunked = coding != NULL;
    if (host == NULL && head->minor == 1) return refuse(problem, 400, "the Host field is missing");
    if (host != NULL && host[0] == 0) return refuse(problem, 400, "the Host field is empty");
    return true;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads the line bytes[head->line..end), without its CRLF. *last: the line is empty. */
static bool read_line(
    weir_http_head *head, char *bytes, size_t end, bool *last, weir_http_problem *problem
)
{
    const size_t begin = head->line;
    head->line = end + 2;
    if (end == 0) return true; /* one empty line before a request is skipped (RFC 9112, 2.2) */
    if (head->fields == 0) {
        head->length = -1;
        head->fields = end + 2;
        return read_request_line(head, bytes, begin, end, problem);
    }
    *last = begin == end;
    if (!*last) return read_field(head, bytes, begin, end, problem);
    return check_framing(head, bytes, problem);
}

/* An incomplete line may already be too long. */
static bool check_size(const weir_http_head *head, weir_http_problem *problem)
{
    enum { LINE_BYTES = WEIR_HTTP_TARGET_BYTES + 64 };
    if (head->fields == 0 && head->scanned > LINE_BYTES)
        return refuse(problem, 414, "the request line is longer than 8192 bytes");
    if (head->fields == 0 || head->scanned - head->fields <= head->limit) return true;
    return refuse(problem, 431, "the header is longer than server.header_limit");
}

weir_http_progress weir_http_head_read(
    weir_http_head *head, char *bytes, size_t n, weir_http_problem *problem
)
{
    bool last = false, good = true;
    while (good && !last && head->scanned < n) {
        const unsigned char c = (unsigned char)bytes[head->scanned];
        if (c == '\r') {
            if (head->scanned + 1 == n) break; /* its LF has not arrived */
            if (bytes[head->scanned + 1] != '\n')
                good = refuse(problem, 400, "a line of the header ends with CR alone");
            const size_t end = head->scanned;
            head->scanned += 2;
            if (good) good = read_line(head, bytes, end, &last, problem);
        } else if (is_head_byte(c)) {
            head->scanned++;
        } else {
            good = refuse(
                problem, 400,
                c == '\n' ? "a line of the header ends without CR"
                          : "the header holds a control character"
            );
        }
        if (good) good = check_size(head, problem);
    }
    if (!good) return WEIR_HTTP_BAD;
    return last ? WEIR_HTTP_DONE : WEIR_HTTP_MORE;
}
